"""Which characters of a document show which of its source, and what is painted under them: the tint of drafted ones,
marks of a search and of a difference.

The document itself knows nothing of it, so showing it never changes layout, copying or what is stored.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import msgspec
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QPen, QTextBlock, QTextDocument

from app.markdown.find import find_matches
from app.protocol.events import Piece
from app.protocol.options import DRAFTER_WORDS
from app.ui.chat.markdown import formats
from app.ui.chat.markdown.formats import MIRRORED
from app.ui.chat.markdown.formulas import OBJECT
from app.ui.widgets.theme import Theme, mix


class Run(msgspec.Struct, gc=False):
    """Document positions ``start`` to ``end`` show the source from ``source`` to ``source_end``: character by
    character, or, if these are not as many, as one unit, such as a formula or an emoji."""

    start: int
    end: int
    source: int
    source_end: int
    is_one: bool = False
    """Not to be joined with its neighbors."""

    @property
    def is_linear(self) -> bool:
        return self.end - self.start == self.source_end - self.source

    def shown(self, start: int, end: int) -> tuple[int, int] | None:
        """The document positions that show these characters of the source."""
        first, last = max(start, self.source), min(end, self.source_end)
        if first >= last:
            return None
        if not self.is_linear:
            return self.start, self.end
        shift = self.start - self.source
        return first + shift, last + shift


def add_run(runs: list[Run], run: Run) -> None:
    """Add what was written last, joined with what stands before it where that is one stretch in both."""
    last = runs[-1] if runs else run
    is_joined = last.end == run.start and last.source_end == run.source and last.is_linear and run.is_linear
    if is_joined and not last.is_one and not run.is_one:
        last.end, last.source_end = run.end, run.source_end
    else:
        runs.append(run)


class Span(msgspec.Struct, frozen=True, gc=False):
    """Document positions ``start`` to ``end`` came with piece number ``piece``."""

    start: int
    end: int
    piece: int


def spans(runs: Sequence[Run], starts: Sequence[int]) -> list[Span]:
    """The pieces under these runs, which begin at ``starts`` in the source. One unit belongs to the piece that began
    it."""
    result: list[Span] = []
    for run in runs if starts else ():
        index = max(bisect_right(starts, run.source) - 1, 0)
        if not run.is_linear:
            result.append(Span(run.start, run.end, index))
            continue
        while index < len(starts) and starts[index] < run.source_end:
            piece_end = starts[index + 1] if index + 1 < len(starts) else run.source_end
            shown = run.shown(starts[index], piece_end)
            if shown is not None:
                result.append(Span(*shown, index))
            index += 1
    return result


_ROUNDING = 3.0
_CARET = 3.0
"""Width, in pixels, of the mark of something that is not shown, such as a line break or the end of the text."""
MAX_SPANS_PER_PAINT = 400
"""Units worked out in one painting at most; the rest follow in the next."""


@dataclass(slots=True)
class _Shape:
    """The underlay of one tint in one block, relative to the block."""

    block: int
    tint: str
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
                painter.fillPath(shape.path, theme.tints[shape.tint])
                pen = theme.underline(shape.tint)
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
            by_tint: dict[str, _Shape] = {}
            for start, end, tint in self._joined(in_block):
                if tint not in by_tint:
                    underline = None if tint == "model" else QPainterPath()
                    by_tint[tint] = _Shape(number, tint, QPainterPath(), underline)
                shape = by_tint[tint]
                for box in text_boxes(block, text, start - number, end - number):
                    shape.path.addRoundedRect(box, _ROUNDING, _ROUNDING)
                    if shape.underline is not None:
                        shape.underline.moveTo(box.left() + 1, box.bottom() - 1)
                        shape.underline.lineTo(box.right() - 1, box.bottom() - 1)
            yield from by_tint.values()

    def _joined(self, found: Iterator[Span]) -> list[tuple[int, int, str]]:
        """Neighbors of one drafter and round become one shape."""
        result: list[tuple[int, int, str]] = []
        before: Piece | None = None
        for span in found:
            piece = self.pieces[span.piece]
            tint = DRAFTER_WORDS[piece.drafter].tint if piece.drafter else ""
            same = before is not None and (before.round, before.drafter) == (piece.round, piece.drafter)
            if same and result[-1][1] == span.start:
                result[-1] = (result[-1][0], span.end, tint)
            else:
                result.append((span.start, span.end, tint))
            before = piece
        return result


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
        return f"Drafted by {DRAFTER_WORDS[piece.drafter].sentence} and accepted in round {piece.round}"
    if piece.rejected is not None:
        return f"The draft said “{_shown(piece.rejected)}”; the target model chose “{_shown(piece.text)}”"
    return ""


def _shown(text: str) -> str:
    cut = text if len(text) <= 60 else text[:60] + "…"
    return cut.replace("\n", "↵").replace("\t", "⇥")


_LINE, _CURRENT_LINE = 1.0, 2.5
"""Width of a mark's outline, in pixels."""

Place = tuple[int, int, int]
"""The number of a match, and two document positions in one block that show it or a part of it."""


def mark_colors(theme: Theme, *, current: bool) -> tuple[QColor, QColor]:
    """The outline of a mark, at least 3 : 1 on what text stands on, and its ground, on which text can be read."""
    share = (0.34 if theme.is_dark else 0.26) if current else (0.18 if theme.is_dark else 0.12)
    return theme.warning, mix(theme.surface, theme.warning, share)


class Marks:
    """Stretches of the source, and where its document shows them. ``starts``: where each begins in the source; they
    don't overlap."""

    def __init__(self, document: QTextDocument, found: Sequence[tuple[int, int]] = ()) -> None:
        """``found``: the start and end of each, in order."""
        self._document = document
        self._known: dict[tuple[int, int, int, int], list[Place]] = {}
        self._set(found)

    def _set(self, found: Sequence[tuple[int, int]]) -> None:
        self.starts, self._ends = [start for start, _ in found], [end for _, end in found]
        self._known.clear()

    def forget_places(self) -> None:
        """The document is drawn anew."""
        self._known.clear()

    def boxes(self, index: int, units: Sequence[Unit]) -> list[QRectF]:
        """Where one is drawn, one box a line; empty where it is not drawn yet, or nothing of it is shown."""
        start, end = self.starts[index], self._ends[index]
        first = max(0, bisect_right(units, start, key=lambda unit: unit.source_start) - 1)
        found = []
        for unit in units[first:]:
            if unit.source_start >= end:
                break
            found += [place for place in self._places(unit) if place[0] == index]
        return [box for place in found for box in self._boxes(place)]

    def _boxes(self, place: Place) -> list[QRectF]:
        return boxes_between(self._document, *place[1:])

    def _places(self, unit: Unit) -> list[Place]:
        key = (unit.start, unit.end, unit.source_start, unit.source_end)
        if key not in self._known:
            self._known[key] = self._find(unit)
        return self._known[key]

    def _find(self, unit: Unit) -> list[Place]:
        first = bisect_right(self._ends, unit.source_start)
        if first == len(self.starts) or self.starts[first] >= unit.source_end:
            return []
        in_block: dict[tuple[int, int], tuple[int, int]] = {}
        for run in unit.runs:
            number = self._document.findBlock(run.start).position()
            index = bisect_right(self._ends, run.source)
            while index < len(self.starts) and self.starts[index] < run.source_end:
                shown = run.shown(self.starts[index], self._ends[index])
                if shown is not None:
                    in_block[index, number] = (in_block.get((index, number), shown)[0], shown[1])
                index += 1
        return [(index, *positions) for (index, _), positions in in_block.items()]


def _draw_mark(painter: QPainter, box: QRectF, least_top: float) -> None:
    """``least_top``: the frame of the first line would be cut off above."""
    shown = box.adjusted(-1, 0, 1, 0)
    shown.setTop(max(shown.top(), least_top))
    painter.drawRoundedRect(shown, _ROUNDING, _ROUNDING)


class SourceMark(Marks):
    """A stretch of the source that differs from another text."""

    def difference(self, units: Sequence[Unit]) -> list[QRectF]:
        """Where it is drawn, or a caret where it would be if nothing of it is shown; empty where nothing is drawn."""
        if not units or (boxes := self.boxes(0, units)):
            return boxes if units else []
        start, end = self.starts[0], self._ends[0]
        index = max(0, bisect_right(units, start, key=lambda unit: unit.source_start) - 1)
        position = units[index].start
        for run in (run for unit in units[index:] if unit.source_start < end for run in unit.runs):
            if (shown := run.shown(start, end)) is not None:
                position = shown[1]
            elif run.source_end <= start:
                position = run.end
        return [self._caret(position)]

    def paint(self, painter: QPainter, units: Sequence[Unit], theme: Theme) -> None:
        """Paint it; the painter's origin is the document's."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(theme.warning, 1.5))
        painter.setBrush(theme.differs)
        for box in self.difference(units):
            _draw_mark(painter, box, 1.0)

    def _caret(self, position: int) -> QRectF:
        """A thin box behind the character before this position."""
        block = self._document.findBlock(position)
        origin = block_rect(self._document, block).topLeft()
        line = block.layout().lineForTextPosition(position - block.position())
        if not line.isValid():
            return QRectF(origin.x(), origin.y(), _CARET, 16.0)
        left = _x(line.cursorToX(position - block.position())) + 1
        return QRectF(origin.x() + left, origin.y() + line.y(), _CARET, line.height())


class FindMarks(Marks):
    """The matches of a query. ``current``: the number of the one that stands out."""

    query = ""
    current: int | None = None
    _searched = -1
    """How long the text was."""

    def search(self, query: str, source: str, *, plain: bool) -> int:
        """Look for ``query`` in a text, or again after it has grown; gives back how many matches there are."""
        if query != self.query:
            self.query, self.current, self._searched = query, None, -1
        if self._searched != len(source):
            self._searched = len(source)
            self._set(find_matches(source, query, plain=plain))
        return len(self.starts)

    def paint(self, painter: QPainter, units: Sequence[Unit], theme: Theme) -> None:
        """Paint the marks of these units; the painter's origin is the document's."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        places = [place for unit in units for place in self._places(unit)]
        for is_current in (False, True):
            line, ground = mark_colors(theme, current=is_current)
            painter.setPen(QPen(line, _CURRENT_LINE if is_current else _LINE))
            painter.setBrush(ground)
            for place in places:
                if (place[0] == self.current) == is_current:
                    for box in self._boxes(place):
                        _draw_mark(painter, box, _CURRENT_LINE / 2)


_BAR = 3
"""Width of the bar beside a quote, in pixels."""


def units_in(document: QTextDocument, units: list[Unit], top: float, bottom: float) -> list[Unit]:
    """What is drawn between two heights. (Qt's own hit test takes longer the longer the text is.)"""

    def top_of(unit: Unit) -> float:
        return block_rect(document, document.findBlock(unit.start)).top()

    first = max(0, bisect_right(units, top, key=top_of) - 1)
    return units[first : bisect_left(units, bottom, lo=first, key=top_of)]


def paint_roles(
    painter: QPainter, document: QTextDocument, start: int, end: int, theme: Theme, prose_width: int
) -> None:
    """Paint the rules and the bars beside quotes between two positions."""
    for block in blocks_between(document, start, end):
        form = block.blockFormat()
        if form.intProperty(formats.ROLE) == formats.RULE:
            y = round(block_rect(document, block).center().y())
            painter.fillRect(QRectF(0, y, prose_width, 1), theme.line)
        elif form.intProperty(formats.DEPTH):
            _paint_quote(painter, document, block, theme, prose_width)


def _paint_quote(painter: QPainter, document: QTextDocument, block: QTextBlock, theme: Theme, prose_width: int) -> None:
    form, below = block.blockFormat(), block.next()
    rect = block_rect(document, block)
    after = below.blockFormat()
    is_other = after.boolProperty(formats.BEGINS)
    shared = 0 if is_other else min(form.intProperty(formats.DEPTH), after.intProperty(formats.DEPTH))
    is_right = block.textDirection() is Qt.LayoutDirection.RightToLeft
    for depth in range(form.intProperty(formats.DEPTH)):
        bottom = block_rect(document, below).top() if depth < shared else rect.bottom()
        inset = depth * formats.QUOTE_INDENT
        left = prose_width - inset - _BAR if is_right else inset
        painter.fillRect(QRectF(left, rect.top(), _BAR, bottom - rect.top()), theme.line)
