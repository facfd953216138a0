"""The chart in the window: what it shows in words, tool tips at its points, a double click that opens one."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QHelpEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.compare.results import Comparison, Summary, summarize
from app.ui.compare.chart import Chart, ChartDrawing, Point
from app.ui.widgets import theme, units
from app.ui.widgets.controls import plain_tooltip
from app.ui.widgets.theme import Theme
from app.ui.widgets.units import NO_BREAK

EMPTY = (
    "Each prompt is answered twice with the same seed, plain and with draft, one run after the other.\n"
    "The table and this chart fill as it goes."
)
_TOP = 8.0
"""Free space below the table."""


def chart_of(comparisons: Sequence[Comparison], summary: Summary) -> tuple[Chart, list[int]]:
    """The chart, and the number of the comparison behind each of its points: those too short to time have none."""
    timed = [(number, one.speed_up) for number, one in enumerate(comparisons) if one.speed_up is not None]
    points = [
        Point(comparisons[number].prompt.kind, comparisons[number].drafted.figures.draft.acceptance_rate, speed_up)
        for number, speed_up in timed
    ]
    medians = [Point(row.kind, row.acceptance_rate, row.speed_up) for row in summary.rows if row.speed_up is not None]
    kinds = tuple(row.kind for row in summary.rows)
    return Chart(kinds, tuple(points), tuple(medians)), [number for number, _ in timed]


def in_words(summary: Summary) -> str:
    """``code: 81 % kept, 2.1× plain; …``, for those who do not see the chart."""
    parts = [
        f"{row.kind}: {units.share(row.acceptance_rate)} kept, {units.factor(row.speed_up)}"
        for row in summary.rows
        if row.speed_up is not None
    ]
    return "; ".join(parts).replace(NO_BREAK, " ") or EMPTY


class ChartView(QWidget):
    """Shows the chart of a set."""

    opened = Signal(int)
    """Number of the comparison whose point was double-clicked."""

    def __init__(self, colors: Theme | None = None) -> None:
        """``colors``: those of the application if ``None``."""
        super().__init__()
        self._colors = colors
        self._chart = Chart()
        self._numbers: list[int] = []
        self._comparisons: Sequence[Comparison] = ()
        self.setAccessibleName("Chart: share kept and speed-up of each prompt")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.show_results((), summarize(()))

    def show_results(self, comparisons: Sequence[Comparison], summary: Summary) -> None:
        self._comparisons = comparisons
        self._chart, self._numbers = chart_of(comparisons, summary)
        self.setAccessibleDescription(in_words(summary))
        self.update()

    def drawing(self) -> ChartDrawing:
        """The chart laid out in this widget."""
        return ChartDrawing(self._chart, QRectF(self.rect()).adjusted(0, _TOP, 0, 0), self.font())

    def number_at(self, position: QPointF) -> int | None:
        """The comparison whose point is here."""
        found = self.drawing().point_at(position)
        return None if found is None else self._numbers[found]

    def explanation(self, number: int) -> str:
        """What to say about a point."""
        one = self._comparisons[number]
        share = units.share(one.drafted.figures.draft.acceptance_rate)
        return f"{one.prompt.title}\n{one.prompt.kind} · {share} kept · {units.factor(one.speed_up)}"

    # ------------------------------------------------------------ Qt

    def sizeHint(self) -> QSize:
        return QSize(640, 280)

    def minimumSizeHint(self) -> QSize:
        return QSize(320, 180)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        colors = self._colors or theme.current()
        if self._chart.points:
            self.drawing().paint(painter, colors)
        else:
            painter.setPen(colors.quiet)
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, EMPTY)
        painter.end()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        number = self.number_at(event.position())
        if number is not None:
            self.opened.emit(number)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            number = self.number_at(QPointF(event.pos()))
            text = "" if number is None else plain_tooltip(self.explanation(number))
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)
