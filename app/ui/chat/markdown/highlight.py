"""Who finds what to color in code: the helper process, since a regular expression can run for ever.

The window shows plain text at once, and colors it when the answer comes. What takes too long stays plain.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

from app import helper
from app.helper.messages import Highlight
from app.ui.chat.markdown.helper_service import HelperService

Found: TypeAlias = tuple[list[list[int]] | None, float]
"""What is to be colored (`app.helper.messages.Highlighted`), ``None`` if it took too long; and the seconds it took."""


class Highlighter(HelperService):
    """Has code highlighted, one request at a time."""

    def __init__(self, process: helper.Helper | None = None) -> None:
        super().__init__("highlight", process)

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


@cache
def highlighter() -> Highlighter:
    """The one of this process; it ends with the application."""
    return Highlighter()
