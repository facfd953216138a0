"""Other processes of this same program, started to see whether they work."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar

import psutil

from app import paths, program
from app.errors import KnownError
from app.protocol.frames import FrameReader, ProtocolError
from app.protocol.framing import decode_event, encode_frame
from app.protocol.messages import Command, Event, GenerationFailed, LoadFailed, StartFailed

_LINES_KEPT = 200
_OF_LOCALE = re.compile(r'^Detected locale ".*?^for more information\.$', re.MULTILINE | re.DOTALL)
T = TypeVar("T", bound=Event)


def start(home: Path, *arguments: str, **changes: str) -> subprocess.Popen[bytes]:
    """A process with a home of its own, all streams piped. ``changes`` are variables of its environment."""
    changes = {paths.HOME_VARIABLE: str(home), **changes}
    return subprocess.Popen(
        program.own_command(*arguments),
        cwd=program.FOLDER,
        env=program.child_environment(os.environ, **changes),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started; nothing if it has ended, when its number may be another's."""
    if process.poll() is not None:
        return
    try:
        tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        return
    for one in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def failure(what: str, status: int, errors: str) -> KnownError:
    """Why a process came to a bad end: a sentence about how, and the most telling line of what it wrote."""
    # In a locale without UTF-8 Qt explains itself at length before anything else happens.
    lines = [line.strip() for line in _OF_LOCALE.sub("", errors).splitlines() if line.strip()]
    # A traceback says what happened at its end, everything else first.
    line = (lines[-1] if lines[0].startswith("Traceback") else lines[0]) if lines else ""
    error = KnownError(f"{what} ended with {_status_text(status)}. {line}".strip())
    error.add_note(errors)
    return error


def _status_text(status: int) -> str:
    if status >= 0:
        return f"exit status {status if sys.platform != 'win32' else hex(status)}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


class EngineProcess:
    """The engine's process, driven without a window. All of it must be over in ``seconds``."""

    def __init__(self, home: Path, seconds: float) -> None:
        self._process = start(home, "--role=engine")
        self._frames = FrameReader()
        self._events: deque[bytes] = deque()
        self._errors: deque[str] = deque(maxlen=_LINES_KEPT)
        self._seconds = seconds
        self._is_overdue = False
        self._timer = threading.Timer(seconds, self._on_overdue)
        self._timer.daemon = True
        self._timer.start()
        self._listener = threading.Thread(target=self._listen, name="engine-log", daemon=True)
        self._listener.start()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        end(self._process)
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):  # what it was still to read
                _opened(stream).close()

    def send(self, command: Command) -> None:
        stdin = _opened(self._process.stdin)
        try:
            stdin.write(encode_frame(command))
            stdin.flush()
        except OSError:
            raise self._failure() from None

    def next(self) -> Event:
        """The next event. Raises `KnownError` when there is none, or one that tells a failure."""
        try:
            while not self._events:
                data = os.read(_opened(self._process.stdout).fileno(), 65536)
                if not data:
                    raise self._failure()
                self._events.extend(self._frames.feed(data))
            event = decode_event(self._events.popleft())
        except ProtocolError as error:
            raise KnownError(f"The engine's process said what nobody understands: {error}.") from error
        if isinstance(event, LoadFailed | GenerationFailed | StartFailed):
            raise KnownError(event.message)
        return event

    def until(self, kind: type[T]) -> T:
        """Skip events up to the first of ``kind``; raises as `next` does."""
        while not isinstance(event := self.next(), kind):
            pass
        return event

    def _failure(self) -> KnownError:
        status = self._process.wait()
        self._listener.join()
        if self._is_overdue:
            return KnownError(f"The engine's process was not done after {self._seconds:.0f} s and was ended.")
        return failure("The engine's process", status, "".join(self._errors))

    def _listen(self) -> None:
        for line in _opened(self._process.stderr):
            self._errors.append(line.decode("utf-8", "replace"))

    def _on_overdue(self) -> None:
        self._is_overdue = True
        end(self._process)


def _opened(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # all of them are pipes
    return stream
