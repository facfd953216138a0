"""Models → Library: the models on this computer, and a page about the selected one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QGridLayout, QLineEdit, QMenu, QProgressBar, QSizePolicy, QWidget

from app import words
from app.models.downloads.part import free_bytes
from app.models.heads import why_unwanted
from app.models.library.folders import FolderKind, ModelFolder
from app.models.library.library import LibraryEntry
from app.models.ranking import RankedDraft, Ranking
from app.protocol.options import ALL_LAYERS
from app.system import KnownError
from app.ui.context import AppContext
from app.ui.models.fit import UNKNOWN_FIT, FitBadge, measured_here, trial_role
from app.ui.models.library_list import LibraryList, LibraryRow, row_of
from app.ui.models.library_service import LibraryService, models_folder
from app.ui.widgets import theme
from app.ui.widgets.controls import (
    LEFT,
    LIST_MARGINS,
    TOP,
    beside,
    clear_layout,
    column,
    label,
    named,
    plain_tooltip,
    push_button,
    row,
    scrolling,
    show_text,
    small_button,
)
from app.ui.widgets.questions import ask
from app.ui.widgets.theme import SPACING
from app.words import printable, visible

_NOTHING = "Select a model to see its details and the drafts that fit it."
_ROWS_AT_ONCE = 3
FIRST_DRAFTS = 5
"""The most rows shown at first, of fitting drafts and of others; the rest on request."""
_CHECKED = {
    True: ("✓ Complete · checksum verified", "good"),
    False: (
        (
            "The checksum doesn't match, so the file is not what was published. Delete it and download it again; don't "
            "load it."
        ),
        "bad",
    ),
    None: ("Slipstream doesn't know the checksums of all its files, so they can't be verified.", "warning"),
}
"""The result for a checked file, and its color role."""


class LibraryTab(QWidget):
    """The ``list`` and the ``page`` of the selected model. Signal ``get_requested``: the user wants other models."""

    get_requested = Signal()

    def __init__(self, ctx: AppContext, service: LibraryService) -> None:
        super().__init__()
        self._ctx, self._service = ctx, service
        search = "Search the library"
        self._search = named(QLineEdit(placeholderText=search, clearButtonEnabled=True), search)
        self._summary = label(role="quiet", figures=True, wraps=True)
        self._offer = label(role="quiet", wraps=True)
        self._offer.hide()
        self._empty = label(wraps=True)
        self._get = small_button("Get models", self.get_requested.emit)
        self._get.hide()
        self.list = LibraryList()
        self.page = ModelPage(ctx, service)
        self._total = 0
        self._lay_out()
        self._search.textChanged.connect(self._on_search)
        self.list.chosen.connect(self._show_page)
        self.list.opened.connect(self._on_opened)
        self.page.files_changed.connect(self.scan)
        service.scanned.connect(self.refresh)
        service.scan_failed.connect(lambda error: self._show_rows(([], str(error))))

    def _lay_out(self) -> None:
        again = small_button("Rescan", self.scan, tooltip="Scans the folders again")
        folders = small_button(self._ctx.actions.text("show_folders"))
        self._ctx.actions.connect_button(folders, "show_folders")
        left = QWidget(minimumWidth=280)
        column(
            self._search,
            self._empty,
            (self._get, LEFT),
            (self.list, 1),
            self._offer,
            self._summary,
            row(again, folders, None),
            gap=3 * SPACING,
            margins=LIST_MARGINS,
            on=left,
        )
        splitter = beside(left, self.page, [560, 400])
        splitter.setStretchFactor(0, 1)
        column(splitter, on=self)

    @Slot()
    def scan(self) -> None:
        """Scan the folders again."""
        self._summary.setText("Scanning the folders…")
        self._service.scan()
        self._service.find(lambda found: show_text(self._offer, offer(found)))

    @Slot()
    def refresh(self) -> None:
        """Show the current state, after a scan, a trial, or a change of memory."""
        service, folder = self._service, models_folder(self._ctx.settings.values)
        entries, now = service.entries(), time.time()

        def make() -> tuple[list[LibraryRow], str]:
            rows = [row_of(entry, service.fit(entry), now) for entry in entries]
            return rows, "\n".join([_summary(entries, _free(folder)), *service.notices()])

        service.compute(make, self._show_rows)

    def _show_rows(self, made: tuple[Sequence[LibraryRow], str]) -> None:
        rows, summary = made
        self._total = len(rows)
        self.list.show_rows(rows)
        self._summary.setText(summary)
        self._show_emptiness()
        self._show_page()

    @Slot(str)
    def _show_page(self) -> None:
        self.page.show_model(self._service.entry(self.list.path()))

    @Slot(str)
    def _on_opened(self, path: str) -> None:
        entry = self._service.entry(path)
        if entry is not None and entry.usable:
            self._ctx.actions.run("open_pair", path)

    @Slot(str)
    def _on_search(self, text: str) -> None:
        self.list.rows.set_words(text)
        self._show_emptiness()

    def _show_emptiness(self) -> None:
        if not self._total:
            text = "No models yet. Get one together with its draft, or add a folder that already contains models."
        else:
            text = "" if self.list.rows.shown else "No models found."
        show_text(self._empty, text)
        self._get.setVisible(not self._total)


class ModelPage(QWidget):
    """A model: its details, drafts, measurements, and actions on the file.

    Signals:
        files_changed: Something was deleted or joined.
        drafts_wanted: The `LibraryEntry` to find drafts for on Hugging Face.
    """

    files_changed = Signal()
    drafts_wanted = Signal(object)

    def __init__(self, ctx: AppContext, service: LibraryService) -> None:
        super().__init__(minimumWidth=300)
        theme.set_role(self, "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._ctx, self._service = ctx, service
        self._entry: LibraryEntry | None = None
        self._path = ""
        self._checking: set[str] = set()
        """Paths of models being checked, or waiting for it."""
        self._checked: dict[str, tuple[str, str]] = {}
        """Check results (a sentence and its role), shown when the model is selected."""
        self._deleted = ""
        """What happened to the last model, until another one is selected."""
        self._ranked: list[RankedDraft] = []
        self._waiting: list[RankedDraft] = []
        """Drafts that aren't shown yet."""
        self._can_verify = False
        self._title = label(role="heading", wraps=True, scale=1.15)
        self._problem = label(role="bad", wraps=True)
        self._facts = QGridLayout()
        self._drafts = column()
        self._drafts_heading = label("Drafts for this model", "heading")
        self._own_head = label(wraps=True, figures=True)
        self._drafts_status = label(role="quiet", wraps=True)
        self._all_drafts = small_button("", self._on_all_drafts)
        self._find_draft = small_button("Find a draft on Hugging Face…", lambda: self.drafts_wanted.emit(self._entry))
        self._status = label(role="quiet", wraps=True)
        self._bar = named(QProgressBar(textVisible=False, maximum=1000), "Verifying the file")
        self._stop = small_button("Stop", lambda: service.stop(self._path))
        self._make_actions()
        self._lay_out()
        service.progressed.connect(self._on_progressed)
        self.show_model(None)

    def _make_actions(self) -> None:
        self._open = push_button("Open…", lambda: self._ctx.actions.run("open_pair", self._path), role="primary")
        self._join = push_button("Join…", self._on_join, role="primary")
        self._file = push_button("File ▾", name="File actions")
        menu = QMenu(self._file, toolTipsVisible=True)
        self._file.setMenu(menu)
        menu.addAction("Show in folder", lambda: self._service.reveal(Path(self._path)))
        menu.addAction("Copy path", lambda: QGuiApplication.clipboard().setText(self._path))
        self._verify = menu.addAction("Verify checksum", self._on_verify)
        menu.addSeparator()
        self._delete = menu.addAction("Delete…", self._on_delete)

    # ------------------------------------------------------------ display

    def path(self) -> str:
        """The model that is shown; empty for none."""
        return self._path

    def show_model(self, entry: LibraryEntry | None) -> None:
        self._entry = entry
        if entry is None:
            self._path = ""
            self._nothing.setText(visible(self._deleted) or _NOTHING)
            self._inside.hide()
            self._nothing.show()
            return
        self._deleted = ""
        if (path := str(entry.path)) != self._path:
            self._path = path
            self._show_drafts([], "Looking for drafts…")
            show_text(self._status, *self._checked.get(path, ("", "quiet")))
            self._show_verifying(0.0 if path in self._checking else None)
        self._show_details(entry)
        if entry.usable:
            self._service.rank(entry, lambda ranking: self._on_ranked(path, ranking))
        else:
            self._show_drafts([])
        self._nothing.hide()
        self._inside.show()

    def _show_details(self, entry: LibraryEntry) -> None:
        self._title.setText(printable(entry.title, 120))
        away = "" if entry.available else "This folder isn't available right now."
        show_text(self._problem, entry.problem or away, "quiet" if entry.is_head and entry.available else "bad")
        self._show_facts([(name, value) for name, value in _facts(entry, self._service.fit(entry)) if value])
        self._open.setEnabled(entry.usable)
        self._open.setHidden(entry.in_pieces)
        self._join.setVisible(entry.in_pieces and not entry.read_only)
        self._can_verify = entry.available and (entry.origin is not None or (bool(entry.sha256) and all(entry.sha256)))
        self._refresh_verify()
        is_starter = entry.folder.kind is FolderKind.STARTER
        self._delete.setVisible(is_starter or not (entry.available and entry.read_only))
        freed = self._service.would_free(entry)
        if is_starter:
            self._delete.setText("Hide")
        elif entry.available:
            self._delete.setText(f"Delete (frees {words.size(freed)})…" if freed else "Delete…")
        else:
            self._delete.setText("Remove from list")
        for widget in (self._drafts_heading, self._drafts_status, self._find_draft):
            widget.setVisible(entry.usable)

    def _on_ranked(self, path: str, ranking: Ranking) -> None:
        if self._path != path:
            return
        fitting = sum(one.verdict.fits for one in ranking.drafts)
        self._show_drafts(ranking.drafts, "" if fitting else "No other model in the library has a matching vocabulary.")
        head = ranking.own_head
        measured = "" if head is None else f"MTP head inside. Measured here: {measured_here(head)}"
        show_text(self._own_head, measured, trial_role(head))

    def _show_drafts(self, ranked: Sequence[RankedDraft], status: str = "") -> None:
        """Drafts, best first; those that don't fit are gray and say why."""
        others = [one for one in ranked if not one.verdict.fits]
        first = [one for one in ranked if one.verdict.fits][:FIRST_DRAFTS] + others[:FIRST_DRAFTS]
        self._ranked = list(ranked)
        self._show_draft_rows(first)
        self._all_drafts.setText(f"Show all {len(ranked)}")
        self._all_drafts.setVisible(len(first) < len(ranked))
        show_text(self._drafts_status, status)
        show_text(self._own_head, "")

    def _show_verifying(self, share: float | None) -> None:
        """The progress of a file check, 0 to 1; ``None`` without one."""
        for widget in (self._bar, self._stop):
            widget.setVisible(share is not None)
        self._refresh_verify()
        if share is not None:
            self._bar.setValue(round(share * 1000))

    def _refresh_verify(self) -> None:
        self._verify.setEnabled(self._can_verify and self._bar.isHidden())
        self._verify.setToolTip(
            "" if self._can_verify else "Slipstream didn't download this file, so its checksum isn't known."
        )

    # ------------------------------------------------------------ the file

    @Slot()
    def _on_verify(self) -> None:
        entry, path = self._entry, self._path
        if entry is None or path in self._checking:
            return
        self._checked.pop(path, None)
        show_text(self._status, "")
        self._begin_check()
        self._service.check(
            path,
            lambda library, tell, stopped: library.verify(entry, tell, stopped),
            lambda is_right: self._end_check(path, *_CHECKED[is_right]),
            lambda error: self._end_check(path, str(error), "warning"),
        )

    @Slot()
    def _on_join(self) -> None:
        entry, path = self._entry, self._path
        if entry is None or path in self._checking:
            return

        def done(whole: Path) -> None:
            self._checking.discard(path)
            self._deleted = f"{printable(whole.name, 120)} is one file now."
            self.files_changed.emit()

        def begin() -> None:
            self._begin_check()
            self._service.check(
                path,
                lambda library, tell, stopped: library.join(entry, tell, stopped),
                done,
                lambda error: self._end_check(path, str(error), "warning"),
            )

        ask(
            self,
            "Join pieces",
            f"Join the {len(entry.parts)} pieces of {printable(entry.title, 120)} to one file? This needs "
            f"{words.size(entry.size)} of free disk space. The pieces are deleted once the whole file is complete.",
            safe={"Join": begin},
        )

    def _begin_check(self) -> None:
        self._checking.add(self._path)
        self._show_verifying(0.0)

    @Slot(str, float)
    def _on_progressed(self, path: str, share: float) -> None:
        if path in self._checking and path == self._path:
            self._show_verifying(share)

    def _end_check(self, path: str, text: str, role: str) -> None:
        self._checking.discard(path)
        self._checked[path] = text, role
        if path == self._path:
            self._show_verifying(None)
            show_text(self._status, text, role)

    @Slot()
    def _on_delete(self) -> None:
        entry = self._entry
        if entry is None:
            return
        if entry.folder.kind is FolderKind.STARTER:
            self._deleted = "The starter model is hidden now. File → Starter model brings it back."
            self._ctx.actions.run("hide_starter")
            return
        if not entry.available:
            self._service.ask(lambda library: library.forget(entry))  # it comes back with its folder
            self._service.scan()
            return
        if any(self._ctx.loader.is_loaded(str(part)) for part in entry.parts):
            text = "This model is loaded. Open another model first, then delete this one."
            show_text(self._status, text, "warning")
            return
        title, freed = printable(entry.file_title, 120), words.size(self._service.would_free(entry))

        def done(freed: int) -> None:
            self._deleted = f"{title} was deleted. {words.size(freed)} of disk space was freed."
            self.files_changed.emit()

        def failed(error: KnownError) -> None:
            show_text(self._status, str(error), "bad")

        ask(
            self,
            "Delete model",
            f"Delete {title}? This frees {freed} and can't be undone.",
            lossy={"Delete": lambda: self._service.ask(lambda library: library.delete(entry), done, failed)},
        )

    def _lay_out(self) -> None:
        self._inside = QWidget()
        self._nothing = label(_NOTHING, "quiet", wraps=True)
        self._facts.setHorizontalSpacing(4 * SPACING)
        self._facts.setVerticalSpacing(SPACING)
        self._facts.setColumnStretch(1, 1)
        column(
            self._title,
            self._problem,
            row(self._open, self._join, self._file, None),
            row((self._bar, 1), self._stop),
            self._status,
            self._facts,
            self._drafts_heading,
            self._own_head,
            self._drafts_status,
            self._drafts,
            (self._all_drafts, LEFT),
            (self._find_draft, LEFT),
            None,
            gap=3 * SPACING,
            on=self._inside,
        )
        body = QWidget()
        column((self._nothing, TOP), self._inside, margins=4 * SPACING, on=body)
        area = scrolling(body)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        column(area, on=self)

    def _show_facts(self, facts: Sequence[tuple[str, str]]) -> None:
        clear_layout(self._facts)
        for place, (name, value) in enumerate(facts):
            shown = named(label(value, wraps=True, figures=True, selectable=True), f"{name}: {value}")
            # A file's name may be one long word, which must not widen the page.
            shown.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
            shown.setToolTip(plain_tooltip(value))
            self._facts.addWidget(label(name, "quiet"), place, 0, Qt.AlignmentFlag.AlignTop)
            self._facts.addWidget(shown, place, 1)

    @Slot()
    def _on_all_drafts(self) -> None:
        self._show_draft_rows(self._ranked)
        self._all_drafts.hide()

    def _show_draft_rows(self, ranked: Sequence[RankedDraft]) -> None:
        clear_layout(self._drafts)
        self._waiting = list(ranked)
        self._add_draft_rows()

    @Slot()
    def _add_draft_rows(self) -> None:
        """A few at a time, because each takes more than a millisecond of the window's thread."""
        now, self._waiting = self._waiting[:_ROWS_AT_ONCE], self._waiting[_ROWS_AT_ONCE:]
        for ranked in now:
            self._drafts.addWidget(self._draft_row(ranked))
        if self._waiting:
            QTimer.singleShot(0, self, self._add_draft_rows)

    def _draft_row(self, ranked: RankedDraft) -> QWidget:
        entry, verdict = ranked.entry, ranked.verdict
        quantization = entry.summary.quantization if entry.summary else ""
        parts = (printable(entry.title, 120), printable(quantization), words.size(entry.size))
        kind = f"{entry.head_title} in a separate file" if entry.is_head else ""
        title = label(
            " · ".join(part for part in (kind, *parts) if part), None if verdict.fits else "quiet", wraps=True
        )
        title.setToolTip(plain_tooltip(str(entry.path)))
        texts = column(title, gap=0)
        if ranked.trial is not None:
            measured = f"Measured here: {measured_here(ranked.trial)}"
            texts.addWidget(label(measured, trial_role(ranked.trial), wraps=True, figures=True))
        sentences = (verdict.reason, verdict.warning, verdict.note)
        mood = "warning" if verdict.fits and verdict.warning is not None else "quiet"
        texts.addWidget(label(" ".join(sentence for sentence in sentences if sentence), mood, wraps=True))
        widget = QWidget()
        line = row((texts, 1), on=widget)
        if verdict.fits:
            name = f"Load together with the draft {title.text()}"
            load = partial(self._ctx.actions.run, "load_pair", self._path, str(entry.path))
            line.addWidget(small_button("Load together", load, name=name), 0, TOP)
        return widget


def _head(entry: LibraryEntry) -> str:
    """A model's head and whether it is used; empty without one."""
    found = entry.summary
    if found is None or found.head == "none":
        return ""
    if found.head == "alone":
        return "only this, without the model it belongs to"
    if found.head_problem:
        return visible(found.head_problem)
    if unwanted := why_unwanted("auto", found, ALL_LAYERS):
        return f"inside the file, off unless you turn it on. {unwanted}"
    return "inside the file; drafts without a second model"


def _facts(entry: LibraryEntry, fit: FitBadge) -> list[tuple[str, str]]:
    found = entry.summary
    facts: list[tuple[str, str]] = []
    if found is not None:
        tokenizer = found.tokenizer
        heads = f", {found.heads} heads, {found.kv_heads} key/value heads" if found.heads else ""
        experts = f"{found.experts}, {found.experts_used} used per token" if found.experts else ""
        facts += [
            ("Inner name", printable(found.name, 120)),
            ("Parameters", f"{words.compact(found.parameters)} ({printable(found.architecture)})"),
            ("Quantization", f"{printable(found.quantization)}, {words.size(entry.size)}"),
            ("Context", f"{words.number(found.training_context)} tokens in training" if found.training_context else ""),
            ("Layers", f"{found.layers}{heads}" if found.layers else ""),
            ("Experts", experts),
            (entry.head_title, _head(entry)),
            ("Vocabulary", f"{words.number(tokenizer.size)} tokens ({printable(tokenizer.kind)})" if tokenizer else ""),
            (
                "Chat template",
                "" if entry.is_head else "built in" if found.template_sha256 else "none (ChatML is used)",
            ),
        ]
    if entry.usable:
        facts.append(("Fits", fit.detail or ("" if fit is UNKNOWN_FIT else fit.text)))
    facts.append(("License", printable(entry.license) or "not specified"))
    if entry.origin is not None:
        facts.append(("From", f"{printable(entry.origin.repository, 120)}, commit {entry.origin.commit[:8]}"))
    parts = f" ({len(entry.parts)} parts)" if len(entry.parts) > 1 else ""
    facts.append(("File", f"{printable(str(entry.path), 400)}{parts}"))
    facts.append(("Folder", entry.folder.kind.label))
    return facts


def _summary(entries: Sequence[LibraryEntry], free: int | None) -> str:
    """``12 models, 48 GB · 210 GB free in the models folder``."""
    there = [entry for entry in entries if entry.available]
    text = f"{words.count(len(there), 'model')}, {words.size(sum(entry.size for entry in there))}"
    if away := len(entries) - len(there):
        text += f" · {away} in folders that aren't available"
    return text if free is None else f"{text} · {words.size(free)} free in the models folder"


def offer(found: Sequence[ModelFolder]) -> str:
    """``Models from LM Studio and Ollama were found on this computer. Choose Folders… to add them (read only).``"""
    names = list(dict.fromkeys(folder.kind.label for folder in found))
    if not names:
        return ""
    return f"Models from {words.listed(names)} were found on this computer. Choose Folders… to add them (read only)."


def _free(folder: Path) -> int | None:
    with contextlib.suppress(KnownError):
        return free_bytes(folder)
    return None
