"""The protocol with an engine, without I/O: commands in, events out, and the engine's state.

The caller transfers the bytes and calls `Connection.tick` at regular intervals. Nothing that comes from an engine is
trusted: a frame that is too large, isn't an event or arrives before the greeting ends the connection (`ProtocolError`).
"""

from __future__ import annotations

import enum
import logging
import signal
import sys
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import Struct

from app.protocol import frames
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
    GenerationFinished,
    Hello,
    LoadFailed,
    MemoryRead,
    PairLoaded,
    PlainMeasured,
    Pong,
    PromptCounted,
    StartFailed,
    TextChecked,
    Tokenized,
    TokensCounted,
    TokensScored,
)
from app.protocol.frames import FrameReader, ProtocolError, decode_event, encode_frame
from app.protocol.remote import Connect, FindServers, Probe, ServerProbed, ServersFound
from app.protocol.serving import AsideQuestion
from app.system import KnownError, redact

_log = logging.getLogger("slipstream.engine")
_MAX_LINES = 40
_MAX_LINE_CHARS = 2000


class EngineState(enum.Enum):
    """What the engine is doing."""

    STOPPED = "stopped"
    STARTING = "starting"
    EMPTY = "no model"
    LOADING = "loading"
    READY = "ready"
    ANSWERING = "answering"
    MEASURING = "measuring"
    COMPARING = "comparing"
    SERVING = "serving"
    """Answering another program."""
    DIED = "died"

    @property
    def is_busy(self) -> bool:
        """Whether something is running that can be canceled."""
        return self in (
            EngineState.LOADING,
            EngineState.ANSWERING,
            EngineState.MEASURING,
            EngineState.COMPARING,
            EngineState.SERVING,
        )

    @property
    def has_pair(self) -> bool:
        """Whether a pair is loaded, busy or not."""
        return self is EngineState.READY or (self.is_busy and self is not EngineState.LOADING)

    @property
    def has_ended(self) -> bool:
        """Whether there is no process."""
        return self in (EngineState.STOPPED, EngineState.DIED)


class ExitCause(enum.Enum):
    """Why an engine ended unexpectedly."""

    KILLED = "killed"
    OUT_OF_MEMORY = "out of memory"
    ABORTED = "aborted"
    CRASHED = "crashed"
    EXITED = "exited"
    PROTOCOL = "protocol"
    FAILED_TO_START = "failed to start"
    REFUSED = "refused to start"


_SENTENCES = {
    ExitCause.KILLED: "The engine was stopped by another program ({}).",
    ExitCause.OUT_OF_MEMORY: "The engine was stopped by the system, probably because memory ran out.",
    ExitCause.ABORTED: "The engine stopped because of an internal error ({}).",
    ExitCause.CRASHED: "The engine crashed ({}).",
    ExitCause.EXITED: "The engine stopped unexpectedly ({}).",
    ExitCause.PROTOCOL: "The engine sent something that Slipstream doesn't understand, so it was stopped.",
    ExitCause.FAILED_TO_START: "The engine didn't start ({}).",
    ExitCause.REFUSED: "The engine didn't start. {}",
}


@dataclass(frozen=True)
class EngineExit:
    """How an engine ended unexpectedly.

    Attributes:
        detail: Signal name, exit code or protocol error, for the report; if it refused to start, its own explanation.
        state: What the engine was doing.
        log_lines: The last lines it logged, oldest first.
    """

    cause: ExitCause
    detail: str
    state: EngineState
    log_lines: tuple[str, ...] = ()

    def sentence(self) -> str:
        """One sentence for the user."""
        return _SENTENCES[self.cause].format(self.detail)

    def report(self) -> str:
        """Plain text for a bug report: cause, state and the last log lines, home folder redacted."""
        lines = [
            "Slipstream engine report",
            f"cause: {self.cause.value}",
            f"detail: {self.detail}",
            f"while: {self.state.value}",
            "",
            "last log lines:",
            *(self.log_lines or ("(none)",)),
        ]
        return redact("\n".join(lines))


class EngineEndedError(KnownError):
    """The engine's process ended while it was needed."""

    def __init__(self, ended: EngineExit) -> None:
        super().__init__(ended.sentence())
        self.ended = ended
        self.add_note("\n".join(ended.log_lines))


class LogLines:
    """Copies a process's standard error into our log, and keeps the last lines for the report."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._partial = ""

    def add(self, data: bytes) -> None:
        """Add a chunk of output, which may end in the middle of a line."""
        *lines, rest = (self._partial + data.decode("utf-8", "replace")).split("\n")
        self._partial = rest[-_MAX_LINE_CHARS:]
        for line in lines:
            shown = line.rstrip("\r")[:_MAX_LINE_CHARS]
            self._lines.append(shown)
            _log.info("| %s", shown)

    def end(self) -> None:
        """The output has ended: add a last line that has no line break."""
        if self._partial:
            self.add(b"\n")

    def last(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)


def exit_cause(code: int, *, crashed: bool, memory_kills_before: int) -> tuple[ExitCause, str]:
    """Why a process ended, and the detail for `EngineExit`.

    ``code`` is the exit code, or after a crash the signal (on Windows, the exception); ``memory_kills_before`` is
    `out_of_memory_kills` from before the process started.
    """
    if not crashed:
        return ExitCause.EXITED, f"exit code {code}"
    if sys.platform == "win32":
        return ExitCause.CRASHED, f"code {code & 0xFFFFFFFF:#010x}"
    try:
        name = signal.Signals(code).name
    except ValueError:
        name = f"signal {code}"
    if code == signal.SIGKILL and out_of_memory_kills() > memory_kills_before:
        return ExitCause.OUT_OF_MEMORY, name
    if code in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return ExitCause.KILLED, name
    return (ExitCause.ABORTED if code == signal.SIGABRT else ExitCause.CRASHED), name


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed to free memory, on this machine and in this control group; 0 if that
    isn't known."""
    kills = _counter(Path("/proc/vmstat"))
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return kills
    for line in groups:
        path = line.rpartition(":")[2].lstrip("/")
        kills += _counter(Path("/sys/fs/cgroup") / path / "memory.events")
    return kills


def _counter(path: Path) -> int:
    try:
        for line in path.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


PART_CHARACTERS = 100_000
"""A chat is sent in parts of at most this many characters (or one message), so that sending never blocks for long."""
_TOKEN_CHARACTERS = 8  # with the comma
_MAX_BYTES_PER_CHARACTER = 6
"""JSON's longest escape, ``\\u0001``."""
Question = Generate | MeasurePlain | ScoreTokens
"""What a loaded pair can be asked to do. The connection fills in ``request``."""
_BUSY_WITH = {Generate: EngineState.ANSWERING, MeasurePlain: EngineState.MEASURING, ScoreTokens: EngineState.COMPARING}
_LEADS_TO: dict[type[Event], EngineState] = {
    PairLoaded: EngineState.READY,
    LoadFailed: EngineState.EMPTY,
    GenerationFinished: EngineState.READY,
    GenerationFailed: EngineState.READY,
    PlainMeasured: EngineState.READY,
    TokensScored: EngineState.READY,
}
"""The state of the engine after a request's last event."""


_ANSWERS: dict[type[Event], type[Struct]] = {
    TokensCounted: CountTokens,
    PromptCounted: CountPrompt,
    TextChecked: CheckText,
    Tokenized: Tokenize,
    ServerProbed: Probe,
    ServersFound: FindServers,
}
"""Which question each answer belongs to."""


@dataclass(frozen=True)
class Timings:
    """Timeouts in seconds."""

    tick: float = 1.0
    """Between calls of `StallWatch.tick`."""
    silence: float = 10.0
    """Without an answer to a ping."""
    no_progress: float = 120.0
    start: float = 60.0
    cancel: float = 5.0
    quit: float = 2.0
    """For a process to end; the caller's business."""


@dataclass(frozen=True)
class Stalled:
    """The engine isn't responding; reported at most once per request."""

    seconds: float


class Connection:
    """The conversation with an engine process, and with the next one when it is replaced.

    Attributes:
        state: Already updated when `receive` yields the event that caused the change.
        request: The current request; 0 when there is none.
        hello: The running process's greeting.
        log: Its standard error.
        open_forgets: Sent or waiting, but not confirmed by any process yet.

    Questions (`count_tokens`, `ask_aside`, `search`) are numbered separately and don't make the engine busy.
    """

    def __init__(self, timings: Timings | None = None) -> None:
        self.timings = timings or Timings()
        self.state = EngineState.STOPPED
        self.request = 0
        self.hello: Hello | None = None
        self.log = LogLines()
        self.open_forgets: list[Forget] = []
        self._last_request = 0
        self._last_question = 0
        self._open: dict[int, type[Struct]] = {}
        """Unanswered questions by number."""
        self._chat = SentChat()
        self._reader = FrameReader()
        self._unsent: deque[Command] = deque()
        self._fault: tuple[ExitCause, str] | None = None
        """A protocol error or refusal from before the engine ended; it explains more than the exit code."""
        self._watch = StallWatch(self.timings)

    # ------------------------------------------------------------ a process begins and ends

    def start(self) -> None:
        """The caller is starting a process."""
        self._reset(EngineState.STARTING)
        self._reader, self.log, self._fault = FrameReader(), LogLines(), None

    def stop(self) -> None:
        """The caller has ended the process, or is about to."""
        self._reader = FrameReader()  # its last messages no longer count
        self._reset(EngineState.STOPPED)

    def died(self, cause: ExitCause, detail: str) -> EngineExit:
        """The process ended unexpectedly; ``cause`` and ``detail`` come from `exit_cause`."""
        ended = EngineExit(*(self._fault or (cause, detail)), self.state, self.log.last())
        _log.warning("engine ended: %s (%s) while %s", ended.cause.value, ended.detail, ended.state.value)
        self._reset(EngineState.DIED)
        return ended

    def _reset(self, state: EngineState) -> None:
        self.hello = None
        self._unsent.clear()
        self._open.clear()
        self._chat.forget()
        self._begin(0, state)

    def _begin(self, request: int, state: EngineState) -> None:
        self.request, self.state = request, state
        self._watch.begin()

    # ------------------------------------------------------------ commands

    def load(self, command: Load | Connect) -> int:
        """Load a pair, or use a server's model, in place of what is loaded; returns the request's number.

        The process must be starting or running.
        """
        self._drop(*get_args(AsideQuestion), CountTokens)
        if self.hello is None:
            self._unsent = deque(one for one in self._unsent if not isinstance(one, Load | Connect))
        elif self.state.is_busy:
            self._send(Cancel())
        return self._ask(command, EngineState.LOADING if self.hello else self.state)

    def ask(self, command: Question, *, compared: bool = False, served: bool = False) -> int:
        """Send a request; returns its number. ``compared``, ``served``: it is for a comparison or another program
        instead of a chat.

        Raises `RuntimeError` unless the state is ``READY``, and `ProtocolError` when a message is too large.
        """
        if self.state is not EngineState.READY:
            raise RuntimeError(f"the engine is {self.state.value}, not ready")
        if isinstance(command, Generate):
            kept, rest = self._send_beginning(command.messages)
            command = msgspec.structs.replace(command, messages=rest, kept=kept)
        state = EngineState.COMPARING if compared else EngineState.SERVING if served else _BUSY_WITH[type(command)]
        return self._ask(command, state)

    def _ask(self, command: Load | Connect | Question, state: EngineState) -> int:
        self._last_request += 1
        self._begin(self._last_request, state)
        self._send(msgspec.structs.replace(command, request=self.request))
        return self.request

    def cancel(self) -> LoadFailed | None:
        """Stop the current request. A load that hasn't been sent yet ends at once, with the returned event."""
        if self.state.is_busy:
            if not self._watch.is_canceled:
                self._send(Cancel())
                self._watch.cancel()
        elif self.state is EngineState.STARTING and self.request:
            self._unsent = deque(one for one in self._unsent if not isinstance(one, Load | Connect))
            request, self.request = self.request, 0
            return LoadFailed(request=request, message="Loading was canceled.", cancelled=True)
        return None

    def stop_thinking(self) -> None:
        """Make the model stop thinking and begin its answer."""
        if self.state in (EngineState.ANSWERING, EngineState.COMPARING, EngineState.SERVING):
            self._send(StopThinking())

    def forget(self, chats: Collection[str] = ()) -> None:
        """Have the engine erase all traces of these chats, or of all chats; a process that is still starting does so
        after its greeting."""
        self.open_forgets.append(Forget(chats=list(chats)))
        self._chat.forget()
        if self.hello is not None:
            self._send(self.open_forgets[-1])

    def read_memory(self) -> None:
        """Ask how much memory is in use; does nothing without a process."""
        if self.hello is not None:
            self._send(ReadMemory())

    def count_tokens(self, question: CountTokens) -> int:
        """Returns the question's number; 0 if nothing is loaded or a message is too large to send.

        Replaces an earlier, unanswered question.
        """
        is_short = len(question.text) + sum(map(len, question.parts)) <= longest_text()
        if not self.state.has_pair or not is_short:
            return 0
        self._drop(CountTokens)
        try:
            kept, rest = self._send_beginning(question.messages)
        except ProtocolError:
            return 0
        return self._question(msgspec.structs.replace(question, messages=rest, kept=kept))

    def search(self, question: Probe | FindServers) -> int:
        """Returns the question's number. The process must be a remote engine, starting or running."""
        return self._question(question)

    def ask_aside(self, question: AsideQuestion) -> int:
        """Returns the question's number; 0 if nothing is loaded. Raises `ProtocolError` if it is too large to send."""
        encode_frame(question)
        return self._question(question) if self.state.has_pair else 0

    def _question(self, question: CountTokens | AsideQuestion | Probe | FindServers) -> int:
        self._last_question += 1
        self._open[self._last_question] = type(question)
        self._send(msgspec.structs.replace(question, request=self._last_question))
        return self._last_question

    def _drop(self, *kinds: type[Struct]) -> None:
        """Ignore answers to open questions of these kinds."""
        self._open = {number: kind for number, kind in self._open.items() if kind not in kinds}

    def _send_beginning(self, chat: Sequence[Message]) -> tuple[int, list[Message]]:
        """Send what is new in a chat; returns ``kept`` and ``messages`` for the command (`SentChat.beginning`)."""
        parts, kept, rest = self._chat.beginning(chat)
        self._unsent.extend(parts)
        return kept, rest

    def _send(self, command: Command) -> None:
        self._unsent.append(command)

    def bytes_to_send(self) -> bytes:
        """The next chunk to write to the process; empty when there is nothing left, or before its greeting."""
        data = b""
        while self.is_sending() and len(data) < PART_CHARACTERS // 2:
            data += encode_frame(self._unsent.popleft())
        return data

    def is_sending(self) -> bool:
        """Whether there is something to be written now."""
        return self.hello is not None and bool(self._unsent)

    # ------------------------------------------------------------ what the engine sends

    def receive(self, data: bytes) -> Iterator[Event | Stalled]:
        """The events in a chunk of output, which may end in the middle of a frame; skips those of old requests.

        Raises `ProtocolError`: end that process; whatever else it sends is ignored.
        """
        reader = self._reader
        if self._fault is not None:
            return
        try:
            for body in reader.feed(data):
                event = decode_event(body)
                if (shown := self._handle(event)) is not None:
                    yield shown
                if self._reader is not reader:
                    return  # the caller started another process in response
        except ProtocolError as error:
            _log.error("protocol violation: %s", error)
            self._fault = ExitCause.PROTOCOL, str(error)
            raise

    def _handle(self, event: Event) -> Event | Stalled | None:
        """Update the state for ``event``; returns the event if the caller should see it."""
        match event:
            case Hello():
                self._greet(event)
            case StartFailed():
                self._fault = ExitCause.REFUSED, event.message
                return None
            case _ if self.hello is None:
                raise ProtocolError(f"{type(event).__name__} before Hello")
            case Pong():
                return self._watch.answered(event, self.state)
            case Forgotten():
                return self._forgotten(event)
            case MemoryRead():
                pass
            case _ if type(event) in _ANSWERS:
                return event if self._is_awaited(event.request, _ANSWERS[type(event)]) else None
            case _ if event.request != self.request:
                return None
            case _ if (state := _LEADS_TO.get(type(event))) is not None:
                self._begin(0, state)
        return event

    def _is_awaited(self, number: int, kind: type[Struct]) -> bool:
        """Whether this question is open; closes it."""
        if self._open.get(number) is not kind:
            return False
        del self._open[number]
        return True

    def _forgotten(self, event: Forgotten) -> Forgotten | None:
        if not self.open_forgets:
            raise ProtocolError("Forgotten without a Forget")
        del self.open_forgets[0]
        return None if self.open_forgets else event

    def _greet(self, hello: Hello) -> None:
        if self.hello is not None:
            raise ProtocolError("a second Hello")
        if hello.protocol != PROTOCOL_VERSION:
            raise ProtocolError(f"the engine uses protocol {hello.protocol} instead of {PROTOCOL_VERSION}")
        self.hello = hello
        devices = ", ".join(device.description for device in hello.devices)
        _log.info("engine: %s, devices: %s", hello.engine, devices or "CPU only")
        self._unsent.extendleft(reversed(self.open_forgets))
        self._begin(self.request, EngineState.LOADING if self.request else EngineState.EMPTY)

    # ------------------------------------------------------------ stalls

    def needs_ticks(self) -> bool:
        """Whether the engine is doing something that could stall."""
        return self.state is EngineState.STARTING or self.state.is_busy

    def tick(self) -> Stalled | None:
        """Another interval of ``timings.tick`` has passed."""
        stalled = self._watch.tick(self.state)
        if self.state.is_busy:
            self._send(Ping())
        return stalled


class StallWatch:
    """Watches the start of the process and the current request.

    It counts ticks and open pings instead of time, so the engine isn't blamed when the computer slept or the caller
    was blocked.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self.begin()

    def begin(self) -> None:
        """Start over, for another request or none."""
        self._ticks = 0
        self._canceled_at: int | None = None
        self._open_pings = 0
        self._has_reported = False

    @property
    def is_canceled(self) -> bool:
        """Whether the request was canceled."""
        return self._canceled_at is not None

    def cancel(self) -> None:
        """The request has just been canceled."""
        self._canceled_at = self._ticks

    def tick(self, state: EngineState) -> Stalled | None:
        """Another interval of ``timings.tick`` has passed; the caller now pings a busy engine."""
        self._ticks += 1
        stalled = self._stalled(self._overdue_seconds(state), state)
        if state.is_busy:
            self._open_pings += 1
        return stalled

    def answered(self, pong: Pong, state: EngineState) -> Stalled | None:
        """A ping was answered."""
        self._open_pings = 0
        idle = pong.seconds_since_progress
        is_stuck = pong.busy and state.is_busy and idle > self._timings.no_progress
        return self._stalled(idle if is_stuck else 0.0, state)

    def _overdue_seconds(self, state: EngineState) -> float:
        """How long we have waited past a timeout; 0 if none has expired."""
        timings = self._timings
        if state is EngineState.STARTING:
            waited, patience = self._ticks * timings.tick, timings.start
        elif self._canceled_at is not None:
            waited, patience = (self._ticks - self._canceled_at) * timings.tick, timings.cancel
        else:
            waited, patience = self._open_pings * timings.tick, timings.silence
        return waited if waited >= patience else 0.0

    def _stalled(self, seconds: float, state: EngineState) -> Stalled | None:
        if not seconds or self._has_reported:
            return None
        self._has_reported = True
        _log.warning("no response for %.0f s while %s", seconds, state.value)
        return Stalled(seconds)


class SentChat:
    """The chat that the process has; of the next one, only the messages that differ are sent."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def forget(self) -> None:
        """The process no longer has the messages, or must not use them."""
        self._messages = []

    def beginning(self, chat: Sequence[Message]) -> tuple[list[ChatPart], int, list[Message]]:
        """Parts to send first, then what the command itself carries: how many messages the process has by then
        (``kept``), and the remaining ones. Raises `ProtocolError` when a message is too large.
        """
        kept = _length_of_same(self._messages, chat)
        *parts, rest = _parts(chat[kept:])
        self._messages = list(chat)
        commands = []
        for part in parts:
            commands.append(ChatPart(messages=part, kept=kept))
            kept += len(part)
        return commands, kept, rest


def _length_of_same(first: Sequence[Message], second: Sequence[Message]) -> int:
    """The length of the common prefix."""
    length = 0
    for one, other in zip(first, second, strict=False):
        if one is not other and one != other:
            break
        length += 1
    return length


def _parts(chat: Sequence[Message]) -> list[list[Message]]:
    """The messages in parts small enough to send; at least one part, which may be empty."""
    parts: list[list[Message]] = [[]]
    size, limit = 0, longest_text()
    for message in chat:
        length = len(message.content) + len(message.thinking) + _TOKEN_CHARACTERS * len(message.tokens)
        length += sum(len(one.arguments) for one in message.tool_calls)
        if length > limit:
            raise ProtocolError(f"a message of {length} characters is too large")
        if size + length > PART_CHARACTERS and size:
            parts.append([])
            size = 0
        parts[-1].append(message)
        size += length
    return parts


def longest_text() -> int:
    """In characters: two texts of this length always fit into one frame."""
    return frames.MAX_BYTES // (2 * _MAX_BYTES_PER_CHARACTER)
