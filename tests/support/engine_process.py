"""The real engine process, driven without Qt."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from app.protocol.commands import Command
from app.protocol.events import Event
from app.protocol.frames import FrameReader, decode_event, encode_frame
from tests.support.command_line import python_path

T = TypeVar("T", bound=Event)
ROOT = Path(__file__).parent.parent.parent


class EngineProcess:
    """Starts ``python -m app --role=engine``; events are read one by one, with a limit on the wait."""

    def __init__(self, *module: str) -> None:
        """``module`` with its arguments is run in the engine's place."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", *(module or ("app", "--role=engine"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": python_path()},
        )
        self._frames = FrameReader()
        self._ready: list[bytes] = []

    def send(self, *commands: Command) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(map(encode_frame, commands)))
        self.process.stdin.flush()

    def next(self, seconds: float = 60) -> Event:
        """The next event. Raises `EOFError` when the process ended, or was killed because nothing came in time."""
        assert self.process.stdout is not None
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            while not self._ready:
                data = os.read(self.process.stdout.fileno(), 65536)
                if not data:
                    raise EOFError
                self._ready += self._frames.feed(data)
        finally:
            timer.cancel()
        return decode_event(self._ready.pop(0))

    def until(self, kind: type[T]) -> T:
        """Skip events up to the first of ``kind``."""
        while not isinstance(event := self.next(), kind):
            pass
        return event

    def wait(self, seconds: float = 30) -> int:
        return self.process.wait(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
