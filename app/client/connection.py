"""The protocol with an engine, without I/O: commands go in and frames come out, bytes go in and events come out.

The caller transfers the bytes and calls `Connection.tick` at regular intervals. Nothing that comes from an engine is
trusted: a frame that is too large, isn't an event or arrives before the greeting ends the connection (`ProtocolError`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator, Sequence

import msgspec

from app.client.sent_chat import PART_CHARACTERS, SentChat, longest_text
from app.client.stalls import Stalled, StallWatch, Timings
from app.client.state import EngineExit, EngineState, ExitCause, LogLines
from app.protocol.commands import (
    Cancel,
    Command,
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
from app.protocol.frames import FrameReader, ProtocolError
from app.protocol.framing import decode_event, encode_frame
from app.protocol.remote import Connect, FindServers, Probe, ServerProbed, ServersFound
from app.protocol.serving import AsideQuestion

_log = logging.getLogger("slipstream.engine")

Question = Generate | MeasurePlain | ScoreTokens
"""What a loaded pair can be asked to do. The connection fills in ``request``."""
_BUSY_WITH = {
    Generate: EngineState.ANSWERING,
    MeasurePlain: EngineState.MEASURING,
    ScoreTokens: EngineState.COMPARING,
}
_LEADS_TO: dict[type[Event], EngineState] = {
    PairLoaded: EngineState.READY,
    LoadFailed: EngineState.EMPTY,
    GenerationFinished: EngineState.READY,
    GenerationFailed: EngineState.READY,
    PlainMeasured: EngineState.READY,
    TokensScored: EngineState.READY,
}
"""The state of the engine after a request's last event."""


class Connection:
    """What is said to one engine process after the other, and what they say.

    Attributes:
        state: Where the engine is; set before an event that leads there is given out.
        request: The current request; 0 when there is none.
        hello: The greeting of the process that runs.
        log: What it wrote to its standard error.
        open_forgets: Those that no process has carried out yet.

    Questions (`count_tokens`, `ask_aside`, `search`) have numbers of their own and make nothing busy.
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
        self._open_counts: set[int] = set()
        """The newest `CountTokens`, until it is answered: the engine may skip older ones."""
        self._open_questions: set[int] = set()
        """The others about the pair."""
        self._open_searches: set[int] = set()
        """Those about servers, which need no pair."""
        self._chat = SentChat()
        self._reader = FrameReader()
        self._unsent: deque[Command] = deque()
        self._fault: tuple[ExitCause, str] | None = None
        """What the engine did wrong or reported before it ended, which explains more than its exit code."""
        self._watch = StallWatch(self.timings)

    # ------------------------------------------------------------ a process begins and ends

    def start(self) -> None:
        """A process is being started."""
        self._reset(EngineState.STARTING)
        self._reader, self.log, self._fault = FrameReader(), LogLines(), None

    def stop(self) -> None:
        """The process has ended, or is being ended, on request."""
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
        self._open_questions.clear()
        self._open_searches.clear()
        self._chat.forget()
        self._begin(0, state)

    def _begin(self, request: int, state: EngineState) -> None:
        self.request, self.state = request, state
        self._watch.begin()

    # ------------------------------------------------------------ commands

    def load(self, command: Load | Connect) -> int:
        """Load a pair, or use a server's model; returns the number of the request.

        Whatever was loaded or being loaded is dropped. The process must be starting or running.
        """
        self._open_counts.clear()
        self._open_questions.clear()
        if self.hello is None:
            self._unsent = deque(one for one in self._unsent if not isinstance(one, Load | Connect))
        elif self.state.is_busy:
            self._send(Cancel())
        return self._ask(command, EngineState.LOADING if self.hello else self.state)

    def ask(self, command: Question, *, compared: bool = False, served: bool = False) -> int:
        """Send a request; returns its number. ``compared``, ``served``: the answer doesn't belong to a chat, but to a
        comparison or to another program.

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
        """Stop whatever is running. A load that hasn't been sent yet ends at once, with the returned event."""
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
        """Let the answer that is being written begin, if the model still thinks."""
        if self.state in (EngineState.ANSWERING, EngineState.COMPARING, EngineState.SERVING):
            self._send(StopThinking())

    def forget(self, chats: Collection[str] = ()) -> None:
        """Have erased what is left of these chats, or of all; a process that is starting is told after its greeting."""
        self.open_forgets.append(Forget(chats=list(chats)))
        self._chat.forget()
        if self.hello is not None:
            self._send(self.open_forgets[-1])

    def read_memory(self) -> None:
        """Ask how much memory is in use now, if there is a process to ask."""
        if self.hello is not None:
            self._send(ReadMemory())

    def count_tokens(self, question: CountTokens) -> int:
        """The number of the question; 0 if nothing is loaded that could count, or a message is too large to be sent.

        An older question that is still open is never answered.
        """
        is_short = len(question.text) + sum(map(len, question.parts)) <= longest_text()
        number = self._next_question() if is_short else 0
        if number:
            self._open_counts = {number}
            try:
                kept, rest = self._send_beginning(question.messages)
            except ProtocolError:
                return 0
            self._send(msgspec.structs.replace(question, request=number, messages=rest, kept=kept))
        return number

    def search(self, question: Probe | FindServers) -> int:
        """The number of the question. The process must be starting or running, and be one for servers."""
        self._last_question += 1
        self._open_searches.add(self._last_question)
        self._send(msgspec.structs.replace(question, request=self._last_question))
        return self._last_question

    def ask_aside(self, question: AsideQuestion) -> int:
        """The number of the question; 0 if nothing is loaded that could answer it. Raises `ProtocolError` for one that
        is too large to be sent."""
        encode_frame(question)
        number = self._next_question()
        if number:
            self._open_questions.add(number)
            self._send(msgspec.structs.replace(question, request=number))
        return number

    def _next_question(self) -> int:
        if not self.state.has_pair:
            return 0
        self._last_question += 1
        return self._last_question

    def _send_beginning(self, chat: Sequence[Message]) -> tuple[int, list[Message]]:
        """Send what is new of a chat; returns what goes with the command that is about it (`SentChat.beginning`)."""
        parts, kept, rest = self._chat.beginning(chat)
        self._unsent.extend(parts)
        return kept, rest

    def _send(self, command: Command) -> None:
        self._unsent.append(command)

    def bytes_to_send(self) -> bytes:
        """Some of what is to be written to the process; call it until there is nothing more. Nothing before the process
        has sent its greeting."""
        data = b""
        while self.is_sending() and len(data) < PART_CHARACTERS // 2:
            data += encode_frame(self._unsent.popleft())
        return data

    def is_sending(self) -> bool:
        """Whether there is something to be written now."""
        return self.hello is not None and bool(self._unsent)

    # ------------------------------------------------------------ what the engine sends

    def receive(self, data: bytes) -> Iterator[Event | Stalled]:
        """The events in more output, which may be cut anywhere; events of outdated requests are left out.

        A process that violates the protocol must be ended; nothing it sends counts any more. Raises `ProtocolError`.
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
                    return  # the event made someone start another process
        except ProtocolError as error:
            _log.error("protocol violation: %s", error)
            self._fault = ExitCause.PROTOCOL, str(error)
            raise

    def _taken(self, event: Event) -> Event | Stalled | None:
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
            case TokensCounted() | PromptCounted() | TextChecked() | Tokenized() | ServerProbed() | ServersFound():
                return event if self._is_awaited(event) else None
            case _ if event.request != self.request:
                return None
            case _ if (state := _LEADS_TO.get(type(event))) is not None:
                self._begin(0, state)
        return event

    def _is_awaited(
        self, event: TokensCounted | PromptCounted | TextChecked | Tokenized | ServerProbed | ServersFound
    ) -> bool:
        """Whether someone is still waiting for this answer; removes the question."""
        awaited = self._open_questions
        if isinstance(event, TokensCounted):
            awaited = self._open_counts
        elif isinstance(event, ServerProbed | ServersFound):
            awaited = self._open_searches
        if event.request not in awaited:
            return False
        awaited.remove(event.request)
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
        """Whether anything can stall now."""
        return self.state is EngineState.STARTING or self.state.is_busy

    def tick(self) -> Stalled | None:
        """Another interval of ``timings.tick`` has passed."""
        stalled = self._watch.tick(self.state)
        if self.state.is_busy:
            self._send(Ping())
        return stalled
