"""Slow work outside the window's thread: lanes that run tasks, and results brought back into the window's thread.

Everything here belongs to an owner. When the owner is closed or destroyed nothing more is started or delivered.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.system import Canceled, KnownError

_log = logging.getLogger(__name__)

BUG = "Something went wrong in Slipstream. The log has the details."

T = TypeVar("T")
Failed = Callable[[KnownError], None]


class _Bell(QObject):
    """Runs other threads' calls in the window's thread: the queue contains them, a signal only wakes it.

    There is one, which exists until Qt destroys everything at the end of the process. Some threads may still run then:
    after `close` none can wake it.
    """

    _rung = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_closed = False
        self._lock = threading.Lock()
        """Held to wake it and to close it."""
        self._rung.connect(self._on_rung, Qt.ConnectionType.QueuedConnection)

    def put(self, call: Callable[[], None]) -> None:
        with self._lock:
            if not self._is_closed:
                self._calls.put(call)
                self._rung.emit()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True

    @Slot()
    def _on_rung(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            call()


_bell = cache(_Bell)


def end_delivery() -> None:
    """Bring nothing more back into the window's thread, whoever asked for it: the process is about to end."""
    _bell().close()


class Results:
    """Calls back in the window's thread when a future is done, as long as ``owner`` exists."""

    def __init__(self, owner: QObject) -> None:
        """To be created in the window's thread."""
        _bell()
        self._closed = False
        self._open: dict[Future[Any], tuple[Any, ...]] = {}
        """The functions to call, and objects that only the window's thread may destroy. Used only in the window's
        thread."""
        owner.destroyed.connect(lambda: self._end())  # noqa: PLW0108 - a bound method is held weakly

    def when_done(
        self, future: Future[T], done: Callable[[T], None] | None = None, failed: Failed | None = None, *held: object
    ) -> None:
        """Call ``done`` or ``failed``; neither if the future is canceled. A bug is logged and becomes a `KnownError`,
        so that whoever waits can continue. ``held`` is kept until then."""
        self._open[future] = done, failed, held

        def ring(finished: Future[T]) -> None:
            error = None if finished.cancelled() else _known(finished.exception())
            _bell().put(lambda: self._settle(finished, error))

        future.add_done_callback(ring)

    def drop(self, future: Future[Any] | None) -> None:
        """Deliver nothing of this any more; a task that hasn't begun is not begun."""
        if future is not None and future in self._open:
            self._open[future] = None, None, self._open[future]  # who needs what it refers to may still be running
            future.cancel()

    def post(self, call: Callable[[], None]) -> None:
        """Call this in the window's thread; for tasks, from any thread."""
        _bell().put(lambda: None if self._closed else call())

    def is_closed(self) -> bool:
        """For a task that can stop in between; may be called from any thread."""
        return self._closed

    def is_idle(self) -> bool:
        """Whether every request was answered."""
        return not self._open

    def _end(self) -> None:
        """Deliver nothing any more."""
        self._closed = True

    def _settle(self, future: Future[T], error: KnownError | None) -> None:
        done, failed, _held = self._open.pop(future)
        if self._closed or future.cancelled():
            return
        if error is None:
            if done is not None:
                done(future.result())
        elif failed is not None:
            failed(error)


class Lane(Results):
    """Runs tasks one after another, or up to ``at_once`` of them at the same time, in separate threads.

    There are only threads while there is something to do. A task that waits forever, for a server or a drive that is
    gone, doesn't keep the process from ending.
    """

    def __init__(self, owner: QObject, name: str, *, at_once: int = 1) -> None:
        self._name = name
        self._at_once = at_once
        self._threads = 0
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed = threading.Condition()
        super().__init__(owner)

    def submit(
        self, function: Callable[[], T], done: Callable[[T], None] | None = None, failed: Failed | None = None
    ) -> Future[T]:
        """Call ``function`` in a thread of this lane, then ``done`` or ``failed`` in the window's thread; `Canceled` is
        a `KnownError` there. Does nothing after `close`. The future can be canceled until the task starts."""
        future: Future[T] = Future()
        if self._closed:
            future.cancel()
            return future
        self.when_done(future, done, failed, function)
        with self._changed:
            self._waiting.append((function, future))
            if self._threads < self._at_once:
                self._threads += 1
                threading.Thread(target=self._work, name=f"lane {self._name}", daemon=True).start()
        return future

    def close(self, wait_seconds: float = 0.0, *, finish: bool = False) -> bool:
        """Accept and deliver nothing more, and drop what waits, unless it should ``finish``. Waits at most
        ``wait_seconds`` for running tasks; returns whether none is left."""
        if finish:
            super()._end()
            self._wait(wait_seconds)
        self._end()
        return self._wait(0.0 if finish else wait_seconds)

    def _wait(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._threads, seconds)

    def _end(self) -> None:
        with self._changed:
            super()._end()
            dropped = [future for _function, future in self._waiting]
            self._waiting.clear()
        for future in dropped:
            future.cancel()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                function, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                result, error = _outcome(function)
                del function  # `Results` has it too: what it refers to, perhaps widgets, must not be destroyed here
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
                del result


def _outcome(function: Callable[[], T]) -> tuple[T | None, KnownError | None]:
    try:
        return function(), None
    except BaseException as error:
        return None, _known(error)


def _known(error: BaseException | None) -> KnownError | None:
    """The error to report, without the frames that a traceback would keep."""
    if error is None:
        return None
    if isinstance(error, KnownError):
        known = error
    elif isinstance(error, Canceled):
        known = KnownError("Stopped.")
    else:
        _log.error("a task failed", exc_info=error)
        known = KnownError(BUG)
    known.__traceback__ = known.__cause__ = known.__context__ = None
    return known
