"""When Python must not collect garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For a change of the application's style: Qt goes through a list of all widgets, calls handlers of ours, and
    crashes where one of these has Python collect a widget that is further down in the list."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
