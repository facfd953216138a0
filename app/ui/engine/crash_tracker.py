"""Whether an engine crashes too often to be restarted without asking."""

from __future__ import annotations

from collections import deque

_MOST_DEATHS, _DEATHS_WITHIN_SECONDS = 3, 300.0


class CrashTracker:
    """Says when an engine crashes too often to be restarted without asking."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=_MOST_DEATHS)

    def record(self, now: float) -> None:
        """Record a crash at ``now``, seconds on a monotonic clock."""
        self._deaths.append(now)

    def is_exhausted(self, now: float) -> bool:
        """Whether it crashed too often in the period that ends at ``now``."""
        return len(self._deaths) == _MOST_DEATHS and now - self._deaths[0] <= _DEATHS_WITHIN_SECONDS
