"""Objects and arrays of finished JSON code can be folded to their first and last lines.

Folded lines stay in the document, where they are copied and found; they are only not shown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPolygonF, QTextBlock, QTextDocument
from PySide6.QtWidgets import QWidget

from app.ui.chat.markdown.code_blocks import MAX_CHARACTERS, CodeRun
from app.ui.chat.markdown.formats import CODE_PADDING
from app.ui.chat.markdown.painting import block_rect
from app.ui.widgets import focus_ring, units
from app.ui.widgets import theme as themes
from app.ui.widgets.announcing import announce

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|[\[{\]}\n]')
_ARROW = 3.5
"""Half the length of an arrow, in pixels."""
_GAP = 6


def parts_of(code: str) -> list[tuple[int, int]]:
    """The first and last lines, from 0 on, of objects and arrays with lines between these: of those that begin in one
    line, the longest. In order.
    """
    found: dict[int, int] = {}
    begun: list[int] = []
    line = 0
    for token in _TOKEN.finditer(code):
        sign = token[0]
        if sign == "\n":
            line += 1
        elif sign in "[{":
            begun.append(line)
        elif sign in "]}" and begun:
            first = begun.pop()
            if line > first + 1:
                found[first] = line  # whatever ends later contains what ended before
    return sorted(found.items())


@dataclass(slots=True)
class Part:
    """An object or an array, by numbers of blocks in the document."""

    first: int
    last: int
    lines: int
    """How many lines are between these."""
    is_folded: bool = False


class JsonFolds:
    """Those of one view."""

    def __init__(self, document: QTextDocument, viewport: QWidget, changed: Callable[[], object]) -> None:
        """``changed``: called when the document has another height."""
        self._document = document
        self._viewport = viewport
        self._changed = changed
        self._parts: list[list[Part]] = []
        """For each gutter."""
        self._gutters: list[Gutter] = []
        self._folded: set[tuple[int, int]] = set()
        """Numbers of gutters and of their parts, for when everything is drawn anew."""
        self._runs: list[CodeRun] = []

    def forget(self) -> None:
        """There is another text."""
        self._folded.clear()
        self.clear()

    def clear(self) -> None:
        """The document is empty."""
        self._runs, self._parts = [], []
        for gutter in self._gutters:
            gutter.hide()

    def find(self, runs: Sequence[CodeRun]) -> None:
        """Look into the code of a finished text, and fold what was folded before."""
        found = [run for run in runs if run.language == "json" and run.is_closed and run.size <= MAX_CHARACTERS]
        if found == self._runs:
            return
        self._runs = found
        self._parts = [self._parts_of(run) for run in found]
        while len(self._gutters) < len(found):
            self._gutters.append(Gutter(self._viewport, self._document, self._toggle))
        for number, parts in enumerate(self._parts):
            for place, part in enumerate(parts):
                part.is_folded = (number, place) in self._folded
        if self._folded:
            self._show_lines()

    def _parts_of(self, run: CodeRun) -> list[Part]:
        first = self._document.findBlock(run.start)
        texts, block = [], first
        while block.isValid() and block.position() <= run.end:
            texts.append(block.text())
            block = block.next()
        begins = [number for number in range(len(texts)) if number not in run.joined]
        code = "".join(("" if number in run.joined else "\n") + text for number, text in enumerate(texts))[1:]
        number = first.blockNumber()
        return [
            Part(number + begins[start], number + begins[end], end - start - 1)
            for start, end in parts_of(code)
            if end < len(begins)
        ]

    def place(self, frame_of: Callable[[CodeRun], QRectF]) -> None:
        """Put the arrows beside the lines."""
        for gutter, run, parts in zip(self._gutters, self._runs, self._parts, strict=False):
            gutter.show_parts(parts, frame_of(run), self._document.findBlock(run.start))
        for gutter in self._gutters[len(self._runs) :]:
            gutter.hide()

    def gutters(self) -> list[tuple[CodeRun, Gutter]]:
        """For each code block that has any."""
        return list(zip(self._runs, self._gutters, strict=False))

    def unfold_all(self) -> bool:
        """Whether anything was folded."""
        if not self._folded:
            return False
        for part in (part for parts in self._parts for part in parts):
            part.is_folded = False
        self._folded.clear()
        self._show_lines()
        self._changed()
        return True

    def block_at(self, position: int) -> QTextBlock:
        """The block at a document position; where that is folded, the one that stands for it."""
        block = self._document.findBlock(position)
        if block.isVisible():
            return block
        hidden = [part for parts in self._parts for part in parts if part.is_folded]
        outer: list[Part] = []
        for part in hidden:
            if not outer or part.first >= outer[-1].last:
                outer.append(part)
        at = bisect_right(outer, block.blockNumber(), key=lambda part: part.first) - 1
        return self._document.findBlockByNumber(outer[at].first) if at >= 0 else block

    def paint(self, painter: QPainter) -> None:
        """Say behind each folded line how many are not shown."""
        painter.setPen(themes.current().quiet)
        for part in (part for parts in self._parts for part in parts if part.is_folded):
            block = self._document.findBlockByNumber(part.first)
            lines = block.layout()
            if block.isVisible() and lines.lineCount():
                line = lines.lineAt(lines.lineCount() - 1)
                place = line.naturalTextRect().translated(block_rect(self._document, block).topLeft())
                painter.drawText(QPointF(place.right() + _GAP, place.top() + line.ascent()), _count(part))

    def _toggle(self, part: Part) -> None:
        part.is_folded = not part.is_folded
        numbers = ((number, parts.index(part)) for number, parts in enumerate(self._parts) if part in parts)
        self._folded.symmetric_difference_update(numbers)
        self._show_lines()
        self._changed()

    def _show_lines(self) -> None:
        for run, parts in zip(self._runs, self._parts, strict=True):
            block = self._document.findBlock(run.start)
            shown_from = 0
            folded = {part.first: part.last for part in parts if part.is_folded}
            while block.isValid() and block.position() <= run.end:
                number = block.blockNumber()
                block.setVisible(number >= shown_from)
                if number >= shown_from and number in folded:
                    shown_from = folded[number]
                    block = self._hide_joined(block, run)
                block = block.next()
            self._document.markContentsDirty(run.start, run.end - run.start)

    def _hide_joined(self, block: QTextBlock, run: CodeRun) -> QTextBlock:
        """Blocks that continue a long first line stay; gives back the last of them."""
        first = self._document.findBlock(run.start).blockNumber()
        while block.next().isValid() and block.next().blockNumber() - first in run.joined:
            block = block.next()
            block.setVisible(True)
        return block


class Gutter(QWidget):
    """Arrows left of the code; a click folds, with the keyboard the arrow keys and Enter do."""

    def __init__(self, viewport: QWidget, document: QTextDocument, toggle: Callable[[Part], object]) -> None:
        super().__init__(viewport)
        self._document = document
        self._toggle = toggle
        self._parts: list[Part] = []
        self._before = 0
        """The number of the block before the code."""
        self._current = 0
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName("Fold parts of this JSON")
        self.hide()

    def show_parts(self, parts: list[Part], frame: QRectF, first: QTextBlock) -> None:
        """Those of code in this frame, which begins with the block ``first``."""
        self._parts, self._before = parts, first.blockNumber() - 1
        top = int(block_rect(self._document, first).top())
        self.setGeometry(QRect(int(frame.left()), top, int(CODE_PADDING), int(frame.bottom() - CODE_PADDING) - top))
        self.setVisible(bool(parts))
        self.update()
        self._describe()

    def places(self) -> list[tuple[Part, QRect]]:
        """The parts whose first lines are shown, and where their arrows are."""
        found = []
        for part in self._parts:
            block = self._document.findBlockByNumber(part.first)
            if block.isVisible() and block.layout().lineCount():
                line = block.layout().lineAt(0)
                top = int(block_rect(self._document, block).top()) - self.y()
                found.append((part, QRect(0, top, self.width(), int(line.height()))))
        return found

    def _describe(self) -> None:
        places = self.places()
        self._current = max(0, min(self._current, len(places) - 1))
        text = self._described(places[self._current][0]) if places else ""
        if text != self.accessibleDescription():
            self.setAccessibleDescription(text)
            if self.hasFocus():
                announce(self, text)

    def _described(self, part: Part) -> str:
        first, last = (number - self._before for number in (part.first, part.last))
        return f"Lines {first} to {last}, {'folded' if part.is_folded else 'shown'}"

    # -- Qt

    def mousePressEvent(self, event: QMouseEvent) -> None:
        for number, (part, place) in enumerate(self.places()):
            if place.contains(QPoint(1, int(event.position().y()))):
                self._current = number
                self._toggle(part)
                return

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        places, key = self.places(), event.key()
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(key), 0)
        if step and 0 <= self._current + step < len(places):
            self._current += step
            self.update()
            self._describe()
        elif places and not step and self._wants_toggle(Qt.Key(key), places[self._current][0]):
            self._toggle(places[self._current][0])
        else:
            super().keyPressEvent(event)

    @staticmethod
    def _wants_toggle(key: Qt.Key, part: Part) -> bool:
        if key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            return part.is_folded == (key == Qt.Key.Key_Right)
        return key in (Qt.Key.Key_Space, Qt.Key.Key_Return, Qt.Key.Key_Enter)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, theme = QPainter(self), themes.current()
        painter.fillRect(event.rect(), theme.code_surface)  # code that is scrolled sideways goes on below
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for number, (part, place) in enumerate(self.places()):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.quiet)
            painter.drawPolygon(_arrow(QRectF(place).center(), is_folded=part.is_folded))
            if self.hasFocus() and number == self._current:
                focus_ring.draw(painter, place)


def _arrow(center: QPointF, *, is_folded: bool) -> QPolygonF:
    points = [(-_ARROW, -_ARROW / 2), (_ARROW, -_ARROW / 2), (0.0, _ARROW / 2 + 1)]
    return QPolygonF([center + (QPointF(y, x) if is_folded else QPointF(x, y)) for x, y in points])


def _count(part: Part) -> str:
    return f"… {units.number(part.lines)} {'line' if part.lines == 1 else 'lines'}"
