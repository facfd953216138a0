"""The list of the library: one row a model, sorted by a click on a heading, filtered by words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QModelIndex,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
    Signal,
    Slot,
)
from PySide6.QtGui import QBrush
from PySide6.QtWidgets import QAbstractItemView, QFrame, QHeaderView, QTreeView, QWidget

from app.ui import theme
from app.ui.models.fit_badge import UNKNOWN_FIT, FitBadge
from app.ui.widgets import plain_tooltip

COLUMNS = ("Model", "Quantization", "Size", "Context", "Last used", "Fits")
_LEAST_WIDTHS = {1: 460, 3: 620, 4: 540, 5: 380}
"""In a narrower list a column makes room for those that matter most."""
_FIT = 5
_FITS_ORDER = {"good": 0, "warning": 1, "bad": 2, "quiet": 3}

AnyIndex = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True)
class LibraryRow:
    """A model as the list shows it. ``sort_keys`` has a key for each of `COLUMNS`."""

    path: str
    cells: tuple[str, str, str, str, str]
    sort_keys: tuple[object, ...]
    fit: FitBadge = UNKNOWN_FIT
    tooltip: str = ""
    is_grey: bool = False
    """It is not there at the moment, or cannot be used."""
    words: str = field(default="", repr=False)
    """What a search looks into, lower case."""


class LibraryModel(QAbstractTableModel):
    """Rows for a view."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[LibraryRow] = []
        self._places: dict[str, int] = {}

    def set_rows(self, rows: Sequence[LibraryRow]) -> None:
        self.beginResetModel()
        self._rows = list(rows)
        self._places = {row.path: place for place, row in enumerate(self._rows)}
        self.endResetModel()

    def row(self, place: int) -> LibraryRow:
        return self._rows[place]

    def place(self, path: str) -> int | None:
        return self._places.get(path)

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own default
        return 0 if parent.isValid() else len(self._rows)

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
        row, column = self._rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return row.fit.text if column == _FIT else row.cells[column]
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tooltip(row.fit.detail if column == _FIT and row.fit.detail else row.tooltip)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.ForegroundRole:
            return _brush(row, column)
        return None

    def sort_key(self, place: int, column: int) -> object:
        row = self._rows[place]
        return _FITS_ORDER[row.fit.mood] if column == _FIT else row.sort_keys[column]


class _Proxy(QSortFilterProxyModel):
    """Sorts by what cells mean and hides rows without the words; models that are not there come last."""

    def __init__(self, source: LibraryModel) -> None:
        super().__init__()
        self._source = source
        self._words: list[str] = []
        self.setSourceModel(source)

    def set_words(self, text: str) -> None:
        self._words = text.lower().split()
        self.invalidate()

    def filterAcceptsRow(self, row: int, _parent: AnyIndex) -> bool:  # noqa: N802
        words = self._source.row(row).words
        return all(word in words for word in self._words)

    def lessThan(self, left: AnyIndex, right: AnyIndex) -> bool:  # noqa: N802
        column = left.column()
        first, second = (self._source.sort_key(index.row(), column) for index in (left, right))
        return bool(first < second)  # type: ignore[operator]


class LibraryList(QTreeView):
    """The view.

    Signals:
        chosen: The path of the selected model; empty for none.
        opened: The path of a model that was double-clicked.
    """

    chosen = Signal(str)
    opened = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows = LibraryModel()
        self._proxy = _Proxy(self._rows)
        self.setModel(self._proxy)
        self.setAccessibleName("Models of the library")
        self.setRootIsDecorated(False)
        self.setUniformRowHeights(True)
        self.setAllColumnsShowFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(theme.tabular(self.font()))
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setSortingEnabled(True)
        self.sortByColumn(4, Qt.SortOrder.DescendingOrder)
        header = self.header()
        header.setStretchLastSection(False)
        header.setSectionsMovable(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self.activated.connect(self._on_activated)
        theme.follow(self, self.viewport().update)

    def show_rows(self, rows: Sequence[LibraryRow]) -> None:
        """Show these instead, and keep what is selected."""
        path = self.path()
        blocked = self.selectionModel().blockSignals(True)
        self._rows.set_rows(rows)
        self.select(path)
        self.selectionModel().blockSignals(blocked)
        if self.path() != path:
            self.chosen.emit(self.path())

    def set_words(self, text: str) -> None:
        """Show only models with all these words."""
        self._proxy.set_words(text)

    def select(self, path: str) -> None:
        """Select this model, if it is shown."""
        place = self._rows.place(path)
        if place is not None:
            self.setCurrentIndex(self._proxy.mapFromSource(self._rows.index(place, 0)))

    def path(self) -> str:
        """The selected model; empty for none."""
        indexes = self.selectionModel().selectedRows()
        return self._rows.row(self._proxy.mapToSource(indexes[0]).row()).path if indexes else ""

    def shown(self) -> int:
        """How many models the words leave."""
        return self._proxy.rowCount()

    def resizeEvent(self, event: object) -> None:
        super().resizeEvent(event)  # type: ignore[arg-type]
        for column, least in _LEAST_WIDTHS.items():
            self.setColumnHidden(column, self.width() < least)

    @Slot(QItemSelection, QItemSelection)
    def _on_selection_changed(self) -> None:
        self.chosen.emit(self.path())

    @Slot(QModelIndex)
    def _on_activated(self) -> None:
        if path := self.path():
            self.opened.emit(path)


def _alignment(column: int) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column in (2, 3) else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter


def _brush(row: LibraryRow, column: int) -> QBrush | None:
    if row.is_grey:
        return QBrush(theme.current().quiet)
    return QBrush(getattr(theme.current(), row.fit.mood)) if column == _FIT else None
