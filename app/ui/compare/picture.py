"""A report as a picture for documents: chart, table and how it was measured, in light colours, at twice the size."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QGuiApplication, QImage, QImageWriter, QPainter, QPen

from app.compare.results import Report, summarise
from app.compare.wording import facts
from app.ui.compare import wording
from app.ui.compare.chart import ChartDrawing
from app.ui.compare.chart_view import chart_of
from app.ui.compare.table import ALL, COLUMNS
from app.ui.widgets import theme as themes
from app.ui.widgets.theme import LIGHT

SCALE = 2
WIDTH = 960
"""In points of the picture, which is `SCALE` times as many pixels wide."""
CHART_HEIGHT = 420
_MARGIN = 32.0
_KIND_SHARE = 0.16
"""Of the width, for the first column of the table."""


def png(report: Report) -> bytes:
    """The picture, as a PNG file."""
    picture = draw(report)
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(b"PNG")).write(picture)
    buffer.close()
    return bytes(data.data())


def draw(report: Report) -> QImage:
    """Needs a QGuiApplication, for its fonts; so only in the window's thread."""
    page = _Page(report)
    picture = QImage(WIDTH * SCALE, round(page.height() * SCALE), QImage.Format.Format_RGB32)
    picture.fill(LIGHT.surface)
    picture.setText("Title", "Slipstream comparison")
    painter = QPainter(picture)
    painter.scale(SCALE, SCALE)
    painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.TextAntialiasing)
    page.paint(painter)
    painter.end()
    return picture


class _Page:
    """What stands where on the picture, from top to bottom."""

    def __init__(self, report: Report) -> None:
        self._font = themes.tabular(QGuiApplication.font())
        # The same picture on every screen: points would depend on its resolution.
        self._font.setPixelSize(14)
        self._small = QFont(self._font)
        self._small.setPixelSize(12)
        self._bold = QFont(self._font)
        self._bold.setWeight(QFont.Weight.DemiBold)
        self._row = QFontMetricsF(self._font).height() + 8
        summary = summarise(report.comparisons)
        self._chart, _ = chart_of(report.comparisons, summary)
        self._title = wording.set_verdict(summary.total, report.skipped).heading
        self._table = [
            list(COLUMNS),
            *([row.kind, *wording.row_cells(row)] for row in summary.rows),
            [ALL, *wording.row_cells(summary.total)],
        ]
        self._lines = self._wrapped([f"{name}: {value}" for name, value in facts(report.setup)])

    def height(self) -> float:
        lines = len(self._lines) * QFontMetricsF(self._small).lineSpacing()
        return self._table_top() + len(self._table) * self._row + _MARGIN / 2 + lines + _MARGIN

    def paint(self, painter: QPainter) -> None:
        painter.setFont(self._bold)
        painter.setPen(LIGHT.text)
        painter.drawText(QPointF(_MARGIN, _MARGIN + QFontMetricsF(self._bold).ascent()), self._title)
        area = QRectF(_MARGIN - 6, self._chart_top(), WIDTH - 2 * _MARGIN + 30, CHART_HEIGHT)
        ChartDrawing(self._chart, area, self._font).paint(painter, LIGHT)
        top = self._table_top()
        for number, cells in enumerate(self._table):
            self._paint_row(painter, top + number * self._row, cells, number)
        top += len(self._table) * self._row + _MARGIN / 2
        painter.setFont(self._small)
        painter.setPen(LIGHT.quiet)
        metrics = QFontMetricsF(self._small)
        for number, text in enumerate(self._lines):
            painter.drawText(QPointF(_MARGIN, top + metrics.ascent() + number * metrics.lineSpacing()), text)

    def _chart_top(self) -> float:
        return _MARGIN + QFontMetricsF(self._bold).height() + _MARGIN / 2

    def _table_top(self) -> float:
        return self._chart_top() + CHART_HEIGHT + _MARGIN / 2

    def _paint_row(self, painter: QPainter, top: float, cells: Sequence[str], number: int) -> None:
        is_edge = number in (0, len(self._table) - 1)
        painter.setFont(self._bold if is_edge else self._font)
        painter.setPen(LIGHT.text)
        width = WIDTH - 2 * _MARGIN
        first = width * _KIND_SHARE
        other = (width - first) / (len(cells) - 1)
        for column, text in enumerate(cells):
            left = _MARGIN if column == 0 else _MARGIN + first + (column - 1) * other
            box = QRectF(left, top, first if column == 0 else other, self._row)
            side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
            painter.drawText(box, side | Qt.AlignmentFlag.AlignVCenter, text)
        if number != len(self._table) - 1:
            painter.setPen(QPen(LIGHT.line, 1))
            painter.drawLine(QPointF(_MARGIN, top + self._row), QPointF(WIDTH - _MARGIN, top + self._row))

    def _wrapped(self, texts: Sequence[str]) -> list[str]:
        """Lines that fit the width, broken between words."""
        metrics, room = QFontMetricsF(self._small), WIDTH - 2 * _MARGIN
        lines: list[str] = []
        for text in texts:
            line = ""
            for word in text.split(" "):
                longer = f"{line} {word}" if line else word
                if line and metrics.horizontalAdvance(longer) > room:
                    lines.append(line)
                    longer = word
                line = longer
            lines.append(line)
        return lines
