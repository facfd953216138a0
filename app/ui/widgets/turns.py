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

_BUDGET = 0.001
"""Seconds after which nobody else gets a turn: what takes less is done together."""


_MAX_DROPPED = 2
"""So many that are gone are let go of each time another one comes, more than come: else hundreds would pile up while
nobody `later` gets a turn, and be destroyed together."""


class TakesTurns(Protocol):
    """A widget that builds or draws a little at a time."""

    def take_turn(self) -> None:
        """Do a little, a few milliseconds of it; ask for another turn if there is more."""


class Turns(QObject):
    """Who waits for a turn: what is on the screen first, then the one that waits longest."""

    def __init__(self, parent: QObject | None) -> None:
        super().__init__(parent)
        self._waiting: deque[TakesTurns] = deque()
        self._later: deque[TakesTurns] = deque()
        """Those that wait until nobody else does."""
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._on_turn)

    def want(self, widget: TakesTurns, *, later: bool = False) -> None:
        """Let ``widget`` have a turn; ``later``: when all others have had theirs, as for what one can read without."""
        queue = self._later if later else self._waiting
        for _ in range(_MAX_DROPPED):
            if queue and not isValid(queue[0]):
                queue.popleft()
        if widget not in queue:
            queue.append(widget)
        self._timer.start()

    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._waiting and not self._later

    def is_waiting(self, widget: TakesTurns) -> bool:
        """Whether ``widget`` has asked for a turn and not had it yet."""
        return widget in self._waiting or widget in self._later

    @Slot()
    def _on_turn(self) -> None:
        deadline = time.perf_counter() + _BUDGET
        while (widget := self._next()) is not None:
            widget.take_turn()
            if time.perf_counter() > deadline:
                break
        if not self.is_idle():
            self._timer.start()

    def _next(self) -> TakesTurns | None:
        for queue in (self._waiting, self._later):
            while queue and not isValid(queue[0]):
                queue.popleft()
            if queue:
                widget = next((one for one in queue if isValid(one) and _is_seen(one)), queue[0])
                queue.remove(widget)
                return widget
        return None


def _is_seen(widget: TakesTurns) -> bool:
    return isinstance(widget, QWidget) and not widget.visibleRegion().isEmpty()


@cache
def turns() -> Turns:
    """Those of the window."""
    return Turns(QCoreApplication.instance())
