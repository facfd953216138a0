"""The three small drawings of the Speed panel. They hold what they show and paint it in the colours of the theme."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.ui import theme, units


class Sparkline(QWidget):
    """A line over the last minute, newest on the right; gaps where there is nothing to show."""

    def __init__(self, name: str, ceiling: float | None = None) -> None:
        """``ceiling`` fixes the top of the scale; without it the highest value fills the height."""
        super().__init__()
        self._ceiling = ceiling
        self._values: list[float | None] = []
        self._mark: float | None = None
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_values(self, values: list[float | None], mark: float | None, description: str) -> None:
        """``mark`` is a level drawn as a dashed line; ``description`` says the current value in words."""
        if (values, mark) != (self._values, self._mark):
            self._values, self._mark = values, mark
            self.update()
        if description != self.accessibleDescription():
            self.setAccessibleDescription(description)

    def values(self) -> list[float | None]:
        return self._values

    def _runs(self) -> list[QPolygonF]:
        """The points of each unbroken stretch, in pixels."""
        known = [value for value in self._values if value is not None]
        top = self._ceiling or max([*known, (self._mark or 0.0) * 1.15, 1e-9]) * 1.08
        step = (self.width() - 4) / max(len(self._values) - 1, 1)
        runs: list[QPolygonF] = []
        broken = True
        for index, value in enumerate(self._values):
            if value is not None:
                if broken:
                    runs.append(QPolygonF())
                runs[-1].append(QPointF(1 + index * step, self._level(value / top)))
            broken = value is None
        return runs

    def _level(self, fraction: float) -> float:
        return self.height() - 2 - min(max(fraction, 0.0), 1.0) * (self.height() - 5)

    def _paint_mark(self, painter: QPainter, colour: QColor) -> None:
        known = [value for value in self._values if value is not None]
        if self._mark is None or not known:
            return
        top = self._ceiling or max([*known, self._mark * 1.15]) * 1.08
        painter.setPen(QPen(colour, 1, Qt.PenStyle.DashLine))
        level = self._level(self._mark / top)
        painter.drawLine(QPointF(0, level), QPointF(self.width(), level))

    def sizeHint(self) -> QSize:
        return QSize(96, 36)

    def minimumSizeHint(self) -> QSize:
        return QSize(48, 36)

    def paintEvent(self, _event: QPaintEvent) -> None:
        colours = theme.current()
        painter = QPainter(self)
        base = self.height() - 1
        painter.fillRect(0, base, self.width(), 1, colours.line)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint_mark(painter, colours.quiet)
        under = QColor(colours.accent)
        under.setAlphaF(0.16)
        runs = self._runs()
        for run in runs:
            area = QPolygonF([QPointF(run.first().x(), base), *run.toList(), QPointF(run.last().x(), base)])
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(under)
            painter.drawPolygon(area)
            painter.setPen(QPen(colours.accent, 1.5, c=Qt.PenCapStyle.RoundCap, j=Qt.PenJoinStyle.RoundJoin))
            painter.drawPolyline(run)
        if runs and self._values and self._values[-1] is not None:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colours.accent)
            painter.drawEllipse(runs[-1].last(), 2.5, 2.5)
        painter.end()


class PositionBars(QWidget):
    """One bar for each position of the draft: how often the guess there was kept."""

    def __init__(self) -> None:
        super().__init__()
        self._shares: list[float] = []
        self._rows = 1
        self.setAccessibleName("Kept by position")
        self.setFont(theme.tabular(self.font()))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_shares(self, shares: list[float], rows: int) -> None:
        """Shares from 0 to 1 by position; at least ``rows`` rows are drawn."""
        rows = max(rows, len(shares), 1)
        if (shares, rows) == (self._shares, self._rows):
            return
        if rows != self._rows:
            self._rows = rows
            self.updateGeometry()
        self._shares = list(shares)
        spoken = ", ".join(f"{place}: {units.share(part)}" for place, part in enumerate(shares, start=1))
        self.setAccessibleDescription(spoken or "Not known yet")
        self.update()

    def rows(self) -> int:
        return self._rows

    def _row_height(self) -> int:
        """Many positions stand closer."""
        return self.fontMetrics().height() + (6 if self._rows <= 8 else 2)

    def sizeHint(self) -> QSize:
        return QSize(160, self._rows * self._row_height())

    def minimumSizeHint(self) -> QSize:
        return QSize(120, self._rows * self._row_height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        colours = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        metrics, height = self.fontMetrics(), self._row_height()
        left = metrics.horizontalAdvance("16") + 10
        right = metrics.horizontalAdvance(units.share(1.0)) + 10
        track = self.width() - left - right
        middle = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for row in range(self._rows):
            top = row * height
            part = self._shares[row] if row < len(self._shares) else None
            painter.setPen(colours.quiet)
            painter.drawText(QRectF(0, top, left - 10, height), middle, str(row + 1))
            painter.setPen(colours.text if part is not None else colours.quiet)
            painter.drawText(QRectF(self.width() - right, top, right, height), middle, units.share(part))
            _paint_bar(painter, QRectF(left, top + height / 2 - 4, track, 8), part or 0.0, colours)
        painter.end()


def _paint_bar(painter: QPainter, area: QRectF, part: float, colours: theme.Theme) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme.mix(colours.raised, colours.text, 0.09))
    painter.drawRoundedRect(area, 3, 3)
    if part > 0:
        painter.setBrush(colours.accent)
        filled = QRectF(area.left(), area.top(), max(area.width() * min(part, 1.0), 3.0), area.height())
        painter.drawRoundedRect(filled, 3, 3)


class RoundBar(QWidget):
    """Where the time of a round goes: one bar of three parts, with what they are and how long they take below."""

    NAMES = ("draft", "verify", "rest")

    def __init__(self) -> None:
        super().__init__()
        self._parts: tuple[float, ...] | None = None
        self.setAccessibleName("Where the time of a round goes")
        self.setFont(theme.tabular(self.font()))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_parts(self, parts: Sequence[float] | None) -> None:
        """Seconds of draft, verify and the rest; ``None`` where nothing is known."""
        known = None if parts is None else tuple(parts)
        if known == self._parts:
            return
        self._parts = known
        self.setAccessibleDescription(", ".join(self._texts()))
        self.update()

    def _texts(self) -> list[str]:
        parts = self._parts or (None, None, None)
        return [f"{name} {units.milliseconds(part)}" for name, part in zip(self.NAMES, parts, strict=True)]

    @staticmethod
    def _inks(colours: theme.Theme) -> tuple[QColor, QColor, QColor]:
        return (
            colours.accent,
            theme.mix(colours.raised, colours.text, 0.62),
            theme.mix(colours.raised, colours.text, 0.3),
        )

    def sizeHint(self) -> QSize:
        return QSize(160, 20 + 2 * self.fontMetrics().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(120, self.sizeHint().height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        colours = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        inks = self._inks(colours)
        whole = sum(self._parts) if self._parts else 0.0
        if self._parts is None or whole <= 0:
            _paint_bar(painter, QRectF(0, 2, self.width(), 8), 0.0, colours)
        else:
            self._paint_parts(painter, [part / whole for part in self._parts], inks)
        self._paint_legend(painter, colours, inks)
        painter.end()

    def _paint_parts(self, painter: QPainter, shares: list[float], inks: Sequence[QColor]) -> None:
        shown = [(share, ink) for share, ink in zip(shares, inks, strict=True) if share > 0]
        room = self.width() - 2 * (len(shown) - 1)
        left = 0.0
        for share, ink in shown:
            width = max(share * room, 1.0)
            painter.setBrush(ink)
            painter.drawRoundedRect(QRectF(left, 2, width, 8), 2, 2)
            left += width + 2

    def _paint_legend(self, painter: QPainter, colours: theme.Theme, inks: Sequence[QColor]) -> None:
        line, column = self.fontMetrics().height(), self.width() / 3
        parts = self._parts or (None, None, None)
        for index, (name, part) in enumerate(zip(self.NAMES, parts, strict=True)):
            left = index * column
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(inks[index])
            painter.drawRoundedRect(QRectF(left, 17 + line / 2 - 4, 8, 8), 2, 2)
            painter.setPen(colours.quiet)
            start = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(QRectF(left + 13, 17, column - 13, line), start, name)
            painter.setPen(colours.text if part is not None else colours.quiet)
            painter.drawText(QRectF(left + 13, 17 + line, column - 13, line + 1), start, units.milliseconds(part))
