"""One model of the library: what it is, the drafts for it, what pairs brought, and what one can do with the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QGridLayout,
    QMenu,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QWidget,
)

from app.models.text import visible
from app.ui.widgets import theme
from app.ui.widgets.controls import clear_layout, label, plain_tooltip, scrolling, small_button
from app.ui.widgets.layouts import LEFT, TOP, column, row
from app.ui.widgets.theme import SPACING

_NOTHING = "Choose a model to see what it is and which drafts fit it."
_ROWS_AT_ONCE = 3
FIRST_DRAFTS = 5
"""Rows that are shown at once, of the drafts that fit and of the others; the rest when asked for."""


@dataclass(frozen=True)
class DraftRow:
    """A draft as the page shows it. ``reason`` says whether it fits the vocabulary, or why not."""

    path: str
    title: str
    """Name, quantization, size."""
    fits: bool
    reason: str
    measured: str = ""
    """``68 % kept · 1.8× plain``; empty before a trial."""
    is_warning: bool = False


@dataclass(frozen=True)
class ModelDetails:
    """Everything the page shows of one model."""

    path: str
    title: str
    facts: tuple[tuple[str, str], ...]
    problem: str = ""
    """Why it cannot be loaded; empty where it can."""
    can_open: bool = True
    can_verify: bool = False
    can_delete: bool = False
    delete_text: str = "Delete…"
    """With the space it frees."""


class ModelPage(QWidget):
    """Shows a model.

    Attributes:
        open, reveal, verify, delete, find_draft, stop: Buttons and menu entries.

    Signals:
        pair_requested: Load it with this draft.
    """

    pair_requested = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        theme.set_role(self, "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._path = ""
        self._waiting: list[DraftRow] = []
        """Drafts that are not on the page yet."""
        self._can_verify = False
        self._is_verifying = False
        self._rows: list[DraftRow] = []
        self._title = label(role="heading", wraps=True, scale=1.15)
        self._problem = label(role="bad", wraps=True)
        self._facts = QGridLayout()
        self._drafts = column()
        self._drafts_heading = label("Drafts for it", "heading")
        self._drafts_status = label(role="quiet", wraps=True)
        self._all_drafts = small_button("")
        self.find_draft = small_button("Find a draft on Hugging Face…")
        self._status = label(role="quiet", wraps=True)
        self._bar = QProgressBar(textVisible=False)
        self._bar.setRange(0, 1000)
        self._bar.setAccessibleName("Checking the file")
        self.stop = small_button("Stop")
        self.open = QPushButton("Open…")
        theme.set_role(self.open, "primary")
        self._file = QPushButton("File ▾")
        self._file.setAccessibleName("What to do with the file")
        self._menu = QMenu(self._file)
        self._menu.setToolTipsVisible(True)
        self._file.setMenu(self._menu)
        self.reveal = self._menu.addAction("Show in folder")
        self._copy = self._menu.addAction("Copy path")
        self.verify = self._menu.addAction("Verify checksum")
        self._menu.addSeparator()
        self.delete = self._menu.addAction("Delete…")
        self._lay_out()
        self._copy.triggered.connect(lambda: QGuiApplication.clipboard().setText(self._path))
        self._all_drafts.clicked.connect(self._on_all_drafts)
        self.clear()

    # ------------------------------------------------------------ what is shown

    def path(self) -> str:
        """The model that is shown; empty for none."""
        return self._path

    def clear(self, message: str = "") -> None:
        """Show no model. ``message`` says what became of the last one."""
        self._path = ""
        self._nothing.setText(visible(message) or _NOTHING)
        self._inside.hide()
        self._nothing.show()

    def show_model(self, details: ModelDetails) -> None:
        if details.path != self._path:
            self.show_drafts([], "Looking for drafts …")
            self.show_status("")
            self.show_verifying(None)
        self._path = details.path
        self._title.setText(details.title)
        self._problem.setText(details.problem)
        self._problem.setVisible(bool(details.problem))
        self._show_facts(details.facts)
        self.open.setEnabled(details.can_open)
        self._can_verify = details.can_verify
        self._refresh_menu()
        self.delete.setVisible(details.can_delete)
        self.delete.setText(details.delete_text)
        for widget in (self._drafts_heading, self._drafts_status, self.find_draft):
            widget.setVisible(details.can_open)
        self._nothing.hide()
        self._inside.show()

    def show_drafts(self, rows: Sequence[DraftRow], status: str = "") -> None:
        """Drafts in the order they are to be preferred; those that do not fit are grey and say why."""
        others = [one for one in rows if not one.fits]
        first = [one for one in rows if one.fits][:FIRST_DRAFTS] + others[:FIRST_DRAFTS]
        self._rows = list(rows)
        self._show_draft_rows(first)
        self._all_drafts.setText(f"Show all {len(rows)}")
        self._all_drafts.setVisible(len(first) < len(rows))
        self._drafts_status.setText(status)
        self._drafts_status.setVisible(bool(status))

    def show_verifying(self, share: float | None) -> None:
        """How far a check of the file is, 0 to 1; ``None`` while there is none."""
        for widget in (self._bar, self.stop):
            widget.setVisible(share is not None)
        self._is_verifying = share is not None
        self._refresh_menu()
        if share is not None:
            self._bar.setValue(round(share * 1000))

    def show_status(self, text: str, role: str = "quiet") -> None:
        """What came of the last action."""
        self._status.setText(text)
        self._status.setVisible(bool(text))
        theme.set_role(self._status, role)

    # ------------------------------------------------------------ inside

    def _refresh_menu(self) -> None:
        self.verify.setEnabled(self._can_verify and not self._is_verifying)
        self.verify.setToolTip("" if self._can_verify else "No checksum is known: Slipstream did not download it.")

    def _lay_out(self) -> None:
        self._inside = QWidget()
        self._nothing = label(_NOTHING, "quiet", wraps=True)
        self._facts.setHorizontalSpacing(4 * SPACING)
        self._facts.setVerticalSpacing(SPACING)
        self._facts.setColumnStretch(1, 1)
        column(
            self._title,
            self._problem,
            row(self.open, self._file, None),
            row((self._bar, 1), self.stop),
            self._status,
            self._facts,
            self._drafts_heading,
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
        self.setMinimumWidth(300)

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
        self._show_draft_rows(self._rows)
        self._all_drafts.hide()

    def _show_draft_rows(self, rows: Sequence[DraftRow]) -> None:
        clear_layout(self._drafts)
        self._waiting = list(rows)
        self._add_draft_rows()

    @Slot()
    def _add_draft_rows(self) -> None:
        """A few at a time: each costs the window's thread more than a millisecond."""
        now, self._waiting = self._waiting[:_ROWS_AT_ONCE], self._waiting[_ROWS_AT_ONCE:]
        for draft in now:
            self._drafts.addWidget(self._draft_row(draft))
        if self._waiting:
            QTimer.singleShot(0, self, self._add_draft_rows)

    def _draft_row(self, draft: DraftRow) -> QWidget:
        widget = QWidget()
        title = label(draft.title, None if draft.fits else "quiet", wraps=True)
        title.setToolTip(plain_tooltip(draft.path))
        reason = label(draft.reason, "warning" if draft.fits and draft.is_warning else "quiet", wraps=True)
        words = column(title, gap=0)
        if draft.measured:
            words.addWidget(label(f"Measured here: {draft.measured}", "good", wraps=True, figures=True))
        words.addWidget(reason)
        line = row((words, 1), on=widget)
        if draft.fits:
            use = small_button("Load with it")
            use.setAccessibleName(f"Load with the draft {draft.title}")
            use.clicked.connect(partial(self._on_use, draft.path))
            line.addWidget(use, 0, TOP)
        return widget

    def _on_use(self, draft: str, _checked: bool = False) -> None:
        self.pair_requested.emit(self._path, draft)
