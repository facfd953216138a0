"""Views with much to draw take turns, one in each turn of the event loop: together they would make it wait."""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Protocol

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Slot
from shiboken6 import isValid


class TakesTurns(Protocol):
    """A widget that draws a little at a time."""

    def take_turn(self) -> None:
        """Draw a little; ask for another turn if there is more."""


class Turns(QObject):
    """Who waits for a turn, the one that waits longest first."""

    def __init__(self, parent: QObject | None) -> None:
        super().__init__(parent)
        self._waiting: deque[TakesTurns] = deque()
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._on_turn)

    def want(self, widget: TakesTurns) -> None:
        """Let ``widget`` draw when its turn has come."""
        if widget not in self._waiting:
            self._waiting.append(widget)
        self._timer.start()

    def is_waiting(self, widget: TakesTurns) -> bool:
        """Whether ``widget`` has asked for a turn and not had it yet."""
        return widget in self._waiting

    def forget(self, widget: TakesTurns) -> None:
        """``widget`` has nothing to draw any more."""
        if widget in self._waiting:
            self._waiting.remove(widget)

    @Slot()
    def _on_turn(self) -> None:
        while self._waiting:
            widget = self._waiting.popleft()
            if isValid(widget):
                widget.take_turn()
                break
        if self._waiting:
            self._timer.start()


@cache
def turns() -> Turns:
    """Those of the window."""
    return Turns(QCoreApplication.instance())
