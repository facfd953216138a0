"""Formulas in a document: drawn by the helper process, each one character, and where they are.

The outlines fit every size and color. What they look like in one size and color is kept as a picture, because painting
the outlines takes a hundred times as long.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from math import floor
from typing import TypeAlias

from PySide6.QtCore import QPointF, QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontInfo,
    QFontMetrics,
    QFontMetricsF,
    QPainter,
    QPainterPath,
    QPen,
    QPixmap,
    QPyTextObject,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)

from app import helper
from app.helper.messages import FormulaAnswer, FormulaDrawn, FormulaPart, RenderFormula
from app.markdown.formulas import Formula
from app.ui.chat.markdown import formats
from app.ui.chat.markdown.code_blocks import HelperService
from app.ui.chat.markdown.wide import BAR_HEIGHT
from app.ui.widgets import theme as themes
from app.ui.widgets.theme import Theme

_EM = 1000
_MAX_OUTLINES = 1000
_MAX_PICTURE_BYTES = 48 * 1024 * 1024

Key: TypeAlias = tuple[str, bool]
"""The TeX of a formula, and whether it stands on a line of its own."""


def key_of(formula: Formula) -> Key:
    """What a formula is known by."""
    return formula.tex, formula.is_display


@dataclass(frozen=True, slots=True)
class Outline:
    """One part of a formula. ``color``: empty for that of the text; ``stroke``: the width of a line, 0 where the part
    is filled."""

    path: QPainterPath
    color: str
    stroke: int


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """A formula, its measures in font sizes."""

    key: Key
    width: float
    ascent: float
    descent: float
    outlines: tuple[Outline, ...]

    def paint(self, painter: QPainter, baseline: QPointF, size: float, color: QColor, theme: Theme) -> None:
        """Paint it with its left end at ``baseline``, in a font ``size`` pixels large."""
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.translate(baseline)
        painter.scale(size / _EM, size / _EM)
        for outline in self.outlines:
            own = QColor(outline.color) if outline.color else color
            is_seen = own.isValid() and themes.contrast(own, theme.surface) >= themes.MINIMUM_SHAPE_CONTRAST
            ink = own if is_seen else color
            if outline.stroke:
                painter.strokePath(outline.path, QPen(ink, outline.stroke))
            else:
                painter.fillPath(outline.path, ink)
        painter.restore()


def drawing_of(key: Key, found: FormulaDrawn) -> Drawing:
    """A formula from what the helper process has answered."""
    outlines = tuple(_outline(part) for part in found.parts)
    return Drawing(key, found.width / _EM, found.ascent / _EM, found.descent / _EM, outlines)


def _outline(part: FormulaPart) -> Outline:
    path = QPainterPath()
    path.setFillRule(Qt.FillRule.WindingFill)
    numbers = iter(part.numbers)
    for command in part.commands:
        if command == "M":
            path.moveTo(next(numbers), next(numbers))
        elif command == "L":
            path.lineTo(next(numbers), next(numbers))
        elif command == "Q":
            path.quadTo(next(numbers), next(numbers), next(numbers), next(numbers))
        elif command == "C":
            path.cubicTo(*(next(numbers) for _ in range(6)))
        else:
            path.closeSubpath()
    return Outline(path, part.color, part.stroke)


# ---------------------------------------------------------------- pictures


class Pictures:
    """Formulas as they were painted last, up to a number of bytes."""

    def __init__(self, most: int = _MAX_PICTURE_BYTES) -> None:
        self._most = most
        self._bytes = 0
        self._known: OrderedDict[tuple[object, ...], QPixmap] = OrderedDict()

    def picture(self, drawing: Drawing, size: float, color: QColor, ratio: float, theme: Theme) -> QPixmap:
        """A formula in a font ``size`` pixels large, for a screen with ``ratio`` device pixels to each."""
        key = (drawing.key, size, color.rgba(), ratio, theme.is_dark)
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
            return found
        width, height = picture_size(drawing, size)
        found = QPixmap(max(1, round(width * ratio)), max(1, round(height * ratio)))
        found.setDevicePixelRatio(ratio)
        found.fill(Qt.GlobalColor.transparent)
        painter = QPainter(found)
        drawing.paint(painter, QPointF(0, ascent_of(drawing, size)), size, color, theme)
        painter.end()
        self._known[key] = found
        self._bytes += _bytes_of(found)
        while self._bytes > self._most and len(self._known) > 1:
            self._bytes -= _bytes_of(self._known.popitem(last=False)[1])
        return found


def ascent_of(drawing: Drawing, size: float) -> int:
    """How many pixels of a formula stand above the baseline, which is between two of them."""
    return -int(-drawing.ascent * size // 1)


def picture_size(drawing: Drawing, size: float) -> tuple[int, int]:
    """Width and height of a formula's picture, in pixels."""
    return -int(-drawing.width * size // 1), ascent_of(drawing, size) - int(-drawing.descent * size // 1)


def _bytes_of(picture: QPixmap) -> int:
    return picture.width() * picture.height() * 4


# ---------------------------------------------------------------- asking


class FormulaService(HelperService):
    """Has formulas drawn, one request at a time, and remembers them."""

    def __init__(self, process: helper.Helper | None = None) -> None:
        super().__init__("formulas", process)
        self.pictures = Pictures()
        self._known: OrderedDict[Key, Drawing | None] = OrderedDict()
        self._asked: dict[Key, list[tuple[Callable[[], bool], Callable[[], None]]]] = {}

    def is_known(self, key: Key) -> bool:
        """Whether it was drawn, or is known not to be a formula that can be."""
        return key in self._known

    def drawing(self, key: Key) -> Drawing | None:
        """The formula, if it was drawn."""
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def ask(self, key: Key, is_wanted: Callable[[], bool], answered: Callable[[], None]) -> None:
        """Have a formula drawn, unless nobody wants it when its turn has come, and call ``answered`` then."""
        waiting = self._asked.setdefault(key, [])
        waiting.append((is_wanted, answered))
        if len(waiting) == 1:
            self._lane.submit(partial(self._draw, key), partial(self._on_drawn, key))

    def _draw(self, key: Key) -> tuple[bool, Drawing | None]:
        """In a thread of its own, which waits for the helper process. Whether it is an answer for ever."""
        if not any(is_wanted() for is_wanted, _ in list(self._asked.get(key, ()))):
            return False, None
        try:
            found: FormulaAnswer = self._helper.ask(RenderFormula(*key))
        except (helper.TookTooLong, helper.TooMuchMemory):
            return True, None
        except helper.HelperError:
            return False, None
        return True, drawing_of(key, found) if isinstance(found, FormulaDrawn) else None

    def _on_drawn(self, key: Key, found: tuple[bool, Drawing | None]) -> None:
        is_final, drawing = found
        if is_final:
            self._known[key] = drawing
            while len(self._known) > _MAX_OUTLINES:
                self._known.popitem(last=False)
        for is_wanted, answered in self._asked.pop(key, []):
            with contextlib.suppress(RuntimeError):  # its widget is gone
                if is_wanted():
                    answered()


@cache
def formula_service() -> FormulaService:
    """The one of this process; it ends with the application."""
    return FormulaService()


OBJECT = "\ufffc"
"""The character of a formula; no other text has it, see `app.markdown.blocks.visible`."""
TYPE = QTextFormat.ObjectTypes.UserObject.value + 1
SOURCE = QTextFormat.Property.UserProperty.value + 8
"""Property of a formula's character: its source."""
_NUMBER = QTextFormat.Property.UserProperty.value + 9

_MEASURED = 100
_SCALE = 1.15
"""The formulas' letters are smaller than those of the usual fonts of the same size."""


@dataclass(frozen=True, slots=True)
class _Object:
    """A formula in a font ``size`` pixels large. ``middle``: how far above the baseline Qt centers it, doubled; half of
    the height of an x of ``font``."""

    drawing: Drawing
    size: float
    font: QFont
    middle: float


def _object(drawing: Drawing, size: float, font: QFont) -> _Object:
    """With the font that makes Qt take as much room above and below the baseline as the formula needs."""
    above = ascent_of(drawing, size)
    below = picture_size(drawing, size)[1] - above
    result = QFont(font)
    result.setPixelSize(_MEASURED)
    wanted = 2 * (above - below) / QFontMetricsF(result).xHeight() * _MEASURED
    result.setPixelSize(max(1, round(wanted)))
    return _Object(drawing, size, result, QFontMetrics(result).xHeight() / 2)


class FormulaObjects(QPyTextObject):
    """Draws the formulas of one document.

    Attributes:
        width: How wide a formula within a line may be before it is made smaller, in pixels; 0: as wide as it is.
        ratio: Device pixels for each pixel of the screen it is drawn on.
        made: How many formats were made so far.
    """

    def __init__(self, document: QTextDocument, theme: Theme) -> None:
        super().__init__(document)
        self.width = 0.0
        self.ratio = 1.0
        self.made = 0
        self.theme = theme
        self._objects: list[_Object] = []
        self._numbers: dict[tuple[Drawing, float], int] = {}
        document.documentLayout().registerHandler(TYPE, self)

    def format(self, formula: Formula, drawing: Drawing, characters: QTextCharFormat) -> QTextCharFormat:
        """The format of a formula's character among others of the format ``characters``."""
        font = characters.font()
        size = QFontInfo(font).pixelSize() * _SCALE
        number = self._numbers.setdefault((drawing, size), len(self._objects))
        if number == len(self._objects):
            self._objects.append(_object(drawing, size, font))
        result = QTextCharFormat(characters)
        result.setFont(self._objects[number].font)
        result.setObjectType(TYPE)
        result.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignMiddle)
        result.setProperty(SOURCE, formula.source)
        result.setProperty(_NUMBER, number)
        self.made += 1
        color = characters.foreground().color()
        formula_service().pictures.picture(
            drawing, size, color, self.ratio, self.theme
        )  # in this turn, not in painting
        return result

    def width_of(self, characters: QTextFormat) -> int:
        """How wide the formula with this format is, in pixels."""
        found = self._objects[characters.intProperty(_NUMBER)]
        return picture_size(found.drawing, found.size)[0]

    def intrinsicSize(  # noqa: N802
        self, document: QTextDocument, position: int, form: QTextFormat
    ) -> QSizeF:
        """Room for the formula above and below the middle of the line, where Qt puts it."""
        found, scale = self._scaled(document, position, form)
        width, height = picture_size(found.drawing, found.size)
        above = ascent_of(found.drawing, found.size) * scale
        below = height * scale - above
        return QSizeF(width * scale, max(2 * above - found.middle, 2 * below + found.middle))

    def drawObject(  # noqa: N802
        self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, form: QTextFormat
    ) -> None:
        found, scale = self._scaled(document, position, form)
        characters = form.toCharFormat()
        if form.hasProperty(QTextFormat.Property.BackgroundBrush.value):
            painter.fillRect(rect, characters.background())
        color = characters.foreground().color()
        baseline = _baseline(document, position)
        if scale < 1:
            left = QPointF(rect.left(), baseline)
            found.drawing.paint(painter, left, found.size * scale, color, self.theme)
            return
        ratio = painter.device().devicePixelRatio()
        picture = formula_service().pictures.picture(found.drawing, found.size, color, ratio, self.theme)
        top_left = QPointF(rect.left(), baseline - ascent_of(found.drawing, found.size))
        painter.drawPixmap(_on_pixels(painter, top_left, ratio), picture)

    def _scaled(self, document: QTextDocument, position: int, form: QTextFormat) -> tuple[_Object, float]:
        """A formula, and by how much it is made smaller to fit into its line."""
        found = self._objects[form.intProperty(_NUMBER)]
        width = picture_size(found.drawing, found.size)[0]
        if found.drawing.key[1] or not self.width or width < self.width / 2:
            return found, 1.0
        block = document.findBlock(position)
        inset = block.blockFormat().leftMargin() + block.blockFormat().indent() * document.indentWidth()
        items = block.textList()
        if items is not None:  # PySide's stubs deny the None
            inset += items.format().indent() * document.indentWidth()
        return found, min(1.0, max(0.1, (self.width - inset) / width))


def _baseline(document: QTextDocument, position: int) -> float:
    """That of the line at this position of the document. (Qt draws in the middle of the line what is that high.)"""
    block = document.findBlock(position)
    line = block.layout().lineForTextPosition(position - block.position())
    return document.documentLayout().blockBoundingRect(block).top() + line.y() + line.ascent()


def _on_pixels(painter: QPainter, point: QPointF, ratio: float) -> QPointF:
    """The same point where it does not fall between two pixels, which would blur the picture."""
    shift = painter.deviceTransform()
    x, y = shift.dx() + point.x() * ratio, shift.dy() + point.y() * ratio
    return QPointF(point.x() + (floor(x + 0.5) - x) / ratio, point.y() + (floor(y + 0.5) - y) / ratio)


# ---------------------------------------------------------------- what the characters stand for


def characters_of(block: QTextBlock) -> Iterator[tuple[str, str]]:
    """Each character of a block, and what it stands for: itself, or the source of a formula."""
    text = block.text()
    if OBJECT not in text:
        yield from zip(text, text, strict=True)
        return
    piece = block.begin()
    while not piece.atEnd():
        fragment = piece.fragment()
        source = str(fragment.charFormat().property(SOURCE) or "")
        for character in fragment.text():
            yield character, source if character == OBJECT and source else character
        piece += 1


def sources_in(document: QTextDocument) -> list[str]:
    """The sources of a document's formulas, in order."""
    block, found = document.begin(), list[str]()
    while block.isValid():
        if OBJECT in block.text():
            found += [shown for character, shown in characters_of(block) if character == OBJECT]
        block = block.next()
    return found


def with_sources(block: QTextBlock, start: int, end: int) -> str:
    """The text of a block between two positions in it, as Qt counts, with the sources of its formulas."""
    at, result = 0, []
    for character, shown in characters_of(block):
        if start <= at < end:
            result.append(shown)
        at += 2 if character > "\uffff" else 1
    return "".join(result)


_MAX_SPAN = 600
"""Formulas put in place together are in so many characters, because everything between them is laid out again."""
_MAX_TOGETHER = 4


@dataclass(slots=True)
class WaitingFormula:
    """Document positions ``start`` to ``end`` show the source of a formula. ``characters``: the format of the text
    around it; ``block``: that of a block for the drawn formula, if it is to stand on a line of its own."""

    start: int
    end: int
    formula: Formula
    characters: QTextCharFormat
    block: QTextBlockFormat | None
    is_asked: bool = False


@dataclass(slots=True)
class DisplayRun:
    """A drawn formula on a line of its own. ``left``: how far it stands in; ``width``: its own, in pixels."""

    start: int
    left: float
    width: int

    def is_wide(self, available: float) -> bool:
        """Whether it takes more than so many pixels."""
        return 0 < available < self.left + self.width

    def fit(self, form: QTextBlockFormat, available: float, margin: float) -> None:
        """Format its block for this width, of which ``margin`` is free beside prose: centered in the prose if it fits,
        else at the left, with room for a scroll bar if it is wider than that."""
        is_wide, fits = self.is_wide(available), not self.is_wide(available - margin)
        form.setAlignment(Qt.AlignmentFlag.AlignHCenter if fits else Qt.AlignmentFlag.AlignLeft)
        form.setRightMargin(margin if fits else 0)
        form.setProperty(formats.PROSE, True) if fits else form.clearProperty(formats.PROSE)
        form.setNonBreakableLines(True)
        form.setLineHeight(100, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        form.setBottomMargin(formats.GAP + (BAR_HEIGHT if is_wide else 0))


class Moves:
    """Maps positions of a document in which stretches were each replaced by one character. ``places``: where these
    stretches began."""

    def __init__(self, replaced: Sequence[tuple[int, int]]) -> None:
        """``replaced``: the start and end of each stretch, in order."""
        self.places = [start for start, _ in replaced]
        self._ends = [end for _, end in replaced]
        self._less = [0, *accumulate(end - start - 1 for start, end in replaced)]

    def new(self, position: int) -> int:
        """Where a position outside these stretches is now."""
        return position - self._less[bisect_right(self._ends, position)]


class FormulaPlaces:
    """The formulas of one document.

    Attributes:
        objects: Draws them.
        display_runs: Those on lines of their own, from top to bottom.
        width, margin: How many pixels they may take, and how many of these are free beside prose.
    """

    def __init__(self, document: QTextDocument, objects: FormulaObjects) -> None:
        self.objects = objects
        self.display_runs: list[DisplayRun] = []
        self.width = self.margin = 0.0
        self._document = document
        self._service: FormulaService = formula_service()
        self._waiting: list[WaitingFormula] = []
        self._unasked = 0

    def format(self, formula: Formula, characters: QTextCharFormat) -> QTextCharFormat | None:
        """The format of a formula's character, if it was drawn before."""
        drawing = self._service.drawing(key_of(formula))
        return self.objects.format(formula, drawing, characters) if drawing is not None else None

    def wait(self, waiting: WaitingFormula) -> None:
        """Its source was written at the end of the document."""
        if not self._service.is_known(key_of(waiting.formula)):
            self._waiting.append(waiting)
            self._unasked += 1

    def remove_from(self, position: int) -> None:
        """What was written from this position on is removed again."""
        self._waiting = [waiting for waiting in self._waiting if waiting.start < position]
        del self.display_runs[bisect_left(self.display_runs, position, key=lambda one: one.start) :]

    def ask(self, is_wanted: Callable[[], bool], answered: Callable[[], None]) -> None:
        """Have those drawn that are new here."""
        if self._unasked:
            self._unasked = 0
            for waiting in self._waiting:
                if not waiting.is_asked:
                    waiting.is_asked = True
                    self._service.ask(key_of(waiting.formula), is_wanted, answered)

    def add_display(self, position: int, form: QTextBlockFormat, characters: QTextCharFormat) -> None:
        """A drawn formula stands on a line of its own, at this position; makes ``form`` the format of its block."""
        left = form.leftMargin() + form.indent() * self._document.indentWidth()
        run = DisplayRun(position, left, self.objects.width_of(characters))
        insort(self.display_runs, run, key=lambda one: one.start)
        run.fit(form, self.width, self.margin)

    def set_widths(self, width: float, margin: float) -> None:
        """The width that is available has changed."""
        self.width, self.margin = width, margin
        self.objects.width = width - margin
        cursor = QTextCursor(self._document)
        for run in self.display_runs:
            cursor.setPosition(run.start)
            form = cursor.blockFormat()
            run.fit(form, width, margin)
            if form != cursor.blockFormat():
                cursor.setBlockFormat(form)

    # -- putting in place

    def has_answers(self) -> bool:
        """Whether a formula whose source is shown was drawn meanwhile."""
        return any(self._service.is_known(key_of(waiting.formula)) for waiting in self._waiting)

    def place(self) -> Moves | None:
        """Put some of those that were drawn into the place of their sources."""
        found: list[tuple[WaitingFormula, QTextCharFormat]] = []
        left: list[WaitingFormula] = []
        for waiting in self._waiting:
            is_near = not found or waiting.end - found[0][0].start <= _MAX_SPAN
            if not (is_near and len(found) < _MAX_TOGETHER) or not self._service.is_known(key_of(waiting.formula)):
                left.append(waiting)
            elif (form := self.format(waiting.formula, waiting.characters)) is not None:
                found.append((waiting, form))
        self._waiting = left
        if not found:
            return None
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        for waiting, form in reversed(found):
            cursor.setPosition(waiting.start)
            cursor.setPosition(waiting.end, QTextCursor.MoveMode.KeepAnchor)
            cursor.insertText(OBJECT, form)
        moves = Moves([(waiting.start, waiting.end) for waiting, _ in found])
        self._move(moves)
        for waiting, form in found:
            if waiting.block is not None:
                start = moves.new(waiting.start)
                self.add_display(start, waiting.block, form)
                cursor.setPosition(start)
                cursor.setBlockFormat(waiting.block)
        cursor.endEditBlock()
        return moves

    def _move(self, moves: Moves) -> None:
        for waiting in self._waiting:
            waiting.start, waiting.end = moves.new(waiting.start), moves.new(waiting.end)
        for run in self.display_runs[bisect_left(self.display_runs, moves.places[0], key=lambda one: one.start) :]:
            run.start = moves.new(run.start)
