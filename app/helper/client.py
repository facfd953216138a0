"""Starts the helper process when it is needed, gives it requests, and kills it when one passes its limits."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Self

from app import program
from app.helper import limits
from app.helper.messages import (
    Answer,
    CheckTemplate,
    Highlight,
    Highlighted,
    Rendered,
    RenderTemplate,
    Request,
    TemplateFailed,
    decode_answer,
)
from app.protocol import frames

_START_SECONDS = 30.0
"""Until it begins with a request, imports included: a slow disk or a busy machine is not the request's fault."""
_ATTEMPTS = 2


class HelperError(Exception):
    """A request was not answered. The next one finds a new process."""


class TookTooLong(HelperError):  # noqa: N818 - says what happened
    """The request passed its time."""


class TooMuchMemory(HelperError):  # noqa: N818
    """The request passed its memory."""


class Died(HelperError):  # noqa: N818
    """The process ended while it carried out the request, or answered something else."""


class NotStarted(HelperError):  # noqa: N818
    """The process could not be started; the message says why."""


class Helper:
    """One helper process, started on demand and kept. Any thread may call; requests are carried out one by one."""

    def __init__(
        self, seconds: float = limits.TIME_LIMIT_SECONDS, footprint: Callable[[int], int] | None = None
    ) -> None:
        """``seconds``: for one request; may be changed between two. ``footprint``: tells the memory of a process by its
        id, in bytes, where the system does not limit it."""
        self.seconds = seconds
        self._footprint = footprint or limits.footprint_reader()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end_job: Callable[[], object] = lambda: None

    @property
    def process_id(self) -> int | None:
        """Of the process that was started last, if it was not ended since."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        """Start the process, if none runs, and do not wait for it: it gets ready while the caller does something else.

        A failure is told by the next request.
        """
        with self._lock, contextlib.suppress(NotStarted):
            self._running()

    def template(self, request: CheckTemplate | RenderTemplate) -> Rendered | TemplateFailed:
        """Compile or render a chat template. Raises `HelperError`."""
        answer = self._call(request)
        if isinstance(answer, Rendered | TemplateFailed):
            return answer
        raise self._mismatch()

    def highlight(self, request: Highlight) -> Highlighted:
        """Find the parts of code to color. Raises `HelperError`."""
        answer = self._call(request)
        if isinstance(answer, Highlighted):
            return answer
        raise self._mismatch()

    def stop(self) -> None:
        """End the process, and with it all it may still have in memory. A request under way fails with `Died`."""
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()

    # ------------------------------------------------------------ one request

    def _call(self, request: Request) -> Answer:
        body = frames.encode(request)
        if len(body) > frames.MAX_BYTES:
            raise TooMuchMemory
        with self._lock:
            for _ in range(_ATTEMPTS):
                process = self._running()
                if self._begins(process, body):
                    return self._answer(process)
                # It had ended before it saw the request (which can happen to an idle process): that costs nobody a try.
                status = self._end()
        raise NotStarted(f"it ended at once, with status {status}")

    def _begins(self, process: subprocess.Popen[bytes], body: bytes) -> bool:
        """Hand over a request; whether the process has begun to carry it out."""
        assert process.stdin is not None and process.stdout is not None
        try:
            with _Watch(process, _START_SECONDS, None) as watch:
                frames.write(process.stdin, body)
                begun = frames.read(process.stdout)
        except (OSError, frames.ProtocolError):
            return False
        except BaseException:
            self._end()
            raise
        return begun == b"" and not watch.passed

    def _answer(self, process: subprocess.Popen[bytes]) -> Answer:
        assert process.stdout is not None
        answer: Answer | None = None
        try:
            with _Watch(process, self.seconds, self._footprint) as watch:
                body = frames.read(process.stdout)
            if body is not None:
                answer = decode_answer(body)
        except (OSError, frames.ProtocolError):
            pass  # no answer
        except BaseException:
            self._end()  # Ctrl+C: an answer that nobody waits for must not be taken for the next one's
            raise
        if answer is None or watch.passed:
            status = self._end()
            if answer is None:
                raise _error(status, watch.passed)
        return answer

    def _mismatch(self) -> Died:
        self.stop()
        return Died("another kind of answer")

    # ------------------------------------------------------------ the process

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, started if none runs. Raises `NotStarted`."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        try:
            process = self._process = subprocess.Popen(
                program.own_command("--role=helper"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what it would say there may be other people's text
                cwd=program.FOLDER,
                env=program.child_environment(os.environ),
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                start_new_session=True,  # Ctrl+C in a terminal is for its parent
            )
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
                with contextlib.suppress(OSError):  # half a request that could not be written
                    stream.close()
        self._end_job()
        self._end_job = lambda: None
        return status


def _error(status: int, passed: type[HelperError] | None) -> HelperError:
    if passed is not None:
        return passed()
    if status == limits.MEMORY_STATUS:
        return TooMuchMemory()
    if status == -getattr(signal, "SIGXCPU", 0) != 0:
        return TookTooLong()
    return Died(f"exit status {status}")


class _Watch:
    """Kills a process that passes its time, or its memory where the parent has to look at it."""

    def __init__(
        self, process: subprocess.Popen[bytes], seconds: float, footprint: Callable[[int], int] | None
    ) -> None:
        self.passed: type[HelperError] | None = None
        """What was passed, if anything."""
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
    """The helper of this process; it is started by the first request and ends with this process."""
    return _shared
