"""One bar: who takes how much of a memory, and what is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.models.text import size_text
from app.ui.widgets import theme
from app.ui.widgets.theme import SPACING

_BAR = 14
_GAP = 1
_SWATCH = 9


@dataclass(frozen=True)
class Segment:
    """One part of the bar. ``color`` is a place in `Theme.series`; −1 is quiet."""

    name: str
    size: int
    """Bytes."""
    color: int


class MemoryBar(QWidget):
    """Segments over the memory there is; what does not fit reaches over its end, which is marked."""

    def __init__(self) -> None:
        super().__init__()
        self._title = ""
        self._segments: list[Segment] = []
        self._space = 0
        self.setFont(theme.tabular(self.font()))
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        theme.follow(self, self.update)

    def show_memory(self, title: str, segments: Sequence[Segment], space: int) -> None:
        """``space`` is what is free for the pair, bytes."""
        self._title, self._segments, self._space = title, [one for one in segments if one.size > 0], space
        described = ", ".join(f"{one.name} {size_text(one.size)}" for one in self._segments)
        self.setAccessibleName(f"{title}: {described or 'nothing'}; {size_text(space)} free")
        self.updateGeometry()
        self.update()

    @property
    def taken(self) -> int:
        """Bytes of all segments."""
        return sum(one.size for one in self._segments)

    @property
    def fits(self) -> bool:
        return self.taken <= self._space

    # ------------------------------------------------------------ Qt

    def sizeHint(self) -> QSize:
        return QSize(320, self.heightForWidth(self.width() or 320))

    def minimumSizeHint(self) -> QSize:
        return QSize(160, self.heightForWidth(max(self.width(), 160)))

    def heightForWidth(self, width: int) -> int:
        line = self.fontMetrics().height()
        lines = max((place.line for place in self._legend(width)), default=-1) + 1
        return line + SPACING + _BAR + SPACING + lines * (line + 2)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            hit = next((one for one, area in self._areas() if area.contains(QPointF(event.pos()))), None)
            QToolTip.showText(event.globalPos(), f"{hit.name}: {size_text(hit.size)}" if hit else "", self)
            return True
        return super().event(event)

    def paintEvent(self, _event: QPaintEvent) -> None:
        colors = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        line = self.fontMetrics().height()
        painter.setPen(colors.text)
        painter.drawText(QRectF(0, 0, self.width(), line), Qt.AlignmentFlag.AlignLeft, self._title)
        painter.setPen(colors.quiet if self.fits else colors.bad)
        painter.drawText(QRectF(0, 0, self.width(), line), Qt.AlignmentFlag.AlignRight, self._sum())
        track = QRectF(0, self._top(), self.width(), _BAR)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.mix(colors.surface, colors.text, 0.10))
        painter.drawRoundedRect(track, 3, 3)
        for one, area in self._areas():
            painter.setBrush(_color(one))
            painter.drawRoundedRect(area, 2, 2)
        if not self.fits:
            end = self.width() * self._space / self.taken
            painter.setPen(QPen(colors.bad, 2))
            painter.drawLine(QPointF(end, track.top() - 3), QPointF(end, track.bottom() + 3))
        self._paint_legend(painter)
        painter.end()

    # ------------------------------------------------------------ inside

    def _sum(self) -> str:
        if self.fits:
            return f"{size_text(self.taken)} of {size_text(self._space)} free"
        return f"needs {size_text(self.taken)}, {size_text(self._space)} free"

    def _top(self) -> float:
        return self.fontMetrics().height() + SPACING

    def _areas(self) -> list[tuple[Segment, QRectF]]:
        whole = max(self._space, self.taken, 1)
        result, left = [], 0.0
        for one in self._segments:
            width = self.width() * one.size / whole
            result.append((one, QRectF(left, self._top(), max(width - _GAP, 1.0), _BAR)))
            left += width
        return result

    def _legend(self, width: int) -> list[_Place]:
        """Where each segment's name stands: as many in a line as have room."""
        places, left, line = [], 0, 0
        for one in self._segments:
            text = f"{one.name} {size_text(one.size)}"
            needed = _SWATCH + SPACING + self.fontMetrics().horizontalAdvance(text) + 4 * SPACING
            if left and left + needed - 4 * SPACING > width:
                left, line = 0, line + 1
            places.append(_Place(one, text, left, line))
            left += needed
        return places

    def _paint_legend(self, painter: QPainter) -> None:
        metrics = self.fontMetrics()
        top = self._top() + _BAR + SPACING
        for place in self._legend(self.width()):
            base = top + place.line * (metrics.height() + 2)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(_color(place.segment))
            middle = base + (metrics.height() - _SWATCH) / 2
            painter.drawRoundedRect(QRectF(place.left, middle, _SWATCH, _SWATCH), 2, 2)
            painter.setPen(theme.current().quiet)
            painter.drawText(QPointF(place.left + _SWATCH + SPACING, base + metrics.ascent()), place.text)


@dataclass(frozen=True)
class _Place:
    segment: Segment
    text: str
    left: int
    line: int


def _color(segment: Segment) -> QColor:
    colors = theme.current()
    if segment.color < 0:
        return theme.mix(colors.surface, colors.text, 0.3)
    return colors.series[segment.color]
