"""When an engine that says nothing, or doesn't get on, counts as stalled.

Intervals and open pings are counted instead of time, so that the engine isn't blamed when the computer slept or the
caller itself was blocked.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from app.client.state import EngineState
from app.protocol.events import Pong

_log = logging.getLogger("slipstream.engine")


@dataclass(frozen=True)
class Timings:
    """How long to wait, in seconds."""

    tick: float = 1.0
    """Seconds between two calls of `StallWatch.tick`."""
    silence: float = 10.0
    """Seconds without an answer to a ping."""
    no_progress: float = 120.0
    start: float = 60.0
    cancel: float = 5.0
    quit: float = 2.0
    """Seconds that a process may take to end; for the caller."""


@dataclass(frozen=True)
class Stalled:
    """The engine isn't responding; reported at most once per request."""

    seconds: float


class StallWatch:
    """Watches one request after the other, and the start of the process."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self.begin()

    def begin(self) -> None:
        """Something else is being waited for from now on, or nothing."""
        self._ticks = 0
        """Since then."""
        self._canceled_at: int | None = None
        self._open_pings = 0
        self._has_told = False

    @property
    def is_canceled(self) -> bool:
        """Whether the request was canceled."""
        return self._canceled_at is not None

    def cancel(self) -> None:
        """The request was canceled now."""
        self._canceled_at = self._ticks

    def tick(self, state: EngineState) -> Stalled | None:
        """Another interval of ``timings.tick`` has passed; a busy engine is pinged now."""
        self._ticks += 1
        stalled = self._stalled(self._overdue_seconds(state), state)
        if state.is_busy:
            self._open_pings += 1
        return stalled

    def answered(self, pong: Pong, state: EngineState) -> Stalled | None:
        """A ping was answered, which says when the computation last advanced."""
        self._open_pings = 0
        idle = pong.seconds_since_progress
        is_stuck = pong.busy and state.is_busy and idle > self._timings.no_progress
        return self._stalled(idle if is_stuck else 0.0, state)

    def _overdue_seconds(self, state: EngineState) -> float:
        """How many seconds something is overdue; 0 if nothing is."""
        timings = self._timings
        if state is EngineState.STARTING:
            waited, patience = self._ticks * timings.tick, timings.start
        elif self._canceled_at is not None:
            waited, patience = (self._ticks - self._canceled_at) * timings.tick, timings.cancel
        else:
            waited, patience = self._open_pings * timings.tick, timings.silence
        return waited if waited >= patience else 0.0

    def _stalled(self, seconds: float, state: EngineState) -> Stalled | None:
        if not seconds or self._has_told:
            return None
        self._has_told = True
        _log.warning("no response for %.0f s while %s", seconds, state.value)
        return Stalled(seconds)
