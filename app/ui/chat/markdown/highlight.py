"""Who finds what to color in code: the helper process, since a regular expression can run for ever.

The window shows plain text at once, and colors it when the answer comes. What takes too long stays plain.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

from PySide6.QtCore import QCoreApplication, QObject, Slot

from app import helper
from app.helper.messages import Highlight
from app.ui.widgets.tasks import Lane

Found: TypeAlias = tuple[list[list[int]] | None, float]
"""What is to be colored (`app.helper.messages.Highlighted`), ``None`` if it took too long; and the seconds it took."""
_PATIENCE_SECONDS = 10.0
"""At the end. The helper is killed before."""


class Highlighter(QObject):
    """Has code highlighted, one request at a time. Lives in the window's thread."""

    def __init__(self, process: helper.Helper | None = None) -> None:
        """``process``: by default the helper that all of this process share."""
        super().__init__()
        self._helper = process or helper.shared()
        self._lane = Lane(self, "highlight")

    @property
    def is_idle(self) -> bool:
        """Whether every request was answered."""
        return self._lane.is_idle()

    def ask(self, request: Highlight, is_wanted: Callable[[], bool], answered: Callable[[Found], None]) -> None:
        """Call ``answered`` with what was found. ``is_wanted`` is asked, in another thread, when its turn has come."""
        self._lane.submit(partial(self._highlight, request, is_wanted), answered)

    def _highlight(self, request: Highlight, is_wanted: Callable[[], bool]) -> Found:
        """In a thread of its own, which waits for the helper process."""
        began = time.perf_counter()
        lines: list[list[int]] | None = None
        if is_wanted():
            with contextlib.suppress(helper.HelperError):
                lines = self._helper.highlight(request).lines
        return lines, time.perf_counter() - began

    @Slot()
    def close(self) -> None:
        """Forget what waits and end the helper process."""
        self._lane.close()
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
