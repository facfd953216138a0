"""Results of other threads, brought into the window's."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

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


class Workers:
    """Threads for what may wait for ever, a server or a keyring: unlike those of an executor, they keep no process
    from ending.
    """

    def __init__(self, most: int, name: str) -> None:
        """``most`` threads, started when they are needed."""
        self._most = most
        self._name = name
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._futures: set[Future[Any]] = set()
        self._threads: list[threading.Thread] = []

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call ``function`` in one of the threads. To be called from one thread only."""
        future: Future[T] = Future()
        self._futures = {one for one in self._futures if not one.done()} | {future}
        self._tasks.put(lambda: _carry_out(function, future))
        if len(self._threads) < min(self._most, len(self._futures)):
            thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def shutdown(self, *, wait: bool = False) -> None:
        """Begin nothing any more, or ``wait`` until all is done."""
        if not wait:
            for future in self._futures:
                future.cancel()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


def _carry_out(function: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def _call(function: Callable[[T], None] | None, value: T) -> Callable[[], None] | None:
    return None if function is None else lambda: function(value)
