"""Cancelling what runs in another thread."""

from __future__ import annotations

import threading

from app.errors import Cancelled


class Cancellation:
    """Held by who may cancel some work, and asked by the work."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """End the work soon."""
        self._event.set()

    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise `Cancelled` after `cancel`."""
        if self.is_cancelled():
            raise Cancelled

    def wait(self, seconds: float) -> None:
        """Let time pass. Raises `Cancelled` as soon as `cancel` is called."""
        if self._event.wait(seconds):
            raise Cancelled
