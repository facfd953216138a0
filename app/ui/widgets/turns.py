"""Widgets with much to build or draw take turns, a few per turn of the event loop: all at once would block it."""

from __future__ import annotations

import time
from collections import deque
from functools import cache
from typing import Protocol

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Slot
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

_BUDGET = 0.001
"""Seconds after which no other widget gets a turn: what takes less is done together."""


_MAX_DROPPED = 2
"""How many destroyed widgets are removed each time another one is added: more than are added, because otherwise
hundreds would pile up while no `later` one gets a turn, and be destroyed together.
"""


class TakesTurns(Protocol):
    """A widget that builds or draws a little at a time."""

    def take_turn(self) -> None:
        """Do a little, for a few milliseconds; ask for another turn if there is more."""


class Turns(QObject):
    """Who is waiting for a turn: what is on the screen first, then the one that has waited longest."""

    def __init__(self, parent: QObject | None) -> None:
        super().__init__(parent)
        self._waiting: deque[TakesTurns] = deque()
        self._later: deque[TakesTurns] = deque()
        """Those that wait until no others do."""
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._on_turn)

    def want(self, widget: TakesTurns, *, later: bool = False) -> None:
        """Give ``widget`` a turn; ``later``: when all others have had theirs, as for what can be read without it."""
        queue = self._later if later else self._waiting
        for _ in range(_MAX_DROPPED):
            if queue and not isValid(queue[0]):
                queue.popleft()
        if widget not in queue:
            queue.append(widget)
        self._timer.start()

    def is_idle(self) -> bool:
        """Whether nobody is waiting."""
        return not self._waiting and not self._later

    def is_waiting(self, widget: TakesTurns) -> bool:
        """Whether ``widget`` has asked for a turn and hasn't had it yet."""
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
