"""The engine as the window sees it: its client, the loaded pair, names of pairs. No widgets.

Must never import `app.engine`. Only `client` knows that the engine is a process. This file itself imports little,
because the first picture needs it.
"""

from __future__ import annotations

import enum

from app.client.connection import EngineState

__all__ = ["EngineState", "Priority"]


class Priority(enum.IntEnum):
    """The order of jobs: smaller values go first."""

    CHAT = 1
    MEASUREMENT = 2
    COMPARISON = 3
    SERVED = 4
    TRIAL = 5

    @property
    def makes_room(self) -> bool:
        """Whether it is interrupted for anything that goes before it, and restarts or continues later."""
        return self >= Priority.SERVED
