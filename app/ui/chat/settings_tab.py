"""The side panel's second tab: how the answers of the chat that is shown are written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from PySide6.QtCore import QStandardPaths, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFileDialog, QFrame, QInputDialog, QLineEdit, QMenu, QPushButton, QToolButton, QWidget
from shiboken6 import isValid

from app import words
from app.chats.presets import MAX_NAME_LENGTH, PresetFile, Presets
from app.chats.settings import ChatSettings, without_folders
from app.helper.answer_format import checked_grammar, left_to_model
from app.models.hub.recommended import SOURCE_TEXTS, recommended
from app.protocol.answering import WORDS, SamplingChoice
from app.protocol.options import AnswerFormat, DrafterChoice, Sampling
from app.ui import notices
from app.ui.chat.settings_fields import Parameter, TextField, describe, field_for, small_link
from app.ui.engine import pair_names
from app.ui.engine.pair_names import thinking_levels
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import Choice, Section, column, explain, label, row, scrolling
from app.ui.widgets.forms import Digits
from app.ui.widgets.questions import ask, ask_where_to_save
from app.ui.widgets.tasks import Lane
from app.ui.widgets.theme import SPACING

if TYPE_CHECKING:
    from app.ui.chat.model import ChatModel
    from app.ui.context import AppContext

SERVER_DRAFTS = "The server drafts by its own settings, which can't be changed from here."
CHANGE_DELAY_MS = 300
"""After the last key, before a text that was typed counts."""
NO_PRESET = "None"
_TOP = ("system_prompt", "answer_format", "format_source")
"""What is always in sight. What is about thinking is shown for models that think, all else under More."""
_ELSEWHERE = ("preset", "sampling", "tools", "folders")
"""Settings that don't get a field from their type."""
_EXAMPLES: dict[str, str] = {
    "json_schema": '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}',
    "regex": "(yes|no), because .{10,200}",
    "lark": 'start: "- " /[^\\n]+/',
    "gbnf": 'root ::= "yes" | "no"',
}
"""What is shown in an empty field."""
WHEN = "Changes take effect with the next answer."
GRAYED = "What is grayed out isn't available with this server; point at it to see why."
NO_SUCH_FORMAT = "The server can't make answers follow this format."
_FLAGS_ROLE = Qt.ItemDataRole.UserRole - 1
"""With which `QComboBox` keeps whether a line can be chosen."""
_SIDE = 4 * SPACING


class ChatSettingsTab(QFrame):
    """Shows and changes the settings of one chat. What a preset's file can't be given is told as a notice.

    Attributes:
        preset, preset_menu: The presets, and what can be done with them.
        by_key: The fields of the other settings (`field_for`), and
        parameters: those of the sampler, by their names.
        save_changes, undo: Below the preset, where it was changed.
        recommended_button, save_button: At the foot.

    Signals:
        sections_changed: The names of the sections that are open now.
    """

    sections_changed = Signal(list)
    _ctx: AppContext
    _presets: Presets
    _model: ChatModel
    _lane: Lane
    _replaced: tuple[ChatSettings, ChatSettings] | None = None
    """What a preset took the place of without being kept anywhere, and the settings it made."""
    _checked: AnswerFormat | None = None
    """What was last given to be checked."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Chat settings")
        theme.set_role(self, "side")
        self._settings = ChatSettings()
        self._refused: frozenset[str] = frozenset()
        """The settings that the server in use doesn't take."""
        self._typing = QTimer(self, singleShot=True, interval=CHANGE_DELAY_MS)
        self._typing.timeout.connect(self.commit)
        self._make_fields()
        self._build()
        self._connect()

    # ------------------------------------------------------------ the fields

    def _make_fields(self) -> None:
        self.preset = Choice("Preset")
        self.preset_button = QToolButton(autoRaise=True, popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        icons.set_icon(self.preset_button, "more")
        self.preset_button.setAccessibleName("Manage presets")
        self.preset_button.setToolTip("Manage presets")
        self.preset_button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.preset_menu = QMenu(self.preset_button)
        self.preset_button.setMenu(self.preset_menu)
        self._preset_state = label("", "quiet", scale=0.9)
        self.save_changes, self.undo = small_link("Save"), small_link("Undo")
        keys = (key for key in ChatSettings.__struct_fields__ if key not in _ELSEWHERE)
        self.by_key: dict[str, Any] = {key: field_for(key) for key in keys}
        self.tools_button = QPushButton(autoDefault=False)
        self.parameters = {key: Parameter(key) for key in SamplingChoice.__struct_fields__}
        self.format_problem = label("", "warning", wraps=True, scale=0.9)
        self.format_problem.hide()
        self.recommended_button = QPushButton("Use recommended values", autoDefault=False)
        describe(self.recommended_button, "Reset this chat's sampling. Other settings stay as they are.")
        self.save_button = QPushButton("Save as preset…", autoDefault=False)
        describe(self.save_button, "Save all of these settings under a name so you can use them in other chats.")

    def _connect(self) -> None:
        for field in self.by_key.values():
            if isinstance(field, TextField):
                field.textChanged.connect(self._typing.start)
            elif isinstance(field, Digits):
                field.editingFinished.connect(self.commit)
            else:
                field.activated.connect(self.commit)
        for parameter in self.parameters.values():
            parameter.changed.connect(self.commit)
        for section in self._sections().values():
            section.button.toggled.connect(self._on_section_toggled)

    def _build(self) -> None:
        self._build_sections()
        self._foot = label(WHEN, "quiet", wraps=True, scale=0.9)
        self._preset_row = QWidget()
        row((self._preset_state, 1), self.save_changes, self.undo, gap=SPACING, on=self._preset_row)
        page = QWidget()
        column(
            *self._field("preset", self.preset, self.preset_button),
            self._preset_row,
            2 * SPACING,
            *self._field("system_prompt", self.by_key["system_prompt"]),
            2 * SPACING,
            self._thinking_part,
            *self._field("tools", self.tools_button),
            2 * SPACING,
            *self._field("answer_format", self.by_key["answer_format"]),
            self.by_key["format_source"],
            self.format_problem,
            2 * SPACING,
            self.sampling_section,
            SPACING,
            self.more_section,
            2 * SPACING,
            self._foot,
            None,
            gap=SPACING,
            margins=(_SIDE, 3 * SPACING, _SIDE, 2 * SPACING),
            on=page,
        )
        theme.set_role(page, "side")
        self._area = scrolling(page)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        theme.set_role(self._area, "side")
        foot = column(
            self.recommended_button, self.save_button, gap=SPACING, margins=(_SIDE, SPACING, _SIDE, 3 * SPACING)
        )
        column((self._area, 1), foot, gap=0, on=self)

    def _build_sections(self) -> None:
        """The parts of the page that are opened and closed, or shown only for some models."""
        sampling, more = QWidget(), QWidget()
        column(*self.parameters.values(), gap=2 * SPACING, margins=(0, 0, 0, SPACING), on=sampling)
        self.sampling_section = Section("Sampling", sampling)
        self._about_thinking = [key for key in self.by_key if key.startswith("thinking")]
        self._others = [key for key in self.by_key if key not in (*_TOP, *self._about_thinking)]
        parts: list[QWidget | int] = []
        for key in self._others:
            is_number = isinstance(self.by_key[key], Digits)  # those stand close together
            parts += [*([] if is_number or not parts else [SPACING]), *self._field(key, self.by_key[key])]
        column(*parts, gap=SPACING, on=more)
        self.more_section = Section("More", more)
        self._thinking_part = QWidget()
        rows = [self._field(key, self.by_key[key]) for key in self._about_thinking]
        self._levels = rows[0]
        column(*itertools.chain(*rows), 2 * SPACING, gap=SPACING, on=self._thinking_part)

    def _field(self, key: str, field: QWidget, *others: QWidget) -> list[QWidget]:
        """A heading, and the field below it, or beside it if that is a number."""
        is_number = isinstance(field, Digits)
        name = label(WORDS[key].title, "heading", wraps=not is_number)  # beside it, the field is what gives way
        name.setBuddy(field)
        explain(name, WORDS[key].description)
        line = QWidget()
        if is_number:
            row((name, 1), field, gap=2 * SPACING, margins=(0, SPACING, 0, 0), on=line)
            return [line]
        row((field, 1), *others, gap=SPACING, on=line)
        return [name, line]

    def fields(self) -> list[QWidget]:
        """All that takes the keyboard, as one reads."""
        numbers = [part for one in self.parameters.values() for part in (one.field, one.reset)]
        top = ("system_prompt", *self._about_thinking, "answer_format", "format_source")
        return [
            *(self.preset, self.preset_button, self.save_changes, self.undo, *(self.by_key[key] for key in top[:-2])),
            *(self.tools_button, *(self.by_key[key] for key in top[-2:])),
            *(self.sampling_section.button, *numbers),
            *(self.more_section.button, *(self.by_key[key] for key in self._others)),
            *(self.recommended_button, self.save_button),
        ]

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        for before, after in itertools.pairwise(self.fields()):
            QWidget.setTabOrder(before, after)

    # ------------------------------------------------------------ sections

    def _sections(self) -> dict[str, Section]:
        """By the names they have in the settings."""
        return {"sampling": self.sampling_section, "more": self.more_section}

    def open_sections(self) -> list[str]:
        """The names of those that are open."""
        return [name for name, section in self._sections().items() if section.button.isChecked()]

    def set_open_sections(self, names: Collection[str]) -> None:
        """Open these, close the others."""
        for name, section in self._sections().items():
            section.button.setChecked(name in names)

    @Slot()
    def _on_section_toggled(self) -> None:
        self.sections_changed.emit(self.open_sections())

    # ------------------------------------------------------------ what is shown

    def settings(self) -> ChatSettings:
        """As they are set now; what a field cannot show stays as it is."""
        sampling = {key: parameter.value() for key, parameter in self.parameters.items()}
        return msgspec.structs.replace(
            self._settings,
            sampling=SamplingChoice(**sampling),  # type: ignore[arg-type]
            **{key: field.value() for key, field in self.by_key.items()},
        )

    def show_settings(
        self,
        settings: ChatSettings,
        advised: Sampling,
        sources: dict[str, str],
        offered: Sequence[tuple[DrafterChoice, str]],
        levels: Sequence[tuple[str, str]] = (),
        *,
        is_other_chat: bool = False,
    ) -> None:
        """``sources``: for each parameter, who recommends its value, in a few words. ``offered``: the drafters
        to choose from with the loaded model; ``levels``: how much it can be asked to
        think. What is being typed stays, unless it belonged to another chat."""
        if is_other_chat:
            self._typing.stop()
            for parameter in self.parameters.values():
                parameter.end_typing()
        typed = {} if is_other_chat else _differences(self._settings, self.settings())
        self._settings = settings
        settings = msgspec.structs.replace(settings, **typed)
        for key, parameter in self.parameters.items():
            parameter.show_value(getattr(settings.sampling, key), getattr(advised, key), sources[key])
        self.by_key["drafter"].offer(offered)
        self.by_key["thinking"].offer(levels)
        for key, field in self.by_key.items():
            field.show_value(getattr(settings, key))
        source = self.by_key["format_source"]
        source.setPlaceholderText(_EXAMPLES.get(settings.answer_format, ""))
        source.setVisible(settings.answer_format not in ("text", "json_object"))
        self._enable()
        for widget in self._levels:
            widget.setVisible(len(levels) > 1)
        self._thinking_part.setVisible(bool(levels))
        has_chosen = settings.sampling != SamplingChoice()
        self.recommended_button.setEnabled(has_chosen)
        self.sampling_section.set_summary("changed" if has_chosen else "recommended")

    def show_refused(self, reasons: Mapping[str, str], formats: Collection[str] | None) -> None:
        """Gray out what a server doesn't take, and say why; ``formats``: what it can make answers follow, ``None``: all
        of them."""
        for key, parameter in self.parameters.items():
            parameter.show_refused(reasons.get(key, ""))
        self._refused = frozenset(key for key, reason in reasons.items() if reason)
        for key, field in self.by_key.items():
            if key != "format_source":
                describe(field, reasons.get(key) or WORDS[key].description)
        self._enable()
        self._foot.setText(WHEN if formats is None else f"{WHEN} {GRAYED}")
        choice = self.by_key["answer_format"]
        model = choice.model()
        for place in range(choice.count()):
            kind = choice.itemData(place)
            is_offered = formats is None or kind == "text" or kind in formats
            flags = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable if is_offered else Qt.ItemFlag.NoItemFlags
            choice.setItemData(place, int(flags.value), _FLAGS_ROLE)
            reason = "" if is_offered else NO_SUCH_FORMAT
            model.setData(model.index(place, 0), reason, Qt.ItemDataRole.ToolTipRole)

    def foot(self) -> str:
        """What stands below the settings."""
        return self._foot.text()

    def _enable(self) -> None:
        """Gray out what isn't taken, and what goes with thinking where that is off."""
        is_off = self.by_key["thinking"].currentData() == "off"
        for key, field in self.by_key.items():
            field.setEnabled(key not in self._refused and not (is_off and key in self._about_thinking[1:]))

    def show_format_problem(self, text: str) -> None:
        """Why the format can't be used, or what of it is left to the model; empty if it can be used as a whole."""
        self.format_problem.setText(text)
        self.format_problem.setVisible(bool(text))
        describe(self.by_key["format_source"], WORDS["format_source"].description, text)

    def show_presets(self, names: Sequence[str], chosen: str) -> None:
        """``chosen`` is empty for none."""
        if [self.preset.itemData(place) for place in range(self.preset.count())] != ["", *names]:
            self.preset.clear()
            self.preset.addItem(NO_PRESET, "")
            for name in names:
                self.preset.addItem(name, name)
                self.preset.setItemData(self.preset.count() - 1, name, Qt.ItemDataRole.ToolTipRole)
        self.preset.show_value(chosen)

    def show_preset_state(self, text: str, *, can_save: bool, can_undo: bool) -> None:
        """A few words below the preset, and what can be done about it; nothing where ``text`` is empty."""
        self._preset_state.setText(text)
        self.save_changes.setVisible(can_save)
        self.undo.setVisible(can_undo)
        self._preset_row.setVisible(bool(text))
        describe(self.preset, WORDS["preset"].description, text)

    @Slot()
    def commit(self) -> None:
        """What was changed counts now, as far as it was typed."""
        self._typing.stop()
        for parameter in self.parameters.values():
            parameter.commit()
        settings = self.settings()
        if settings != self._settings:
            self._settings = settings
            self._model.set_settings(settings)

    # ------------------------------------------------------------ the chat that is shown

    def begin(self, ctx: AppContext) -> None:
        """The chats are there: show and change the settings of the one that is open."""
        self._ctx = ctx
        self._presets = ctx.presets.presets
        self._model = ctx.chats.current
        self._lane = Lane(self, "answer format")
        self.preset.activated.connect(self._on_preset_chosen)
        self.recommended_button.clicked.connect(self._on_recommended)
        self.tools_button.clicked.connect(lambda: ctx.actions.run("chat_tools", self.tools_button))
        ctx.tools.changed.connect(self._refresh_tools)
        ctx.settings.changed.connect(self._refresh_tools)
        self.save_button.clicked.connect(self._on_save_as)
        self.preset_menu.aboutToShow.connect(self._fill_menu)
        self.save_changes.clicked.connect(self._on_save)
        self.undo.clicked.connect(self._on_undo)
        ctx.loader.pair_changed.connect(self._refresh)
        ctx.presets.changed.connect(self._refresh)
        ctx.chats.follow(
            self._show, settings_changed=self._refresh, state_changed=self._on_state_changed, asking=self.commit
        )
        ctx.closing.callback(self._lane.close)
        ctx.closing.callback(self.commit)

    def _show(self, model: ChatModel) -> None:
        if model is not self._model:
            self.commit()
        self._model = model
        self._replaced = None
        self._refresh(is_other_chat=True)

    @Slot()
    def _on_state_changed(self) -> None:
        self.setEnabled(self._model.knows_settings)

    @Slot()
    def _refresh(self, *_args: object, is_other_chat: bool = False) -> None:
        settings, pair = self._model.settings, self._ctx.loader.pair()
        found = recommended(pair, settings.thinking)
        self.setEnabled(self._model.knows_settings)
        self.show_settings(
            settings,
            found.sampling,
            {key: SOURCE_TEXTS[source] for key, source in found.sources.items()},
            pair_names.offered(pair_names.usable(settings.drafter, pair), pair),
            thinking_levels(pair, recommended(pair).thinking),
            is_other_chat=is_other_chat,
        )
        remote = pair.remote if pair is not None else None
        if remote is None:
            self.show_refused({}, None)
        else:
            self.show_refused({"drafter": SERVER_DRAFTS, **remote.refused}, remote.formats)
        self._refresh_tools()
        self._refresh_presets(settings)
        self._check_format(settings)

    @Slot()
    def _refresh_tools(self) -> None:
        settings = self._model.settings
        self.tools_button.setText(words.count(len(self._ctx.chats.answers.offered(settings)), "tool"))
        describe(
            self.tools_button, WORDS["tools"].description, "" if settings.tools is None else "Changed in this chat"
        )

    def _check_format(self, settings: ChatSettings) -> None:
        """Say what is wrong with a schema or a grammar as soon as it is typed; an empty one isn't finished."""
        wanted = settings.format()
        if wanted == self._checked:
            return
        self._checked = wanted
        if wanted is None or not wanted.source.strip():
            self.show_format_problem("")
            return
        self._lane.submit(
            lambda: checked_grammar(wanted),
            lambda found: self._show_format_problem(wanted, left_to_model(found.notes)),
            lambda error: self._show_format_problem(wanted, str(error)),
        )

    def _show_format_problem(self, checked: AnswerFormat, problem: str) -> None:
        if checked == self._checked:
            self.show_format_problem(problem)

    def _refresh_presets(self, settings: ChatSettings) -> None:
        preset = self._presets.get(settings.preset) if settings.preset else None
        self.show_presets(self._presets.names(), preset.preset if preset else "")
        if self._replaced is not None and settings != self._replaced[1]:
            self._replaced = None
        is_changed = preset is not None and self._presets.is_changed(settings)
        if self._replaced is not None:
            self.show_preset_state("Your settings were replaced", can_save=False, can_undo=True)
        else:
            self.show_preset_state(
                "Changed in this chat" if is_changed else "", can_save=is_changed, can_undo=is_changed
            )

    @Slot()
    def _on_recommended(self) -> None:
        self.commit()
        self._model.set_settings(msgspec.structs.replace(self._model.settings, sampling=SamplingChoice()))

    @Slot(int)
    def _on_preset_chosen(self, place: int) -> None:
        self._use(self._model, self.preset.itemData(place))

    def _use(self, model: ChatModel, name: str) -> None:
        """Put the values of a preset into a chat; what no preset has can be brought back."""
        if model is self._model:
            self.commit()
        before = model.settings
        chosen = msgspec.structs.replace(self._presets.get(name) or ChatSettings(), folders=before.folders)
        is_kept = without_folders(before) == (self._presets.get(before.preset) or ChatSettings())
        if model is self._model:
            self._replaced = None if is_kept or chosen == before else (before, chosen)
        model.set_settings(chosen)
        self._refresh()

    @Slot()
    def _on_undo(self) -> None:
        """Back to what was there before a preset was chosen, or to what the preset says."""
        self.commit()
        if self._replaced is not None:
            before, self._replaced = self._replaced[0], None
        else:
            now = self._model.settings
            before = msgspec.structs.replace(self._presets.get(now.preset) or now, folders=now.folders)
        self._model.set_settings(before)
        self.preset.setFocus()

    # ------------------------------------------------------------ the presets

    def _fill_menu(self) -> None:
        menu = self.preset_menu
        menu.clear()
        name = self._model.settings.preset
        is_there = self._presets.get(name) is not None
        target = self._target()
        menu.addAction("Save changes", self._on_save).setEnabled(is_there)
        menu.addAction("Save as preset…", self._on_save_as)
        menu.addAction("Rename…", self._on_rename).setEnabled(is_there)
        menu.addAction(
            "Duplicate", lambda: self._ctx.presets.change(lambda presets: presets.duplicate(name))
        ).setEnabled(is_there)
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
        files = self._ctx.loader.files()
        return files.preset_target() if files else ""

    def _set_default(self, name: str, target: str) -> None:
        self._ctx.presets.change(lambda presets: presets.set_default(name, target))

    @Slot()
    def _on_save(self) -> None:
        self.commit()
        self.preset.setFocus()
        settings = self._model.settings
        self._ctx.presets.change(lambda presets: presets.save(settings.preset, settings, replace=True))

    @Slot()
    def _on_save_as(self) -> None:
        self.commit()
        model, settings = self._model, self._model.settings

        def save(name: str) -> None:
            self._ctx.presets.change(
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
            lambda name: self._ctx.presets.change(
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
            self.window(),
            "Delete preset",
            f"Delete the preset “{name}”?",
            details="Chats that use it won't change.",
            lossy={"Delete": lambda: self._ctx.presets.change(lambda presets: presets.delete(name))},
        )

    def _on_import(self) -> None:
        model = self._model
        dialog = QFileDialog(self.window(), "Import preset")
        dialog.setNameFilter("Presets (*.json)")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(lambda name: self._import(Path(name), model))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _import(self, path: Path, model: ChatModel) -> None:
        def done(read: PresetFile) -> None:
            text = f"The preset “{read.name}” was imported. {read.remark()}".strip()
            self._ctx.notices.show("presets", notices.told(text))
            if isValid(model):
                self._use(model, read.name)

        self._ctx.presets.change(lambda presets: presets.import_file(path), done)

    def _on_export(self, name: str) -> None:
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        safe = "".join(one if one.isalnum() or one in " -_" else "_" for one in name).strip() or "preset"
        proposal = Path(folder) / f"{safe}.json"
        ask_where_to_save(
            self.window(),
            "Export preset",
            proposal,
            "Presets",
            lambda path: self._ctx.presets.change(lambda presets: presets.export_file(name, path)),
        )

    def _ask_for_name(self, title: str, proposal: str, verb: str, chosen: Callable[[str], object]) -> None:
        dialog = QInputDialog(self.window())
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


def _differences(before: ChatSettings, now: ChatSettings) -> dict[str, Any]:
    names = ChatSettings.__struct_fields__
    return {name: getattr(now, name) for name in names if getattr(now, name) != getattr(before, name)}
