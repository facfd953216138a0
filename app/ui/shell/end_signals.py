"""Ctrl+C and the system's request to end, brought into Qt's event loop."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from types import FrameType

from PySide6.QtCore import QObject, QSocketNotifier, QTimer, Signal, Slot

_WINDOWS_POLL_MS = 500


class EndSignals(QObject):
    """Emits `end_requested` at the first SIGINT, SIGTERM or SIGHUP; the second one ends the process at once.

    SIGHUP comes when the terminal that the app was started from is closed; ``nohup`` has it ignored, and so it stays.
    """

    end_requested = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._wanted = [signal.SIGINT, signal.SIGTERM]
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._wanted.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._on_signal) for number in self._wanted}
        self._was_requested = False
        if sys.platform == "win32":
            # Python only looks for signals while Python code runs.
            self._timer = QTimer(self, interval=_WINDOWS_POLL_MS)
            self._timer.timeout.connect(lambda: None)
            self._timer.start()
        else:
            self._reader, self._writer = socket.socketpair()
            self._reader.setblocking(False)
            self._writer.setblocking(False)
            signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            self._notifier = QSocketNotifier(self._reader.fileno(), QSocketNotifier.Type.Read, self)
            self._notifier.activated.connect(self._on_woken)

    def close(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if sys.platform != "win32":
            signal.set_wakeup_fd(-1)
            self._notifier.setEnabled(False)
            self._reader.close()
            self._writer.close()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        for number in self._wanted:
            signal.signal(number, signal.SIG_DFL)
        if not self._was_requested:
            self._was_requested = True
            # Later: Python may be in the middle of anything now, with locks held that an orderly end has to wait for.
            QTimer.singleShot(0, self, self.end_requested.emit)

    @Slot()
    def _on_woken(self) -> None:
        # That Python code runs at all is what lets Python call the handler.
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(64)
