"""``--close-when-ready``, for ``slipstream selftest``: a start of the window that looks at itself and ends."""

from __future__ import annotations

import sys

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtGui import QGuiApplication

from app.program import write_line
from app.protocol.messages import PairLoaded
from app.ui.notices import Notice
from app.ui.shell.controller import Controller
from app.ui.shell.main_window import MainWindow


class TrialStart(QObject):
    """Closes the window as soon as its engine has loaded a pair, or the window has something to complain of.

    Attributes:
        status: The exit status: 0 once a pair is loaded.
    """

    def __init__(self, window: MainWindow, controller: Controller) -> None:
        super().__init__(window)
        self.status = 1
        self._window = window
        controller.pair_loader.pair_changed.connect(self._on_pair_changed)
        controller.notice_list.changed.connect(self._on_notices_changed)

    @Slot(object)
    def _on_pair_changed(self, pair: PairLoaded | None) -> None:
        if pair is not None:
            self.status = 0
            write_line(sys.stdout, QGuiApplication.platformName())
            self._close()

    @Slot(object)
    def _on_notices_changed(self, shown: dict[str, Notice]) -> None:
        # A fresh home has nothing to complain of.
        if shown and self.status:
            write_line(sys.stderr, " ".join(notice.text for notice in shown.values()))
            self._close()

    def _close(self) -> None:
        QTimer.singleShot(0, self._window, self._window.close)  # whoever told us is still in the middle of it
