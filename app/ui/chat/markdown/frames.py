"""Where the frames of code stand in a view, what stands above each, and which parts are wider than their place."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from PySide6.QtCore import QRect, QRectF, Qt
from PySide6.QtGui import QPainter, QTextDocument

from app.ui.chat.markdown.code_blocks import CodeRun
from app.ui.chat.markdown.code_headers import CodeHeader
from app.ui.chat.markdown.formats import CODE_PADDING, ROW_PADDING
from app.ui.chat.markdown.formula_places import FormulaPlaces
from app.ui.chat.markdown.rendering import Rendering
from app.ui.chat.markdown.underlay import block_rect
from app.ui.chat.markdown.wide import BAR_HEIGHT, WidePart, WidePlaces, code_extent, code_place
from app.ui.widgets import theme as themes


class Frames:
    """Those of one rendering of a text.

    Attributes:
        prose_width, width: How wide lines of prose are, and how wide code and tables may be, in pixels.
    """

    def __init__(
        self,
        document: QTextDocument,
        headers: Sequence[CodeHeader],
        wide: WidePlaces,
        rendering: Rendering,
        places: FormulaPlaces,
    ) -> None:
        """``headers``: those that were made so far; there may be fewer than code blocks, or more."""
        self.prose_width = self.width = 0
        self._document = document
        self._headers = headers
        self._wide = wide
        self._rendering = rendering
        self._places = places
        self._formats = rendering.writer.formats
        self._placed = 0

    def set_widths(self, prose: int, width: int) -> None:
        """Everything has to be placed again."""
        self.prose_width, self.width = prose, width
        self._placed = 0

    def forget(self) -> None:
        """What is drawn already may be elsewhere now."""
        self._placed = 0

    def place(self) -> None:
        """Put the headers that are made over the frames, and scroll bars below what is too wide."""
        runs = self._rendering.code_runs
        # All before were finished when they were placed.
        first = max(0, min(self._placed, len(runs)) - 1)
        self._placed = min(len(self._headers), len(runs))
        for header, run in zip(self._headers[first:], runs[first:], strict=False):
            header.place(self.frame(run), self._formats.code_header, run.language)
        for header in self._headers[len(runs) :]:
            header.hide()
        self._place_wide()

    def _place_wide(self) -> None:
        parts = [
            WidePart(run.start, run.end, self._code_place(run), code_extent(run.width), "code", run.start)
            for run in self._rendering.code_runs
            if not self._rendering.writer.wraps_code and self._needed(run) > self.width
        ]
        for table in self._rendering.writer.table_runs:
            frame = self._document.frameAt(table.start) if table.is_wide(self.width) else None
            if frame is not None:
                box = self._document.documentLayout().frameBoundingRect(frame)
                # For a table Qt gives back the place of the first cell's text, and the size of all with its margins.
                top = box.top() - frame.frameFormat().topMargin() - ROW_PADDING
                place = QRect(0, math.floor(top), self.width, math.ceil(box.height()))
                width, is_mirrored = math.ceil(box.width()), table.is_mirrored
                parts.append(WidePart(table.start, table.end, place, width, "table", table.group, is_mirrored))
        for formula in self._places.display_runs:
            if formula.is_wide(self.width):
                box = self._block_rect(formula.start)
                bottom = math.ceil(box.bottom()) + BAR_HEIGHT
                place = QRect(0, math.floor(box.top()), self.width, bottom - math.floor(box.top()))
                width = math.ceil(formula.left) + formula.width
                parts.append(WidePart(formula.start, formula.start + 1, place, width, "formula", formula.start))
        if parts or self._wide.parts:
            self._wide.set_parts(sorted(parts, key=lambda part: part.start))

    def _code_place(self, run: CodeRun) -> QRect:
        return code_place(self.frame(run), self._formats.code_header)

    def _needed(self, run: CodeRun) -> float:
        """Where the frame of code would end if it were as wide as its longest line."""
        return run.left + run.width + 2 * CODE_PADDING

    def frame(self, run: CodeRun) -> QRectF:
        """Where the frame of a code block is, with its header."""
        top = self._block_rect(run.start).top() - self._formats.code_header
        bottom = self._block_rect(run.end).bottom() + CODE_PADDING
        # As wide as prose, and wider only where a line needs it.
        right = min(max(self._needed(run), self.prose_width), self.width)
        return QRectF(run.left, top, right - run.left, bottom - top)

    def _block_rect(self, position: int) -> QRectF:
        return block_rect(self._document, self._document.findBlock(position))

    def paint(self, painter: QPainter, start: int, end: int) -> None:
        """Paint the frames between two document positions."""
        runs = self._rendering.code_runs
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._formats.theme.code_surface)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for run in runs[bisect_left(runs, start, key=lambda run: run.end) :]:
            if run.start > end + 1:
                break
            painter.drawRoundedRect(self.frame(run), themes.RADIUS, themes.RADIUS)
