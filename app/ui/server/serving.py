"""Lets other programs use the window's engine, one answer at a time, after everything the window itself wants.

Answers are interrupted whenever the window wants the engine (`app.ui.engine.queue`), and continue later. Loading
another pair fails what programs had asked of the previous one.
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
    AnswerRequested,
    AsideQuestion,
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
    """Joins the parts of an interrupted answer, so that the program sees a single one.

    Each part continues after the tokens of the previous ones with the same seed: under ``coupled``, the text is the
    same as without interruptions. Rounds are numbered continuously, times exclude the pauses, and the figures cover all
    parts.

    Attributes:
        client: The program's own name.
        tokens: The number of tokens so far.
        request: The server's number of the request.
    """

    def __init__(self, client: str, command: Generate) -> None:
        self.client = client
        self.request = command.request
        self._command = _dated(command)
        self._tokens: list[int] = []
        self._figures = Figures()
        """Of the finished parts."""
        self._started: GenerationStarted | None = None
        """What the program was told."""
        self.tokens = 0
        self._prompt_done = 0
        self._next_index = 0
        """The index of the next part's first round."""
        self._index_shift = 0
        self._time_shift = 0.0
        """Seconds from the start of the answer, without pauses, to the start of this part."""
        self._time = 0.0
        """Of the last round."""
        self._is_resuming = False
        """This part has no tokens yet, but earlier ones do."""
        self._held: list[Piece] = []
        """Text at the end of an interrupted part that may begin a stop string."""
        self._latest: deque[tuple[float, int]] = deque()
        """Times and token counts of the last seconds."""

    def tokens_per_second(self) -> float | None:
        """The speed over the last 3 s; ``None`` at the beginning."""
        if len(self._latest) < 2:
            return None
        seconds = self._latest[-1][0] - self._latest[0][0]
        return sum(tokens for _, tokens in list(self._latest)[1:]) / seconds if seconds > 0 else None

    def command(self) -> Generate:
        """The engine's next command."""
        left = self._command.max_tokens
        return msgspec.structs.replace(
            self._command,
            continued=[*self._command.continued, *self._tokens],
            max_tokens=None if left is None else max(left - len(self._tokens), 1),
        )

    # ------------------------------------------------------------ events of the current part

    def started(self, event: GenerationStarted) -> GenerationStarted | None:
        """The event for the program; ``None`` unless this is the first part."""
        self._command = msgspec.structs.replace(self._command, seed=event.seed)
        if self._started is not None:
            return None
        self._started = msgspec.structs.replace(event, request=self.request)
        return self._started

    def progressed(self, event: PromptProgressed) -> PromptProgressed | None:
        """The event for the program, which should see prompt processing only once."""
        if self._tokens or event.done <= self._prompt_done:
            return None
        self._prompt_done = event.done
        return msgspec.structs.replace(event, request=self.request)

    def advanced(self, event: RoundsReceived) -> RoundsReceived:
        """The rounds for the program."""
        return RoundsReceived(request=self.request, rounds=list(map(self._taken, event.rounds)))

    def interrupted(self, event: GenerationFinished) -> None:
        """This part is over; another will follow."""
        self._figures = joined(self._figures, event.figures)
        self._is_resuming = self.tokens > 0
        if not self._is_resuming:
            self._time_shift = self._figures.total_seconds
        self._index_shift = self._next_index

    def finished(self, event: GenerationFinished) -> list[RoundsReceived | GenerationFinished]:
        """The events for the program: held-back text, and the figures of all parts."""
        self._cut(event.stop_overlap)
        self._figures = joined(self._figures, event.figures)
        return self._end(event)

    def ended(self, reason: FinishReason) -> list[RoundsReceived | GenerationFinished]:
        """The final events if the answer ends between two parts."""
        return self._end(GenerationFinished(request=0, finish_reason=reason, figures=Figures()))

    def failed(self, event: GenerationFailed) -> list[GenerationFailed | RoundsReceived | GenerationFinished]:
        """The events for the program when a part fails. If only the last few tokens of the context are left after an
        interruption, the engine refuses to begin; then the answer ends as if the context were full.
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
        if self._is_resuming and round_.tokens:  # the prompt was processed again, and the pause isn't decoding either
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
        """Hold back text that an interrupted part ended with until it is clear that no stop string begins there."""
        if not (self._held or is_closing):
            return pieces
        self._held += pieces
        if is_closing or not any(piece.text for piece in pieces):
            return []
        released, self._held = self._held, []
        return released

    def _cut(self, characters: int) -> None:
        """Cut a stop string that begins in the held-back text."""
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
    """Fix the date that the template may write into the prompt, so that all parts have the same prompt."""
    messages = command.messages
    if not messages or any(message.sent_at is not None for message in messages):
        return command
    first = msgspec.structs.replace(messages[0], sent_at=time.time())
    return msgspec.structs.replace(command, messages=[first, *messages[1:]])


_log = logging.getLogger("slipstream.server")
_QUIT_MS = 2000


class ServerProcess(QObject):
    """The server's process; at most one at a time.

    Signals:
        received: A message of `app.protocol.serving.FromServer`.
        ended: The process ended unexpectedly.
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
        """Start the process with its configuration, ending a running one first."""
        self.stop()
        self._process.start(system.own_command("--role=server"), LogLines(), encode_frame(first))

    def send(self, message: ToServer) -> None:
        """Does nothing without a process. Raises `ProtocolError` if the message is too large."""
        self._process.write(encode_frame(message))

    def stop(self) -> None:
        """End the process, by force if necessary. Doesn't wait; ignores its messages from now on."""
        self._reader = FrameReader()
        self._process.end(_QUIT_MS)

    def close(self) -> None:
        """End the process for good, and wait until it is gone."""
        self._reader = FrameReader()
        self._process.close(_QUIT_MS)

    @Slot(object)
    def _on_output(self, data: bytes) -> None:
        reader = self._reader
        try:
            for body in reader.feed(data):
                self.received.emit(protocol.decode_from_server(body))
                if self._reader is not reader:
                    return  # the receiver ended it
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
    """The server's state."""

    kind: Literal["off", "starting", "listening", "failed"] = "off"
    addresses: tuple[tuple[str, int], ...] = ()
    message: str = ""
    """Why it failed, for the user."""


class Serving(QObject):
    """One for a window.

    Attributes:
        state: The server's state.
        answer: The answer for another program that is being written or waits; ``None`` without one.
        records: The last requests, oldest first, with their end in seconds since 1970.

    Signals:
        state_changed: `state` changed.
        answer_changed: `answer` changed, waits, continues, or moved in the queue.
        answer_advanced: `answer` has more tokens.
        request_ended: There is a new record.
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
        """The engine's job for `answer`."""
        self._told: PairServed | None = None
        self._questions: dict[int, int] = {}
        """The server's numbers of side questions, by the engine's."""
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
        """The id of the server's process; 0 if there is none."""
        return self._process.process_id()

    def is_writing(self) -> bool:
        """Whether the engine is working on `answer`, rather than on something else first."""
        return self._job is not None and self._job.is_running()

    def waits_for(self) -> list[Priority] | None:
        """What goes before `answer`, in order; ``None`` if it is being written or there is none."""
        return self._queue.before(self._job) if self._job is not None and not self.is_writing() else None

    def start(self, serve: Serve) -> None:
        """Serve with this configuration from now on; `state` shows what happens."""
        self._drop()
        self._serve = serve
        self._notice_list.remove(NOTICE)
        self._set_state(ServerState("starting"))
        self._told = None
        self._process.start(serve)
        self._tell_pair()

    @Slot()
    def restart(self) -> None:
        """Start the server again after its process ended."""
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
        """Stop serving for good, and wait until the process is gone."""
        self.stop()
        self._process.close()

    @Slot()
    def stop_answer(self) -> None:
        """End the answer that is being written; the program gets what there is of it."""
        if self.answer is not None and self._job is not None and self._queue.cancel(self._job):
            self._end(*self.answer.ended("cancelled"))

    # ------------------------------------------------------------ requests of programs

    @Slot(object)
    def _on_received(self, message: object) -> None:
        match message:
            case Listening():
                self._set_state(ServerState("listening", tuple(message.addresses)))
            case NotListening():
                self._fail(message.message)
            case AnswerRequested():
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
        """Cancel the current answer without telling anybody."""
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

    # ------------------------------------------------------------ events of the engine

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
        """Tell the server which pair is loaded; requests for another pair fail."""
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
