"""A report as a picture for documents: chart, table and how it was measured, in light colors, at twice the size."""

from __future__ import annotations

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, Qt
from PySide6.QtGui import QFont, QGuiApplication, QImage, QImageWriter
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from app.compare.results import Report, Summary, summarize
from app.compare.wording import facts
from app.ui.compare import wording
from app.ui.compare.chart_view import ChartView
from app.ui.compare.parts import line
from app.ui.compare.table import ALL, COLUMNS
from app.ui.widgets import stylesheet, theme
from app.ui.widgets.controls import label
from app.ui.widgets.theme import LIGHT

SCALE = 2
WIDTH = 960
"""In points of the picture, which is `SCALE` times as many pixels wide."""
CHART_HEIGHT = 428
_MARGIN = 32
_ROW_MARGIN = 4
_FIRST_COLUMN = 150


def png(report: Report) -> bytes:
    """The picture, as a PNG file."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(b"PNG")).write(draw(report))
    return bytes(buffer.data().data())


def draw(report: Report) -> QImage:
    """Needs a QApplication, for its widgets; so only in the window's thread."""
    page = _page(report)
    page.resize(WIDTH, page.heightForWidth(WIDTH))
    picture = QImage(page.size() * SCALE, QImage.Format.Format_RGB32)
    picture.fill(LIGHT.surface)
    picture.setText("Title", "Slipstream comparison")
    picture.setDevicePixelRatio(SCALE)
    page.render(picture)
    return picture


def _page(report: Report) -> QWidget:
    page = QWidget()
    theme.set_role(page, "reading")
    page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
    page.setStyleSheet(stylesheet.build(LIGHT))
    summary = summarize(report.comparisons)
    chart = ChartView(LIGHT)
    chart.setFont(_text("").font())
    chart.setFixedHeight(CHART_HEIGHT)
    chart.show_results(report.comparisons, summary)
    column = QVBoxLayout(page)
    column.setContentsMargins(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
    column.setSpacing(_MARGIN // 2)
    column.addWidget(_text(wording.set_verdict(summary.total, report.skipped).heading, bold=True))
    column.addWidget(chart)
    column.addLayout(_table(summary))
    lines = [f"{name}: {value}" for name, value in facts(report.setup)]
    column.addWidget(_text("\n".join(lines), role="quiet", pixels=12))
    return page


def _table(summary: Summary) -> QGridLayout:
    rows = [
        list(COLUMNS),
        *([row.kind, *wording.row_cells(row)] for row in summary.rows),
        [ALL, *wording.row_cells(summary.total)],
    ]
    grid = QGridLayout()
    grid.setSpacing(0)
    grid.setColumnMinimumWidth(0, _FIRST_COLUMN)
    for column in range(1, len(COLUMNS)):
        grid.setColumnStretch(column, 1)
    for number, cells in enumerate(rows):
        is_edge = number in (0, len(rows) - 1)
        if number:
            grid.addWidget(line(), 2 * number - 1, 0, 1, len(cells))
        for column, text in enumerate(cells):
            cell = _text(text, bold=is_edge, wraps=False)
            cell.setContentsMargins(0, _ROW_MARGIN, 0, _ROW_MARGIN)
            side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
            grid.addWidget(cell, 2 * number, column, side)
    return grid


def _text(text: str, *, role: str | None = None, pixels: int = 14, bold: bool = False, wraps: bool = True) -> QLabel:
    """The same on every screen: a size in points would depend on its resolution."""
    result = label(text, role, wraps=wraps)
    font = theme.tabular(QGuiApplication.font())
    font.setPixelSize(pixels)
    font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    result.setFont(font)
    return result
