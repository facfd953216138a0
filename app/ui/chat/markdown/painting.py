"""What is painted around the text of a document: frames of code, rules, bars beside quotes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QTextBlock, QTextDocument

from app.ui.chat.markdown import formats
from app.ui.chat.markdown.underlay import Unit, block_rect, blocks_between
from app.ui.widgets.theme import Theme

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
