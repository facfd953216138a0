"""The keyboard in a `Column`: in which order the Tab key goes, and the ring around what has the focus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from PySide6.QtCore import QMargins, QObject, QPoint, QRect, QSize, Qt, Slot
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QWidget

from app.ui.widgets import focus_ring
from app.ui.widgets.entries import GAP, Entry


def _stops(widget: QWidget) -> list[QWidget]:
    """Where the Tab key stops in a widget, in its own order."""
    return [one for one in widget.findChildren(QWidget) if one.focusPolicy() & Qt.FocusPolicy.TabFocus]


class ColumnFocus(QObject):
    """For one column."""

    def __init__(self, column: QAbstractScrollArea) -> None:
        super().__init__(column)
        self._column = column
        self._ringed: QWidget | None = None
        """What has the keyboard: the column itself, or a message, or the text of one."""
        application = cast(QApplication, QApplication.instance())
        application.focusChanged.connect(self._on_focus_changed)

    def order(self, entry: Entry, built: Iterable[Entry]) -> None:
        """The Tab key goes through the messages as one reads, also where older ones were built later."""
        stops = _stops(entry.widget) if entry.widget is not None else []
        if stops == entry.stops:
            return
        entry.stops = stops
        before = (one for one in built if one.stops and (one.top < entry.top or entry.top < 0) and one != entry)
        above = max(before, key=lambda one: one.top, default=None)
        last: QWidget = self._column if above is None else above.stops[-1]
        for following in stops:
            QWidget.setTabOrder(last, following)
            last = following

    def ring(self, built: Iterable[Entry], width: int) -> QRect | None:
        """Around what has the keyboard: a message, which is so wide, or all of them."""
        if self._ringed is None or self._ringed is self._column:
            return None if self._ringed is None else self._column.viewport().rect()
        entry = next((one for one in built if one.widget and one.widget.isAncestorOf(self._ringed)), None)
        if entry is None or entry.widget is None:
            return None
        return QRect(entry.widget.pos(), QSize(width, entry.height)) + QMargins(5, 5, 5, 5)

    @Slot("QWidget*", "QWidget*")
    def _on_focus_changed(self, _old: QWidget | None, now: QWidget | None) -> None:
        """Bring a control that was reached with the keyboard into view."""
        viewport, bar = self._column.viewport(), self._column.verticalScrollBar()
        ringed, self._ringed = self._ringed, focus_ring.read_by_keyboard(self._column, now)
        if ringed is not self._ringed:
            viewport.update()
        if now is None or not viewport.isAncestorOf(now) or now.height() > viewport.height() // 2:
            return
        place = QRect(now.mapTo(viewport, QPoint(0, 0)), now.size())
        if place.top() < 0:
            bar.setValue(bar.value() + place.top() - GAP)
        elif place.bottom() > viewport.height():
            bar.setValue(bar.value() + place.bottom() - viewport.height() + GAP)
