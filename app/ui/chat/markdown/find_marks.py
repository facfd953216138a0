"""The matches of a search, marked under the text of a document."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter, QPen, QTextDocument

from app.markdown.find import find_matches
from app.ui.chat.markdown.underlay import Unit, boxes_between
from app.ui.widgets.theme import Theme, mix

_ROUNDING = 3.0
_LINE, _CURRENT_LINE = 1.0, 2.5
"""Width of a mark's outline, in pixels."""

Place = tuple[int, int, int]
"""The number of a match, and two document positions in one block that show it or a part of it."""


def mark_colors(theme: Theme, *, current: bool) -> tuple[QColor, QColor]:
    """The outline of a mark, at least 3 : 1 on what text stands on, and its ground, on which text can be read."""
    share = (0.34 if theme.is_dark else 0.26) if current else (0.18 if theme.is_dark else 0.12)
    return theme.warning, mix(theme.surface, theme.warning, share)


class FindMarks:
    """The matches of a query in one text, and where its document shows them.

    Attributes:
        starts: Where each match begins in the source.
    """

    def __init__(self, document: QTextDocument) -> None:
        self.query = ""
        self.current: int | None = None
        self._document = document
        self.starts: list[int] = []
        self._ends: list[int] = []
        self._searched = -1
        """How long the text was."""
        self._known: dict[tuple[int, int, int, int], list[Place]] = {}

    def search(self, query: str, source: str, *, plain: bool) -> int:
        """Look for ``query`` in a text, or again after it has grown; gives back how many matches there are."""
        if query != self.query:
            self.query, self.current, self._searched = query, None, -1
        if self._searched != len(source):
            found = find_matches(source, query, plain=plain)
            self.starts, self._ends = [start for start, _ in found], [end for _, end in found]
            self._searched = len(source)
            self._known.clear()
        return len(self.starts)

    def forget_places(self) -> None:
        """The document is drawn anew."""
        self._known.clear()

    def boxes(self, index: int, units: Sequence[Unit]) -> list[QRectF]:
        """Where a match is drawn, one box a line; empty where it is not drawn yet."""
        start, end = self.starts[index], self._ends[index]
        first = max(0, bisect_right(units, start, key=lambda unit: unit.source_start) - 1)
        found = []
        for unit in units[first:]:
            if unit.source_start >= end:
                break
            found += [place for place in self._places(unit) if place[0] == index]
        return [box for place in found for box in self._boxes(place)]

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
                        shown = box.adjusted(-1, 0, 1, 0)
                        shown.setTop(max(shown.top(), _CURRENT_LINE / 2))
                        painter.drawRoundedRect(shown, _ROUNDING, _ROUNDING)

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

    def _boxes(self, place: Place) -> list[QRectF]:
        return boxes_between(self._document, *place[1:])
