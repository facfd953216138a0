"""Training is planned in wall time, so that it ends in time and well on a machine of any speed."""

from __future__ import annotations

import time
from dataclasses import dataclass

SAVE_SECONDS = 240
"""Seconds between two checkpoints."""


@dataclass
class Clock:
    """Share of the wall budget that is used up; it goes on where a restarted run left off."""

    seconds: float
    used: float = 0.0

    def __post_init__(self) -> None:
        self._start = time.monotonic() - self.used

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @property
    def share(self) -> float:
        return min(1.0, self.elapsed / self.seconds)
