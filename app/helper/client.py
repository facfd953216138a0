"""Starts the helper process on demand, sends it requests, and kills it when one exceeds its limits."""

from __future__ import annotations

import atexit
import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Self, TypeVar

from app import system
from app.helper import limits, messages
from app.protocol import frames

_START_SECONDS = 30.0
"""Until the process begins with a request, including imports: a slow disk or busy machine isn't the request's fault."""
_ATTEMPTS = 2

T = TypeVar("T")


class HelperError(Exception):
    """A request wasn't answered. The next one gets a new process."""


class TookTooLong(HelperError):  # noqa: N818 - says what happened
    """The request took too long."""


class TooMuchMemory(HelperError):  # noqa: N818
    """The request needed too much memory."""


class Died(HelperError):  # noqa: N818
    """The process ended during the request, or sent the wrong kind of answer."""


class NotStarted(HelperError):  # noqa: N818
    """The process couldn't be started; the message says why."""


class Helper:
    """One helper process, started on demand and kept running. Thread-safe; requests run one by one."""

    def __init__(
        self, seconds: float = limits.TIME_LIMIT_SECONDS, footprint: Callable[[int], int] | None = None
    ) -> None:
        """``seconds`` is the limit for one request; it may be changed between requests. ``footprint`` returns a
        process's memory in bytes, given its id, if the system doesn't enforce a limit.
        """
        self.seconds = seconds
        self._footprint = footprint or limits.footprint_reader()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end_job: Callable[[], object] = lambda: None

    @property
    def process_id(self) -> int | None:
        """The id of the current process, if any."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        """Start the process ahead of the first request, without waiting. The next request reports a failure."""
        with self._lock, contextlib.suppress(NotStarted):
            self._running()

    def stop(self) -> None:
        """End the process and everything in its memory. A request in progress fails with `Died`."""
        if (process := self._process) is not None:
            process.kill()
        with self._lock:
            self._end()

    # ------------------------------------------------------------ one request

    def ask(self, request: messages.Request[T]) -> T:
        """Send a request and wait for its answer. Raises `HelperError`."""
        body = frames.encode(request)
        if len(body) > frames.MAX_BYTES:
            raise TooMuchMemory
        with self._lock:
            for _ in range(_ATTEMPTS):
                process = self._running()
                watch = _Watch(process, _START_SECONDS, None)
                if self._next(process, watch, body) == b"" and not watch.passed:  # it has begun with the request
                    return self._answer(process, request.answers())
                status = self._end()  # an idle process can end at any time; try another
        raise NotStarted(f"it ended immediately, with status {status}")

    def _answer(self, process: subprocess.Popen[bytes], answers: system.Decoder[T]) -> T:
        watch = _Watch(process, self.seconds, self._footprint)
        body = self._next(process, watch)
        answer = None
        with contextlib.suppress(frames.ProtocolError):
            answer = None if body is None else frames.decode(answers, body)
        if answer is None or watch.passed:
            status = self._end()
            if answer is None:
                raise _error(status, watch.passed)
        return answer

    def _next(self, process: subprocess.Popen[bytes], watch: _Watch, body: bytes | None = None) -> bytes | None:
        """Send ``body``, if given, and return the next answer; ``None`` if the process has ended or sent nonsense."""
        assert process.stdin is not None and process.stdout is not None
        try:
            with watch:
                if body is not None:
                    frames.write(process.stdin, body)
                return frames.read(process.stdout)
        except (OSError, frames.ProtocolError):
            return None
        except BaseException:
            self._end()  # Ctrl+C: the next request must not receive this one's answer
            raise

    # ------------------------------------------------------------ the process

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, started if none is running. Raises `NotStarted`."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        try:
            # Its standard error might contain other people's text.
            process = system.start_process(system.own_command("--role=helper"), errors=subprocess.DEVNULL)
            self._process = process
            self._end_job = limits.put_into_job(process)
        except (OSError, MemoryError, ValueError) as error:
            self._end()
            raise NotStarted(str(error) or type(error).__name__) from error
        return process

    def _end(self) -> int:
        """Kill and reap the process if there is one; returns its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        status = process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # part of a request may be unwritten
                    stream.close()
        self._end_job()
        self._end_job = lambda: None
        return status


def _error(status: int, passed: type[HelperError] | None) -> HelperError:
    if passed is not None:
        return passed()
    if status in (limits.MEMORY_STATUS, -signal.SIGABRT):  # PDFium aborts when it gets no more memory
        return TooMuchMemory()
    if status == -getattr(signal, "SIGXCPU", 0) != 0:
        return TookTooLong()
    return Died(f"exit status {status}")


class _Watch:
    """Kills a process that exceeds its time, or its memory if the system doesn't enforce that."""

    def __init__(
        self, process: subprocess.Popen[bytes], seconds: float, footprint: Callable[[int], int] | None
    ) -> None:
        self.passed: type[HelperError] | None = None
        """The limit that was exceeded, if any."""
        self._process = process
        self._deadline = time.monotonic() + seconds
        self._footprint = footprint
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="helper-limits", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while self.passed is None:
            remaining = max(self._deadline - time.monotonic(), 0.0)
            step = remaining if self._footprint is None else min(remaining, limits.FOOTPRINT_SECONDS)
            if self._is_over.wait(step):
                return
            if self._footprint is not None and self._footprint(self._process.pid) > limits.MEMORY_LIMIT:
                self.passed = TooMuchMemory
            elif time.monotonic() >= self._deadline:
                self.passed = TookTooLong
        self._process.kill()


_shared = Helper()
atexit.register(_shared.stop)


def shared() -> Helper:
    """This process's helper, started by its first request."""
    return _shared
