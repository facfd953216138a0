"""Widgets with much to build or to draw take turns, few in each turn of the event loop: together they would make it
wait."""

from __future__ import annotations

import time
from collections import deque
from functools import cache
from typing import Protocol

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Slot
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

_BUDGET = 0.002
"""Seconds after which nobody else gets a turn: what takes less is done together."""


class TakesTurns(Protocol):
    """A widget that builds or draws a little at a time."""

    def take_turn(self) -> None:
        """Do a little, a few milliseconds of it; ask for another turn if there is more."""


class Turns(QObject):
    """Who waits for a turn: what is on the screen first, then the one that waits longest."""

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

    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._waiting

    def is_waiting(self, widget: TakesTurns) -> bool:
        """Whether ``widget`` has asked for a turn and not had it yet."""
        return widget in self._waiting

    def forget(self, widget: TakesTurns) -> None:
        """``widget`` has nothing to draw any more."""
        if widget in self._waiting:
            self._waiting.remove(widget)

    @Slot()
    def _on_turn(self) -> None:
        deadline = time.perf_counter() + _BUDGET
        while self._waiting:
            self._waiting = deque(widget for widget in self._waiting if isValid(widget))
            widget = next((one for one in self._waiting if _is_seen(one)), self._waiting[0] if self._waiting else None)
            if widget is not None:
                self._waiting.remove(widget)
                widget.take_turn()
            if time.perf_counter() > deadline:
                break
        if self._waiting:
            self._timer.start()


def _is_seen(widget: TakesTurns) -> bool:
    return isinstance(widget, QWidget) and not widget.visibleRegion().isEmpty()


@cache
def turns() -> Turns:
    """Those of the window."""
    return Turns(QCoreApplication.instance())
