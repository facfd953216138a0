"""Stopping what runs in another thread."""

from __future__ import annotations

import threading

from app.errors import Cancelled


class Control:
    """Held by who may stop some work, and asked by the work."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the work soon."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def check(self) -> None:
        """Raise `Cancelled` after `stop`."""
        if self._stopped.is_set():
            raise Cancelled

    def wait(self, seconds: float) -> None:
        """Let time pass. Raises `Cancelled` as soon as `stop` is called."""
        if self._stopped.wait(seconds):
            raise Cancelled
