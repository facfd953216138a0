"""Models → Library: the models on this computer, and the page of the selected one."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QGridLayout, QLineEdit, QMenu, QProgressBar, QPushButton, QSizePolicy, QWidget

from app.models.library.entry import LibraryEntry
from app.models.library.folders import FolderKind
from app.models.mtp import why_unwanted
from app.models.ranking import RankedDraft
from app.models.text import count_text, printable, size_text, visible
from app.models.trials import Trial
from app.protocol.limits import ALL_LAYERS
from app.ui.models.fit_badge import UNKNOWN_FIT, FitBadge
from app.ui.models.library_list import LibraryList, LibraryRow
from app.ui.models.trial_text import measured_here, trial_role
from app.ui.widgets import theme
from app.ui.widgets.controls import beside, clear_layout, label, plain_tooltip, scrolling, show_text, small_button
from app.ui.widgets.layouts import LEFT, LIST_MARGINS, TOP, column, row
from app.ui.widgets.theme import SPACING

_NOTHING = "Select a model to see its details and the drafts that fit it."
_ROWS_AT_ONCE = 3
FIRST_DRAFTS = 5
"""How many rows are shown at first, of fitting drafts and of others; the rest on request."""


class LibraryTab(QWidget):
    """Lays out list and page.

    Attributes:
        list, page: The parts.
        folders, get, again: The buttons "Folders…", "Get models" and "Look again".
    """

    def __init__(self) -> None:
        super().__init__()
        self._search = QLineEdit(placeholderText="Search the library", clearButtonEnabled=True)
        self._search.setAccessibleName("Search the library")
        self._summary = label(role="quiet", figures=True, wraps=True)
        self._offer = label(role="quiet", wraps=True)
        self._empty = label(wraps=True)
        self.get = small_button("Get models")
        self.again = small_button("Rescan")
        self.again.setToolTip("Scans the folders again")
        self.folders = small_button("Folders…")
        self.list = LibraryList()
        self.page = ModelPage()
        self._total = 0
        self._lay_out()
        self.get.hide()
        self.show_offer("")
        self._search.textChanged.connect(self._on_search)

    def show_rows(self, rows: Sequence[LibraryRow], summary: str) -> None:
        """``summary`` says how many models there are and how much space they take."""
        self._total = len(rows)
        self.list.show_rows(rows)
        self._summary.setText(summary)
        self._show_emptiness()

    def show_offer(self, text: str) -> None:
        """Folders of other apps that could be added."""
        show_text(self._offer, text)

    def show_scanning(self) -> None:
        """The folders are being scanned."""
        self._summary.setText("Scanning the folders…")

    def _lay_out(self) -> None:
        left = QWidget(minimumWidth=280)
        column(
            self._search,
            self._empty,
            (self.get, LEFT),
            (self.list, 1),
            self._offer,
            self._summary,
            row(self.again, self.folders, None),
            gap=3 * SPACING,
            margins=LIST_MARGINS,
            on=left,
        )
        splitter = beside(left, self.page, [560, 400])
        splitter.setStretchFactor(0, 1)
        column(splitter, on=self)

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
        self.get.setVisible(not self._total)


class ModelPage(QWidget):
    """Shows a model: what it is, the drafts for it, what pairs brought, and what one can do with the file.

    Attributes:
        open, join, reveal, verify, delete, find_draft, stop: Buttons and menu entries.

    Signals:
        pair_requested: Load it with this draft.
    """

    pair_requested = Signal(str, str)

    def __init__(self) -> None:
        super().__init__(minimumWidth=300)
        theme.set_role(self, "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._path = ""
        self._ranked: list[RankedDraft] = []
        self._waiting: list[RankedDraft] = []
        """Drafts that aren't on the page yet."""
        self._can_verify = False
        self._title = label(role="heading", wraps=True, scale=1.15)
        self._problem = label(role="bad", wraps=True)
        self._facts = QGridLayout()
        self._drafts = column()
        self._drafts_heading = label("Drafts for this model", "heading")
        self._own_head = label(wraps=True, figures=True)
        self._drafts_status = label(role="quiet", wraps=True)
        self._all_drafts = small_button("")
        self.find_draft = small_button("Find a draft on Hugging Face…")
        self._status = label(role="quiet", wraps=True)
        self._bar = QProgressBar(textVisible=False, maximum=1000)
        self._bar.setAccessibleName("Verifying the file")
        self.stop = small_button("Stop")
        self.open, self.join = QPushButton("Open…"), QPushButton("Join…")
        for button in (self.open, self.join):
            theme.set_role(button, "primary")
        self._file = QPushButton("File ▾")
        self._file.setAccessibleName("File actions")
        self._menu = QMenu(self._file, toolTipsVisible=True)
        self._file.setMenu(self._menu)
        self.reveal = self._menu.addAction("Show in folder")
        copy = self._menu.addAction("Copy path")
        self.verify = self._menu.addAction("Verify checksum")
        self._menu.addSeparator()
        self.delete = self._menu.addAction("Delete…")
        self._lay_out()
        copy.triggered.connect(lambda: QGuiApplication.clipboard().setText(self._path))
        self._all_drafts.clicked.connect(self._on_all_drafts)
        self.clear()

    # ------------------------------------------------------------ what is shown

    def path(self) -> str:
        """The model that is shown; empty for none."""
        return self._path

    def clear(self, message: str = "") -> None:
        """Show no model. ``message`` says what happened to the last one."""
        self._path = ""
        self._nothing.setText(visible(message) or _NOTHING)
        self._inside.hide()
        self._nothing.show()

    def show_model(self, entry: LibraryEntry, fit: FitBadge, freed: int) -> None:
        """``freed``: bytes that deleting it frees."""
        path = str(entry.path)
        if path != self._path:
            self.show_drafts([], "Looking for drafts…")
            self.show_status("")
            self.show_verifying(None)
        self._path = path
        self._title.setText(printable(entry.title, 120))
        away = "" if entry.available else "This folder isn't available right now."
        show_text(self._problem, entry.problem or away, "quiet" if entry.is_head and entry.available else "bad")
        self._show_facts([(name, value) for name, value in _facts(entry, fit) if value])
        self.open.setEnabled(entry.usable)
        self.open.setHidden(entry.in_pieces)
        self.join.setVisible(entry.in_pieces and not entry.read_only)
        self._can_verify = entry.available and (entry.origin is not None or (bool(entry.sha256) and all(entry.sha256)))
        self._refresh_verify()
        is_starter = entry.folder.kind is FolderKind.STARTER
        self.delete.setVisible(is_starter or not (entry.available and entry.read_only))
        if is_starter:
            self.delete.setText("Hide")
        elif entry.available:
            self.delete.setText(f"Delete (frees {size_text(freed)})…" if freed else "Delete…")
        else:
            self.delete.setText("Remove from list")
        for widget in (self._drafts_heading, self._drafts_status, self.find_draft):
            widget.setVisible(entry.usable)
        self._nothing.hide()
        self._inside.show()

    def show_drafts(self, ranked: Sequence[RankedDraft], status: str = "", own_head: Trial | None = None) -> None:
        """Drafts, best first; those that don't fit are gray and say why. ``own_head``: the trial of the head inside."""
        others = [one for one in ranked if not one.verdict.fits]
        first = [one for one in ranked if one.verdict.fits][:FIRST_DRAFTS] + others[:FIRST_DRAFTS]
        self._ranked = list(ranked)
        self._show_draft_rows(first)
        self._all_drafts.setText(f"Show all {len(ranked)}")
        self._all_drafts.setVisible(len(first) < len(ranked))
        show_text(self._drafts_status, status)
        measured = "" if own_head is None else f"MTP head inside. Measured here: {measured_here(own_head)}"
        show_text(self._own_head, measured, trial_role(own_head))

    def show_verifying(self, share: float | None) -> None:
        """The progress of a check of the file, 0 to 1; ``None`` if there is none."""
        for widget in (self._bar, self.stop):
            widget.setVisible(share is not None)
        self._refresh_verify()
        if share is not None:
            self._bar.setValue(round(share * 1000))

    def show_status(self, text: str, role: str = "quiet") -> None:
        """Show the result of the last action."""
        show_text(self._status, text, role)

    # ------------------------------------------------------------ inside

    def _refresh_verify(self) -> None:
        self.verify.setEnabled(self._can_verify and self._bar.isHidden())
        self.verify.setToolTip(
            "" if self._can_verify else "Slipstream didn't download this file, so its checksum isn't known."
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
            row(self.open, self.join, self._file, None),
            row((self._bar, 1), self.stop),
            self._status,
            self._facts,
            self._drafts_heading,
            self._own_head,
            self._drafts_status,
            self._drafts,
            (self._all_drafts, LEFT),
            (self.find_draft, LEFT),
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
            shown = label(value, wraps=True, figures=True)
            shown.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            shown.setAccessibleName(f"{name}: {value}")
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
        """A few at a time, because each takes the window's thread more than a millisecond."""
        now, self._waiting = self._waiting[:_ROWS_AT_ONCE], self._waiting[_ROWS_AT_ONCE:]
        for ranked in now:
            self._drafts.addWidget(self._draft_row(ranked))
        if self._waiting:
            QTimer.singleShot(0, self, self._add_draft_rows)

    def _draft_row(self, ranked: RankedDraft) -> QWidget:
        entry, verdict = ranked.entry, ranked.verdict
        quantization = entry.summary.quantization if entry.summary else ""
        parts = (printable(entry.title, 120), printable(quantization), size_text(entry.size))
        kind = "MTP head in a separate file" if entry.is_head else ""
        title = label(
            " · ".join(part for part in (kind, *parts) if part), None if verdict.fits else "quiet", wraps=True
        )
        title.setToolTip(plain_tooltip(str(entry.path)))
        words = column(title, gap=0)
        if ranked.trial is not None:
            measured = f"Measured here: {measured_here(ranked.trial)}"
            words.addWidget(label(measured, trial_role(ranked.trial), wraps=True, figures=True))
        sentences = (verdict.reason, verdict.warning, verdict.note)
        mood = "warning" if verdict.fits and verdict.warning is not None else "quiet"
        words.addWidget(label(" ".join(sentence for sentence in sentences if sentence), mood, wraps=True))
        widget = QWidget()
        line = row((words, 1), on=widget)
        if verdict.fits:
            use = small_button("Load together")
            use.setAccessibleName(f"Load together with the draft {title.text()}")
            use.clicked.connect(lambda: self.pair_requested.emit(self._path, str(entry.path)))
            line.addWidget(use, 0, TOP)
        return widget


def _head(entry: LibraryEntry) -> str:
    """Whether a model has an MTP head, and whether it is used; empty if it has none."""
    found = entry.summary
    if found is None or found.mtp_head == "none":
        return ""
    if found.mtp_head == "alone":
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
            ("Parameters", f"{count_text(found.parameters)} ({printable(found.architecture)})"),
            ("Quantization", f"{printable(found.quantization)}, {size_text(entry.size)}"),
            ("Context", f"{found.training_context:,} tokens in training" if found.training_context else ""),
            ("Layers", f"{found.layers}{heads}" if found.layers else ""),
            ("Experts", experts),
            ("MTP head", _head(entry)),
            ("Vocabulary", f"{tokenizer.size:,} tokens ({printable(tokenizer.kind)})" if tokenizer else ""),
            ("Chat template", "built in" if found.template_sha256 else "none (ChatML is used)"),
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
