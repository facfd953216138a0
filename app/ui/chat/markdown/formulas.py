"""Drawn formulas: asked of the helper process, since a formula can take for ever, and painted from their outlines.

The outlines fit every size and color. What they look like in one size and color is kept as a picture, because painting
the outlines takes a hundred times as long.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeAlias

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen, QPixmap

from app import helper
from app.helper.messages import FormulaAnswer, FormulaDrawn, FormulaPart, RenderFormula
from app.markdown.formulas import Formula
from app.ui.chat.markdown.helper_service import HelperService
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
            found: FormulaAnswer = self._helper.draw_formula(RenderFormula(*key))
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
