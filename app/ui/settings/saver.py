"""Saves the settings outside the window's thread, because a disk may take time."""

from __future__ import annotations

import copy
import logging
from concurrent.futures import Future

from PySide6.QtCore import QObject, Signal

from app.settings import Settings, SettingsFile
from app.ui.widgets.tasks import Lane

_log = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""Seconds to wait at exit for a disk that doesn't respond."""


class SettingsSaver(QObject):
    """One for a settings file. The values are changed in the window's thread alone; what is written is a copy.

    Signals:
        save_failed: The `KnownError`.
    """

    save_failed = Signal(object)

    def __init__(self, file: SettingsFile, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = file
        self._newest = file.values
        self._written: Settings | None = None
        self._lane = Lane(self, "settings")
        self._last: Future[None] | None = None

    def save(self) -> Future[None]:
        """Write the current values, or newer ones. The future is done, or failed, when they are written."""
        self._newest = copy.deepcopy(self._file.values)
        self._last = self._lane.submit(self._write, None, self.save_failed.emit)
        return self._last

    def close(self) -> None:
        """Wait, for a limited time, until everything is written; write nothing afterwards."""
        if not self._lane.close(PATIENCE_SECONDS, finish=True):
            _log.warning("the settings could not be saved in time")
        elif self._last is not None and (error := self._last.exception()) is not None:
            _log.warning("%s", error)

    def _write(self) -> None:
        """Runs in the lane. Several requests in the meantime are written once."""
        newest = self._newest
        if newest is not self._written:
            self._file.save(newest)
            self._written = newest
