"""Where an engine is."""

from __future__ import annotations

import enum


class EngineState(enum.Enum):
    """Exactly one at a time."""

    STOPPED = "stopped"
    STARTING = "starting"
    EMPTY = "no model"
    LOADING = "loading"
    READY = "ready"
    ANSWERING = "answering"
    MEASURING = "measuring"
    COMPARING = "comparing"
    DIED = "died"

    @property
    def is_busy(self) -> bool:
        """Whether something runs that can be cancelled."""
        return self in (EngineState.LOADING, EngineState.ANSWERING, EngineState.MEASURING, EngineState.COMPARING)

    @property
    def has_ended(self) -> bool:
        """Whether there is no process."""
        return self in (EngineState.STOPPED, EngineState.DIED)
