"""Who finds what to color in code: the helper process, since a regular expression can run for ever.

The window shows plain text at once. Whoever shows code (`CodeSource`) is asked for the next piece of it when the helper
is free, and gets what was found when it comes. What takes too long stays plain.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections import deque
from functools import cache, partial
from typing import Protocol

from PySide6.QtCore import QCoreApplication, QObject, Slot

from app import helper
from app.helper.messages import Highlight
from app.ui.widgets.tasks import Lane

_PATIENCE_SECONDS = 10.0
"""At the end. The helper is killed before."""


class CodeSource(Protocol):
    """Has code to color."""

    def next_request(self) -> Highlight | None:
        """The next piece of code; ``None`` if there is nothing to color now."""

    def take_colors(self, lines: list[list[int]] | None, seconds: float, /) -> None:
        """What was found for the piece given last (see `app.helper.messages.Highlighted`), ``None`` if it took too
        long, and how long it took."""


class Highlighter(QObject):
    """Has the code of all sources highlighted, one request at a time. Lives in the window's thread."""

    def __init__(self, process: helper.Helper | None = None) -> None:
        """``process``: by default the helper that all of this process share."""
        super().__init__()
        self._helper = process or helper.shared()
        self._lane = Lane(self, "highlight")
        self._waiting: deque[CodeSource] = deque()
        self._is_asked = False

    @property
    def is_idle(self) -> bool:
        """Whether every request was answered."""
        return not self._is_asked and not self._waiting

    def want(self, source: CodeSource) -> None:
        """Ask ``source`` for code when its turn has come."""
        if source not in self._waiting:
            self._waiting.append(source)
        self._ask_next()

    def _ask_next(self) -> None:
        while self._waiting and not self._is_asked:
            source = self._waiting.popleft()
            wanted = source.next_request()
            if wanted is not None:
                self._is_asked = True
                self._waiting.append(source)  # behind the others: it may have more
                self._lane.submit(partial(self._highlight, wanted), partial(self._on_answered, source))

    def _highlight(self, request: Highlight) -> tuple[list[list[int]] | None, float]:
        """In a thread of its own, which waits for the helper process."""
        began = time.perf_counter()
        lines: list[list[int]] | None = None
        with contextlib.suppress(helper.HelperError):
            lines = self._helper.highlight(request).lines
        return lines, time.perf_counter() - began

    def _on_answered(self, source: CodeSource, found: tuple[list[list[int]] | None, float]) -> None:
        self._is_asked = False
        source.take_colors(*found)
        self._ask_next()

    @Slot()
    def close(self) -> None:
        """Forget what waits and end the helper process."""
        self._waiting.clear()
        self._is_asked = False
        self._helper.stop()
        self._lane.close(_PATIENCE_SECONDS)


@cache
def highlighter() -> Highlighter:
    """The one of this process; it ends with the application."""
    one = Highlighter()
    application = QCoreApplication.instance()
    if application is not None:
        application.aboutToQuit.connect(one.close)
    atexit.register(one.close)
    return one
