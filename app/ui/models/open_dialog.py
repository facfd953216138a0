"""File → Open models…: choose a target, a draft, and how to load them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from PySide6.QtCore import QSignalBlocker, Slot
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QMenu, QPushButton, QWidget

from app.models.heads import DRAFT_INSTEAD, why_unwanted
from app.models.planner import LoadPlan, alternatives
from app.protocol.events import Device
from app.protocol.options import AcceptRule, HeadChoice, LoadSettings
from app.settings import Pair, Settings
from app.ui.engine.load_planner import MemoryWatch, plan_for_images, wishes_of
from app.ui.engine.pair_names import PairFiles, guide_files, is_guide, recent_titles
from app.ui.models.fields import (
    AcceptRuleFields,
    FileRow,
    MemoryFields,
    PairPicks,
    SpecialFields,
    TemplateFields,
    dropped_files,
)
from app.ui.models.fit import NO_TARGET, READING, PairCheck, PairChecker, measured_here
from app.ui.models.library_service import LibraryService
from app.ui.models.memory_part import MemoryPart
from app.ui.widgets import theme
from app.ui.widgets.controls import HeadControl, Section, column, label, plain_tooltip, push_button, row, scrolling
from app.ui.widgets.tasks import Lane
from app.ui.widgets.theme import SPACING
from app.words import visible

_TARGET_HELP = "The model whose answers you read: any text model in GGUF format."
_DRAFT_HELP = (
    "A much smaller model of the same family that drafts tokens ahead, or a file with only a head for the target "
    "(MTP or EAGLE-3). It makes answers faster and never changes them."
)
_Fields: TypeAlias = MemoryFields | SpecialFields | TemplateFields | AcceptRuleFields


class OpenModelsDialog(QDialog):
    """Shows what is in use and lets the user choose something else. Loads nothing itself.

    After `accept`, `files` and `accept_rule` are the result; `needs_reload` says whether models must be loaded for it.

    Attributes:
        server_button: Leads to models on servers.
    """

    def __init__(
        self,
        current: PairFiles,
        values: Settings,
        *,
        gpus: Sequence[Device] = (),
        is_loaded: bool = True,
        library: LibraryService | None = None,
        memory: MemoryWatch | None = None,
        parent: QWidget | None = None,
    ) -> None:
        """``library`` offers its models, and drafts for the chosen target; plans use ``memory`` and ``gpus``.
        ``values`` has how each target was loaded last.

        ``is_loaded``: the models of ``current`` are loaded, so there may be nothing to load.
        """
        super().__init__(parent)
        self._current = replace(current, for_once=False)
        self._values = values
        self._is_loaded = is_loaded
        self._shown_target = current.target
        self._shown_head = current.head
        self._check = NO_TARGET
        self._proposes: Literal["nothing", "head", "draft"] = "nothing"
        self._checker = PairChecker(self)
        self._lane = Lane(self, "dropped files")
        self._memory = memory
        self._plan: LoadPlan | None = None
        recent = [pair for pair in values.recent_pairs if not pair.server]
        self._make_parts(recent, gpus, library)
        self._build(recent)
        self.show_files(current.target, current.draft or "")
        self._show_fields(current.settings, current.template, values.accept)
        self._connect()
        self._ask()

    def _make_parts(self, recent: Sequence[Pair], gpus: Sequence[Device], library: LibraryService | None) -> None:
        folder = str(Path(recent[0].target).parent) if recent else ""
        self._target = FileRow("Target model", _TARGET_HELP, can_be_empty=False, start_folder=folder)
        self._draft = FileRow("Draft model", _DRAFT_HELP, can_be_empty=True, start_folder=folder, picker="Draft model")
        self._picks = PairPicks(self._target.picker, self._draft.picker, library, self) if library else None
        for one in (self._target, self._draft):
            one.picker.setVisible(library is not None)
        self._head = HeadControl()
        self._head.hide()
        self._memory_part = MemoryPart()
        self._memory_part.hide()
        self._memory_fields = MemoryFields(self._refresh, gpus)
        self._special_fields = SpecialFields(self._refresh, gpus)
        self._template_fields = TemplateFields(self._refresh)
        self._accept_fields = AcceptRuleFields(self._refresh)
        self._verdict = label(wraps=True)

    def files(self) -> PairFiles:
        """The current choice; empty without a target."""
        load = self._memory_fields.values() | self._special_fields.values() | {"exact": self.accept_rule() == "exact"}
        template, draft = self._template_fields.template, self._draft.path() or None
        return PairFiles(self._target.path(), draft, LoadSettings(**load), self._shown_head, template)

    def accept_rule(self) -> AcceptRule:
        return self._accept_fields.rule()

    @property
    def needs_reload(self) -> bool:
        """Whether files have to be loaded, or loaded differently."""
        return not self._is_loaded or self.files() != self._current

    @property
    def does_not_fit(self) -> bool:
        """Whether the pair needs more memory than is free."""
        return self._plan is not None and not self._plan.fits

    def show_files(self, target: str, draft: str) -> None:
        """Choose these files; ``draft`` is empty for none."""
        self._target.set_path(target)
        self._draft.set_path(draft)

    def propose(self, what: Literal["head", "draft"]) -> None:
        """Choose the library's proposal once it is known, unless other files are chosen first: the most promising
        draft, or only a file with a head of the target.
        """
        self._proposes = what

    # ------------------------------------------------------------ building

    def _build(self, recent: Sequence[Pair]) -> None:
        self.setWindowTitle("Open models")
        self.setAcceptDrops(True)
        self.resize(680, 640)
        contents: tuple[tuple[str, _Fields], ...] = (
            ("Context and memory", self._memory_fields),
            ("More loading options", self._special_fields),
            ("Chat template", self._template_fields),
            ("Accept rule", self._accept_fields),
        )
        self._fields = [(Section(title, content), content) for title, content in contents]
        sections, margins = QWidget(), (5 * SPACING, 0, 5 * SPACING, 3 * SPACING)
        column(*(section for section, _fields in self._fields), None, gap=SPACING, margins=margins, on=sections)
        column(self._files_part(recent), (scrolling(sections), 1), self._buttons_part(), gap=0, on=self)

    def _files_part(self, recent: Sequence[Pair]) -> QWidget:
        part = QWidget()
        self.server_button = push_button("Server…", tooltip="Use a model that runs on a server instead")
        self._verdict.setMinimumHeight(2 * self._verdict.fontMetrics().lineSpacing())
        column(
            self._target,
            self._draft,
            self._head,
            row((self._verdict, 1), self.server_button, self._recent_button(recent), gap=3 * SPACING),
            self._memory_part,
            margins=(5 * SPACING, 5 * SPACING, 5 * SPACING, 3 * SPACING),
            on=part,
        )
        return part

    def _recent_button(self, recent: Sequence[Pair]) -> QPushButton:
        button = push_button("Recent pairs ▾", name="Recent pairs")
        menu = QMenu(button, toolTipsVisible=True)
        for pair, title in zip(recent, recent_titles(recent), strict=True):
            action = menu.addAction(title.replace("&", "&&"))
            action.setToolTip(plain_tooltip("\n".join(path for path in (pair.target, pair.draft) if path)))
            action.triggered.connect(lambda _checked=False, pair=pair: self.show_files(pair.target, pair.draft or ""))
        button.setMenu(menu)
        button.setEnabled(bool(recent))
        return button

    def _buttons_part(self) -> QWidget:
        part = QWidget()
        theme.set_role(part, "side")
        self._load = QPushButton("Load", default=True)
        theme.set_role(self._load, "primary")
        reset = push_button("Reset to defaults", tooltip="Resets everything except the files")
        reset.clicked.connect(lambda: self._show_fields(LoadSettings(), "", "coupled"))
        box = QDialogButtonBox()
        box.addButton(reset, QDialogButtonBox.ButtonRole.ResetRole)
        box.addButton(QDialogButtonBox.StandardButton.Cancel).setText("Cancel")
        box.addButton(self._load, QDialogButtonBox.ButtonRole.AcceptRole)
        box.accepted.connect(self.accept)
        box.rejected.connect(self.reject)
        row(box, margins=(5 * SPACING, 3 * SPACING, 5 * SPACING, 3 * SPACING), on=part)
        return part

    def _connect(self) -> None:
        for one in (self._target, self._draft):
            one.path_changed.connect(self._on_path_changed)
        self._checker.checked.connect(self._on_checked)
        self._head.choice_changed.connect(self._on_head_chosen)
        if self._picks is not None:
            self._picks.ranked.connect(self._on_ranked)
        self._memory_part.context_chosen.connect(partial(self._memory_fields.set_value, "context_length"))
        self._memory_part.layers_chosen.connect(partial(self._memory_fields.set_value, "target_gpu_layers"))
        self._memory_part.alternative_chosen.connect(self._on_alternative)
        if self._memory is not None:
            self._memory.changed.connect(self._refresh)
            self._memory.refresh()
        self.finished.connect(self._checker.stop)
        self.finished.connect(lambda _result: self._lane.close())

    # ------------------------------------------------------------ display

    def _show_fields(self, load: LoadSettings, template: str, accept: AcceptRule) -> None:
        for fields in (self._memory_fields, self._special_fields):
            fields.show_values(load)
        self._template_fields.show_template(template)
        self._accept_fields.show_rule(accept)

    def _ask(self) -> None:
        """Check the two files."""
        self._on_checked(READING if self._target.path() else NO_TARGET)
        if self._picks is not None:
            self._picks.set_target(self._target.path())
        if self._target.path():
            self._checker.check(self._target.path(), self._draft.path() or None)

    @Slot()
    def _refresh(self) -> None:
        for section, fields in self._fields:
            section.set_summary(fields.summary())
        self._refresh_plan()
        self._refresh_head()
        load = "Load anyway" if self.does_not_fit else "Load"
        self._load.setText(load if self.needs_reload else "Apply")
        theme.set_role(self._load, "" if self.does_not_fit and self.needs_reload else "primary")
        self._load.setEnabled(self._check.can_load)

    def _refresh_plan(self) -> None:
        self._plan = None
        if self._check is READING:
            return  # keep the display until there is something new
        target = self._check.target_shape
        self._memory_part.setVisible(target is not None and self._memory is not None)
        if target is None or self._memory is None:
            return
        machine, draft = self._memory.machine(), self._check.draft_shape
        wishes = wishes_of(self.files().settings, "off" if self._draft.path() and draft is None else self._shown_head)
        plan, sees = plan_for_images(target, draft, machine, wishes, self._check.projector_bytes)
        self._plan = plan
        if sees:
            wishes = msgspec.structs.replace(wishes, projector_bytes=self._check.projector_bytes)
        others = [] if plan.fits else alternatives(target, draft, machine, wishes)
        longest = max(target.training_context, plan.context_length)
        self._memory_part.show_plan(plan, others, target, machine, longest=longest, has_draft=draft is not None)

    def _refresh_head(self) -> None:
        if self._check is READING:
            return
        header, draft, plan = self._check.head, self._check.draft_shape, self._plan
        has_model = draft is not None and not draft.is_head_only
        self._head.setVisible(header is not None and (has_model or not self._draft.path()))
        if header is not None:
            layers = plan.target_gpu_layers if plan else self.files().settings.target_gpu_layers
            unwanted = why_unwanted(self._shown_head, header, layers)
            reason = DRAFT_INSTEAD if has_model and self._shown_head == "auto" else unwanted
            trial = self._picks.own_head if self._picks else None
            measured = f"Measured here: {measured_here(trial)}" if trial else ""
            self._head.show_choice(self._shown_head, reason or "", measured)

    @Slot(str)
    def _on_head_chosen(self, choice: HeadChoice) -> None:
        self._shown_head = choice
        self._refresh()

    @Slot(object)
    def _on_checked(self, check: PairCheck) -> None:
        self._check = check
        self._verdict.setText(("✓ " if check.mood == "good" else "") + visible(check.verdict))
        self._verdict.setAccessibleName(f"Compatibility: {check.verdict}")
        theme.set_role(self._verdict, check.mood)
        if check is not READING:
            for fields in (self._memory_fields, self._special_fields):
                fields.show_pair(check.target_shape, check.draft_shape, has_draft=bool(self._draft.path()))
            self._target.set_info(check.target)
            self._draft.set_info(check.draft)
        self._refresh()

    @Slot()
    def _on_path_changed(self) -> None:
        target = self._target.path()
        self._proposes = "nothing" if target == self._shown_target else "head"
        if target != self._shown_target:
            if is_guide(self._shown_target) and self._draft.path() == guide_files().draft:
                with QSignalBlocker(self._draft):  # it fits nothing else
                    self._draft.set_path("")
            self._shown_head = self._values.head_for(target)
            self._template_fields.show_template(self._values.template_for(target))
            for fields in (self._memory_fields, self._special_fields):
                fields.show_values(self._values.load_for(target))
        self._shown_target = target
        self._ask()

    @Slot(list)
    def _on_ranked(self) -> None:
        self._refresh_head()
        if self._picks is not None and self._proposes != "nothing" and not self._draft.path():
            self._draft.set_path(self._picks.proposal(only_head=self._proposes == "head"))

    @Slot(object)
    def _on_alternative(self, plan: LoadPlan) -> None:
        """Apply what this plan gives up; the draft last, because that checks the pair again."""
        if self._plan is not None and plan.context_length != self._plan.context_length:
            self._memory_fields.set_value("context_length", plan.context_length)
        self._memory_fields.set_value("kv_type", plan.kv_type)
        if self.files().settings.target_gpu_layers >= 0:
            self._memory_fields.set_value("target_gpu_layers", plan.target_gpu_layers)
        if not plan.with_draft:
            self._draft.set_path("")

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        event.setAccepted(len(dropped_files(event.mimeData())) in (1, 2))

    def dropEvent(self, event: QDropEvent) -> None:
        """One file is the target; of two, the larger."""
        files = dropped_files(event.mimeData())
        event.acceptProposedAction()
        if len(files) == 1:
            self._target.set_path(files[0])
        else:
            self._lane.submit(lambda: sorted(files, key=_size, reverse=True), lambda found: self.show_files(*found))


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
