"""Lets other programs use the window's engine: one answer at a time, behind everything the window itself wants.

Its answers are interrupted for whatever the window wants (`app.ui.engine.queue`), and go on where they were. Whoever
loads another pair ends what other programs had asked of the one before.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, Signal, Slot

from app.protocol.commands import CheckText, CountPrompt, Tokenize
from app.protocol.events import (
    RoundsReceived,
)
from app.protocol.frames import ProtocolError
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
from app.ui import notices
from app.ui.engine import Priority
from app.ui.engine.child_process import CrashTracker
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.pair import PairLoader
from app.ui.engine.queue import EngineQueue, Job
from app.ui.notices import NoticeList
from app.ui.server.answer import ServedAnswer
from app.ui.server.process import ServerProcess

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


@dataclass(frozen=True)
class EndedRequest:
    """A request that was answered or refused."""

    at: float
    """Seconds since 1970."""
    how: RequestEnded


class Serving(QObject):
    """One for a window.

    Attributes:
        state: What the server does.
        answer: What is being written for another program, or waits; ``None`` if nothing is.
        records: The last requests, oldest first.

    Signals:
        state_changed: `state` is another one.
        answer_changed: `answer` is another one, or goes on, or waits, or has another place.
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
        self.records: deque[EndedRequest] = deque(maxlen=MOST_RECORDS)
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
        """The same again, after it has ended."""
        if self._serve is not None:
            self.start(self._serve)

    @Slot()
    def stop(self) -> None:
        """Serve nobody any more. The process may take a moment to end."""
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
        """The user wants no more of what is being written: the program gets what there is."""
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
                self.records.append(EndedRequest(time.time(), message))
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
        """Nobody wants what is being written any more."""
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
        """What is loaded now. Whatever was asked of another pair has failed; the server knows that, too."""
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
