"""Draw Markdown into a document, block by block; what is finished is never touched again."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from dataclasses import replace

from PySide6.QtGui import QTextCursor, QTextDocument

from app.markdown.blocks import Block, BlockSplitter, CodeLine, Kind, OpenCode, visible
from app.ui.chat.markdown.block_writer import BlockWriter, Mark
from app.ui.chat.markdown.code_blocks import CodeRun
from app.ui.chat.markdown.formats import Formats
from app.ui.chat.markdown.formulas import FormulaPlaces, Moves
from app.ui.chat.markdown.underlay import Unit, add_run

_PORTION = 2048
"""Characters given to the splitter at once: a megabyte must not be split in one go."""
_UNIT_LINES = 25
_UNIT_CHARACTERS = 1000
"""A stretch of code is this long, or one line longer: its tints are worked out in one go."""
MAX_CHARACTERS_PER_DRAW = 600
"""Layout comes after drawing and isn't in its time budget, so it is limited by length."""
_BAR_CHARACTERS = 12
"""Laying out a table cell takes as long as so many characters of prose."""


class Rendering:
    """One text in one document; see `draw`."""

    def __init__(
        self,
        document: QTextDocument,
        formats: Formats,
        *,
        plain: bool = False,
        language: str = "",
        margin: float = 0.0,
        places: FormulaPlaces | None = None,
    ) -> None:
        """``margin``: how much narrower prose is than code, in pixels. ``plain``: the text is no Markdown.
        ``language``: all of it is code in this one. ``places``: without them formulas are shown as source."""
        self.units: list[Unit] = []
        self._document = document
        self._cursor = QTextCursor(document)
        self.writer = BlockWriter(self._cursor, formats, margin, places)
        self.code_runs = self.writer.code_runs
        """The code blocks drawn so far, from top to bottom."""
        self._splitter = BlockSplitter(plain=plain, language=language)
        self._unread: deque[str | None] = deque()
        """``None``: there is no more text."""
        self._code: CodeRun | None = None
        """Fenced code that is being drawn."""
        self._characters_left = 0
        self._tail: tuple[Mark, int] | None = None
        self._drawn: list[Block] = []
        """Its blocks, as they were drawn."""

    def lasting_code_runs(self) -> list[CodeRun]:
        """The code blocks outside the tail, which is drawn anew each time."""
        return self.code_runs[: self._tail[0].code_runs] if self._tail is not None else self.code_runs

    # -- input

    def feed(self, text: str) -> None:
        """Add text; `draw` shows it."""
        for at in range(0, len(text), _PORTION):
            self._unread.append(visible(text[at : at + _PORTION]))

    def finish(self) -> None:
        """No more text will come."""
        self._unread.append(None)

    def move(self, moves: Moves) -> None:
        """Adjust positions after formulas replaced their sources."""
        first = max(0, bisect_left(self.units, moves.places[0], key=lambda unit: unit.end))
        for unit in self.units[first:]:
            unit.start, unit.end = moves.new(unit.start), moves.new(unit.end)
            unit.spans = unit.shapes = None
            for part in unit.runs:
                part.start, part.end = moves.new(part.start), moves.new(part.end)
        for run in self.code_runs:
            run.start, run.end = moves.new(run.start), moves.new(run.end)
        for table in self.writer.table_runs:
            is_changed = any(table.start <= place <= table.end for place in moves.places)
            table.start, table.end, table.group = map(moves.new, (table.start, table.end, table.group))
            if is_changed:
                self.writer.measure_table(table)
        if self._tail is not None:
            mark, units = self._tail
            self._tail = replace(mark, position=moves.new(mark.position)), units

    # -- drawing

    def draw(self, budget: float) -> bool:
        """Draw what is new for about ``budget`` seconds. True if something is left to draw."""
        deadline = time.perf_counter() + budget
        self._characters_left = MAX_CHARACTERS_PER_DRAW
        self._cursor.beginEditBlock()
        try:
            if self._extend_tail():
                return False
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
            if not self._unread:
                return True
            if has_fed and self._is_over(deadline):
                return False
            portion = self._unread.popleft()
            if portion is None:
                self._splitter.finish()
            else:
                self._splitter.feed(portion)
            has_fed = True

    def _is_over(self, deadline: float) -> bool:
        return self._characters_left <= 0 or time.perf_counter() > deadline

    def _draw_block(self, block: Block) -> None:
        start = self.writer.end.next_position
        self.writer.write(block)
        self._characters_left -= len(block.text)
        if block.kind is Kind.TABLE:
            self._characters_left -= _BAR_CHARACTERS * block.text.count("|")
        self._add_unit(start, block.start, block.start + len(block.text))

    def _add_unit(self, start: int, source_start: int, source_end: int) -> None:
        self.units.append(Unit(start, self.writer.end.position, source_start, source_end, self.writer.end.take_runs()))

    # -- the unfinished rest

    def _draw_tail(self) -> None:
        tail, run = self._splitter.tail(), self._code
        if not tail and run is None:
            return
        self._tail = (self.writer.save(), len(self.units))
        for block in tail:
            self._draw_block(block)
        self._drawn = tail
        if run is None:
            return
        line = self._splitter.partial_line
        start = self.writer.end.next_position
        if line is not None:
            self.writer.code_line(run, line.text, line.start, partial=True)
            self._add_unit(start, line.start, line.start + len(line.text))
        elif not run.lines:
            self.writer.code_line(run, "", -1, partial=True)

    def _extend_tail(self) -> bool:
        """If the new text only adds words to the last block, append these; False if more has to be drawn."""
        portion = self._unread[0] if len(self._unread) == 1 else None
        if portion is None or self._tail is None or self._code is not None:
            return False
        self._unread.popleft()
        self._splitter.feed(portion)
        if self._splitter.ready:
            return False
        tail, drawn = self._splitter.tail(), self._drawn
        if tail == drawn:  # what came is held back
            return True
        if len(tail) != len(drawn) or tail[:-1] != drawn[:-1] or not self.writer.extend(drawn[-1], tail[-1]):
            return False
        self._drawn, unit = tail, self.units[-1]
        unit.end, unit.source_end = self.writer.end.position, tail[-1].start + len(tail[-1].text)
        unit.spans = unit.shapes = None
        for run in self.writer.end.take_runs():
            add_run(unit.runs, run)
        return True

    def _remove_tail(self) -> None:
        if self._tail is None:
            return
        mark, units = self._tail
        self._tail = None
        self.writer.restore(mark)
        del self.units[units:]
        if self._code is not None:
            self._code.end = self._code.start + self._code.size

    # -- fenced code

    def _draw_code(self, code: OpenCode, deadline: float) -> bool:
        """Draw the lines that are there. False if time ran out before."""
        if self._code is None:
            self._code = self.writer.begin_code(code.block.language)
        while code.lines:
            line = code.lines.popleft()
            self._draw_code_line(self._code, line)
            self._characters_left -= len(line.text)
            if self._is_over(deadline):
                return False
        if code.closed:
            self.writer.end_code(self._code)
            self._code = None
        return True

    def _draw_code_line(self, run: CodeRun, line: CodeLine) -> None:
        start, is_unit_full = self.writer.end.next_position, run.lines % _UNIT_LINES == 0
        self.writer.code_line(run, line.text, line.start, joined=line.continued)
        end = line.start + len(line.text)
        if is_unit_full or self.units[-1].source_end - self.units[-1].source_start > _UNIT_CHARACTERS:
            self._add_unit(start, line.start, end)
        else:
            unit = self.units[-1]
            unit.end, unit.source_end = self.writer.end.position, end
            unit.runs += self.writer.end.take_runs()
            unit.spans = unit.shapes = None
