"""F6 and Shift+F6: from one part of the main window to the next, in the order one reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

from app.ui.widgets.focus_order import next_in_focus_order


class Panes(QObject):
    """Gives the keyboard to a pane: to what had it there last, or else to its first control."""

    def __init__(self, panes: Sequence[tuple[QWidget, Callable[[], QWidget | None]]], parent: QObject) -> None:
        """``panes`` in their order, each with what takes the keyboard there the first time."""
        super().__init__(parent)
        self._panes = panes
        self._last: dict[QWidget, QWidget] = {}
        cast(QApplication, QApplication.instance()).focusChanged.connect(self._on_focus_changed)

    def go(self, step: int) -> None:
        """Go so many panes on; those that are hidden or have nothing for the keyboard are left out."""
        here = self.pane_of(QApplication.focusWidget())
        place = next((at for at, (pane, _first) in enumerate(self._panes) if pane is here), -1 if step > 0 else 0)
        for distance in range(1, len(self._panes) + 1):
            pane, first = self._panes[(place + step * distance) % len(self._panes)]
            wanted = self._last.get(pane)
            if wanted is None or not takes_keyboard(wanted):
                wanted = first()
            if pane.isVisible() and wanted is not None and takes_keyboard(wanted):
                wanted.setFocus(Qt.FocusReason.ShortcutFocusReason)
                return

    def pane_of(self, widget: QWidget | None) -> QWidget | None:
        """The pane that a widget is in."""
        return next((pane for pane, _first in self._panes if widget and pane.isAncestorOf(widget)), None)

    @Slot("QWidget*", "QWidget*")
    def _on_focus_changed(self, _old: QWidget | None, now: QWidget | None) -> None:
        if (pane := self.pane_of(now)) is not None and now is not None:
            self._last[pane] = now


def takes_keyboard(widget: QWidget) -> bool:
    """Whether it is still there, can be seen, and can have the focus."""
    return isValid(widget) and widget.isVisible() and widget.isEnabled()


def first_stop(pane: QWidget) -> QWidget | None:
    """Where the Tab key stops first in a pane."""
    widget = next_in_focus_order(pane)
    while widget is not pane:
        if pane.isAncestorOf(widget) and widget.focusPolicy() & Qt.FocusPolicy.TabFocus and takes_keyboard(widget):
            return widget
        widget = next_in_focus_order(widget)
    return None
