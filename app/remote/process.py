"""A remote engine's process: framed commands on stdin, framed events on stdout, a log on stderr, like our engine's.

The main thread runs an event loop: one request after another, and questions alongside. A second thread reads commands,
and ends the process when the window is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Coroutine
from typing import BinaryIO

import msgspec

from app import __version__, system
from app.protocol.answering import with_fields_of
from app.protocol.commands import (
    Cancel,
    ChatPart,
    Command,
    CountTokens,
    Forget,
    Generate,
    Load,
    MeasurePlain,
    Message,
    Ping,
    Quit,
    ReadMemory,
    ScoreTokens,
)
from app.protocol.events import (
    PROTOCOL_VERSION,
    Event,
    Figures,
    Forgotten,
    GenerationFailed,
    GenerationFinished,
    Hello,
    LoadFailed,
    LoadProgressed,
    MemoryRead,
    PlainMeasured,
    Pong,
)
from app.protocol.frames import FrameReader, ProtocolError, decode_command, encode_frame
from app.protocol.remote import Connect, FindServers, Probe, ServerProbed
from app.remote import connecting, requests
from app.remote.connecting import Session, connect
from app.remote.generation import Answering
from app.remote.http import Limits, RemoteError
from app.system import KnownError

log = logging.getLogger("slipstream.remote")
_LEAST_KEY = 8

_QUIT_SECONDS = 5.0


class RemoteEngine:
    """Carries out commands one after another, in an event loop."""

    def __init__(self, commands: BinaryIO, events: BinaryIO, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._commands = commands
        self._events = events
        self._queue: asyncio.Queue[tuple[int, Command]] = asyncio.Queue()
        self._received = self._canceled = 0
        """Cancel applies to all commands received before it, even if they haven't started."""
        self._current: asyncio.Task[None] | None = None
        self._asides: set[asyncio.Task[None]] = set()
        self._count: asyncio.Task[None] | None = None
        """The latest token count; a new one replaces it unanswered."""
        self._chat: list[Message] = []
        """The last chat that was sent; the next command may keep some of its messages."""
        self._session: Session | None = None
        self._keys: set[str] = set()
        """Used keys, which are removed from all messages."""
        self._last_progress = 0.0

    async def run(self) -> None:
        """Serve until Quit or the end of the input."""
        self._send(Hello(protocol=PROTOCOL_VERSION, engine=f"Slipstream {__version__}, for servers"))
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="commands", daemon=True).start()
        while True:
            number, command = await self._queue.get()
            if isinstance(command, Quit):
                break
            self._last_progress = time.monotonic()
            if number <= self._canceled:
                self._answer_canceled(command)
                continue
            self._current = asyncio.create_task(self._carry_out(command))
            await asyncio.wait([self._current])
            ended, self._current = self._current, None
            if ended.cancelled():  # before it began
                self._answer_canceled(command)
            elif (error := ended.exception()) is not None:
                raise error
        await self._leave()

    async def _leave(self) -> None:
        for task in self._asides:
            task.cancel()
        await asyncio.gather(*self._asides, return_exceptions=True)
        if self._session is not None:
            await self._session.http.close()

    # ------------------------------------------------------------ commands

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """In its own thread: Windows can't wait for a pipe in an event loop."""
        frames = FrameReader()
        try:
            while data := os.read(self._commands.fileno(), 65536):
                for body in frames.feed(data):
                    loop.call_soon_threadsafe(self._receive, decode_command(body))
        except OSError as error:
            log.info("the command pipe broke: %s", error)
        except ProtocolError as error:
            log.error("unreadable command: %s", error)
        except RuntimeError:
            return  # the loop has ended
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._receive, Quit())
        time.sleep(_QUIT_SECONDS)
        os._exit(0)  # the window is gone, and something hangs

    def _receive(self, command: Command) -> None:
        match command:
            case Ping():
                idle = time.monotonic() - self._last_progress if self._current else 0.0
                self._send(Pong(busy=self._current is not None, seconds_since_progress=idle))
            case ReadMemory():
                self._send(MemoryRead())
            case ChatPart() | Generate() | CountTokens():
                self._receive_chat(command)
            case Cancel():
                self._cancel()
            case Forget():
                self._chat = []
                self._send(Forgotten())  # nothing is stored here; what the server stores is beyond our control
            case Probe():
                self._keep_out(command.key)
                self._aside(self._tell(connecting.probe(command, self._limits)))
            case FindServers():
                self._aside(self._tell(connecting.find(command, self._limits)))
            case Quit():
                self._cancel()
                self._enqueue(command)
            case Connect() | Load() | MeasurePlain() | ScoreTokens():
                self._enqueue(command)

    def _receive_chat(self, command: ChatPart | Generate | CountTokens) -> None:
        """Complete a command about a chat with messages that were sent before."""
        self._chat = [*self._chat[: command.kept], *command.messages]
        if isinstance(command, Generate):
            self._enqueue(msgspec.structs.replace(command, messages=self._chat, kept=0))
        elif isinstance(command, CountTokens) and self._session is not None and self._session.remote.can_count:
            if self._count is not None:
                self._count.cancel()
            question = msgspec.structs.replace(command, messages=self._chat, kept=0)
            self._count = self._aside(self._count_tokens(question, self._session))

    def _enqueue(self, command: Command) -> None:
        self._received += 1
        self._queue.put_nowait((self._received, command))

    def _cancel(self) -> None:
        self._canceled = self._received
        if self._current is not None:
            self._current.cancel()

    def _answer_canceled(self, command: Command) -> None:
        """Answer a command that was canceled before it began."""
        match command:
            case Connect() | Load():
                self._send(LoadFailed(request=command.request, message="Connecting was canceled.", cancelled=True))
            case Generate():
                self._send(GenerationFinished(request=command.request, finish_reason="cancelled", figures=Figures()))
            case MeasurePlain() | ScoreTokens():
                self._send(GenerationFailed(request=command.request, message="The measurement was stopped."))

    # ------------------------------------------------------------ carrying them out

    async def _carry_out(self, command: Command) -> None:
        try:
            match command:
                case Connect():
                    await self._connect(command)
                case Load():
                    message = "This engine is for models on servers, and can't load a file."
                    self._send(LoadFailed(request=command.request, message=message))
                case Generate():
                    await self._generate(command)
                case MeasurePlain():
                    await self._measure(command)
                case ScoreTokens():
                    message = "The tokens of a model on a server can't be compared."
                    self._send(GenerationFailed(request=command.request, message=message))
        except asyncio.CancelledError:
            if not isinstance(command, Generate):  # its own events say so
                self._answer_canceled(command)

    async def _connect(self, command: Connect) -> None:
        self._keep_out(command.key)
        session, self._session = self._session, None
        if session is not None:
            await session.http.close()
        try:
            self._session = await connect(command, self._limits, lambda: self._loading(command.request))
        except RemoteError as error:
            self._send(LoadFailed(request=command.request, message=str(error), cause=error.cause))
        else:
            self._send(self._session.pair)

    def _loading(self, request: int) -> None:
        self._progressed()
        self._send(LoadProgressed(request=request, stage="server", fraction=0.0))

    async def _generate(self, command: Generate) -> None:
        if self._session is None:
            self._send(GenerationFailed(request=command.request, message="No server is connected."))
            return
        await Answering(command, self._session, self._send, self._progressed).run()

    async def _measure(self, command: MeasurePlain) -> None:
        """Measure the speed without drafting, if the server can turn it off."""
        if self._session is None or not self._session.remote.can_switch_drafting:
            message = "This server can't answer without drafting on request, so the speed-up isn't known."
            self._send(GenerationFailed(request=command.request, message=message))
            return
        events: list[Event] = []
        generate = with_fields_of(Generate, command, draft_length=0)
        await Answering(generate, self._session, events.append, self._progressed).run()
        last = events[-1]
        if isinstance(last, GenerationFinished) and (speed := last.figures.decode_tokens_per_second):
            tokens = last.figures.completion_tokens
            self._send(PlainMeasured(request=command.request, tokens=tokens, decode_tokens_per_second=speed))
        else:
            message = last.message if isinstance(last, GenerationFailed) else "The answer was too short to be measured."
            self._send(GenerationFailed(request=command.request, message=message))

    def _progressed(self) -> None:
        self._last_progress = time.monotonic()

    # ------------------------------------------------------------ questions

    def _aside(self, question: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Answer a question alongside the current request."""
        task = asyncio.create_task(question)
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)
        return task

    async def _tell(self, answer: Awaitable[Event]) -> None:
        self._send(await answer)

    async def _count_tokens(self, question: CountTokens, session: Session) -> None:
        try:
            self._send(await requests.count(question, session))
        except KnownError as error:
            log.info("not counted: %s", self._without_keys(str(error)))

    def _keep_out(self, key: str) -> None:
        """Remove this key from all messages and log lines from now on. A short one may be an ordinary word."""
        if len(key) >= _LEAST_KEY:
            self._keys.add(key)

    def _send(self, event: Event) -> None:
        if isinstance(event, GenerationFailed | LoadFailed | ServerProbed):
            event = msgspec.structs.replace(event, message=self._without_keys(event.message))
        self._events.write(encode_frame(event))
        self._events.flush()

    def _without_keys(self, text: str) -> str:
        """``text`` without keys, which some servers repeat in errors."""
        for key in self._keys:
            text = text.replace(key, "…")
        return text


def run(limits: Limits | None = None) -> int:
    """The entry point of the process."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    for interrupt in (signal.SIGINT, getattr(signal, "SIGBREAK", None)):
        if interrupt is not None:
            signal.signal(interrupt, signal.SIG_IGN)  # Ctrl+C goes to the window, which ends this process properly
    events = system.claim_stdout()
    try:
        asyncio.run(RemoteEngine(sys.stdin.buffer, events, limits).run())
    except OSError as error:
        log.info("the event pipe broke: %s", error)
        os._exit(0)  # the window is gone, and flushing would fail again
    return 0
