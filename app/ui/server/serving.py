"""Lets other programs use the window's engine: one answer at a time, behind everything the window itself wants.

Its answers are interrupted for whatever the window wants (`app.ui.engine.queue`), and go on where they were. Whoever
loads another pair ends what other programs had asked of the one before.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, Signal, Slot

from app import system
from app.client.connection import ExitCause, LogLines
from app.protocol import serving as protocol
from app.protocol.commands import CheckText, CountPrompt, Generate, Tokenize
from app.protocol.events import (
    Figures,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    Piece,
    PromptProgressed,
    Round,
    RoundsReceived,
)
from app.protocol.frames import FrameReader, ProtocolError, encode_frame
from app.protocol.options import FinishReason
from app.protocol.serving import (
    AnsweredQuestion,
    AsideQuestion,
    Asked,
    GivenUp,
    Listening,
    NotListening,
    PairServed,
    RequestEnded,
    Serve,
    ToServer,
    Unavailable,
)
from app.protocol.statistics import joined
from app.ui import notices
from app.ui.engine import Priority
from app.ui.engine.client import ChildProcess, CrashTracker, EngineClient, EngineState
from app.ui.engine.pair import PairLoader
from app.ui.engine.queue import EngineQueue, Job
from app.ui.notices import NoticeList

_LIVE_SECONDS = 3.0


class ServedAnswer:
    """What the engine is asked for the next part, and what the program is told of all parts together.

    A part continues behind the tokens of those before it, with the same seed: under ``coupled`` the text is the same as
    if nothing had happened. The program sees one answer: its rounds are numbered through, their times leave out the
    pauses, and the figures are those of all parts.

    Attributes:
        client: The program, by its own name.
        tokens: How many there are so far.
        request: The number under which the program's server knows it.
    """

    def __init__(self, client: str, command: Generate) -> None:
        self.client = client
        self.request = command.request
        self._command = _dated(command)
        self._tokens: list[int] = []
        self._figures = Figures()
        """Of the parts that are over."""
        self._started: GenerationStarted | None = None
        """As the program heard of it."""
        self.tokens = 0
        self._prompt_done = 0
        self._next_index = 0
        """The index of the next part's first round."""
        self._index_shift = 0
        self._time_shift = 0.0
        """Seconds from the beginning of the whole, without the pauses, to that of this part."""
        self._time = 0.0
        """Of the last round."""
        self._is_resuming = False
        """This part has no tokens yet, but others have."""
        self._held: list[Piece] = []
        """Text that an interrupted part ended with: it may be the beginning of a stop string."""
        self._latest: deque[tuple[float, int]] = deque()
        """Times and tokens of the last seconds."""

    def tokens_per_second(self) -> float | None:
        """The tokens of the last 3 s ÷ that time; ``None`` at the beginning."""
        if len(self._latest) < 2:
            return None
        seconds = self._latest[-1][0] - self._latest[0][0]
        return sum(tokens for _, tokens in list(self._latest)[1:]) / seconds if seconds > 0 else None

    def command(self) -> Generate:
        """What to ask the engine for now."""
        left = self._command.max_tokens
        return msgspec.structs.replace(
            self._command,
            continued=[*self._command.continued, *self._tokens],
            max_tokens=None if left is None else max(left - len(self._tokens), 1),
        )

    # ------------------------------------------------------------ what the engine says of this part

    def started(self, event: GenerationStarted) -> GenerationStarted | None:
        """The event for the program; ``None`` if an earlier part has already started the answer."""
        self._command = msgspec.structs.replace(self._command, seed=event.seed)
        if self._started is not None:
            return None
        self._started = msgspec.structs.replace(event, request=self.request)
        return self._started

    def progressed(self, event: PromptProgressed) -> PromptProgressed | None:
        """The event for the program, which sees the prompt processed once only."""
        if self._tokens or event.done <= self._prompt_done:
            return None
        self._prompt_done = event.done
        return msgspec.structs.replace(event, request=self.request)

    def advanced(self, event: RoundsReceived) -> RoundsReceived:
        """The rounds as the program gets them."""
        return RoundsReceived(request=self.request, rounds=list(map(self._taken, event.rounds)))

    def interrupted(self, event: GenerationFinished) -> None:
        """This part is over; there will be another one."""
        self._figures = joined(self._figures, event.figures)
        self._is_resuming = self.tokens > 0
        if not self._is_resuming:
            self._time_shift = self._figures.total_seconds
        self._index_shift = self._next_index

    def finished(self, event: GenerationFinished) -> list[RoundsReceived | GenerationFinished]:
        """The events for the program: text that was held back, and the figures of all parts."""
        self._cut(event.stop_overlap)
        self._figures = joined(self._figures, event.figures)
        return self._end(event)

    def ended(self, reason: FinishReason) -> list[RoundsReceived | GenerationFinished]:
        """The same where no further part comes to its end."""
        return self._end(GenerationFinished(request=0, finish_reason=reason, figures=Figures()))

    def failed(self, event: GenerationFailed) -> list[GenerationFailed | RoundsReceived | GenerationFinished]:
        """The events for the program when a part fails. After an interruption the context has no room for the last few
        tokens: the engine wants some free before it begins. Then the answer ends as if the context were full.
        """
        if self._tokens and event.prompt_tokens:
            return [*self.ended("context")]
        return [msgspec.structs.replace(event, request=self.request)]

    # ------------------------------------------------------------ inside

    def _end(self, event: GenerationFinished) -> list[RoundsReceived | GenerationFinished]:
        told: list[RoundsReceived | GenerationFinished] = []
        if self._held:
            last = Round(index=self._next_index, verify_passes=0, pieces=self._held, time=self._time)
            told.append(RoundsReceived(request=self.request, rounds=[last]))
        figures = self._figures
        if (prompt := self._started) is not None:
            counts = {"prompt_tokens": prompt.prompt_tokens, "cached_tokens": prompt.cached_tokens}
            figures = msgspec.structs.replace(figures, **counts)
        whole = msgspec.structs.replace(event, request=self.request, figures=figures, stop_overlap=0, curve=[])
        return [*told, whole]

    def _taken(self, round_: Round) -> Round:
        if self._is_resuming and round_.tokens:  # its prompt was processed again; the wait isn't decoding either
            self._is_resuming = False
            self._time_shift = self._time - round_.time
        round_ = msgspec.structs.replace(
            round_,
            index=round_.index + self._index_shift,
            time=round_.time + self._time_shift,
            pieces=[self._renumbered(piece) for piece in round_.pieces],
        )
        self._next_index, self._time = round_.index + 1, round_.time
        self._tokens += (piece.id for piece in round_.pieces)
        self._count(round_)
        is_closing = not (round_.tokens or round_.verify_passes)
        return msgspec.structs.replace(round_, pieces=self._released(round_.pieces, is_closing=is_closing))

    def _renumbered(self, piece: Piece) -> Piece:
        return msgspec.structs.replace(piece, round=piece.round + self._index_shift) if self._index_shift else piece

    def _released(self, pieces: list[Piece], *, is_closing: bool) -> list[Piece]:
        """Holds back the text that an interrupted part ended with, until further text shows that no stop string begins
        there."""
        if not (self._held or is_closing):
            return pieces
        self._held += pieces
        if is_closing or not any(piece.text for piece in pieces):
            return []
        released, self._held = self._held, []
        return released

    def _cut(self, characters: int) -> None:
        """Take the beginning of a stop string from what is held."""
        for place in range(len(self._held) - 1, -1, -1):
            piece = self._held[place]
            if piece.thinking or characters <= 0:
                continue
            self._held[place] = msgspec.structs.replace(piece, text=piece.text[: max(len(piece.text) - characters, 0)])
            characters -= len(piece.text)

    def _count(self, round_: Round) -> None:
        self.tokens += round_.tokens
        if round_.tokens:
            self._latest.append((round_.time, round_.tokens))
            while len(self._latest) > 2 and self._latest[-1][0] - self._latest[0][0] > _LIVE_SECONDS:
                self._latest.popleft()


def _dated(command: Generate) -> Generate:
    """Fixes the time that a template may write into the prompt, so that all parts have the same prompt."""
    messages = command.messages
    if not messages or any(message.sent_at is not None for message in messages):
        return command
    first = msgspec.structs.replace(messages[0], sent_at=time.time())
    return msgspec.structs.replace(command, messages=[first, *messages[1:]])


_log = logging.getLogger("slipstream.server")
_QUIT_MS = 2000


class ServerProcess(QObject):
    """At most one process at a time.

    Signals:
        received: A message of `app.protocol.serving.FromServer`.
        ended: The process ended although nobody had asked it to.
    """

    received = Signal(object)
    ended = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._reader = FrameReader()
        self._process = ChildProcess(self)
        self._process.output_received.connect(self._on_output)
        self._process.ended.connect(self._on_ended)

    def process_id(self) -> int:
        """0 when there is none."""
        return self._process.process_id()

    def start(self, first: Serve) -> None:
        """Start the process, with what it needs to know first; one that is running is ended before."""
        self.stop()
        self._process.start(system.own_command("--role=server"), LogLines(), encode_frame(first))

    def send(self, message: ToServer) -> None:
        """Nothing happens when there is no process. Raises `ProtocolError` for what is too large."""
        self._process.write(encode_frame(message))

    def stop(self) -> None:
        """End the process, by force if it doesn't end by itself. Doesn't wait; its messages are ignored from now on."""
        self._reader = FrameReader()
        self._process.end(_QUIT_MS)

    def close(self) -> None:
        """The same for the last time; returns when the process is gone."""
        self._reader = FrameReader()
        self._process.close(_QUIT_MS)

    @Slot(object)
    def _on_output(self, data: bytes) -> None:
        reader = self._reader
        try:
            for body in reader.feed(data):
                self.received.emit(protocol.decode_from_server(body))
                if self._reader is not reader:
                    return  # ended by whoever received it
        except ProtocolError as error:
            _log.error("protocol violation: %s", error)
            self._process.kill()

    @Slot(object, str)
    def _on_ended(self, cause: ExitCause, detail: str) -> None:
        _log.warning("the server's process ended: %s (%s)", cause.value, detail)
        self._reader = FrameReader()
        self.ended.emit()


NOTICE = "api server"
MOST_RECORDS = 50
_LOADING = "Slipstream is loading a model. Try again in a moment."
_NO_MODEL = "No model is loaded in Slipstream's window."
_REMOTE = "Slipstream's window is using a model on another server, which other programs can't use through it."
_ENDED = "The engine of Slipstream's window has stopped. Restart it there."


@dataclass(frozen=True)
class ServerState:
    """What the server does."""

    kind: Literal["off", "starting", "listening", "failed"] = "off"
    addresses: tuple[tuple[str, int], ...] = ()
    message: str = ""
    """Why it failed, for the user."""


class Serving(QObject):
    """One for a window.

    Attributes:
        state: What the server does.
        answer: What is being written for another program, or waits; ``None`` if nothing is.
        records: The last requests, oldest first, each with its end in seconds since 1970.

    Signals:
        state_changed: `state` changed.
        answer_changed: `answer` changed, waits, goes on, or moved in the queue.
        answer_advanced: There are more tokens of it.
        request_ended: There is one more in `records`.
    """

    state_changed = Signal()
    answer_changed = Signal()
    answer_advanced = Signal()
    request_ended = Signal()

    def __init__(
        self,
        engine: EngineClient,
        queue: EngineQueue,
        pair_loader: PairLoader,
        notice_list: NoticeList,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.state = ServerState()
        self.answer: ServedAnswer | None = None
        self.records: deque[tuple[float, RequestEnded]] = deque(maxlen=MOST_RECORDS)
        self._engine = engine
        self._pair_loader = pair_loader
        self._notice_list = notice_list
        self._queue = queue
        self._process = ServerProcess(self)
        self._serve: Serve | None = None
        self._tracker = CrashTracker()
        self._job: Job | None = None
        """With which the engine is asked for `answer`."""
        self._told: PairServed | None = None
        self._questions: dict[int, int] = {}
        """The server's numbers of questions, by the engine's."""
        self._process.received.connect(self._on_received)
        self._process.ended.connect(self._on_process_ended)
        engine.state_changed.connect(self._on_engine_state_changed)
        queue.changed.connect(self._on_queue_changed)
        engine.text_checked.connect(self._on_question_answered)
        engine.prompt_counted.connect(self._on_question_answered)
        engine.tokenized.connect(self._on_question_answered)
        pair_loader.pair_changed.connect(self._tell_pair)

    # ------------------------------------------------------------ for the window

    def process_id(self) -> int:
        """Of the server's process; 0 if there is none."""
        return self._process.process_id()

    def is_writing(self) -> bool:
        """Whether the engine is busy with `answer`, which otherwise waits."""
        return self._job is not None and self._job.is_running()

    def waits_for(self) -> list[Priority] | None:
        """What goes before `answer`, the first one first; ``None`` while that is being written, or there is none."""
        return self._queue.before(self._job) if self._job is not None and not self.is_writing() else None

    def start(self, serve: Serve) -> None:
        """Serve like this from now on; what the server does is in `state`."""
        self._drop()
        self._serve = serve
        self._notice_list.remove(NOTICE)
        self._set_state(ServerState("starting"))
        self._told = None
        self._process.start(serve)
        self._tell_pair()

    @Slot()
    def restart(self) -> None:
        """Start the server again after its process has ended."""
        if self._serve is not None:
            self.start(self._serve)

    @Slot()
    def stop(self) -> None:
        """Stop serving. The process may take a moment to end."""
        self._serve = None
        self._drop()
        self._process.stop()
        self._notice_list.remove(NOTICE)
        self._set_state(ServerState())

    def close(self) -> None:
        """The same for the last time; returns when the process is gone."""
        self.stop()
        self._process.close()

    @Slot()
    def stop_answer(self) -> None:
        """End the answer that is being written; the program gets what there is of it."""
        if self.answer is not None and self._job is not None and self._queue.cancel(self._job):
            self._end(*self.answer.ended("cancelled"))

    # ------------------------------------------------------------ what programs ask for

    @Slot(object)
    def _on_received(self, message: object) -> None:
        match message:
            case Listening():
                self._set_state(ServerState("listening", tuple(message.addresses)))
            case NotListening():
                self._fail(message.message)
            case Asked():
                self._drop()
                self._ask(ServedAnswer(message.client, message.command))
            case GivenUp():
                if self.answer is not None and self.answer.request == message.request:
                    self._drop()
            case CheckText() | CountPrompt() | Tokenize():
                self._ask_aside(message)
            case RequestEnded():
                self.records.append((time.time(), message))
                self.request_ended.emit()

    def _ask_aside(self, question: AsideQuestion) -> None:
        try:
            number = self._engine.ask_aside(question)
        except ProtocolError:
            number = 0
        if number:
            self._questions[number] = question.request
        else:
            self._send(Unavailable(request=question.request))

    def _ask(self, answer: ServedAnswer) -> None:
        self._job = job = Job(answer.command, Priority.SERVED)
        job.started.connect(lambda event: self._send(answer.started(event)))
        job.prompt_progressed.connect(lambda event: self._send(answer.progressed(event)))
        job.rounds_received.connect(self._on_rounds_received)
        job.put_off.connect(answer.interrupted)
        job.answered.connect(lambda event: self._end(*answer.finished(event)))
        job.failed.connect(lambda event: self._end(*answer.failed(event)))
        job.lost.connect(lambda _what: self._end())
        self._set_answer(answer)
        self._queue.submit(job)

    def _drop(self) -> None:
        """Cancel what is being written; nobody is told."""
        job, self._job = self._job, None
        if job is not None:
            self._queue.drop(job)
        if self.answer is not None:
            self._set_answer(None)

    def _end(self, *messages: ToServer) -> None:
        self._job = None
        self._send(*messages)
        self._set_answer(None)

    def _set_answer(self, answer: ServedAnswer | None) -> None:
        self.answer = answer
        self.answer_changed.emit()

    # ------------------------------------------------------------ what the engine says

    @Slot()
    def _on_queue_changed(self) -> None:
        if self.answer is not None:
            self.answer_changed.emit()

    @Slot(object)
    def _on_rounds_received(self, event: RoundsReceived) -> None:
        if self.answer is not None:
            self._send(self.answer.advanced(event))
            self.answer_advanced.emit()

    @Slot(object)
    def _on_question_answered(self, event: AnsweredQuestion) -> None:
        if number := self._questions.pop(event.request, 0):
            self._send(msgspec.structs.replace(event, request=number))

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        if not state.has_pair:
            self._tell_pair()

    @Slot()
    def _tell_pair(self) -> None:
        """Tell the server what is loaded now, which fails whatever was asked of another pair."""
        pair = self._pair_loader.pair() if self._engine.state().has_pair else None
        why = ""
        if pair is not None and not pair.target.path:
            pair, why = None, _REMOTE
        elif pair is None:
            why = self._why_unavailable()
        served = PairServed(pair=pair, why=why)
        if served == self._told:
            return
        self._told = served
        self._questions.clear()
        self._drop()
        self._send(served)

    def _why_unavailable(self) -> str:
        state = self._engine.state()
        if state in (EngineState.LOADING, EngineState.STARTING) or self._pair_loader.is_planning():
            return _LOADING
        return _ENDED if state.has_ended else _NO_MODEL

    # ------------------------------------------------------------ the process

    def _send(self, *messages: ToServer | None) -> None:
        for message in messages:
            if message is not None:
                self._process.send(message)

    def _fail(self, message: str) -> None:
        self._set_state(ServerState("failed", message=message))
        self._notice_list.show(NOTICE, notices.api_server_failed(message))

    @Slot()
    def _on_process_ended(self) -> None:
        self._drop()
        if self.state.kind == "failed":
            return
        now = time.monotonic()
        self._tracker.record(now)
        if self._tracker.is_exhausted(now):
            self._set_state(ServerState("failed", message=notices.API_SERVER_ENDED))
            self._notice_list.show(NOTICE, notices.api_server_ended())
        else:
            self.restart()

    def _set_state(self, state: ServerState) -> None:
        self.state = state
        self.state_changed.emit()
