"""Draw Markdown into a document, block by block, so that what is finished is never touched again."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from PySide6.QtGui import QTextCursor, QTextDocument

from app.ui.chat.markdown.block_writer import BlockWriter, CodeRun, Mark
from app.ui.chat.markdown.blocks import Block, BlockSplitter, CodeLine, Kind, OpenCode, visible
from app.ui.chat.markdown.formats import Formats

_PORTION = 2048
"""Characters given to the splitter at once: a megabyte must not be split in one go."""
_UNIT_LINES = 25
_UNIT_CHARACTERS = 1000
"""A stretch of code is this long, or one line longer: its tints are worked out in one go."""
MAX_CHARACTERS_PER_DRAW = 3000
"""Laying out comes after drawing and is not in its time budget, so that is limited by length."""
_BAR_CHARACTERS = 12
"""A cell of a table takes as long to lay out as so many characters of prose."""


@dataclass(slots=True)
class Unit:
    """A drawn stretch: document positions ``start`` to ``end`` show the source from ``source_start`` to
    ``source_end``."""

    start: int
    end: int
    source_start: int
    source_end: int
    cache: object = None
    """What the tints worked out for it."""


@dataclass(slots=True)
class _Drawing:
    """Fenced code that is being drawn."""

    run: CodeRun
    lines: int = 0
    unit: Unit | None = None
    end_before_tail: int = -1
    """Where the finished lines end while an unfinished one is drawn behind them; -1 if none is."""


class Rendering:
    """One text in one document; see `draw`."""

    def __init__(self, document: QTextDocument, formats: Formats, *, plain: bool = False, margin: float = 0.0) -> None:
        """``margin``: how much narrower prose is than code, in pixels. ``plain``: the text is no Markdown."""
        self.units: list[Unit] = []
        self.formats = formats
        self._document = document
        self._cursor = QTextCursor(document)
        self.writer = BlockWriter(self._cursor, formats, margin)
        self._splitter = BlockSplitter(plain=plain)
        self._unread: deque[str] = deque()
        self._finishing = False
        self._finished = False
        self._drawing: _Drawing | None = None
        self._characters_left = 0
        self._tail: tuple[Mark, int] | None = None

    @property
    def code_runs(self) -> list[CodeRun]:
        """The code blocks drawn so far, from top to bottom."""
        return self.writer.code_runs

    def lasting_code_runs(self) -> list[CodeRun]:
        """Those that are not part of a block that is still growing, which is drawn anew each time."""
        return self.writer.code_runs[: self._tail[0].code_runs] if self._tail is not None else self.writer.code_runs

    # -- input

    def feed(self, text: str) -> None:
        """Add text; `draw` shows it."""
        for at in range(0, len(text), _PORTION):
            self._unread.append(visible(text[at : at + _PORTION]))

    def finish(self) -> None:
        """No more text will come."""
        self._finishing = True

    # -- drawing

    def draw(self, budget: float) -> bool:
        """Draw what is new for about ``budget`` seconds. True if something is left to draw."""
        deadline = time.perf_counter() + budget
        self._characters_left = MAX_CHARACTERS_PER_DRAW
        self._cursor.beginEditBlock()
        try:
            self._remove_tail()
            # A tail behind much that is new waits too.
            done = self._draw_ready(deadline) and self._characters_left > MAX_CHARACTERS_PER_DRAW // 2
            if done:
                self._draw_tail()
        finally:
            self._cursor.endEditBlock()
        return not done

    def _draw_ready(self, deadline: float) -> bool:
        """False if time ran out."""
        ready = self._splitter.ready
        has_fed = False
        while True:
            while ready:
                item = ready[0]
                if isinstance(item, Block):
                    self._draw_block(item)
                elif not self._draw_code(item, deadline):
                    return False
                elif not item.closed:
                    break
                ready.popleft()
                if self._is_over(deadline) and (ready or self._unread):
                    return False
            if self._unread:
                if has_fed and self._is_over(deadline):
                    return False
                self._splitter.feed(self._unread.popleft())
                has_fed = True
            elif self._finishing and not self._finished:
                self._finished = True
                self._splitter.finish()
            else:
                return True

    def _is_over(self, deadline: float) -> bool:
        return self._characters_left <= 0 or time.perf_counter() > deadline

    def _draw_block(self, block: Block) -> None:
        start = self.writer.next_position
        self.writer.write(block)
        self._characters_left -= len(block.text)
        if block.kind is Kind.TABLE:
            self._characters_left -= _BAR_CHARACTERS * block.text.count("|")
        self._add_unit(start, block.start, block.start + len(block.text))

    def _add_unit(self, start: int, source_start: int, source_end: int) -> Unit:
        unit = Unit(start, self.writer.position, source_start, source_end)
        self.units.append(unit)
        return unit

    # -- the unfinished rest

    def _draw_tail(self) -> None:
        tail = self._splitter.tail()
        partial = self._splitter.partial_line if self._drawing is not None else None
        if not tail and self._drawing is None:
            return
        mark = self.writer.save()
        self._tail = (mark, len(self.units))
        for block in tail:
            start = self.writer.next_position
            self.writer.write_unfinished(block)
            self._add_unit(start, block.start, block.start + len(block.text))
        if self._drawing is not None and (partial is not None or not self._drawing.lines):
            self._draw_partial_line(self._drawing, partial)

    def _draw_partial_line(self, drawing: _Drawing, line: CodeLine | None) -> None:
        text = line.text if line is not None else ""
        start, end = self.writer.next_position, drawing.run.end
        self.writer.code_line(drawing.run, text, first=not drawing.lines, partial=True)
        drawing.end_before_tail = end
        if line is not None:
            self._add_unit(start, line.start, line.start + len(text))

    def _remove_tail(self) -> None:
        if self._tail is None:
            return
        mark, units = self._tail
        self._tail = None
        self.writer.restore(mark)
        del self.units[units:]
        if self._drawing is not None and self._drawing.end_before_tail >= 0:
            self._drawing.run.end = self._drawing.end_before_tail
            self._drawing.end_before_tail = -1

    # -- fenced code

    def _draw_code(self, code: OpenCode, deadline: float) -> bool:
        """Draw the lines that are there. False if time ran out before."""
        drawing = self._drawing
        if drawing is None:
            drawing = self._drawing = _Drawing(self.writer.begin_code(code.block.language))
        while code.lines:
            line = code.lines.popleft()
            self._draw_code_line(drawing, line)
            self._characters_left -= len(line.text)
            if self._is_over(deadline):
                return False
        if code.closed:
            self.writer.end_code(drawing.run)
            self._drawing = None
        return True

    def _draw_code_line(self, drawing: _Drawing, line: CodeLine) -> None:
        start = self.writer.next_position
        self.writer.code_line(drawing.run, line.text, first=not drawing.lines, joined=line.continued)
        unit = drawing.unit
        if unit is None or drawing.lines % _UNIT_LINES == 0 or unit.source_end - unit.source_start > _UNIT_CHARACTERS:
            drawing.unit = self._add_unit(start, line.start, line.start + len(line.text))
        else:
            unit.end = self.writer.position
            unit.source_end = line.start + len(line.text)
            unit.cache = None
        drawing.lines += 1
