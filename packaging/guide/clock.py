"""Training is planned in time, so that it ends in time and well on a machine of any speed.

Usually wall time; with `time.process_time` as `now` a run may be stopped and continued, and shares its machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

SAVE_SECONDS = 240
"""Seconds between two checkpoints."""


@dataclass
class Clock:
    """Share of the budget that is used up; it goes on where a restarted run left off."""

    seconds: float
    used: float = 0.0
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._start = self.now() - self.used

    @property
    def elapsed(self) -> float:
        return self.now() - self._start

    @property
    def share(self) -> float:
        return min(1.0, self.elapsed / self.seconds)
