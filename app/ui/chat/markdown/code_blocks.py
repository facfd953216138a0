"""The code blocks of a document: where they are, their colors, and what stands above each.

Colors come some time after the text and lie over it, in the layouts of its lines, so the document stays as it was
written. A block that is still being written is highlighted again and again, at most for a small share of the time, and
once more when it is complete.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TypeAlias

from PySide6.QtCore import QCoreApplication, QObject, QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QTextCursor, QTextDocument, QTextLayout
from PySide6.QtWidgets import QPushButton, QWidget
from shiboken6 import isValid

from app import helper
from app.helper.messages import ROLES, Highlight
from app.ui.chat.footer import copy_text
from app.ui.chat.markdown.formats import Formats
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import label, row
from app.ui.widgets.tasks import Lane
from app.ui.widgets.turns import turns
from app.words import shortened


class CodeWrap(QObject):
    """Whether long lines of code are wrapped, in all code blocks of the window."""

    changed = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.is_on = False

    def set_on(self, wraps: bool) -> None:
        if wraps != self.is_on:
            self.is_on = wraps
            self.changed.emit(wraps)


@cache
def code_wrap() -> CodeWrap:
    """The one of the window."""
    return CodeWrap()


class CodeHeader(QWidget):
    """The language and the button over the top of a code block's frame."""

    def __init__(self, parent: QWidget, code: Callable[[], str]) -> None:
        """``code``: the whole text of the block."""
        super().__init__(parent)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self._language = label(role="quiet", scale=0.9)
        self.copy_button = QPushButton("Copy")
        themes.scale_font(self.copy_button, 0.9)
        themes.set_role(self.copy_button, "flat")
        self.copy_button.clicked.connect(lambda: copy_text(code(), self.copy_button))
        row((self._language, 1), self.copy_button, gap=0, margins=(12, 3, 4, 0), on=self)

    def place(self, frame: QRectF, height: float, language: str) -> None:
        """Stand at the top of this frame; ``language`` is empty where it is not known."""
        self.setGeometry(int(frame.left()), int(frame.top()), int(frame.width()), int(height))
        self.show()
        language = shortened(language, 24)
        if (language or "code") != self._language.text():
            self._language.setText(language or "code")
            self.copy_button.setAccessibleName(f"Copy this {language} code" if language else "Copy this code")


_PATIENCE_SECONDS = 10.0
"""At the end. The helper is killed before."""


class HelperService(QObject):
    """Has the helper process do something, one request at a time. Lives in the window's thread."""

    def __init__(self, name: str, process: helper.Helper | None = None) -> None:
        """``name``: the lane's. ``process``: by default the helper that all share; then this ends with the
        application."""
        super().__init__()
        self._helper = process or helper.shared()
        self._lane = Lane(self, name)
        if process is None:
            if (application := QCoreApplication.instance()) is not None:
                application.aboutToQuit.connect(self.close)
            atexit.register(self.close)

    @property
    def is_idle(self) -> bool:
        """Whether every request was answered."""
        return self._lane.is_idle()

    @Slot()
    def close(self) -> None:
        """Forget what waits and end the helper process."""
        self._lane.close()
        self._helper.stop()
        self._lane.close(_PATIENCE_SECONDS)


Found: TypeAlias = tuple[list[list[int]] | None, float]
"""What is to be colored (`app.helper.messages.Highlighted`), ``None`` if it took too long; and the seconds it took."""


class Highlighter(HelperService):
    """Finds what to color in code, in the helper process, since a regular expression can run forever."""

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
                lines = self._helper.ask(request).lines
        return lines, time.perf_counter() - began


@cache
def highlighter() -> Highlighter:
    """The one of this process; it ends with the application."""
    return Highlighter()


MAX_CHARACTERS = 64 * 1024
"""Of a code block; what goes beyond stays plain."""
_PAUSE = 15.0
"""A block that is being written rests so many times as long as it took to highlight it."""
_MAX_REST = 3.0
"""Seconds it rests at most: the first time the start of the process is in what it took."""
_BUDGET = 0.004
"""Seconds one update may set colors."""
_CHARACTERS_PER_UPDATE = 4000
"""Laying out comes after it and is not in that time."""


@dataclass(slots=True)
class CodeRun:
    """A code block in the document: positions inside its first and its last line."""

    start: int
    end: int
    language: str
    left: float = 0.0
    width: float = 0.0
    """Of its longest line, in pixels."""
    size: int = 0
    """Positions that its finished lines take, from ``start`` on; a line that is still growing may follow."""
    lines: int = 0
    """How many blocks of the document these lines are."""
    joined: set[int] = field(default_factory=set)
    """Those blocks, counted from 0, that continue the line before them."""
    is_closed: bool = False
    asked: int = 0
    """How many of these positions were sent to be highlighted."""
    colors: list[list[int]] = field(default_factory=list)
    """The colors its lines have (`app.helper.messages.Highlighted`)."""
    rests_until: float = 0.0
    is_plain: bool = False
    """Highlighting it took too long."""

    def is_settled(self) -> bool:
        """Whether no more colors will come."""
        is_complete = self.is_closed and self.asked == self.size
        return self.is_plain or not self.language or self.size > MAX_CHARACTERS or is_complete


class CodeColors:
    """Has the code blocks of a document highlighted, and sets their colors."""

    def __init__(
        self,
        document: QTextDocument,
        formats: Formats,
        runs: Callable[[], list[CodeRun]],
        changed: Callable[[int, int], None],
    ) -> None:
        """``runs``: the code blocks that are there to stay. ``changed`` is told where colors were set."""
        self._document = document
        self._formats = formats
        self._runs = runs
        self._changed = changed
        self._settled = 0
        """How many of the blocks, from the first, are done."""
        self._asked: CodeRun | None = None
        """What the helper process is working on."""
        self._coloring: CodeRun | None = None
        self._found: list[list[int]] = []
        self._blocks: list[int] = []
        """At which of the code's blocks in the document each of its lines begins."""
        self._next_line = 0
        self._is_closed = False
        self._rest: QTimer | None = None

    def update(self) -> None:
        """Ask for what is due: more text was written, or a block has rested."""
        run = self._wanting()
        if run is not None:
            self._asked = run
            run.asked = run.size
            highlighter().ask(self._request(run), self._is_alive, self._on_answered)
        elif self._asked is None and self._coloring is None and self._is_alive():
            # What came meanwhile must not wait for more text.
            rests = [run.rests_until for run in self._runs()[self._settled :] if run.asked != run.size]
            if rests:
                self._rest_until(min(rests))

    def _rest_until(self, end: float) -> None:
        if self._rest is None:
            self._rest = QTimer(self._document, singleShot=True)
            self._rest.timeout.connect(self.update)
        if not self._rest.isActive():
            self._rest.start(max(1, round((end - time.monotonic()) * 1000)))

    def close(self) -> None:
        """The document is written anew: ignore what still arrives."""
        self._is_closed = True

    def _is_alive(self) -> bool:
        return not self._is_closed and isValid(self._document)

    # -- asking

    def _wanting(self) -> CodeRun | None:
        """The first block with something to highlight now."""
        if self._asked is not None or self._coloring is not None or not self._is_alive():
            return None
        runs = self._runs()
        while self._settled < len(runs) and runs[self._settled].is_settled():
            runs[self._settled].colors = []
            self._settled += 1
        now = time.monotonic()
        for run in runs[self._settled :]:
            is_due = run.is_closed or now >= run.rests_until
            if is_due and run.asked != run.size and not run.is_settled():
                return run
        return None

    def _request(self, run: CodeRun) -> Highlight:
        cursor = QTextCursor(self._document)
        cursor.setPosition(run.start)
        cursor.setPosition(run.start + run.size, QTextCursor.MoveMode.KeepAnchor)
        parts = cursor.selectedText().split("\u2029")
        self._blocks = [number for number in range(len(parts)) if number not in run.joined]
        following = [*self._blocks[1:], len(parts)]
        lines = ["".join(parts[start:end]) for start, end in zip(self._blocks, following, strict=True)]
        return Highlight(run.language, "\n".join(lines))

    def _on_answered(self, found: Found) -> None:
        lines, seconds = found
        run, self._asked = self._asked, None
        if run is None or not self._is_alive():
            return
        if lines is None:
            run.is_plain = True
            self.update()
            return
        run.rests_until = time.monotonic() + min(_PAUSE * seconds, _MAX_REST)
        self._coloring, self._found, self._next_line = run, lines, 0
        turns().want(self, later=True)

    # -- coloring

    def take_turn(self) -> None:
        """Set some colors; see `app.ui.widgets.turns`."""
        run = self._coloring
        if run is None or not self._is_alive():
            return
        number = self._document.findBlock(run.start).blockNumber()
        deadline = time.perf_counter() + _BUDGET
        first = last = -1
        characters = 0
        while self._next_line < len(self._found) and characters < _CHARACTERS_PER_UPDATE:
            line, self._next_line = self._next_line, self._next_line + 1
            if line < len(run.colors) and run.colors[line] == self._found[line]:
                continue
            block = self._document.findBlockByNumber(number + self._blocks[line])
            block.layout().setFormats(self._ranges(self._found[line]))
            first = block.position() if first < 0 else first
            last = block.position() + block.length()
            characters += block.length()
            if time.perf_counter() > deadline:
                break
        if first >= 0:
            self._document.markContentsDirty(first, last - first)
            self._changed(first, last)
        if self._next_line < len(self._found):
            turns().want(self, later=True)
            return
        run.colors, self._found, self._coloring = self._found, [], None
        self.update()

    def _ranges(self, parts: list[int]) -> list[QTextLayout.FormatRange]:
        ranges = []
        for at in range(0, len(parts) - 2, 3):
            part = QTextLayout.FormatRange()
            part.start, part.length = parts[at], parts[at + 1]
            part.format = self._formats.code_characters(ROLES[parts[at + 2]])
            ranges.append(part)
        return ranges
