"""The protocol with an engine, without input or output: commands go in and frames come out, bytes go in and events come
out. Whoever drives it carries the bytes and calls `Connection.tick` at regular intervals.

Nothing that comes from an engine is trusted: a frame that is too large, is no event or comes before the greeting ends
it (`ProtocolError`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from app.client.state import EngineExit, EngineState, ExitCause, LogLines
from app.protocol import messages
from app.protocol.frames import FrameReader, ProtocolError
from app.protocol.framing import decode_event, encode_frame

_log = logging.getLogger("slipstream.engine")

Question = messages.Generate | messages.MeasurePlain | messages.ScoreTokens
"""What a loaded pair can be asked to do. The connection fills in ``request``."""
_BUSY_WITH = {
    messages.Generate: EngineState.ANSWERING,
    messages.MeasurePlain: EngineState.MEASURING,
    messages.ScoreTokens: EngineState.COMPARING,
}
_LEADS_TO: dict[type[messages.Event], EngineState] = {
    messages.PairLoaded: EngineState.READY,
    messages.LoadFailed: EngineState.EMPTY,
    messages.GenerationFinished: EngineState.READY,
    messages.GenerationFailed: EngineState.READY,
    messages.PlainMeasured: EngineState.READY,
    messages.TokensScored: EngineState.READY,
}
"""The state of the engine after a request's last event."""


@dataclass(frozen=True)
class Timings:
    """How patient we are, in seconds."""

    tick: float = 1.0
    """Seconds between two calls of `Connection.tick`."""
    silence: float = 10.0
    """Seconds without an answer to a ping."""
    no_progress: float = 120.0
    start: float = 60.0
    cancel: float = 5.0
    quit: float = 2.0
    """Seconds; for whoever drives the connection: how long a process may take to end."""


@dataclass(frozen=True)
class Stalled:
    """The engine gives no sign of life; told at most once a request."""

    seconds: float


class Connection:
    """What is said to one engine process after the other, and what they say.

    Attributes:
        state: Where the engine is; set before an event that leads there is given out.
        request: The current request; 0 when there is none.
        hello: The greeting of the process that runs.
        log: What it wrote to its standard error.
        open_forgets: How many `Forget` no process has carried out yet.

    Questions (`count_tokens`, `check_text`) have numbers of their own and make nothing busy.
    """

    def __init__(self, timings: Timings | None = None) -> None:
        self.timings = timings or Timings()
        self.state = EngineState.STOPPED
        self.request = 0
        self.hello: messages.Hello | None = None
        self.log = LogLines()
        self.open_forgets = 0
        self._last_request = 0
        self._last_question = 0
        self._open_counts: set[int] = set()
        """The newest `CountTokens`, until it is answered: the engine may leave out older ones."""
        self._open_checks: set[int] = set()
        self._counted: list[messages.Message] = []
        """What the process has of the last `CountTokens`."""
        self._reader = FrameReader()
        self._unsent: list[bytes] = []
        """Frames."""
        self._fault: tuple[ExitCause, str] | None = None
        """What it did wrong or said before it ended, which says more than its exit code."""
        self._ticks = 0
        """Since the start, or since the request began."""
        self._cancelled_at: int | None = None
        self._open_pings = 0
        self._told_stall = False

    # ------------------------------------------------------------ a process begins and ends

    def start(self) -> None:
        """A process is being started."""
        self._reset(EngineState.STARTING)
        self._reader, self.log, self._fault = FrameReader(), LogLines(), None

    def stop(self) -> None:
        """The process ended, or is being ended, on request."""
        self._reader = FrameReader()  # its last messages no longer count
        self._reset(EngineState.STOPPED)

    def died(self, cause: ExitCause, detail: str) -> EngineExit:
        """The process ended unexpectedly. ``cause`` and ``detail`` are those of its exit code."""
        ended = EngineExit(*(self._fault or (cause, detail)), self.state, self.log.last())
        _log.warning("engine ended: %s (%s) while %s", ended.cause.value, ended.detail, ended.state.value)
        self._reset(EngineState.DIED)
        return ended

    def _reset(self, state: EngineState) -> None:
        self.hello = None
        self._unsent.clear()
        self._open_counts.clear()
        self._open_checks.clear()
        self._counted = []
        self._begin(0, state)

    def _begin(self, request: int, state: EngineState) -> None:
        self.request, self.state = request, state
        self._ticks = self._open_pings = 0
        self._cancelled_at, self._told_stall = None, False

    # ------------------------------------------------------------ commands

    def load(self, command: messages.Load) -> int:
        """The number of the request. What was loaded or is being loaded is given up; the process must be starting."""
        self._open_counts.clear()
        self._open_checks.clear()
        if self.hello is None:
            self._unsent.clear()
        elif self.state.is_busy:
            self._send(messages.Cancel())
        return self._ask(command, EngineState.LOADING if self.hello else self.state)

    def ask(self, command: Question, *, compared: bool = False) -> int:
        """The number of the request. ``compared``: the answer belongs to no chat.

        Raises `RuntimeError` unless the state is ``READY``.
        """
        if self.state is not EngineState.READY:
            raise RuntimeError(f"the engine is {self.state.value}, not ready")
        return self._ask(command, EngineState.COMPARING if compared else _BUSY_WITH[type(command)])

    def _ask(self, command: messages.Load | Question, state: EngineState) -> int:
        self._last_request += 1
        self._begin(self._last_request, state)
        self._send(msgspec.structs.replace(command, request=self.request))
        return self.request

    def cancel(self) -> messages.LoadFailed | None:
        """Stop what is running, if anything. A load that was not sent yet ends at once, with the returned event."""
        if self.state.is_busy:
            if self._cancelled_at is None:
                self._send(messages.Cancel())
                self._cancelled_at = self._ticks
        elif self.state is EngineState.STARTING and self.request:
            self._unsent.clear()
            request, self.request = self.request, 0
            return messages.LoadFailed(request=request, message="Loading was canceled.", cancelled=True)
        return None

    def stop_thinking(self) -> None:
        """Let the answer that is being written begin, if the model still thinks."""
        if self.state in (EngineState.ANSWERING, EngineState.COMPARING):
            self._send(messages.StopThinking())

    def forget(self) -> None:
        """Have everything erased that remains of chats; a process that is starting is told as soon as it says hello."""
        self.open_forgets += 1
        self._counted = []
        if self.hello is not None:
            self._send(messages.Forget())

    def read_memory(self) -> None:
        """Ask how much memory there is now, where there is a process that can tell."""
        if self.hello is not None:
            self._send(messages.ReadMemory())

    def count_tokens(self, chat: Sequence[messages.Message], text: str, overflow: messages.Overflow) -> int:
        """The number of the question; 0 where nothing is loaded that could tell, or the chat is too large to be sent.

        The answer to an older one is lost.
        """
        number = self._next_question()
        if number:
            self._open_counts = {number}
            kept = _length_of_same(self._counted, chat)
            self._counted = list(chat)
            rest = self._counted[kept:]
            command = messages.CountTokens(request=number, messages=rest, kept=kept, text=text, overflow=overflow)
            try:
                self._send(command)
            except ProtocolError:  # too large to be sent, as an answer to it would be
                self._counted = []
                return 0
        return number

    def check_text(self, text: str) -> int:
        """The number of the question; 0 where nothing is loaded that could tell."""
        number = self._next_question()
        if number:
            self._open_checks.add(number)
            self._send(messages.CheckText(request=number, text=text))
        return number

    def _next_question(self) -> int:
        if not self.state.has_pair:
            return 0
        self._last_question += 1
        return self._last_question

    def _send(self, command: messages.Command) -> None:
        self._unsent.append(encode_frame(command))

    def bytes_to_send(self) -> bytes:
        """What is to be written to the process now; nothing before it has greeted."""
        if self.hello is None:
            return b""
        frames, self._unsent = self._unsent, []
        return frames[0] if len(frames) == 1 else b"".join(frames)  # one of megabytes is not copied

    # ------------------------------------------------------------ what the engine says

    def receive(self, data: bytes) -> Iterator[messages.Event | Stalled]:
        """The events in more output, cut anywhere; those of requests that are no longer current are left out.

        A process that breaks the protocol must be ended; nothing it says counts any more. Raises `ProtocolError`.
        """
        reader = self._reader
        if self._fault is not None:
            return
        try:
            for body in reader.feed(data):
                event = decode_event(body)
                if (told := self._taken(event)) is not None:
                    yield told
                if self._reader is not reader:
                    return  # another process was started because of the event
        except ProtocolError as error:
            _log.error("protocol violation: %s", error)
            self._fault = ExitCause.PROTOCOL, str(error)
            raise

    def _taken(self, event: messages.Event) -> messages.Event | Stalled | None:
        """Note what ``event`` means; what is to be told of it."""
        match event:
            case messages.Hello():
                self._greet(event)
            case messages.StartFailed():
                self._fault = ExitCause.REFUSED, event.message
                return None
            case _ if self.hello is None:
                raise ProtocolError(f"{type(event).__name__} before Hello")
            case messages.Pong():
                return self._stalled(self._idle_seconds(event))
            case messages.Forgotten():
                return self._forgotten(event)
            case messages.MemoryRead():
                pass
            case messages.TokensCounted() | messages.TextChecked():
                return event if self._is_awaited(event) else None
            case _ if event.request != self.request:
                return None
            case _ if (state := _LEADS_TO.get(type(event))) is not None:
                self._begin(0, state)
        return event

    def _is_awaited(self, event: messages.TokensCounted | messages.TextChecked) -> bool:
        """Whether somebody still waits for this answer to a question; after it nobody does."""
        awaited = self._open_checks if isinstance(event, messages.TextChecked) else self._open_counts
        if event.request not in awaited:
            return False
        awaited.remove(event.request)
        return True

    def _idle_seconds(self, pong: messages.Pong) -> float:
        """Since the computation last moved; 0 where that is no wonder."""
        self._open_pings = 0
        idle = pong.seconds_since_progress
        return idle if pong.busy and self.state.is_busy and idle > self.timings.no_progress else 0.0

    def _forgotten(self, event: messages.Forgotten) -> messages.Forgotten | None:
        if not self.open_forgets:
            raise ProtocolError("Forgotten without a Forget")
        self.open_forgets -= 1
        return None if self.open_forgets else event

    def _greet(self, hello: messages.Hello) -> None:
        if self.hello is not None:
            raise ProtocolError("a second Hello")
        if hello.protocol != messages.PROTOCOL_VERSION:
            raise ProtocolError(f"the engine speaks protocol {hello.protocol}, we speak {messages.PROTOCOL_VERSION}")
        self.hello = hello
        devices = ", ".join(device.description for device in hello.devices)
        _log.info("engine: %s, devices: %s", hello.engine, devices or "CPU only")
        self._unsent[:0] = self.open_forgets * [encode_frame(messages.Forget())]
        self._begin(self.request, EngineState.LOADING if self.request else EngineState.EMPTY)

    # ------------------------------------------------------------ stalls

    def needs_ticks(self) -> bool:
        """Whether something can stall now."""
        return self.state is EngineState.STARTING or self.state.is_busy

    def tick(self) -> Stalled | None:
        """Another interval of ``timings.tick`` is over.

        Counting intervals and open pings, not time: after the machine slept, or the one that drives this hung itself,
        no time may be held against the engine.
        """
        self._ticks += 1
        stalled = self._stalled(self._overdue_seconds())
        if self.state.is_busy:
            self._open_pings += 1
            self._send(messages.Ping())
        return stalled

    def _overdue_seconds(self) -> float:
        """How long what should have come by now is awaited; 0 where nothing is overdue."""
        timings = self.timings
        if self.state is EngineState.STARTING:
            waited, patience = self._ticks * timings.tick, timings.start
        elif self._cancelled_at is not None:
            waited, patience = (self._ticks - self._cancelled_at) * timings.tick, timings.cancel
        else:
            waited, patience = self._open_pings * timings.tick, timings.silence
        return waited if waited >= patience else 0.0

    def _stalled(self, seconds: float) -> Stalled | None:
        if not seconds or self._told_stall:
            return None
        self._told_stall = True
        _log.warning("no response for %.0f s while %s", seconds, self.state.value)
        return Stalled(seconds)


def _length_of_same(first: Sequence[messages.Message], second: Sequence[messages.Message]) -> int:
    """How many messages both begin with."""
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return length
