"""The library's list: one row per model, sorted by clicking a heading, filtered by words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QItemSelection, QModelIndex, QPersistentModelIndex, Qt, Signal, Slot
from PySide6.QtGui import QBrush
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTreeView, QWidget

from app import words
from app.models.library.library import LibraryEntry
from app.ui.models.fit import FitBadge
from app.ui.widgets import theme
from app.ui.widgets.controls import plain_tooltip
from app.ui.widgets.table import LEFT, RIGHT, hide_columns, set_up_table
from app.ui.widgets.theme import SPACING
from app.words import printable

COLUMNS = ("Model", "Quantization", "Size", "Context", "Last used", "Fits")
_LEAST_WIDTHS = {1: 460, 3: 620, 4: 540, 5: 380}
"""Less important columns are hidden in a narrower list."""
_FIT = 5
_SORT_ARROW, _CELL_MARGIN = 20, 3 * SPACING
_FITS_ORDER = ("good", "warning", "bad", "quiet")
_DAY_SECONDS = 24 * 3600
_HEAD = "This file has only the head of a model. It drafts for that model, and can't be chatted with."
_GONE = FitBadge("Folder missing", detail="This folder isn't available right now. Nothing has been removed.")

AnyIndex = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True)
class LibraryRow:
    """A row of the list, with a text and a sort key for each of `COLUMNS`."""

    path: str
    cells: tuple[str, ...]
    sort_keys: tuple[Any, ...]
    fit: FitBadge
    tooltip: str
    is_gray: bool
    """The folder is unavailable right now, or the model can't be used."""
    words: str = field(repr=False)
    """The searched text, in lower case."""


def row_of(entry: LibraryEntry, fit: FitBadge, now: float) -> LibraryRow:
    """A row of the list. ``now``: seconds since 1970."""
    summary, used = entry.summary, entry.last_used or 0.0
    quantization = summary.quantization if summary else ""
    context = summary.training_context if summary else 0
    if not entry.available:
        fit = _GONE
    elif entry.is_head:
        fit = FitBadge(entry.head_title, "quiet", _HEAD)
    elif entry.problem:
        fit = FitBadge("Can't be loaded", "bad", entry.problem)
    return LibraryRow(
        path=str(entry.path),
        cells=(
            printable(entry.title, 120),
            printable(quantization) or words.UNKNOWN,
            words.size(entry.size),
            f"{words.number(context)}" if context else words.UNKNOWN,
            when(used, now),
            fit.text,
        ),
        sort_keys=(entry.title.casefold(), quantization, entry.size, context, used, _FITS_ORDER.index(fit.mood)),
        fit=fit,
        tooltip=f"{entry.path}\n{entry.problem}".strip(),
        is_gray=not entry.usable,
        words=entry.words,
    )


def when(moment: float, now: float) -> str:
    """``today``, ``yesterday``, ``5 days ago``, ``Oct 3, 2026``."""
    if not moment:
        return "never"
    days = int((now - time.timezone) // _DAY_SECONDS - (moment - time.timezone) // _DAY_SECONDS)
    if days <= 1:
        return "yesterday" if days == 1 else "today"
    return f"{days} days ago" if days < 14 else words.date(moment)


class LibraryModel(QAbstractTableModel):
    """Rows for a view, sorted and filtered here: with a proxy, each comparison would be a call from Qt. ``shown``: the
    rows that match, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self._all: list[LibraryRow] = []
        self.shown: list[LibraryRow] = []
        self._places: dict[str, int] = {}
        self._words: list[str] = []
        self._column = 0
        self._is_descending = False

    def set_rows(self, rows: Sequence[LibraryRow]) -> None:
        self._all = list(rows)
        self._arrange()

    def set_words(self, text: str) -> None:
        """Show only rows with all these words."""
        self._words = text.lower().split()
        self._arrange()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._column, self._is_descending = column, order is Qt.SortOrder.DescendingOrder
        self._arrange()

    def place(self, path: str) -> int | None:
        """The row that shows a model."""
        return self._places.get(path)

    def texts(self, column: int) -> set[str]:
        """The texts of a column, in all rows."""
        return {row.cells[column] for row in self._all}

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own default
        return 0 if parent.isValid() else len(self.shown)

    def columnCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008, N802
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(  # noqa: N802
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section]
        return _alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row, column = self.shown[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return row.cells[column]
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tooltip(row.fit.detail if column == _FIT and row.fit.detail else row.tooltip)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.ForegroundRole:
            return _brush(row, column)
        return None

    def _arrange(self) -> None:
        self.layoutAboutToBeChanged.emit()
        before = self.persistentIndexList()
        paths = [self.shown[index.row()].path for index in before]
        found = [row for row in self._all if all(word in row.words for word in self._words)]
        found.sort(key=lambda row: row.sort_keys[self._column], reverse=self._is_descending)
        found.sort(key=lambda row: row.is_gray)  # unusable ones come last, whatever the order
        self.shown = found
        self._places = {row.path: place for place, row in enumerate(found)}
        self.changePersistentIndexList(before, [self._moved(*one) for one in zip(before, paths, strict=True)])
        self.layoutChanged.emit()

    def _moved(self, index: QModelIndex, path: str) -> QModelIndex:
        place = self._places.get(path)
        return QModelIndex() if place is None else self.index(place, index.column())


class LibraryList(QTreeView):
    """The view.

    Attributes:
        rows: Its model.

    Signals:
        chosen: The path of the selected model; empty for none.
        opened: The path of a double-clicked model.
    """

    chosen = Signal(str)
    opened = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = LibraryModel()
        self.setModel(self.rows)
        set_up_table(self, "Models in the library")
        self.setRootIsDecorated(False)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setSortingEnabled(True)
        self.sortByColumn(4, Qt.SortOrder.DescendingOrder)
        self.header().setSectionsMovable(False)
        for column in range(1, len(COLUMNS)):
            self.header().setSectionResizeMode(column, QHeaderView.ResizeMode.Fixed)
        self.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self.activated.connect(self._on_activated)
        theme.follow(self, self.viewport().update)

    def show_rows(self, rows: Sequence[LibraryRow]) -> None:
        """Replace the rows, keeping the selection."""
        path = self.path()
        self.rows.set_rows(rows)
        self._fit_columns()
        if self.path() != path:
            self.chosen.emit(self.path())

    def select(self, path: str) -> None:
        """Select this model, if it is shown."""
        place = self.rows.place(path)
        if place is not None:
            self.setCurrentIndex(self.rows.index(place, 0))

    def path(self) -> str:
        """The selected model; empty for none."""
        indexes = self.selectionModel().selectedRows()
        return self.rows.shown[indexes[0].row()].path if indexes else ""

    def resizeEvent(self, event: object) -> None:
        super().resizeEvent(event)  # type: ignore[arg-type]
        hide_columns(self, _LEAST_WIDTHS)

    def _fit_columns(self) -> None:
        """Fit columns to their content. Qt would ask for each cell, again and again."""
        measure = self.fontMetrics().horizontalAdvance
        for column in range(1, len(COLUMNS)):
            widest = max(map(measure, self.rows.texts(column)), default=0)
            heading = measure(COLUMNS[column]) + _SORT_ARROW
            self.header().resizeSection(column, max(widest, heading) + 2 * _CELL_MARGIN)

    @Slot(QItemSelection, QItemSelection)
    def _on_selection_changed(self) -> None:
        self.chosen.emit(self.path())

    @Slot(QModelIndex)
    def _on_activated(self) -> None:
        if path := self.path():
            self.opened.emit(path)


def _alignment(column: int) -> Qt.AlignmentFlag:
    return RIGHT if column in (2, 3) else LEFT


def _brush(row: LibraryRow, column: int) -> QBrush | None:
    if row.is_gray:
        return QBrush(theme.current().quiet)
    return QBrush(getattr(theme.current(), row.fit.mood)) if column == _FIT else None
