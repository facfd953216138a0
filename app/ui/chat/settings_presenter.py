"""Between the open chat, the presets and the tab that shows its settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from PySide6.QtCore import QObject, QStandardPaths, Slot
from PySide6.QtWidgets import QFileDialog, QInputDialog, QLineEdit
from shiboken6 import isValid

from app.chats.preset_files import PresetFile
from app.chats.presets import MAX_NAME_LENGTH, Presets
from app.chats.settings import ChatSettings, SamplingChoice
from app.helper.answer_format import checked_grammar, left_to_model
from app.models.hub.recommended import SOURCE_TEXTS, recommended
from app.protocol.options import AnswerFormat
from app.ui import notices
from app.ui.chat.model import ChatModel
from app.ui.chat.settings_tab import ChatSettingsTab
from app.ui.context import AppContext
from app.ui.engine import drafters
from app.ui.engine.pair_names import thinking_levels
from app.ui.widgets.questions import ask, ask_where_to_save
from app.ui.widgets.tasks import Lane

SERVER_DRAFTS = "The server drafts by its own settings, which can't be changed from here."
T = TypeVar("T")


class ChatSettingsPresenter(QObject):
    """One for a window. The presets are written in a lane; what the disk refuses is told as a notice."""

    def __init__(self, ctx: AppContext, tab: ChatSettingsTab) -> None:
        super().__init__(tab)
        self._tab = tab
        self._stored = ctx.presets
        self._presets = ctx.presets.presets
        self._pair_loader = ctx.loader
        self._notice_list = ctx.notices
        self._model = ctx.chats.current
        self._replaced: tuple[ChatSettings, ChatSettings] | None = None
        """What a preset took the place of without being kept anywhere, and the settings it made."""
        tab.changed.connect(self._on_changed)
        tab.preset_chosen.connect(self._on_preset_chosen)
        tab.recommended_button.clicked.connect(self._on_recommended)
        tab.save_button.clicked.connect(self._on_save_as)
        tab.preset_menu.aboutToShow.connect(self._fill_menu)
        tab.save_changes.clicked.connect(self._on_save)
        tab.undo.clicked.connect(self._on_undo)
        ctx.loader.pair_changed.connect(self._refresh)
        ctx.presets.changed.connect(self._refresh)
        self._lane = Lane(self, "answer format")
        self._checked: AnswerFormat | None = None
        """What was last given to be checked."""
        ctx.closing.callback(self._close)
        ctx.chats.follow(
            self._show, settings_changed=self._refresh, state_changed=self._on_state_changed, asking=tab.commit
        )

    def _show(self, model: ChatModel) -> None:
        if model is not self._model:
            self._tab.commit()
        self._model = model
        self._replaced = None
        self._refresh(is_other_chat=True)

    def _close(self) -> None:
        self._tab.commit()
        self._lane.close()

    # ------------------------------------------------------------ the settings

    @Slot()
    def _on_state_changed(self) -> None:
        self._tab.setEnabled(self._model.knows_settings)

    @Slot()
    def _refresh(self, *_args: object, is_other_chat: bool = False) -> None:
        settings, pair = self._model.settings, self._pair_loader.pair()
        found = recommended(pair, settings.thinking)
        self._tab.setEnabled(self._model.knows_settings)
        self._tab.show_settings(
            settings,
            found.sampling,
            {key: SOURCE_TEXTS[source] for key, source in found.sources.items()},
            drafters.offered(drafters.usable(settings.drafter, pair), pair),
            thinking_levels(pair, recommended(pair).thinking),
            is_other_chat=is_other_chat,
        )
        remote = pair.remote if pair is not None else None
        if remote is None:
            self._tab.show_refused({}, None)
        else:
            self._tab.show_refused({"drafter": SERVER_DRAFTS, **remote.refused}, remote.formats)
        self._refresh_presets(settings)
        self._check_format(settings)

    def _check_format(self, settings: ChatSettings) -> None:
        """Say what is wrong with a schema or a grammar as soon as it is typed; an empty one isn't finished."""
        wanted = settings.format()
        if wanted == self._checked:
            return
        self._checked = wanted
        if wanted is None or not wanted.source.strip():
            self._tab.show_format_problem("")
            return
        self._lane.submit(
            lambda: checked_grammar(wanted),
            lambda found: self._show_format_problem(wanted, left_to_model(found.notes)),
            lambda error: self._show_format_problem(wanted, str(error)),
        )

    def _show_format_problem(self, checked: AnswerFormat, problem: str) -> None:
        if checked == self._checked:
            self._tab.show_format_problem(problem)

    def _refresh_presets(self, settings: ChatSettings) -> None:
        preset = self._presets.get(settings.preset) if settings.preset else None
        self._tab.show_presets(self._presets.names(), preset.preset if preset else "")
        if self._replaced is not None and settings != self._replaced[1]:
            self._replaced = None
        is_changed = preset is not None and self._presets.is_changed(settings)
        if self._replaced is not None:
            self._tab.show_preset_state("Your settings were replaced", can_save=False, can_undo=True)
        else:
            self._tab.show_preset_state(
                "Changed in this chat" if is_changed else "", can_save=is_changed, can_undo=is_changed
            )

    @Slot(object)
    def _on_changed(self, settings: ChatSettings) -> None:
        self._model.set_settings(settings)

    @Slot()
    def _on_recommended(self) -> None:
        self._tab.commit()
        self._model.set_settings(msgspec.structs.replace(self._model.settings, sampling=SamplingChoice()))

    @Slot(str)
    def _on_preset_chosen(self, name: str) -> None:
        self._use(self._model, name)

    def _use(self, model: ChatModel, name: str) -> None:
        """Put the values of a preset into a chat; what no preset has can be brought back."""
        if model is self._model:
            self._tab.commit()
        before, chosen = model.settings, self._presets.get(name) or ChatSettings()
        is_kept = before == (self._presets.get(before.preset) or ChatSettings())
        if model is self._model:
            self._replaced = None if is_kept or chosen == before else (before, chosen)
        model.set_settings(chosen)
        self._refresh()

    @Slot()
    def _on_undo(self) -> None:
        """Back to what was there before a preset was chosen, or to what the preset says."""
        self._tab.commit()
        if self._replaced is not None:
            before, self._replaced = self._replaced[0], None
        else:
            before = self._presets.get(self._model.settings.preset) or self._model.settings
        self._model.set_settings(before)
        self._tab.preset.setFocus()

    # ------------------------------------------------------------ the presets

    def _fill_menu(self) -> None:
        menu = self._tab.preset_menu
        menu.clear()
        name = self._model.settings.preset
        is_there = self._presets.get(name) is not None
        target = self._target()
        menu.addAction("Save changes", self._on_save).setEnabled(is_there)
        menu.addAction("Save as preset…", self._on_save_as)
        menu.addAction("Rename…", self._on_rename).setEnabled(is_there)
        menu.addAction("Duplicate", lambda: self._do(lambda presets: presets.duplicate(name))).setEnabled(is_there)
        menu.addAction("Delete…", self._on_delete).setEnabled(is_there)
        menu.addSeparator()
        for_all = menu.addAction("Use for new chats")
        for_all.setCheckable(True)
        for_all.setChecked(is_there and self._presets.default_name() == name)
        for_all.setEnabled(is_there)
        for_all.triggered.connect(lambda checked: self._set_default(name if checked else "", ""))
        for_model = menu.addAction("Use for new chats with this model")
        for_model.setCheckable(True)
        for_model.setChecked(is_there and self._presets.own_default_name(target) == name)
        for_model.setEnabled(is_there and bool(target))
        for_model.triggered.connect(lambda checked: self._set_default(name if checked else "", target))
        menu.addSeparator()
        menu.addAction("Import…", self._on_import)
        menu.addAction("Export…", lambda: self._on_export(name)).setEnabled(is_there)

    def _target(self) -> str:
        files = self._pair_loader.files()
        return files.preset_target() if files else ""

    def _do(self, change: Callable[[Presets], T], done: Callable[[T], object] | None = None) -> None:
        self._stored.change(change, done)

    def _set_default(self, name: str, target: str) -> None:
        self._do(lambda presets: presets.set_default(name, target))

    @Slot()
    def _on_save(self) -> None:
        self._tab.commit()
        self._tab.preset.setFocus()
        settings = self._model.settings
        self._do(lambda presets: presets.save(settings.preset, settings, replace=True))

    @Slot()
    def _on_save_as(self) -> None:
        self._tab.commit()
        model, settings = self._model, self._model.settings

        def save(name: str) -> None:
            self._do(
                lambda presets: presets.save(name, settings),
                lambda kept: self._call(model, settings.preset, kept),
            )

        self._ask_for_name("Save as preset", self._presets.free_name(settings.preset or "My preset"), "Save", save)

    def _on_rename(self) -> None:
        model, before = self._model, self._model.settings.preset
        self._ask_for_name(
            "Rename preset",
            before,
            "Rename",
            lambda name: self._do(
                lambda presets: presets.rename(before, name),
                lambda kept: self._call(model, before, kept),
            ),
        )

    def _call(self, model: ChatModel, before: str, name: str) -> None:
        """The preset of a chat has another name now, unless another was chosen or the chat was closed meanwhile."""
        if isValid(model) and model.settings.preset == before:
            model.set_settings(msgspec.structs.replace(model.settings, preset=name))

    def _on_delete(self) -> None:
        name = self._model.settings.preset
        ask(
            self._tab.window(),
            "Delete preset",
            f"Delete the preset “{name}”?",
            details="Chats that use it won't change.",
            lossy={"Delete": lambda: self._do(lambda presets: presets.delete(name))},
        )

    def _on_import(self) -> None:
        model = self._model
        dialog = QFileDialog(self._tab.window(), "Import preset")
        dialog.setNameFilter("Presets (*.json)")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(lambda name: self._import(Path(name), model))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _import(self, path: Path, model: ChatModel) -> None:
        def done(read: PresetFile) -> None:
            text = f"The preset “{read.name}” was imported. {read.remark()}".strip()
            self._notice_list.show("presets", notices.told(text))
            if isValid(model):
                self._use(model, read.name)

        self._do(lambda presets: presets.import_file(path), done)

    def _on_export(self, name: str) -> None:
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        safe = "".join(one if one.isalnum() or one in " -_" else "_" for one in name).strip() or "preset"
        proposal = Path(folder) / f"{safe}.json"
        ask_where_to_save(
            self._tab.window(),
            "Export preset",
            proposal,
            "Presets",
            lambda path: self._do(lambda presets: presets.export_file(name, path)),
        )

    def _ask_for_name(self, title: str, proposal: str, verb: str, chosen: Callable[[str], object]) -> None:
        dialog = QInputDialog(self._tab.window())
        dialog.setWindowTitle(title)
        dialog.setLabelText("Name of the preset:")
        dialog.setOkButtonText(verb)
        dialog.setTextValue(proposal)
        if (field := dialog.findChild(QLineEdit)) is not None:
            field.setMaxLength(MAX_NAME_LENGTH)
            field.setAccessibleName("Name of the preset")
        dialog.textValueSelected.connect(chosen)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
