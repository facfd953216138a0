"""The chart of a prompt set: acceptance rate and speed-up, one point per prompt; also in words, for tooltips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetricsF, QHelpEvent, QMouseEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.compare.results import Comparison, Summary, summarize
from app.ui.widgets import theme as themes
from app.ui.widgets import units
from app.ui.widgets.controls import plain_tooltip
from app.ui.widgets.theme import Theme
from app.ui.widgets.units import NO_BREAK

EMPTY = (
    "Each prompt is answered twice with the same seed, once without a draft and once with it.\nThe table and this "
    "chart fill in as the comparison runs."
)

_TOP = 8.0
"""Free space below the table."""
_POINT = 5.0
_MEDIAN = 7.5
_LABEL_GAP = 6.0
_CORNERS = {"triangle": (3, -90), "diamond": (4, -90), "square": (4, -45), "pentagon": (5, -90), "hexagon": (6, 0)}
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "pentagon", "down", "hexagon")
_STEPS = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_MOST_TICKS = 6


@dataclass(frozen=True)
class Point:
    """One comparison. ``acceptance_rate`` is ``None`` if nothing was drafted: drawn hollow at the axis."""

    kind: str
    acceptance_rate: float | None
    speed_up: float
    number: int = -1
    """The index of the comparison; ``None`` for a median."""


@dataclass(frozen=True)
class Chart:
    """What is drawn. ``medians`` has at most one point per kind, in the order of the kinds."""

    kinds: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()
    medians: tuple[Point, ...] = ()


def shape_path(kind: int, center: QPointF, radius: float) -> QPainterPath:
    """The mark of kind number ``kind``; all marks have about the same area."""
    shape, path = SHAPES[kind % len(SHAPES)], QPainterPath()
    if shape == "circle":
        path.addEllipse(center, radius, radius)
    elif shape == "cross":
        bar = radius * 0.36
        for width, height in ((radius * 1.15, bar), (bar, radius * 1.15)):
            path.addRect(QRectF(center.x() - width, center.y() - height, 2 * width, 2 * height))
        path.setFillRule(Qt.FillRule.WindingFill)
        path = path.simplified()
    else:
        corners, first = (3, 90) if shape == "down" else _CORNERS[shape]
        for corner in range(corners):
            angle = math.radians(first + corner * 360 / corners)
            at = center + QPointF(math.cos(angle), math.sin(angle)) * radius * 1.2
            path.moveTo(at) if corner == 0 else path.lineTo(at)
        path.closeSubpath()
    return path


def speed_ticks(speed_ups: Sequence[float]) -> list[float]:
    """Round values that enclose all of these and 1, at most seven."""
    low, high = min([0.9, *speed_ups]), max([1.5, *speed_ups])
    step = next((step for step in _STEPS if (high - low) / step <= _MOST_TICKS - 1), _STEPS[-1])
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(max(first, 0), last + 1)]


class ChartDrawing:
    """A chart laid out in an area, so that points can be painted and found again."""

    def __init__(self, chart: Chart, area: QRectF, font: QFont) -> None:
        self.chart = chart
        self._area = area
        self._font = themes.tabular(font)
        self._metrics = QFontMetricsF(self._font)
        self._ticks = speed_ticks([point.speed_up for point in (*chart.points, *chart.medians)])
        line = self._metrics.height()
        left = self._metrics.horizontalAdvance("88.8×") + 2 * _LABEL_GAP
        # The name of one axis is above, the numbers and the name of the other below.
        self.plot = area.adjusted(left, line + 2 * _LABEL_GAP, -4 * _LABEL_GAP, -2 * line - 3 * _LABEL_GAP)

    def place(self, point: Point) -> QPointF:
        """Where a point is drawn."""
        low, high = self._ticks[0], self._ticks[-1]
        x = self.plot.left() + (point.acceptance_rate or 0.0) * self.plot.width()
        return QPointF(x, self.plot.bottom() - (point.speed_up - low) / (high - low) * self.plot.height())

    def point_at(self, position: QPointF) -> int | None:
        """The number of the comparison whose point is nearest to ``position``, if one is close."""
        near = [
            (math.dist(self.place(point).toTuple(), position.toTuple()), point.number) for point in self.chart.points
        ]
        distance, number = min(near, default=(math.inf, 0))
        return number if distance <= 2 * _POINT else None

    def paint(self, painter: QPainter, theme: Theme) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self._font)
        self._paint_axes(painter, theme)
        for point in self.chart.points:
            self._paint_mark(painter, theme, point, _POINT, 0.45)
        for median in self.chart.medians:
            self._paint_mark(painter, theme, median, _MEDIAN, 1.0)
        self._paint_labels(painter, theme)

    # ------------------------------------------------------------ inside

    def _paint_axes(self, painter: QPainter, theme: Theme) -> None:
        plot, line = self.plot, self._metrics.height()
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for tick in self._ticks:
            y = self.place(Point("", 0.0, tick)).y()
            painter.setPen(QPen(theme.line, 1))
            painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
            painter.setPen(theme.quiet)
            box = QRectF(self._area.left(), y - line / 2, plot.left() - self._area.left() - _LABEL_GAP, line)
            painter.drawText(box, right, f"{tick:.3g}×")
        y = self.place(Point("", 0.0, 1.0)).y()
        painter.setPen(QPen(theme.text, 1.2, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
        painter.setPen(theme.quiet)
        for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
            x = plot.left() + share * plot.width()
            box = QRectF(x - 30, plot.bottom() + _LABEL_GAP, 60, line)
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, units.share(share))
        below = QRectF(plot.left(), plot.bottom() + line + 2 * _LABEL_GAP, plot.width(), line)
        painter.drawText(below, Qt.AlignmentFlag.AlignCenter, "accepted")
        above = QRectF(self._area.left() + _LABEL_GAP, self._area.top(), plot.width(), line)
        painter.drawText(above, Qt.AlignmentFlag.AlignLeft, "speed-up (dashed line: speed without a draft)")

    def _paint_mark(self, painter: QPainter, theme: Theme, point: Point, radius: float, strength: float) -> None:
        number = self.chart.kinds.index(point.kind)
        color = theme.series[number % len(theme.series)]
        painter.setPen(QPen(color, 1.4))
        painter.setBrush(
            themes.mix(theme.surface, color, strength) if point.acceptance_rate is not None else theme.surface
        )
        painter.drawPath(shape_path(number, self.place(point), radius))

    def _paint_labels(self, painter: QPainter, theme: Theme) -> None:
        painter.setPen(theme.text)
        points = [_around(self.place(one), _POINT) for one in self.chart.points]
        taken = [_around(self.place(one), _MEDIAN) for one in self.chart.medians]
        for median in self.chart.medians:
            box = self._label_box(median, taken, points)
            taken.append(box)
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, median.kind)

    def _label_box(self, median: Point, taken: Sequence[QRectF], points: Sequence[QRectF]) -> QRectF:
        """Next to the median, where nothing else is, or at least no median and no label; otherwise to its right."""
        at = self.place(median)
        size = self._metrics.size(0, median.kind)
        width, height = size.width() + 2, size.height()
        beside = _MEDIAN + _LABEL_GAP
        left, center, right = at.x() - beside - width, at.x() - width / 2, at.x() + beside
        above, middle, below = at.y() - height - _LABEL_GAP, at.y() - height / 2, at.y() + _LABEL_GAP
        places = [(right, middle), (left, middle), (center, at.y() - beside - height), (center, at.y() + beside)]
        places += [(right, above), (right, below), (left, above), (left, below)]
        boxes = [QRectF(x, y, width, height) for x, y in places]
        inside = self.plot.adjusted(0, -2 * _LABEL_GAP, 3 * _LABEL_GAP, 0)
        free = [box for box in boxes if inside.contains(box) and not any(box.intersects(other) for other in taken)]
        best = (box for box in free if not any(box.intersects(point) for point in points))
        return next(best, free[0] if free else boxes[0])


def _around(center: QPointF, radius: float) -> QRectF:
    return QRectF(center.x() - radius - 1, center.y() - radius - 1, 2 * radius + 2, 2 * radius + 2)


# ---------------------------------------------------------------- in the window


def chart_of(comparisons: Sequence[Comparison], summary: Summary) -> Chart:
    """Comparisons that are too short to time have no point."""
    points = [
        Point(one.prompt.kind, one.drafted.figures.draft.acceptance_rate, one.speed_up, number)
        for number, one in enumerate(comparisons)
        if one.speed_up is not None
    ]
    medians = [Point(row.kind, row.acceptance_rate, row.speed_up) for row in summary.rows if row.speed_up is not None]
    kinds = tuple(row.kind for row in summary.rows)
    return Chart(kinds, tuple(points), tuple(medians))


def in_words(summary: Summary) -> str:
    """``code: 81% accepted, 2.1× faster; …``, for people who can't see the chart."""
    parts = [
        f"{row.kind}: {units.share(row.acceptance_rate)} accepted, {units.speed_up(row.speed_up)}"
        for row in summary.rows
        if row.speed_up is not None
    ]
    return "; ".join(parts).replace(NO_BREAK, " ") or EMPTY


class ChartView(QWidget):
    """Shows the chart of a set."""

    opened = Signal(int)
    """Index of the comparison whose point was double-clicked."""

    def __init__(self, colors: Theme | None = None) -> None:
        """``colors``: those of the application if ``None``."""
        super().__init__()
        self._colors = colors
        self._chart = Chart()
        self._comparisons: Sequence[Comparison] = ()
        self.setAccessibleName("Chart: acceptance rate and speed-up of each prompt")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.show_results((), summarize(()))

    def show_results(self, comparisons: Sequence[Comparison], summary: Summary) -> None:
        self._comparisons = comparisons
        self._chart = chart_of(comparisons, summary)
        self.setAccessibleDescription(in_words(summary))
        self.update()

    def drawing(self) -> ChartDrawing:
        """The chart laid out in this widget."""
        return ChartDrawing(self._chart, QRectF(self.rect()).adjusted(0, _TOP, 0, 0), self.font())

    def explanation(self, number: int) -> str:
        """The explanation of a point."""
        one = self._comparisons[number]
        share = units.share(one.drafted.figures.draft.acceptance_rate)
        return f"{one.prompt.title}\n{one.prompt.kind} · {share} accepted · {units.speed_up(one.speed_up)}"

    # ------------------------------------------------------------ Qt

    def sizeHint(self) -> QSize:
        return QSize(640, 280)

    def minimumSizeHint(self) -> QSize:
        return QSize(320, 180)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        colors = self._colors or themes.current()
        if self._chart.points:
            self.drawing().paint(painter, colors)
        else:
            painter.setPen(colors.quiet)
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, EMPTY)
        painter.end()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        number = self.drawing().point_at(event.position())
        if number is not None:
            self.opened.emit(number)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            number = self.drawing().point_at(QPointF(event.pos()))
            text = "" if number is None else plain_tooltip(self.explanation(number))
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)
