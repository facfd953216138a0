"""Waiting for what another process does: look again and again, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LIMIT_S = 120.0
_PAUSE_S = 0.1


def wait_for(look: Callable[[], T | None], what: str, seconds: float = LIMIT_S) -> T:
    """The first thing ``look`` finds that is neither ``None`` nor false. Raises `AssertionError` after ``seconds``."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(_PAUSE_S)
    return found
