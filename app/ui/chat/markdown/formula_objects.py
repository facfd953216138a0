"""Formulas in a document: each is one character, drawn by its document, that carries the source it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

from PySide6.QtCore import QPointF, QRect, QRectF, QSizeF
from PySide6.QtGui import (
    QFont,
    QFontInfo,
    QFontMetrics,
    QFontMetricsF,
    QPainter,
    QPyTextObject,
    QTextBlock,
    QTextCharFormat,
    QTextDocument,
    QTextFormat,
)

from app.markdown.formulas import Formula
from app.ui.chat.markdown.formulas import Drawing, ascent_of, formula_service, picture_size
from app.ui.widgets.theme import Theme

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
