"""The speed limit and the speed of downloads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

_BURST_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 0.5
_SHORTEST_WAIT_SECONDS = 0.001
_LARGEST_PIECE = 512 * 1024
WINDOW_SECONDS = 5.0
_SAMPLE_SECONDS = 0.25


class RateLimiter:
    """One limit shared by all its users: bytes must be paid for before more can be taken."""

    def __init__(self, limit: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._limit = limit
        self._balance = 0.0
        self._at = clock()

    @property
    def limit(self) -> int | None:
        """Bytes per second; ``None`` is no limit. May be changed while others wait."""
        return self._limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        with self._lock:
            self._refill()
            # A debt from another limit would be paid for at this one.
            self._balance = max(self._balance, -float(limit or 0))
            self._limit = limit

    def piece(self) -> int:
        """How many bytes to take at a time so that the download flows evenly."""
        return _LARGEST_PIECE if self._limit is None else max(1024, min(_LARGEST_PIECE, self._limit // 4))

    def take(self, count: int, wait: Callable[[float], None]) -> None:
        """Take ``count`` bytes; calls ``wait`` with seconds until they are paid for."""
        with self._lock:
            self._refill()
            if self._limit is not None:
                self._balance -= count
        while (seconds := self._owed()) > _SHORTEST_WAIT_SECONDS:
            wait(min(seconds, _LONGEST_WAIT_SECONDS))

    def _owed(self) -> float:
        with self._lock:
            self._refill()
            return 0.0 if self._limit is None else max(0.0, -self._balance / self._limit)

    def _refill(self) -> None:
        now = self._clock()
        if self._limit is None:
            self._balance = 0.0
        else:
            self._balance = min(self._balance + (now - self._at) * self._limit, self._limit * _BURST_SECONDS)
        self._at = now


class SpeedMeter:
    """Bytes per second over the last `WINDOW_SECONDS` seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        """``count`` bytes have just arrived."""
        now = self._clock()
        with self._lock:
            if self._samples and now - self._samples[-1][0] < _SAMPLE_SECONDS:
                at, before = self._samples[-1]
                self._samples[-1] = at, before + count
            else:
                self._samples.append((now, count))
            self._forget(now)

    def speed(self) -> float | None:
        """``None`` while nothing arrives, or not for long enough to tell."""
        now = self._clock()
        with self._lock:
            self._forget(now)
            if not self._samples or now - self._samples[0][0] < _SAMPLE_SECONDS:
                return None
            return sum(count for _, count in self._samples) / (now - self._samples[0][0])

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] > WINDOW_SECONDS:
            self._samples.popleft()
