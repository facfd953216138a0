"""Lets other programs use the window's engine: one answer at a time, behind everything the window itself wants.

A chat never waits for another program longer than one pass: the program's answer is interrupted, and goes on where it
was when the chat has its own. Comparisons and measurements are waited for, too; they aren't interrupted. Whoever loads
another pair ends what other programs had asked of the one before.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.protocol.commands import CheckText, CountPrompt, Tokenize
from app.protocol.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    PromptProgressed,
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
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.crash_tracker import CrashTracker
from app.ui.engine.pair import PairLoader
from app.ui.notices import NoticeList
from app.ui.server.answer import ServedAnswer
from app.ui.server.process import ServerProcess

NOTICE = "api server"
MOST_RECORDS = 50
_AGAIN_MS = 250
_TOO_LONG = "A message of this chat is too long."
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
        answer_changed: `answer` is another one, or goes on, or waits.
        answer_advanced: There are more tokens of it.
        engine_wanted: A program waits for the engine: a trial should make room.
        request_ended: There is one more in `records`.
    """

    state_changed = Signal()
    answer_changed = Signal()
    answer_advanced = Signal()
    engine_wanted = Signal()
    request_ended = Signal()

    def __init__(
        self,
        engine: EngineClient,
        pair_loader: PairLoader,
        notice_list: NoticeList,
        is_wanted: Callable[[], bool],
        command: Sequence[str] | None = None,
        parent: QObject | None = None,
    ) -> None:
        """``is_wanted``: whether the window wants the engine for itself; `go_on` reports that it no longer does, and
        `interrupt` that it does. ``command``: what to run in the server's place.
        """
        super().__init__(parent)
        self.state = ServerState()
        self.answer: ServedAnswer | None = None
        self.records: deque[EndedRequest] = deque(maxlen=MOST_RECORDS)
        self._engine = engine
        self._pair_loader = pair_loader
        self._notice_list = notice_list
        self._is_wanted = is_wanted
        self._process = ServerProcess(command, self)
        self._serve: Serve | None = None
        self._tracker = CrashTracker()
        self._request = 0
        """The last one that the engine was asked."""
        self._running: ServedAnswer | None = None
        """What the engine writes; ``None`` also while it only ends what isn't wanted any more."""
        self._told: PairServed | None = None
        self._questions: dict[int, int] = {}
        """The server's numbers of questions, by the engine's."""
        self._again = QTimer(self, singleShot=True, interval=_AGAIN_MS)
        """Somebody may want the engine and leave it without a change of its state."""
        self._again.timeout.connect(self._go_on)
        self._process.received.connect(self._on_received)
        self._process.ended.connect(self._on_process_ended)
        engine.state_changed.connect(self._on_engine_state_changed)
        engine.generation_started.connect(self._on_generation_started)
        engine.prompt_progressed.connect(self._on_prompt_progressed)
        engine.rounds_received.connect(self._on_rounds_received)
        engine.generation_finished.connect(self._on_generation_finished)
        engine.generation_failed.connect(self._on_generation_failed)
        engine.text_checked.connect(self._on_question_answered)
        engine.prompt_counted.connect(self._on_question_answered)
        engine.tokenized.connect(self._on_question_answered)
        pair_loader.pair_changed.connect(self._on_pair_changed)
        pair_loader.engine_lost.connect(lambda: self._on_pair_changed(None))

    # ------------------------------------------------------------ for the window

    def process_id(self) -> int:
        """Of the server's process; 0 if there is none."""
        return self._process.process_id()

    def is_writing(self) -> bool:
        """Whether the engine is busy with `answer`, which otherwise waits."""
        return self._running is not None

    def is_own(self, request: int) -> bool:
        """Whether this request of the engine is another program's."""
        return request != 0 and request == self._request

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
    def interrupt(self) -> None:
        """The window wants the engine: it is free within one pass."""
        if self.is_writing():
            self._engine.cancel()

    @Slot()
    def stop_answer(self) -> None:
        """The user wants no more of what is being written: the program gets what there is."""
        answer = self.answer
        if answer is None:
            return
        answer.is_stopped = True
        if self.is_writing():
            self._engine.cancel()
        else:
            self._send(*answer.ended("cancelled"))
            self._set_answer(None)

    @Slot()
    def go_on(self) -> None:
        """Let the engine write if it is free."""
        QTimer.singleShot(0, self, self._go_on)  # whoever tells us may want it for something else first

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
                self._set_answer(ServedAnswer(message.client, message.command))
                self.engine_wanted.emit()
                self._go_on()
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

    @Slot()
    def _go_on(self) -> None:
        answer = self.answer
        if answer is None or self._engine.state() is not EngineState.READY:
            return
        if self._is_wanted():
            self._again.start()
            return
        try:
            self._request = self._engine.ask(answer.command(), served=True)
        except ProtocolError:
            self._send(GenerationFailed(request=answer.request, message=_TOO_LONG))
            self._set_answer(None)
        else:
            self._running = answer
            self.answer_changed.emit()

    def _drop(self) -> None:
        """Nobody wants what is being written any more."""
        self.interrupt()
        self._running = None
        if self.answer is not None:
            self._set_answer(None)

    def _set_answer(self, answer: ServedAnswer | None) -> None:
        self.answer = answer
        self.answer_changed.emit()

    # ------------------------------------------------------------ what the engine says

    def _answer_to(self, request: int) -> ServedAnswer | None:
        """What the engine writes for another program, if this is its request."""
        return self._running if request == self._request else None

    @Slot(object)
    def _on_generation_started(self, event: GenerationStarted) -> None:
        if (answer := self._answer_to(event.request)) is not None:
            self._send(answer.started(event))

    @Slot(object)
    def _on_prompt_progressed(self, event: PromptProgressed) -> None:
        if (answer := self._answer_to(event.request)) is not None:
            self._send(answer.progressed(event))

    @Slot(object)
    def _on_rounds_received(self, event: RoundsReceived) -> None:
        if (answer := self._answer_to(event.request)) is not None:
            self._send(answer.advanced(event))
            self.answer_advanced.emit()

    @Slot(object)
    def _on_generation_finished(self, event: GenerationFinished) -> None:
        if (answer := self._answer_to(event.request)) is None:
            return
        self._running = None
        if event.finish_reason == "cancelled" and not answer.is_stopped:
            answer.interrupted(event)
            self.answer_changed.emit()
        else:
            self._send(*answer.finished(event))
            self._set_answer(None)

    @Slot(object)
    def _on_generation_failed(self, event: GenerationFailed) -> None:
        if (answer := self._answer_to(event.request)) is not None:
            self._running = None
            self._send(*answer.failed(event))
            self._set_answer(None)

    @Slot(object)
    def _on_question_answered(self, event: AnsweredQuestion) -> None:
        if number := self._questions.pop(event.request, 0):
            self._send(msgspec.structs.replace(event, request=number))

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        if state is EngineState.READY:
            self.go_on()
        elif not state.has_pair:
            self._tell_pair()

    @Slot(object)
    def _on_pair_changed(self, _pair: PairLoaded | None) -> None:
        self._tell_pair()

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
        self._told, self._running = served, None
        self._questions.clear()
        if self.answer is not None:
            self._set_answer(None)
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
