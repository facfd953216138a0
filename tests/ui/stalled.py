"""A disk or drive that does not answer until the test lets it."""

from __future__ import annotations

import builtins
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Stalled:
    """Calls that take until `release`. In the window's thread they are only noted, for a test to fail on.

    Attributes:
        reached: A task is waiting.
        in_window: What the window's thread would have waited for.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.in_window: list[str] = []
        self._may_go_on = threading.Event()
        self._monkeypatch = monkeypatch

    def release(self) -> None:
        self._may_go_on.set()

    def syncing(self) -> None:
        """Nothing that is written reaches the disk."""
        self._replace(os, "fsync", lambda _argument: True)

    def drive(self, folder: Path) -> None:
        """Nothing below ``folder`` can be looked at or read."""
        prefix = str(folder)

        def is_on_it(path: object) -> bool:
            return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(prefix)

        for name in ("stat", "lstat", "scandir", "listdir"):
            self._replace(os, name, is_on_it)
        for module in (io, builtins):
            self._replace(module, "open", is_on_it)

    def _replace(self, module: Any, name: str, is_stalled: Callable[[object], bool]) -> None:
        original = getattr(module, name)

        def call(first: object = ".", *rest: Any, **named: Any) -> Any:
            if is_stalled(first):
                self._wait(f"{name} of {first}")
            return original(first, *rest, **named)

        self._monkeypatch.setattr(module, name, call)

    def _wait(self, what: str) -> None:
        if threading.current_thread() is threading.main_thread():
            self.in_window.append(what)
        else:
            self.reached.set()
            self._may_go_on.wait()
