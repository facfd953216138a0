"""The small drawings of the Speed panel. They contain their data and paint it in the colors of the theme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import words
from app.protocol.options import Tint
from app.ui.widgets import theme


class Drawing(QWidget):
    """A drawing as wide as there is space, antialiased and with tabular figures. Subclasses draw in `paint`."""

    _LEAST_WIDTH = 120

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setFont(theme.tabular(self.font()))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def paint(self, painter: QPainter, colors: theme.Theme) -> None:
        raise NotImplementedError

    def minimumSizeHint(self) -> QSize:
        return QSize(self._LEAST_WIDTH, self.sizeHint().height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self.paint(painter, theme.current())
        painter.end()


class Sparkline(Drawing):
    """A line over the last minute, newest on the right; gaps where there is nothing to show."""

    _LEAST_WIDTH = 48

    def __init__(self, name: str, ceiling: float | None = None) -> None:
        """``ceiling`` fixes the top of the scale; without it the highest value fills the height."""
        super().__init__(name)
        self._ceiling = ceiling
        self._values: list[float | None] = []
        self._mark: float | None = None
        self._top = 1.0

    def show_values(self, values: list[float | None], mark: float | None, description: str) -> None:
        """``mark`` is a level drawn as a dashed line; ``description`` says the current value in words."""
        if (values, mark) != (self._values, self._mark):
            self._values, self._mark = values, mark
            known = [value for value in values if value is not None]
            self._top = self._ceiling or max([*known, (mark or 0.0) * 1.15, 1e-9]) * 1.08
            self.update()
        if description != self.accessibleDescription():
            self.setAccessibleDescription(description)

    def _runs(self) -> list[QPolygonF]:
        """The points of each unbroken stretch, in pixels."""
        step = (self.width() - 4) / max(len(self._values) - 1, 1)
        runs: list[QPolygonF] = []
        broken = True
        for index, value in enumerate(self._values):
            if value is not None:
                if broken:
                    runs.append(QPolygonF())
                runs[-1].append(QPointF(1 + index * step, self._level(value)))
            broken = value is None
        return runs

    def _level(self, value: float) -> float:
        """The height of a value, in pixels from the top."""
        return self.height() - 2 - min(max(value / self._top, 0.0), 1.0) * (self.height() - 5)

    def paint(self, painter: QPainter, colors: theme.Theme) -> None:
        base, runs = self.height() - 1, self._runs()
        painter.fillRect(0, base, self.width(), 1, colors.line)
        if runs and self._mark is not None:
            painter.setPen(QPen(colors.quiet, 1, Qt.PenStyle.DashLine))
            level = self._level(self._mark)
            painter.drawLine(QPointF(0, level), QPointF(self.width(), level))
        under = QColor(colors.accent)
        under.setAlphaF(0.16)
        for run in runs:
            area = QPolygonF([QPointF(run.first().x(), base), *run.toList(), QPointF(run.last().x(), base)])
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(under)
            painter.drawPolygon(area)
            painter.setPen(QPen(colors.accent, 1.5, c=Qt.PenCapStyle.RoundCap, j=Qt.PenJoinStyle.RoundJoin))
            painter.drawPolyline(run)
        if self._values and self._values[-1] is not None:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colors.accent)
            painter.drawEllipse(runs[-1].last(), 2.5, 2.5)

    def sizeHint(self) -> QSize:
        return QSize(96, 36)


_MOST_BARS, _FIRST_BARS = 8, 4
"""A long draft does not get a bar for every position. The first positions always have one."""


def _places(length: int) -> tuple[int, ...]:
    """The positions of a draft of ``length`` that get a bar."""
    if length <= _MOST_BARS:
        return tuple(range(1, length + 1))
    rest = _MOST_BARS - _FIRST_BARS
    far = (_FIRST_BARS + round((length - _FIRST_BARS) * step / rest) for step in range(1, rest + 1))
    return (*range(1, _FIRST_BARS + 1), *far)


class PositionBars(Drawing):
    """One bar for each position in the draft: how often the tokens up to there were accepted."""

    def __init__(self) -> None:
        super().__init__("Accepted by position")
        self._shares: list[float] = []
        self.places: tuple[int, ...] = (1,)
        """The positions that have a bar."""

    def show_shares(self, shares: list[float], length: int) -> None:
        """Shares from 0 to 1 by position, of which there are at least ``length``."""
        length = max(length, len(shares), 1)
        places = _places(length)
        if (shares, places) == (self._shares, self.places):
            return
        if len(places) != len(self.places):
            self.updateGeometry()
        self._shares, self.places = list(shares), places
        spoken = ", ".join(f"{place}: {words.share(part)}" for place, part in enumerate(shares, start=1))
        self.setAccessibleDescription(spoken or "No data yet")
        self.update()

    def _row_height(self) -> int:
        """Rows are closer together when there are many."""
        return self.fontMetrics().height() + (6 if len(self.places) <= 6 else 2)

    def sizeHint(self) -> QSize:
        return QSize(160, len(self.places) * self._row_height())

    def paint(self, painter: QPainter, colors: theme.Theme) -> None:
        metrics, height = self.fontMetrics(), self._row_height()
        left = metrics.horizontalAdvance("16") + 10
        right = metrics.horizontalAdvance(words.share(1.0)) + 10
        track = self.width() - left - right
        middle = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for row, place in enumerate(self.places):
            top = row * height
            part = self._shares[place - 1] if place <= len(self._shares) else None  # no draft was that long
            painter.setPen(colors.quiet)
            painter.drawText(QRectF(0, top, left - 10, height), middle, str(place))
            painter.setPen(colors.text if part is not None else colors.quiet)
            painter.drawText(QRectF(self.width() - right, top, right, height), middle, words.share(part))
            _paint_bar(painter, QRectF(left, top + height / 2 - 4, track, 8), part or 0.0, colors)


def _paint_bar(painter: QPainter, area: QRectF, part: float, colors: theme.Theme) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme.mix(colors.raised, colors.text, 0.09))
    painter.drawRoundedRect(area, 3, 3)
    if part > 0:
        painter.setBrush(colors.accent)
        filled = QRectF(area.left(), area.top(), max(area.width() * min(part, 1.0), 3.0), area.height())
        painter.drawRoundedRect(filled, 3, 3)


class RoundBar(Drawing):
    """The time of one round as a bar of three parts, with their names and times below."""

    def __init__(self) -> None:
        super().__init__("Time spent in one round")
        self._parts: tuple[float, ...] | None = None

    def show_parts(self, parts: tuple[float, ...] | None) -> None:
        """Seconds of draft, verify and the rest; ``None`` if nothing is known."""
        if parts == self._parts:
            return
        self._parts = parts
        self.setAccessibleDescription(
            ", ".join(f"{name} {words.milliseconds(part)}" for name, part in self._named_parts())
        )
        self.update()

    def _named_parts(self) -> Iterable[tuple[str, float | None]]:
        return zip(("draft", "verify", "other"), self._parts or (None, None, None), strict=True)

    def sizeHint(self) -> QSize:
        return QSize(160, 20 + 2 * self.fontMetrics().height())

    def paint(self, painter: QPainter, colors: theme.Theme) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        inks = (colors.accent, *(theme.mix(colors.raised, colors.text, share) for share in (0.62, 0.3)))
        whole = sum(self._parts) if self._parts else 0.0
        if self._parts is None or whole <= 0:
            _paint_bar(painter, QRectF(0, 2, self.width(), 8), 0.0, colors)
        else:
            self._paint_parts(painter, [part / whole for part in self._parts], inks)
        self._paint_legend(painter, colors, inks)

    def _paint_parts(self, painter: QPainter, shares: list[float], inks: Sequence[QColor]) -> None:
        shown = [(share, ink) for share, ink in zip(shares, inks, strict=True) if share > 0]
        available = self.width() - 2 * (len(shown) - 1)
        left = 0.0
        for share, ink in shown:
            width = max(share * available, 1.0)
            painter.setBrush(ink)
            painter.drawRoundedRect(QRectF(left, 2, width, 8), 2, 2)
            left += width + 2

    def _paint_legend(self, painter: QPainter, colors: theme.Theme, inks: Sequence[QColor]) -> None:
        line, column = self.fontMetrics().height(), self.width() / 3
        for index, (name, part) in enumerate(self._named_parts()):
            left = index * column
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(inks[index])
            painter.drawRoundedRect(QRectF(left, 17 + line / 2 - 4, 8, 8), 2, 2)
            painter.setPen(colors.quiet)
            start = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(QRectF(left + 13, 17, column - 13, line), start, name)
            painter.setPen(colors.text if part is not None else colors.quiet)
            painter.drawText(QRectF(left + 13, 17 + line, column - 13, line + 1), start, words.milliseconds(part))


class LengthCurve(Drawing):
    """Speed by draft length: a column for each length, starting with no draft; what is above that one is the gain.

    The column of the length in use is filled and labeled with its speed; the length chosen for the next answer has a
    mark below it.
    """

    _PLOT_HEIGHT = 60
    _GAP = 4
    _LABELLED = (0, 4, 8, 12, 16)

    def __init__(self) -> None:
        super().__init__("Speed by draft length")
        self._speeds: list[float] = []
        self._in_use: int | None = None
        self._chosen: int | None = None

    def show_curve(self, speeds: list[float], in_use: int | None, chosen: int | None) -> None:
        """Tokens per second by draft length, from 0; a length in use or chosen that is not among them is not marked."""
        in_use, chosen = (mark if mark is not None and mark < len(speeds) else None for mark in (in_use, chosen))
        if (speeds, in_use, chosen) == (self._speeds, self._in_use, self._chosen):
            return
        self._speeds, self._in_use, self._chosen = speeds, in_use, chosen
        self.setAccessibleDescription(self._in_words())
        self.update()

    def _in_words(self) -> str:
        speeds = [f"{length or 'without a draft'}: {words.speed(speed)}" for length, speed in enumerate(self._speeds)]
        best = max(range(len(self._speeds)), key=self._speeds.__getitem__, default=None)
        marks = (("best", best), ("in use", self._in_use), ("chosen", self._chosen))
        return ", ".join([*speeds, *(f"{name}: {mark}" for name, mark in marks if mark is not None)]) or "No data yet"

    def _column(self, length: int) -> QRectF:
        step = self.width() / len(self._speeds)
        height = self._PLOT_HEIGHT * self._speeds[length] / max(*self._speeds, 1e-9)
        width = max(round(step * 0.64), 3)
        return QRectF(length * step + (step - width) / 2, self._base() - height, width, height)

    def _base(self) -> int:
        return self.fontMetrics().height() + self._GAP + self._PLOT_HEIGHT

    def sizeHint(self) -> QSize:
        return QSize(160, self._base() + self._GAP + self.fontMetrics().height())

    def paint(self, painter: QPainter, colors: theme.Theme) -> None:
        if not self._speeds:
            return
        columns = [self._column(length) for length in range(len(self._speeds))]
        for length, column in enumerate(columns):
            self._paint_column(painter, colors, column, columns[0].top(), in_use=length == self._in_use)
        painter.fillRect(0, self._base(), self.width(), 1, colors.line)
        painter.setPen(QPen(colors.quiet, 1, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(columns[0].right(), columns[0].top()), QPointF(self.width(), columns[0].top()))
        self._paint_axis(painter, colors, columns)
        if self._in_use is not None:
            self._paint_label(painter, colors, columns[self._in_use])

    @staticmethod
    def _paint_column(painter: QPainter, colors: theme.Theme, column: QRectF, plain: float, *, in_use: bool) -> None:
        """The part above ``plain``, the level without a draft, is tinted."""
        painter.setPen(Qt.PenStyle.NoPen)
        gain, below = QRectF(column), QRectF(column)
        gain.setBottom(max(min(plain, column.bottom()), column.top()))
        below.setTop(gain.bottom())
        painter.fillRect(below, colors.accent if in_use else theme.mix(colors.raised, colors.text, 0.16))
        painter.fillRect(gain, colors.accent if in_use else theme.mix(colors.raised, colors.accent, 0.5))

    def _paint_axis(self, painter: QPainter, colors: theme.Theme, columns: list[QRectF]) -> None:
        line, top = self.fontMetrics().height(), self._base() + self._GAP
        for length, column in enumerate(columns):
            marked = length in (self._in_use, self._chosen)
            near = any(abs(length - mark) == 1 for mark in (self._in_use, self._chosen) if mark is not None)
            if marked or (length in self._LABELLED and not near):
                painter.setPen(colors.text if marked else colors.quiet)
                area = QRectF(column.center().x() - 12, top, 24, line)
                painter.drawText(area, Qt.AlignmentFlag.AlignCenter, str(length))
                if length == self._chosen:
                    painter.fillRect(QRectF(column.left(), top + line - 1, column.width(), 2), colors.accent)

    def _paint_label(self, painter: QPainter, colors: theme.Theme, column: QRectF) -> None:
        text = words.speed(self._speeds[self._in_use or 0])
        line, width = self.fontMetrics().height(), self.fontMetrics().horizontalAdvance(text) + 4
        left = min(max(column.center().x() - width / 2, 0.0), self.width() - width)
        painter.setPen(colors.text)
        painter.drawText(QRectF(left, 0, width, line), Qt.AlignmentFlag.AlignCenter, text)  # above all columns


class Swatch(Drawing):
    """A sample of the tint that drafted tokens get."""

    def __init__(self, tint: Tint) -> None:
        super().__init__()
        self._tint = tint
        self.setFixedSize(18, 14)

    def paint(self, painter: QPainter, colors: theme.Theme) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colors.tints[self._tint])
        painter.drawRoundedRect(QRectF(self.rect()), 3, 3)
        if (pen := colors.underline(self._tint)) is not None:
            painter.setPen(pen)
            painter.drawLine(QPointF(1, self.height() - 1.5), QPointF(self.width() - 1, self.height() - 1.5))
