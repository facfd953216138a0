"""The engine process: framed commands on stdin, framed events on stdout, a log on stderr.

The main thread computes. A second thread reads commands, so that Cancel and Ping are answered while the first one is
inside llama.cpp; it ends the process when the window is gone (end of stdin). A third one counts tokens (`questions`).
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from app import system
from app.engine.decoding.prompt import PromptTooLongError
from app.engine.host import chat_cache_files
from app.engine.host.chat_cache import ChatCaches
from app.engine.host.engine import Answer, Engine, Question
from app.engine.llama.backend import devices, engine_name, processor_features
from app.models.machine_memory import private_bytes
from app.protocol.commands import (
    Cancel,
    ChatPart,
    CheckText,
    Command,
    CountPrompt,
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
    StopThinking,
    Tokenize,
)
from app.protocol.events import (
    PROTOCOL_VERSION,
    Event,
    Forgotten,
    GenerationFailed,
    Hello,
    LoadFailed,
    MemoryRead,
    Pong,
    Round,
    RoundsReceived,
    StartFailed,
)
from app.protocol.frames import FrameReader, ProtocolError, decode_command, encode_frame
from app.system import Canceled, KnownError

log = logging.getLogger("slipstream.worker")


_FLUSH_SECONDS = 1 / 60
_SHARED_FLUSH_SECONDS = 1 / 15
"""If every core computes: a flush wakes another process, which takes a core away, and all threads wait for the one that
had it. On two cores, 60 a second cost 11% of the speed of a model that writes 90 tokens a second."""
_UNWATCHED_FLUSH_SECONDS = 0.5
_QUIT_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


class _WindowGoneError(OSError):
    """Nobody reads the events any more."""


class Questions:
    """Answers what needs the loaded model, even during a computation, in a thread of its own: a chat template may take
    two seconds, and nothing may delay `Pong`. Of the counts that wait, only the newest is kept."""

    def __init__(self, answer: Callable[[Question], Answer], send: Callable[[Answer], None]) -> None:
        """Both are called in the thread, which ends with the process or when ``send`` raises `OSError`."""
        self._answer = answer
        self._send = send
        self._waiting: list[Question] = []
        self._is_asked = threading.Condition()

    def start(self) -> None:
        """Start answering."""
        threading.Thread(target=self._run, name="questions", daemon=True).start()

    def ask(self, question: Question) -> None:
        """Queue a question; a newer count replaces a waiting one."""
        with self._is_asked:
            if isinstance(question, CountTokens):
                self._waiting = [other for other in self._waiting if not isinstance(other, CountTokens)]
            self._waiting.append(question)
            self._is_asked.notify()

    def _run(self) -> None:
        while True:
            with self._is_asked:
                self._is_asked.wait_for(lambda: self._waiting)
                question = self._waiting.pop(0)
            try:
                answer = self._answer(question)
            except KnownError as error:
                log.info("not answered: %s", error)
                continue
            except Exception:
                log.exception("a question was not answered")
                continue
            try:
                self._send(answer)
            except OSError:
                return  # the window is gone, which the other threads notice


class Worker:
    """Carries out one command after another."""

    def __init__(self, commands: BinaryIO, events: BinaryIO, *, chat_files: bool = True, watched: bool = True) -> None:
        """Without ``chat_files`` no KV caches are written to disk. ``watched``: someone sees the answer being
        written."""
        self._watched = watched
        self._commands = commands
        self._events = events
        self._write_lock = threading.Lock()
        self._queue: queue.Queue[tuple[int, Command]] = queue.Queue()
        self._busy = False
        self._quits = False
        self._done = threading.Event()
        self._received = 0
        self._canceled = 0
        """Cancel applies to every command received before it, even to one that hasn't started."""
        self._chat: list[Message] = []
        """The messages that were sent last, of which the next command may keep some; only for the reading thread."""
        self._bytes_at_start = 0
        self._caches = ChatCaches(chat_cache_files.of_this_user() if chat_files else None)
        self._engine = Engine(self._caches)
        self._questions = Questions(self._engine.answer, self._send)

    def run(self) -> None:
        """Serve until Quit or the end of the input."""
        features = processor_features()
        hello = Hello(protocol=PROTOCOL_VERSION, engine=engine_name(), processor_features=features, devices=devices())
        self._send(hello)
        self._bytes_at_start = private_bytes()
        self._questions.start()
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        while True:
            number, command = self._queue.get()
            if isinstance(command, Quit):
                break
            self._set_busy(True)
            self._carry_out(number, command)
            self._set_busy(False)
        self._engine.unload()
        self._done.set()

    def _set_busy(self, busy: bool) -> None:
        self._busy = busy
        self._caches.files.wait(busy)

    # ------------------------------------------------------------ the reading thread

    def _read(self) -> None:
        status, frames = 1, FrameReader()
        try:
            while data := self._read_some():
                for body in frames.feed(data):
                    self._receive(decode_command(body))
            status = 0  # the window is gone
        except _WindowGoneError:
            status = 0
        except ProtocolError as error:
            log.error("unreadable command: %s", error)
        except BaseException:
            log.exception("the thread that reads commands failed")
        if self._quits:
            self._done.wait(_QUIT_SECONDS)  # it is ending normally, and may have something to write
        os._exit(status)  # llama.cpp may be in the middle of an answer that nobody reads or could stop

    def _read_some(self) -> bytes:
        try:
            return os.read(self._commands.fileno(), 65536)
        except OSError as error:
            log.info("the command pipe broke: %s", error)
            return b""

    def _receive(self, command: Command) -> None:
        match command:
            case Ping():
                idle = time.monotonic() - self._engine.last_progress if self._busy else 0.0
                self._send(Pong(busy=self._busy, seconds_since_progress=max(idle, 0.0)))
            case ReadMemory():
                own = private_bytes() - self._bytes_at_start - self._caches.held_bytes()
                self._send(MemoryRead(devices=devices(), own_bytes=max(own, 0)))
            case ChatPart() | CountTokens() | Generate():
                self._receive_chat(command)
            case CountPrompt() | CheckText() | Tokenize():
                self._questions.ask(command)
            case Cancel():
                self._cancel()
            case StopThinking():
                self._engine.stop_thinking()
            case Quit():
                self._quits = True
                self._cancel()
                self._enqueue(command)
            case Forget():
                self._caches.files.forget(command.chats)  # at once, because the current computation may take long
                self._chat = []
                self._enqueue(command)
            case _:
                self._enqueue(command)

    def _receive_chat(self, command: ChatPart | CountTokens | Generate) -> None:
        """Commands about a chat are passed on with all of its messages."""
        self._chat = [*self._chat[: command.kept], *command.messages]
        if isinstance(command, CountTokens):
            self._questions.ask(msgspec.structs.replace(command, messages=self._chat, kept=0))
        elif isinstance(command, Generate):
            self._enqueue(msgspec.structs.replace(command, messages=self._chat, kept=0))

    def _enqueue(self, command: Command) -> None:
        self._received += 1
        self._queue.put((self._received, command))

    def _cancel(self) -> None:
        self._canceled = self._received
        self._engine.cancel()

    # ------------------------------------------------------------ the computing thread

    def _carry_out(self, number: int, command: Command) -> None:
        self._engine.ready()
        if number <= self._canceled:
            self._engine.cancel()
        self._engine.last_progress = time.monotonic()
        match command:
            case Load():
                self._load(command)
            case Generate():
                self._generate(command)
            case MeasurePlain():
                self._measure(command.request, lambda: self._engine.measure_plain(command))
            case ScoreTokens():
                self._measure(command.request, lambda: self._engine.score_tokens(command))
            case Forget():
                self._engine.forget(command.chats)
                self._send(Forgotten())

    def _load(self, command: Load) -> None:
        try:
            self._send(self._engine.load(command, self._send))
        except Canceled:
            self._send(LoadFailed(request=command.request, message="Loading was canceled.", cancelled=True))
        except KnownError as error:
            self._send(LoadFailed(request=command.request, message=str(error)))

    def _generate(self, command: Generate) -> None:
        rounds: list[Round] = []
        interval = _SHARED_FLUSH_SECONDS if self._engine.uses_all_cores else _FLUSH_SECONDS
        if not self._watched:
            interval = _UNWATCHED_FLUSH_SECONDS
        flushed = -interval  # the first token is sent at once, however soon it arrives
        try:
            for event in self._engine.generate(command):
                if isinstance(event, Round):
                    rounds.append(event)
                    if event.time - flushed < interval:
                        continue
                    flushed = event.time
                if rounds:
                    self._send(RoundsReceived(request=command.request, rounds=rounds))
                    rounds = []
                if not isinstance(event, Round):
                    self._send(event)
        except KnownError as error:
            if rounds:
                self._send(RoundsReceived(request=command.request, rounds=rounds))
            too_long = error.tokens if isinstance(error, PromptTooLongError) else 0
            self._send(GenerationFailed(request=command.request, message=str(error), prompt_tokens=too_long))

    def _measure(self, request: int, measure: Callable[[], Event]) -> None:
        """Carry out a command that is answered by one event."""
        try:
            self._send(measure())
        except Canceled:
            self._send(GenerationFailed(request=request, message="The measurement was stopped."))
        except KnownError as error:
            self._send(GenerationFailed(request=request, message=str(error)))

    def _send(self, event: Event) -> None:
        frame = encode_frame(event)
        try:
            with self._write_lock:
                self._events.write(frame)
                self._events.flush()
        except OSError as error:  # Windows uses other errors for a broken pipe
            raise _WindowGoneError(str(error)) from error


def run(*, chat_files: bool = True, watched: bool = True) -> int:
    """The entry point of the engine process. ``chat_files``, ``watched``: see `Worker`."""
    faulthandler.enable()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    if sys.platform == "linux":  # elsewhere only the end of stdin ends it together with its parent
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for interrupt in (signal.SIGINT, getattr(signal, "SIGBREAK", None)):
        if interrupt is not None:
            signal.signal(interrupt, signal.SIG_IGN)  # Ctrl+C goes to the window, which ends this process properly
    events = system.claim_stdout()
    try:
        try:
            worker = Worker(sys.stdin.buffer, events, chat_files=chat_files, watched=watched)
        except KnownError as error:
            log.error("%s", error)
            with contextlib.suppress(OSError):
                events.write(encode_frame(StartFailed(message=str(error))))
                events.flush()
            return 1
        worker.run()
    except _WindowGoneError as error:
        log.info("the event pipe broke: %s", error)
    return 0
