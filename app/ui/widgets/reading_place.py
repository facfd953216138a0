"""Keeps the line being read in its place while the zoom changes the size of all text."""

from __future__ import annotations

from PySide6.QtCore import QObject, QPoint, QTimer, Slot
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QTextEdit
from shiboken6 import isValid

from app.ui.widgets import theme
from app.ui.widgets.column import Column

SETTLING_MS = 500
"""After a change of zoom: how long the column may take to learn how high its entries are."""


class ReadingPlace(QObject):
    """For one column, whose entries show their text in a `QTextEdit`. If its end was in view, it stays in view."""

    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self._column = column
        self._view: QTextEdit | None = None
        self._position = 0
        """The first character of the line, in the view's document."""
        self._y = 0
        """Where the line was, in pixels from the top of the column."""
        self._settling = QTimer(self, singleShot=True, interval=SETTLING_MS)
        self._settling.timeout.connect(self._forget)
        theme.notifier().zoom_begins.connect(self._remember)
        theme.notifier().zoom_changed.connect(self._on_zoomed)
        # Later, because the column is still placing its entries.
        self._soon = QTimer(self, singleShot=True, interval=0)
        self._soon.timeout.connect(self._restore)
        column.verticalScrollBar().rangeChanged.connect(self._on_range_changed)

    @Slot()
    def _remember(self) -> None:
        """The first line that is completely in view."""
        if self._settling.isActive():
            return  # of several changes in a row, the place before the first one counts
        self._view = None if self._column.follows else self._first_view()
        if self._view is not None:
            inside = self._view.mapFrom(self._column.viewport(), QPoint(0, 0)).y()
            cursor = self._view.cursorForPosition(QPoint(0, max(0, inside)))
            if self._view.cursorRect(cursor).top() < inside:
                cursor.movePosition(QTextCursor.MoveOperation.Down)
            self._position, self._y = cursor.position(), self._place_of(cursor)

    @Slot()
    def _on_zoomed(self) -> None:
        self._settling.start()
        self._column.arrange()
        self._restore()

    @Slot()
    def _on_range_changed(self) -> None:
        if self._settling.isActive():
            self._soon.start()

    @Slot()
    def _restore(self) -> None:
        if self._view is None or not self._settling.isActive() or not isValid(self._view):
            return
        cursor = QTextCursor(self._view.document())
        if self._position < self._view.document().characterCount():
            cursor.setPosition(self._position)
            bar = self._column.verticalScrollBar()
            bar.setValue(bar.value() + self._place_of(cursor) - self._y)

    @Slot()
    def _forget(self) -> None:
        self._view = None

    def _first_view(self) -> QTextEdit | None:
        """The one at the upper edge of the column, or the first one below it."""
        viewport = self._column.viewport()
        shown = [one for one in viewport.findChildren(QTextEdit) if one.isVisible()]
        tops = {one: one.mapTo(viewport, QPoint(0, 0)).y() for one in shown}
        below = [one for one in shown if tops[one] + one.height() > 0]
        return min(below, key=lambda one: tops[one], default=None)

    def _place_of(self, cursor: QTextCursor) -> int:
        assert self._view is not None
        top = self._view.cursorRect(cursor).topLeft()
        return self._view.mapTo(self._column.viewport(), top).y()
