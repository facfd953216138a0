"""The colors of code, and who finds what to color: the helper process, since a regular expression can run for ever.

The window shows plain text at once. Whoever shows code (`CodeSource`) is asked for the next piece of it when the helper
is free, and gets what was found when it comes. What takes too long stays plain.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections import deque
from dataclasses import dataclass
from functools import cache, partial
from typing import Protocol

from PySide6.QtCore import QCoreApplication, QObject, Slot
from PySide6.QtGui import QColor

from app import helper
from app.helper.messages import ROLES, Highlight
from app.ui.widgets.tasks import Lane
from app.ui.widgets.theme import MINIMUM_CONTRAST, Theme, contrast

_PATIENCE_SECONDS = 10.0
"""At the end. The helper is killed before."""
_LIGHT = {"comment": "#5a666b", "keyword": "#8a1f6a", "string": "#1c6134", "number": "#84430a", "name": "#1c4f9c"}
_DARK = {"comment": "#a5b0b5", "keyword": "#f0a6d8", "string": "#a3d9a5", "number": "#f0b98d", "name": "#a3c7ff"}

__all__ = ["ROLES", "Answered", "CodeSource", "Highlighter", "color", "highlighter"]


def color(theme: Theme, role: str) -> QColor:
    """The color of a part of code; the plain text color where the other could not be read."""
    wanted = QColor((_DARK if theme.is_dark else _LIGHT)[role])
    surfaces = (theme.code_surface, theme.tint_model, theme.tint_ngram)
    return wanted if all(contrast(wanted, surface) >= MINIMUM_CONTRAST for surface in surfaces) else theme.text


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a request. ``lines``: see `app.helper.messages.Highlighted`; ``None`` if it took too long."""

    lines: list[list[int]] | None
    seconds: float


class CodeSource(Protocol):
    """Has code to color."""

    def next_request(self) -> Highlight | None:
        """The next piece of code; ``None`` if there is nothing to color now."""

    def take_colors(self, answered: Answered) -> None:
        """What was found for the piece given last."""


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

    def _highlight(self, request: Highlight) -> Answered:
        """In a thread of its own, which waits for the helper process."""
        began = time.perf_counter()
        lines: list[list[int]] | None = None
        with contextlib.suppress(helper.HelperError):
            lines = self._helper.highlight(request).lines
        return Answered(lines, time.perf_counter() - began)

    def _on_answered(self, source: CodeSource, answered: Answered) -> None:
        self._is_asked = False
        source.take_colors(answered)
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
