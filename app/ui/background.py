"""Results of other threads, brought into the window's."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.errors import KnownError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Doorbell(QObject):
    """Calls back in the window's thread when a future is done: the queue carries the calls, a signal only rings."""

    _rung = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rung.connect(self._on_rung, Qt.ConnectionType.QueuedConnection)

    def when_done(
        self,
        future: Future[T],
        done: Callable[[T], None] | None = None,
        failed: Callable[[KnownError], None] | None = None,
    ) -> None:
        """Call ``done`` with the result or ``failed`` with the error.

        A bug is logged and becomes a known error, so that whoever waits goes on.
        """

        def settle(finished: Future[T]) -> None:
            try:
                result = finished.result()
            except KnownError as known:
                self._put(_call(failed, known))
            except CancelledError:
                pass
            except Exception:
                _log.exception("a task in the background failed")
                self._put(_call(failed, KnownError("Something went wrong inside Slipstream; the log says what.")))
            else:
                self._put(_call(done, result))

        future.add_done_callback(settle)

    def _put(self, call: Callable[[], None] | None) -> None:
        if call is not None:
            self._calls.put(call)
            self._rung.emit()

    @Slot()
    def _on_rung(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            call()


def _call(function: Callable[[T], None] | None, value: T) -> Callable[[], None] | None:
    return None if function is None else lambda: function(value)
