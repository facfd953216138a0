"""Writes a report to a file of the user's; what takes time happens in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from PySide6.QtCore import QDate, QObject, QStandardPaths, Qt, Signal
from PySide6.QtWidgets import QWidget

from app.compare import report as reports
from app.compare.results import Report
from app.compare.setup import hashed
from app.errors import KnownError
from app.protocol.messages import PairLoaded
from app.storage.files import write_export
from app.ui.compare.parts import FORMATS
from app.ui.compare.picture import png
from app.ui.widgets.questions import ask_where_to_save
from app.ui.widgets.tasks import BUG, Lane

_PATIENCE_SECONDS = 5.0


class Exporter(QObject):
    """One export at a time.

    Signals:
        busy_changed: Whether an export is under way.
        ended: The path, and why it failed, in words for the user (empty if it did not).
    """

    busy_changed = Signal(bool)
    ended = Signal(object, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = Lane(self, "export")
        self._is_busy = False

    def is_busy(self) -> bool:
        return self._is_busy

    def export(self, report: Report, pair: PairLoaded, path: Path) -> None:
        """Write ``report``, with the hashes of the pair's files, in the format that the suffix of ``path`` names."""
        self._set_busy(True)

        def with_hashes(complete: Report) -> None:
            # Here, not in the thread: a picture needs the fonts of the application.
            try:
                data = encoded(complete, path.suffix.lower())
            except Exception:
                self._end(path, BUG)
                raise
            self._lane.submit(partial(_write, path, data), lambda _: self._end(path, ""), failed)

        def failed(error: KnownError) -> None:
            self._end(path, str(error))

        self._lane.submit(partial(self._with_hashes, report, pair), with_hashes, failed)

    def shut_down(self) -> None:
        """Give up what is under way; a file that is being written is finished, if that takes no longer than this."""
        self._lane.close(_PATIENCE_SECONDS)

    # ------------------------------------------------------------ inside

    def _end(self, path: Path, failure: str) -> None:
        self._set_busy(False)
        self.ended.emit(path, failure)

    def _set_busy(self, busy: bool) -> None:
        self._is_busy = busy
        self.busy_changed.emit(busy)

    def _with_hashes(self, report: Report, pair: PairLoaded) -> Report:
        return msgspec.structs.replace(report, setup=hashed(report.setup, pair, self._lane.is_closed))


def encoded(report: Report, suffix: str) -> bytes:
    """The report as the bytes of a file with this suffix."""
    if suffix == ".png":
        return png(report)
    texts = {".md": reports.markdown, ".csv": reports.csv, ".json": reports.json}
    return texts[suffix](report).encode("utf-8", "replace")


def ask_for_path(parent: QWidget, name: str, export: Callable[[Path], object]) -> None:
    """Ask where the user wants the export in this format, and call ``export`` with that."""
    suffix = FORMATS[name]
    folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
    proposal = f"comparison-{QDate.currentDate().toString(Qt.DateFormat.ISODate)}{suffix}"
    ask_where_to_save(parent, f"Export as {name}", Path(folder) / proposal, name, export)


def _write(path: Path, data: bytes) -> None:
    try:
        write_export(path, data)
    except OSError as error:
        raise KnownError(f"The comparison could not be exported to {path}: {error.strerror or error}.") from error
