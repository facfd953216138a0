"""What is found in a drawn document and painted under its text: which characters came from the draft, and a mark.

The document itself knows nothing of it, so showing it never changes layout, copying or what is stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from PySide6.QtCore import QRectF
from PySide6.QtGui import QFontMetricsF, QPainter, QPainterPath, QPen, QTextBlock, QTextDocument

from app.protocol.events import Piece
from app.ui.chat.markdown.formats import MIRRORED
from app.ui.chat.markdown.formula_objects import OBJECT
from app.ui.chat.markdown.places import Run, Span, spans
from app.ui.engine import drafters
from app.ui.widgets.theme import Theme

_ROUNDING = 3.0
_CARET = 3.0
"""Width, in pixels, of the mark of something that is not shown, such as a line break or the end of the text."""
MAX_SPANS_PER_PAINT = 400
"""Units worked out in one painting at most; the rest follow in the next."""


@dataclass(slots=True)
class _Shape:
    """The underlay of one drafter in one block, relative to the block."""

    block: int
    drafter: str
    path: QPainterPath
    underline: QPainterPath | None
    """Only where there is one: of many tokens these are many objects."""


@dataclass(slots=True)
class Unit:
    """A drawn stretch: document positions ``start`` to ``end`` show the source from ``source_start`` to
    ``source_end``."""

    start: int
    end: int
    source_start: int
    source_end: int
    runs: list[Run] = field(default_factory=list)
    """Which of these show which, in the order of the source."""
    spans: list[Span] | None = None
    """Its tokens, in document positions, once they were looked for."""
    shapes: list[_Shape] | None = None
    """What to paint for them; to be forgotten when the layout changes."""


class TokenTints:
    """Knows the pieces of an answer and finds them in its document."""

    def __init__(self, document: QTextDocument) -> None:
        self.pieces: list[Piece] = []
        self._document = document
        self._starts: list[int] = []
        self._length = 0

    def add(self, pieces: list[Piece]) -> None:
        """The next pieces of the text."""
        for piece in pieces:
            if piece.text:
                self.pieces.append(piece)
                self._starts.append(self._length)
                self._length += len(piece.text)

    def piece_at(self, units: list[Unit], position: int) -> Piece | None:
        """The piece that shows the character at this document position."""
        index = bisect_right(units, position, key=lambda unit: unit.start) - 1
        if index < 0 or not self.pieces:
            return None
        found = self._spans(units[index])
        at = bisect_right(found, position, key=lambda span: span.start) - 1
        return self.pieces[found[at].piece] if at >= 0 and position < found[at].end else None

    def paint(self, painter: QPainter, units: list[Unit], theme: Theme) -> bool:
        """Paint the underlay of these units; the painter's origin is the document's. False: there is more to paint."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        left = MAX_SPANS_PER_PAINT
        is_whole = True
        for unit in units:
            if unit.shapes is None:
                if left <= 0:
                    is_whole = False
                    continue
                found = self._spans(unit)
                left -= len(found)
                unit.shapes = list(self._shapes(found))
            for shape in unit.shapes:
                origin = block_rect(self._document, self._document.findBlock(shape.block)).topLeft()
                painter.translate(origin)
                painter.fillPath(shape.path, theme.tints[shape.drafter])
                pen = theme.underline(shape.drafter)
                if shape.underline is not None and pen is not None:
                    painter.strokePath(shape.underline, pen)
                painter.translate(-origin)
        return is_whole

    def _spans(self, unit: Unit) -> list[Span]:
        if unit.spans is None:
            unit.spans = sorted(spans(unit.runs, self._starts), key=lambda span: span.start)
        return unit.spans

    def _shapes(self, found: list[Span]) -> Iterator[_Shape]:
        drafted = [span for span in found if self.pieces[span.piece].drafter]
        for number, in_block in groupby(drafted, key=lambda span: self._document.findBlock(span.start).position()):
            block = self._document.findBlock(number)
            text = as_qt_counts(block.text())
            by_drafter: dict[str, _Shape] = {}
            for start, end, drafter in self._joined(in_block):
                if drafter not in by_drafter:
                    underline = None if drafter == "model" else QPainterPath()
                    by_drafter[drafter] = _Shape(number, drafter, QPainterPath(), underline)
                shape = by_drafter[drafter]
                for box in text_boxes(block, text, start - number, end - number):
                    shape.path.addRoundedRect(box, _ROUNDING, _ROUNDING)
                    if shape.underline is not None:
                        shape.underline.moveTo(box.left() + 1, box.bottom() - 1)
                        shape.underline.lineTo(box.right() - 1, box.bottom() - 1)
            yield from by_drafter.values()

    def _joined(self, found: Iterator[Span]) -> list[tuple[int, int, str]]:
        """Neighbors of one drafter and round become one shape."""
        result: list[tuple[int, int, str]] = []
        before: Piece | None = None
        for span in found:
            piece = self.pieces[span.piece]
            drafter = piece.drafter or ""
            same = before is not None and (before.round, before.drafter) == (piece.round, piece.drafter)
            if same and result[-1][1] == span.start:
                result[-1] = (result[-1][0], span.end, drafter)
            else:
                result.append((span.start, span.end, drafter))
            before = piece
        return result


class SourceMark:
    """Marks the characters ``start`` to ``end`` of the source of a document."""

    def __init__(self, document: QTextDocument, start: int, end: int) -> None:
        self._document = document
        self.start = start
        self.end = end
        self._found: tuple[int, int] | None = None

    def forget_place(self) -> None:
        """The document is drawn anew."""
        self._found = None

    def boxes(self, units: Sequence[Unit]) -> list[QRectF]:
        """Where it is drawn in the document, one box a line; empty where nothing is drawn yet."""
        if self._found is None:
            self._found = self._find(units)
        if self._found is None:
            return []
        return boxes_between(self._document, *self._found) or [self._caret(self._found[1])]

    def paint(self, painter: QPainter, units: Sequence[Unit], theme: Theme) -> None:
        """Paint it; the painter's origin is the document's."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(theme.warning, 1.5))
        painter.setBrush(theme.differs)
        for box in self.boxes(units):
            shown = box.adjusted(-1, 0, 1, 0)
            shown.setTop(max(shown.top(), 1.0))  # the frame of the first line would be cut off
            painter.drawRoundedRect(shown, _ROUNDING, _ROUNDING)

    def _find(self, units: Sequence[Unit]) -> tuple[int, int] | None:
        """The first and last position in the document that show it; the same one twice if none of it is shown."""
        index = max(0, bisect_right(units, self.start, key=lambda unit: unit.source_start) - 1)
        before = units[index].start if units else None
        found: tuple[int, int] | None = None
        for unit in units[index:]:
            if unit.source_start >= self.end:
                break
            for run in unit.runs:
                shown = run.shown(self.start, self.end)
                if shown is not None:
                    found = (found[0] if found else shown[0]), shown[1]
                elif run.source_end <= self.start:
                    before = run.end
        if found is None and before is not None:
            return before, before
        return found

    def _caret(self, position: int) -> QRectF:
        """A thin box behind the character before this position."""
        block = self._document.findBlock(position)
        origin = block_rect(self._document, block).topLeft()
        line = block.layout().lineForTextPosition(position - block.position())
        if not line.isValid():
            return QRectF(origin.x(), origin.y(), _CARET, 16.0)
        left = _x(line.cursorToX(position - block.position())) + 1
        return QRectF(origin.x() + left, origin.y() + line.y(), _CARET, line.height())


def blocks_between(document: QTextDocument, start: int, end: int) -> Iterator[QTextBlock]:
    """The blocks of a document from the one at ``start`` to the one at ``end``."""
    block = document.findBlock(start)
    while block.isValid() and block.position() <= end:
        yield block
        block = block.next()


def in_reading_order(blocks: Iterable[QTextBlock]) -> Iterator[QTextBlock]:
    """The same blocks, but the cells of each row of a mirrored table from the first to the last."""
    row: list[QTextBlock] = []
    for block in blocks:
        columns = block.blockFormat().intProperty(MIRRORED)
        if not columns:
            yield block
            continue
        row.append(block)
        if len(row) == columns:
            yield from reversed(row)
            row.clear()
    yield from reversed(row)


def block_rect(document: QTextDocument, block: QTextBlock) -> QRectF:
    """Where a block is drawn."""
    return document.documentLayout().blockBoundingRect(block)


def boxes_between(document: QTextDocument, start: int, end: int) -> list[QRectF]:
    """Where the text between two positions in one block is drawn, one box a line."""
    block = document.findBlock(start)
    origin, at = block_rect(document, block).topLeft(), block.position()
    return [box.translated(origin) for box in text_boxes(block, as_qt_counts(block.text()), start - at, end - at)]


def as_qt_counts(text: str) -> str:
    """The text with a character for each position in Qt's."""
    if text.isascii() or max(text) <= "\uffff":
        return text
    return "".join(character if character <= "\uffff" else character + "\0" for character in text)


def text_boxes(block: QTextBlock, text: str, start: int, end: int) -> Iterator[QRectF]:
    layout = block.layout()
    metrics = QFontMetricsF(block.charFormat().font())
    first_line, last_line = layout.lineForTextPosition(start), layout.lineForTextPosition(end)
    if not first_line.isValid() or not last_line.isValid():
        return
    for index in range(first_line.lineNumber(), last_line.lineNumber() + 1):
        line = layout.lineAt(index)
        first = max(start, line.textStart())
        last = min(end, line.textStart() + line.textLength())
        # Spaces around words (and the indent of code) stay plain: calmer to look at.
        while first < last and text[first].isspace():
            first += 1
        while first < last and text[last - 1].isspace():
            last -= 1
        if first >= last:
            continue
        left, right = sorted((_x(line.cursorToX(first)), _x(line.cursorToX(last))))
        if OBJECT in text[first:last]:  # a formula may be higher than letters
            yield QRectF(left, line.y(), right - left, line.height())
            continue
        baseline = line.y() + line.ascent()
        yield QRectF(left, baseline - metrics.ascent() - 1, right - left, metrics.height() + 2)


def _x(answer: object) -> float:
    """PySide gives the x with the position it belongs to."""
    return float(answer[0]) if isinstance(answer, tuple) else float(str(answer))


def explanation(piece: Piece) -> str:
    """A token's tooltip, as plain text; empty if there is nothing to say."""
    if piece.drafter:
        return f"Drafted by {drafters.IN_SENTENCES[piece.drafter]} and accepted in round {piece.round}"
    if piece.rejected is not None:
        return f"The draft said “{_shown(piece.rejected)}”; the target model chose “{_shown(piece.text)}”"
    return ""


def _shown(text: str) -> str:
    cut = text if len(text) <= 60 else text[:60] + "…"
    return cut.replace("\n", "↵").replace("\t", "⇥")
