"""Which shown characters came from the draft: found on demand, painted under the text, told on hovering.

The document itself knows nothing of it, so showing tints never changes layout, copying or what is stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPainterPath, QPen, QTextBlock, QTextDocument

from app.protocol.messages import Piece
from app.ui.chat.markdown.alignment import Run, Span, align, spans, utf16_offsets, without_entities
from app.ui.chat.markdown.blocks import visible
from app.ui.chat.markdown.rendering import Unit
from app.ui.engine import drafters
from app.ui.widgets.theme import Theme

ROUNDING = 3.0
MAX_SPANS_PER_PAINT = 400
"""When so many were worked out in one painting, the rest follows in the next."""


@dataclass(slots=True)
class _Shape:
    """The underlay of one drafter in one block, relative to the block."""

    block: int
    path: QPainterPath
    underline: QPainterPath | None
    """Only where there is one: of many tokens these are many objects."""


@dataclass(slots=True)
class _Tints:
    """What is known of a unit: its spans in document positions and, once laid out, their shapes."""

    spans: list[Span]
    shapes: list[_Shape] | None = None


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

    def piece_at(self, units: list[Unit], source: str, position: int) -> Piece | None:
        """The piece that shows the character at this document position."""
        index = bisect_right(units, position, key=lambda unit: unit.start) - 1
        if index < 0 or not self.pieces:
            return None
        found = self._of(units[index], source).spans
        at = bisect_right(found, position, key=lambda span: span.start) - 1
        return self.pieces[found[at].piece] if at >= 0 and position < found[at].end else None

    def paint(self, painter: QPainter, units: list[Unit], source: str, theme: Theme) -> bool:
        """Paint the underlay of these units; the painter's origin is the document's. False: there is more to paint."""
        layout = self._document.documentLayout()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        left = MAX_SPANS_PER_PAINT
        is_whole = True
        for unit in units:
            shapes = unit.cache.shapes if isinstance(unit.cache, _Tints) else None
            if shapes is None:
                if left <= 0:
                    is_whole = False
                    continue
                tints = self._of(unit, source)
                left -= len(tints.spans)
                shapes = tints.shapes = list(self._shapes(tints.spans))
            for shape in shapes:
                origin = layout.blockBoundingRect(self._document.findBlock(shape.block)).topLeft()
                painter.translate(origin)
                painter.fillPath(shape.path, theme.tint_model if shape.underline is None else theme.tint_ngram)
                if shape.underline is not None:
                    painter.strokePath(shape.underline, QPen(theme.quiet, 1.2, Qt.PenStyle.DotLine))
                painter.translate(-origin)
        return is_whole

    # -- finding

    def _of(self, unit: Unit, source: str) -> _Tints:
        if isinstance(unit.cache, _Tints):
            return unit.cache
        tints = _Tints(self._find(unit, source[unit.source_start : unit.source_end]))
        unit.cache = tints
        return tints

    def _find(self, unit: Unit, source: str) -> list[Span]:
        found: list[Span] = []
        for block, runs in aligned(self._document, unit, source):
            offsets = utf16_offsets(block.text())
            for span in spans(runs, self._starts, unit.source_start):
                start, end = (span.start, span.end) if offsets is None else (offsets[span.start], offsets[span.end])
                found.append(Span(start + block.position(), end + block.position(), span.piece))
        return found

    # -- shapes

    def _shapes(self, found: list[Span]) -> Iterator[_Shape]:
        drafted = [span for span in found if self.pieces[span.piece].drafter]
        for number, in_block in groupby(drafted, key=lambda span: self._document.findBlock(span.start).position()):
            block = self._document.findBlock(number)
            text = _as_qt_counts(block.text())
            by_drafter: dict[str, _Shape] = {}
            for start, end, drafter in self._joined(list(in_block)):
                shape = by_drafter.get(drafter)
                if shape is None:
                    shape = by_drafter[drafter] = _Shape(
                        number, QPainterPath(), QPainterPath() if drafter != "model" else None
                    )
                self._add(shape, block, text, start - number, end - number)
            yield from by_drafter.values()

    def _joined(self, found: list[Span]) -> list[tuple[int, int, str]]:
        """Neighbors of one drafter and round become one shape."""
        result: list[tuple[int, int, str]] = []
        before: Piece | None = None
        for span in found:
            piece = self.pieces[span.piece]
            drafter = piece.drafter or ""
            same = before is not None and (before.round, before.drafter) == (piece.round, piece.drafter)
            if same and result and result[-1][1] == span.start:
                result[-1] = (result[-1][0], span.end, drafter)
            else:
                result.append((span.start, span.end, drafter))
            before = piece
        return result

    def _add(self, shape: _Shape, block: QTextBlock, text: str, start: int, end: int) -> None:
        for box in _boxes(block, text, start, end):
            shape.path.addRoundedRect(box, ROUNDING, ROUNDING)
            if shape.underline is not None:
                shape.underline.moveTo(box.left() + 1, box.bottom() - 1)
                shape.underline.lineTo(box.right() - 1, box.bottom() - 1)


def aligned(document: QTextDocument, unit: Unit, source: str) -> Iterator[tuple[QTextBlock, list[Run]]]:
    """The blocks of a unit, and where their characters stand in ``source``, the unit's own."""
    at = 0
    source = without_entities(visible(source))  # here, and not once for each block
    block = document.findBlock(unit.start)
    while block.isValid() and block.position() <= unit.end:
        runs, at = align(block.text(), source, at)
        yield block, runs
        block = block.next()


def boxes(block: QTextBlock, start: int, end: int) -> Iterator[QRectF]:
    """Where the characters between two positions in a block are drawn, one box a line, relative to the block."""
    return _boxes(block, _as_qt_counts(block.text()), start, end)


def _as_qt_counts(text: str) -> str:
    """The text with a character for each position in Qt's."""
    if text.isascii() or max(text) <= "\uffff":
        return text
    return "".join(character if character <= "\uffff" else character + "\0" for character in text)


def _boxes(block: QTextBlock, text: str, start: int, end: int) -> Iterator[QRectF]:
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
        baseline = line.y() + line.ascent()
        yield QRectF(left, baseline - metrics.ascent() - 1, right - left, metrics.height() + 2)


def _x(answer: object) -> float:
    """PySide gives the x with the position it belongs to."""
    return float(answer[0]) if isinstance(answer, tuple) else float(str(answer))


def forget_shapes(units: list[Unit]) -> None:
    """The layout changed: work out the shapes again when they are next painted."""
    for unit in units:
        if isinstance(unit.cache, _Tints):
            unit.cache.shapes = None


def explanation(piece: Piece) -> str:
    """What to say about a token, as plain text; empty where there is nothing to say."""
    if piece.drafter:
        return f"From {drafters.IN_SENTENCES[piece.drafter]}: guessed in round {piece.round} and kept"
    if piece.rejected is not None:
        return f"The guess was “{_shown(piece.rejected)}”; the target wrote “{_shown(piece.text)}”"
    return ""


def _shown(text: str) -> str:
    cut = text if len(text) <= 60 else text[:60] + "…"
    return cut.replace("\n", "↵").replace("\t", "⇥")
