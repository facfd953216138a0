"""An engine process for callers that wait for its answers, such as commands."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import IO

from app import program
from app.client.connection import Connection, Question
from app.client.stalls import Stalled, Timings
from app.client.state import EngineExit, ExitCause, exit_cause, out_of_memory_kills
from app.errors import Canceled, KnownError
from app.protocol.commands import Generate, Load, Quit, ScoreTokens
from app.protocol.events import (
    Event,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    Hello,
    LoadFailed,
    LoadProgressed,
    PairLoaded,
    PromptProgressed,
    Round,
    RoundsReceived,
    TokensScored,
)
from app.protocol.frames import ProtocolError
from app.protocol.framing import encode_frame
from app.protocol.remote import Connect

_TIMINGS = Timings(quit=10.0)


def engine_command(*options: str) -> list[str]:
    """Program and arguments of the engine process, both from source and in a package."""
    return program.own_command("--role=engine", *options)


def remote_command() -> list[str]:
    """Program and arguments of the process for models on servers."""
    return program.own_command("--role=remote")


class EngineEndedError(KnownError):
    """The engine's process ended while it was needed; `ended` describes how."""

    def __init__(self, ended: EngineExit) -> None:
        super().__init__(ended.sentence())
        self.ended = ended
        self.add_note("\n".join(ended.log_lines))


class EngineProcess:
    """Starts an engine process and ends it at the end of a ``with`` statement.

    Each method waits for the engine, and raises `EngineEndedError` if the engine ends. One request at a time, in one
    thread; only `cancel` may be called from a signal handler.
    """

    def __init__(
        self, *options: str, command: Sequence[str] = (), limit_seconds: float | None = None, **environment: str
    ) -> None:
        """``options`` of the engine process, which ``command`` may replace; ``environment``: variables to set.

        With ``--unwatched`` the rounds of an answer arrive twice a second, which disturbs the computation less. After
        ``limit_seconds``, if given, the process is ended.
        """
        self._connection = Connection(_TIMINGS)
        self._events: deque[Event] = deque()
        self._is_reading = self._is_canceled = self._is_overdue = False
        self._limit_seconds = limit_seconds
        self._memory_kills = out_of_memory_kills()
        self._connection.start()
        try:
            self._process = program.start_process(command or engine_command("--no-chat-files", *options), environment)
        except OSError as error:
            reason = error.strerror or str(error)
            raise EngineEndedError(self._connection.died(ExitCause.FAILED_TO_START, reason)) from error
        self._listener = threading.Thread(target=self._listen, name="engine-log", daemon=True)
        self._listener.start()
        self._timer: threading.Timer | None = None
        if limit_seconds is not None:
            self.limit(limit_seconds)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, by force if necessary."""
        if self._timer:
            self._timer.cancel()
        try:
            with contextlib.suppress(OSError, KnownError, subprocess.TimeoutExpired):
                if self._connection.hello is not None:
                    self._write(encode_frame(Quit()))
                    _opened(self._process.stdin).close()
                    self._process.wait(_TIMINGS.quit)
        finally:
            self._process.kill()
            self._process.wait()
            self._listener.join()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                _opened(stream).close()

    # ------------------------------------------------------------ requests

    @property
    def process_id(self) -> int:
        return self._process.pid

    def limit(self, seconds: float) -> None:
        """End the process ``seconds`` from now, whatever the limit was before."""
        if self._timer:
            self._timer.cancel()
        self._limit_seconds = seconds
        self._timer = threading.Timer(seconds, self._end_overdue)
        self._timer.daemon = True
        self._timer.start()

    def hello(self) -> Hello:
        """The engine's greeting: its version, and the GPUs it can offload to."""
        while (hello := self._connection.hello) is None:
            self._read()
        return hello

    def load(
        self, command: Load | Connect, on_progress: Callable[[LoadProgressed], None] = lambda _: None
    ) -> PairLoaded:
        """Load a pair, or use a server's model. Raises `KnownError` if that fails, and `Canceled`."""
        for event in self._answers(command):
            match event:
                case LoadProgressed():
                    on_progress(event)
                case LoadFailed():
                    raise Canceled if event.cancelled else KnownError(event.message)
                case PairLoaded():
                    return event
        raise AssertionError("a load always ends")

    def generate(
        self, command: Generate
    ) -> Iterator[GenerationStarted | PromptProgressed | Round | GenerationFinished]:
        """Answer a chat; the last event is `GenerationFinished`. Raises `KnownError` if that fails."""
        for event in self._answers(command):
            match event:
                case RoundsReceived():
                    yield from event.rounds
                case GenerationFailed():
                    raise KnownError(event.message)
                case GenerationStarted() | PromptProgressed() | GenerationFinished():
                    yield event

    def score_tokens(self, command: ScoreTokens) -> TokensScored:
        """Score some tokens with the target. Raises `KnownError` if that isn't possible, and `Canceled`."""
        for event in self._answers(command):
            match event:
                case GenerationFailed():
                    raise Canceled if self._is_canceled else KnownError(event.message)
                case TokensScored():
                    return event
        raise AssertionError("a request always ends")

    def cancel(self) -> None:
        """Stop whatever is running; every later request raises `Canceled`."""
        self._is_canceled = True
        if self._is_reading:
            self._send_cancel()

    # ------------------------------------------------------------ bytes

    def _answers(self, command: Load | Connect | Question) -> Iterator[Event]:
        """The events that answer a command."""
        if self._is_canceled:
            raise Canceled
        self._events.clear()
        connection = self._connection
        if isinstance(command, Load | Connect):
            connection.load(command)
        else:
            connection.ask(command)
        while self._events or connection.request:
            if self._events:
                yield self._events.popleft()
            else:
                self._read()

    def _read(self) -> None:
        """Send what there is to send, and wait for output."""
        self._write_all()
        self._is_reading = True  # what is canceled before is seen in the next line, what is canceled later is sent
        try:
            if self._is_canceled:
                self._send_cancel()
            data = os.read(_opened(self._process.stdout).fileno(), 65536)
        finally:
            self._is_reading = False
        if not data:
            raise self._ended()
        try:
            self._events += (event for event in self._connection.receive(data) if not isinstance(event, Stalled))
        except ProtocolError:
            self._process.kill()
            raise self._ended() from None

    def _send_cancel(self) -> None:
        if (failed := self._connection.cancel()) is not None:
            self._events.append(failed)
        self._write_all()

    def _write_all(self) -> None:
        while self._connection.is_sending():
            self._write(self._connection.bytes_to_send())

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(_opened(self._process.stdin).fileno(), rest) :]
        except OSError:
            raise self._ended() from None

    def _listen(self) -> None:
        errors, log = _opened(self._process.stderr), self._connection.log
        while data := os.read(errors.fileno(), 65536):
            log.add(data)
        log.end()

    # ------------------------------------------------------------ the end

    def _ended(self) -> KnownError:
        code = self._process.wait()
        self._listener.join()
        if self._is_overdue:
            return KnownError(f"The engine did not finish within {self._limit_seconds:.0f} s and was stopped.")
        crashed = code < 0 or (sys.platform == "win32" and code > 0x7FFFFFFF)
        cause = exit_cause(abs(code), crashed=crashed, memory_kills_before=self._memory_kills)
        return EngineEndedError(self._connection.died(*cause))

    def _end_overdue(self) -> None:
        self._is_overdue = True
        self._process.kill()


def _opened(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # all of them are pipes
    return stream
