"""One stretch of a text that stands out, such as the first token in which two answers differ.

Like the tints it is found in the finished document and painted under the text, which it does not change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QPen, QTextBlock, QTextDocument

from app.ui.chat.markdown.alignment import utf16_offsets
from app.ui.chat.markdown.rendering import Unit
from app.ui.chat.markdown.tints import ROUNDING, aligned, boxes
from app.ui.widgets.theme import Theme

_CARET = 3.0
"""Width, in pixels, of the mark of something that is not shown, such as a line break or the end of the text."""


class SourceMark:
    """Marks the characters ``start`` to ``end`` of the source of a document."""

    def __init__(self, document: QTextDocument, start: int, end: int) -> None:
        self._document = document
        self._start = start
        self._end = end
        self._found: tuple[int, int] | None = None

    def boxes(self, units: Sequence[Unit], source: str) -> list[QRectF]:
        """Where it is drawn in the document, one box a line; empty where nothing is drawn yet."""
        if self._found is None:
            self._found = self._find(units, source)
        if self._found is None:
            return []
        start, end = self._found
        block = self._document.findBlock(start)
        origin = self._document.documentLayout().blockBoundingRect(block).topLeft()
        found = [box.translated(origin) for box in boxes(block, start - block.position(), end - block.position())]
        return found or [self._caret(end)]

    def paint(self, painter: QPainter, units: Sequence[Unit], source: str, theme: Theme) -> None:
        """Paint it; the painter's origin is the document's."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(theme.warning, 1.5))
        painter.setBrush(theme.differs)
        for box in self.boxes(units, source):
            shown = box.adjusted(-1, 0, 1, 0)
            shown.setTop(max(shown.top(), 1.0))  # the frame of the first line would be cut off
            painter.drawRoundedRect(shown, ROUNDING, ROUNDING)

    def _find(self, units: Sequence[Unit], source: str) -> tuple[int, int] | None:
        """The first and last position in the document that show it; twice the same where nothing of it is shown."""
        index = max(0, bisect_right(units, self._start, key=lambda unit: unit.source_start) - 1)
        before = units[index].start if units else None
        found: tuple[int, int] | None = None
        for unit in units[index:]:
            if unit.source_start >= self._end:
                break
            for block, runs in aligned(self._document, unit, source[unit.source_start : unit.source_end]):
                offsets = utf16_offsets(block.text())
                for run in runs:
                    place = unit.source_start + run.source - run.start
                    first = max(place + run.start, self._start) - place
                    last = min(place + run.end, self._end) - place
                    if first < last:
                        found = (found[0] if found else _at(block, offsets, first)), _at(block, offsets, last)
                    elif last == run.end:
                        before = _at(block, offsets, last)
        if found is None and before is not None:
            return before, before
        return found

    def _caret(self, position: int) -> QRectF:
        """A thin box behind the character before this position."""
        block = self._document.findBlock(position)
        origin = self._document.documentLayout().blockBoundingRect(block).topLeft()
        line = block.layout().lineForTextPosition(position - block.position())
        if not line.isValid():
            return QRectF(origin, origin + QPointF(_CARET, 16.0))
        x = line.cursorToX(position - block.position())
        left = float(x[0]) if isinstance(x, tuple) else float(str(x))
        return QRectF(
            origin + QPointF(left + 1, line.y()), origin + QPointF(left + 1 + _CARET, line.y() + line.height())
        )


def _at(block: QTextBlock, offsets: list[int] | None, index: int) -> int:
    """The position in the document of a character of a block."""
    return block.position() + (index if offsets is None else offsets[index])
