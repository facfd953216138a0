"""The engine as the window sees it: its client, the loaded pair, what a pair is called. No widgets.

Must never import `app.engine`. Only `client` and `child_process` know that the engine is a process. What
stands here itself is light: the first picture needs it.
"""

from __future__ import annotations

import enum

from app.client.connection import EngineState

__all__ = ["EngineState", "Priority"]


class Priority(enum.IntEnum):
    """The smaller goes first."""

    CHAT = 1
    MEASUREMENT = 2
    COMPARISON = 3
    SERVED = 4
    TRIAL = 5

    @property
    def makes_room(self) -> bool:
        """Whether it is interrupted by whatever goes before it, and begins or goes on again later."""
        return self >= Priority.SERVED
