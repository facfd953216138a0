"""Writes a report to the user's file, as text or as a picture; slow work is done in a separate thread.

The picture is for documents: chart, table and setup, in light colors, at twice the size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from PySide6.QtCore import QBuffer, QByteArray, QDate, QIODevice, QObject, QStandardPaths, Qt, Signal
from PySide6.QtGui import QFont, QGuiApplication, QImage, QImageWriter
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app.compare import report as reports
from app.compare.results import Report, Summary, summarize
from app.compare.setup import hashed
from app.compare.wording import facts
from app.errors import KnownError
from app.protocol.events import PairLoaded
from app.storage.files import write_export
from app.ui.compare import wording
from app.ui.compare.chart import ChartView
from app.ui.compare.tab import FORMATS, line
from app.ui.compare.table import ALL, COLUMNS
from app.ui.widgets import stylesheet, theme
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import column
from app.ui.widgets.questions import ask_where_to_save
from app.ui.widgets.tasks import Lane
from app.ui.widgets.theme import LIGHT

_PATIENCE_SECONDS = 5.0
SCALE = 2
WIDTH = 960
"""In points; the picture has `SCALE` times as many pixels."""
CHART_HEIGHT = 428
_MARGIN = 32
_ROW_MARGIN = 4
_FIRST_COLUMN = 150


class Exporter(QObject):
    """One export at a time.

    Signals:
        ended: The path, and why it failed, in words for the user (empty if it did not).
    """

    ended = Signal(object, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = Lane(self, "export")

    def is_busy(self) -> bool:
        return not self._lane.is_idle()

    def export(self, report: Report, pair: PairLoaded, path: Path) -> None:
        """Write ``report``, with the hashes of the pair's files, in the format that the suffix of ``path`` names."""
        self._lane.submit(
            partial(self._write, report, pair, path),
            lambda _: self.ended.emit(path, ""),
            lambda error: self.ended.emit(path, str(error)),
        )

    def shut_down(self) -> None:
        """Abort what is in progress; a file that is being written is finished, if that takes no longer than this."""
        self._lane.close(_PATIENCE_SECONDS)

    def _write(self, report: Report, pair: PairLoaded, path: Path) -> None:
        """Runs in the lane."""
        report = msgspec.structs.replace(report, setup=hashed(report.setup, pair, self._lane.is_closed))
        suffix = path.suffix.lower()
        if suffix == ".png":
            data = self._lane.run_in_window_thread(partial(_png, report))
        else:
            data = reports.encoded(report, suffix)
        try:
            write_export(path, data)
        except OSError as error:
            raise KnownError(f"The comparison couldn't be exported to {path}: {error.strerror or error}.") from error


def ask_for_path(parent: QWidget, name: str, export: Callable[[Path], object]) -> None:
    """Ask where to save the export in this format, and call ``export`` with the path."""
    suffix = FORMATS[name]
    folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
    proposal = f"comparison-{QDate.currentDate().toString(Qt.DateFormat.ISODate)}{suffix}"
    ask_where_to_save(parent, f"Export as {name}", Path(folder) / proposal, name, export)


# ---------------------------------------------------------------- the picture


def _png(report: Report) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(b"PNG")).write(draw(report))
    return bytes(buffer.data().data())


def draw(report: Report) -> QImage:
    """Needs a QApplication for its widgets, so it must be called in the window's thread."""
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
    heading = _text(wording.set_verdict(summary.total, report.skipped).heading, bold=True)
    chart = ChartView(LIGHT)
    chart.setFont(_text("").font())
    chart.setFixedHeight(CHART_HEIGHT)
    chart.show_results(report.comparisons, summary)
    lines = [f"{name}: {value}" for name, value in facts(report.setup)]
    measured = _text("\n".join(lines), role="quiet", pixels=12)
    column(heading, chart, _table(summary), measured, gap=_MARGIN // 2, margins=_MARGIN, on=page)
    return page


def _table(summary: Summary) -> QGridLayout:
    kinds = [[row.kind, *wording.row_cells(row)] for row in summary.rows]
    rows = [list(COLUMNS), *kinds, [ALL, *wording.row_cells(summary.total)]]
    grid = QGridLayout()
    grid.setSpacing(0)
    grid.setColumnMinimumWidth(0, _FIRST_COLUMN)
    for place in range(1, len(COLUMNS)):
        grid.setColumnStretch(place, 1)
    for number, cells in enumerate(rows):
        is_edge = number in (0, len(rows) - 1)
        if number:
            grid.addWidget(line(), 2 * number - 1, 0, 1, len(cells))
        for place, text in enumerate(cells):
            cell = _text(text, bold=is_edge, wraps=False)
            cell.setContentsMargins(0, _ROW_MARGIN, 0, _ROW_MARGIN)
            side = Qt.AlignmentFlag.AlignRight if place else Qt.AlignmentFlag.AlignLeft
            grid.addWidget(cell, 2 * number, place, side)
    return grid


def _text(text: str, *, role: str | None = None, pixels: int = 14, bold: bool = False, wraps: bool = True) -> QLabel:
    """The same on every screen: a size in points would depend on the screen's resolution."""
    result = label(text, role, wraps=wraps)
    font = theme.tabular(QGuiApplication.font())
    font.setPixelSize(pixels)
    font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    result.setFont(font)
    return result
