"""Tables: a heading, rows of the same height, and columns that are hidden in a narrow window."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QBrush, QResizeEvent
from PySide6.QtWidgets import QFrame, QHeaderView, QTreeView, QTreeWidget, QTreeWidgetItem

from app.ui.widgets import theme
from app.ui.widgets.controls import plain_tooltip

RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_VALUE = Qt.ItemDataRole.UserRole
_MOODS = Qt.ItemDataRole.UserRole + 1


def set_up_table(view: QTreeView, name: str, *, stretched: int = 0) -> None:
    """Make a tree view look like the other tables, with one column that takes the remaining space."""
    view.setAccessibleName(name)
    view.setUniformRowHeights(True)
    view.setAllColumnsShowFocus(True)
    view.setFrameShape(QFrame.Shape.NoFrame)
    view.setFont(theme.tabular(view.font()))
    header = view.header()
    header.setStretchLastSection(False)
    header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
    header.setSectionResizeMode(stretched, QHeaderView.ResizeMode.Stretch)


def hide_columns(view: QTreeView, least_widths: Mapping[int, int]) -> None:
    """Hide each column whose least width, in pixels of the whole table, is more than the table has."""
    for column, least in least_widths.items():
        view.setColumnHidden(column, view.width() < least)


class Table(QTreeWidget):
    """Rows without children, each of which may represent a value."""

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        *,
        right: Collection[int] = (),
        stretched: int = 0,
        least_widths: Mapping[int, int] | None = None,
    ) -> None:
        """``right`` are right-aligned columns; ``least_widths`` as in `hide_columns`."""
        super().__init__()
        self._right = right
        self._least_widths = least_widths or {}
        self.setHeaderLabels(columns)
        self.setRootIsDecorated(False)
        set_up_table(self, name, stretched=stretched)
        for column in right:
            self.headerItem().setTextAlignment(column, RIGHT)
        theme.follow(self, self._color_all)

    def add(self, cells: Sequence[str], value: object = None) -> QTreeWidgetItem:
        """Add a row at the end."""
        item = QTreeWidgetItem(list(cells))
        item.setData(0, _VALUE, value)
        for column in self._right:
            item.setTextAlignment(column, RIGHT)
        self.addTopLevelItem(item)
        return item

    def dress(self, item: QTreeWidgetItem, cells: Sequence[str], moods: Sequence[str], tooltip: str) -> None:
        """Give a row these texts, each in the color of its role in `theme.Theme` if that isn't empty, and a plain-text
        tooltip."""
        item.setData(0, _MOODS, tuple(moods))
        for column, text in enumerate(cells):
            item.setText(column, text)
            item.setToolTip(column, plain_tooltip(tooltip))
        _color(item)

    def item_of(self, value: object) -> QTreeWidgetItem | None:
        """The row that represents ``value``."""
        return next((item for item in self._items() if item.data(0, _VALUE) == value), None)

    def chosen(self) -> object | None:
        """The value of the selected row."""
        items = self.selectedItems()
        return items[0].data(0, _VALUE) if items else None

    def _items(self) -> list[QTreeWidgetItem]:
        root = self.invisibleRootItem()
        return [item for place in range(root.childCount()) if (item := root.child(place)) is not None]

    def _color_all(self) -> None:
        for item in self._items():
            _color(item)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        hide_columns(self, self._least_widths)


class RowsTable(Table):
    """Rows of text, none of which can be selected. The tooltip of the column that takes the remaining space says all
    of it.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        *,
        nothing: Sequence[str],
        height: int,
        stretched: int,
        right: Collection[int] = (),
        least_widths: Mapping[int, int] | None = None,
    ) -> None:
        """``nothing`` is the only row if there is no other; ``height`` is the usual one, in pixels."""
        super().__init__(name, columns, right=right, stretched=stretched, least_widths=least_widths)
        self._nothing, self._height, self._stretched = nothing, height, stretched
        self._rows: list[list[str]] | None = None
        self.setSelectionMode(QTreeWidget.SelectionMode.NoSelection)
        self.setMinimumHeight(120)

    def show_rows(self, rows: list[list[str]]) -> None:
        if rows == self._rows:
            return
        self._rows = rows
        self.clear()
        for cells in rows:
            self.add(cells).setToolTip(self._stretched, plain_tooltip(cells[self._stretched]))
        if not rows:
            self.add(self._nothing)

    def sizeHint(self) -> QSize:
        return QSize(400, self._height)


def _color(item: QTreeWidgetItem) -> None:
    for column, mood in enumerate(item.data(0, _MOODS) or ()):
        if mood:
            item.setForeground(column, QBrush(getattr(theme.current(), mood)))
