"""Decides who uses the engine, who is next, and who makes room for whom."""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.client.connection import Question
from app.protocol.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainMeasured,
    PromptProgressed,
    RoundsReceived,
    TokensScored,
)
from app.protocol.frames import ProtocolError
from app.ui.engine import EngineState, Priority
from app.ui.engine.client import EngineClient

if TYPE_CHECKING:
    from app.ui.engine.pair import PairLoader

_log = logging.getLogger(__name__)

IDLE_MS = 1500
"""A trial starts when nothing else has used the engine for this long."""
TOO_LONG = "A message of this chat is too long."
Ask = Callable[[], Question | None]
LastEvent = GenerationFinished | GenerationFailed | PlainMeasured | TokensScored
"""The last event of a question."""
Loss = Literal["engine", "pair", "bug"]


class Wait(NamedTuple):
    """What a waiting job waits for, as worded for a message, a comparison, and another program."""

    message: str
    comparison: str
    program: str = "engine"


_SOON = Wait("in a moment", "in a moment")
_BEHIND = {
    Priority.CHAT: Wait("after the answer in the other chat", "when the answer in the chat has finished", "chat"),
    Priority.MEASUREMENT: Wait("once the measurement is done", "after the measurement", "measurement"),
    Priority.COMPARISON: Wait("once the current comparison is done", "in a moment", "comparison"),
}
_LOADING = Wait("once the model is loaded", "when the pair is loaded")
_EMPTY = Wait("once a model is loaded", "when the pair is loaded")
_WITHOUT_PAIR = {
    EngineState.STARTING: _LOADING,
    EngineState.LOADING: _LOADING,
    EngineState.EMPTY: _EMPTY,
    EngineState.STOPPED: _EMPTY,
    EngineState.DIED: Wait("once the engine is running again", "when the pair is loaded"),
}


def wait_for(before: Sequence[Priority], state: EngineState = EngineState.READY) -> Wait:
    """What a job waits for. ``before``: see `EngineQueue.before`. A message says nothing while the engine is free."""
    if not before:
        return _WITHOUT_PAIR.get(state, _SOON._replace(message=""))
    wait, chats = _BEHIND.get(before[0], _SOON), before.count(Priority.CHAT)
    return wait._replace(message=f"after the answers in {chats} other chats") if chats > 1 else wait


class Job(QObject):
    """A use of the engine: one question, or a series that keeps the engine until its end.

    Attributes:
        is_over: Nothing more follows.

    Signals:
        started, prompt_progressed, rounds_received: The engine's event.
        answered: The last event of a question: `GenerationFinished`, `PlainMeasured` or `TokensScored`.
        failed: The `GenerationFailed` of a question.
        put_off: It was interrupted and waits again, after the last event of its question; a series starts over.
        lost: It is over: the ``engine`` is gone, another ``pair`` is loaded, or a ``bug`` kept it from asking.
    """

    started = Signal(object)
    prompt_progressed = Signal(object)
    rounds_received = Signal(object)
    answered = Signal(object)
    failed = Signal(object)
    put_off = Signal(object)
    lost = Signal(str)

    def __init__(self, ask: Ask, priority: Priority, *, in_series: bool = False) -> None:
        """``ask`` is called when it is the job's turn, also again after an interruption, and ``in_series`` after each
        answer. If it returns ``None``, there is nothing more to ask and the job is over.
        """
        super().__init__()
        self.priority = priority
        self.ask = ask
        self.in_series = in_series
        self.request = 0
        """The engine's number of its current question; 0 while it waits."""
        self.is_over = False
        self.is_canceled = False
        self.is_cut = False
        """It is being interrupted for something that goes first."""
        self.place = (priority, 0)

    def is_running(self) -> bool:
        """Whether the engine is working on it."""
        return self.request != 0


class EngineQueue(QObject):
    """Schedules all work of an engine; nothing else submits, delays or interrupts answers.

    The order is: chats, measurements, comparisons, other programs, trials; equals go in the order they came. Answers
    for other programs and trials are interrupted for anything that goes before them. Without a model chats wait;
    everything else is lost.

    Signals:
        changed: A job came, began, waits again or ended, so the order may have changed.
        answered: A `Job` and the last event of one of its questions; right before the job's own signal.
    """

    changed = Signal()
    answered = Signal(object, object)

    def __init__(
        self, engine: EngineClient, loader: PairLoader, parent: QObject | None = None, *, idle_ms: int = IDLE_MS
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._loader = loader
        self._waiting: list[Job] = []
        """In order."""
        self._running: dict[int, Job] = {}
        """By request."""
        self._last = 0
        self._at: Job | None = None
        """A series between two questions, which keeps the engine although it is free."""
        self._was_idle = False
        """Only trials have wanted the engine for a while."""
        self._idle = QTimer(self, singleShot=True, interval=idle_ms)
        self._idle.timeout.connect(self._on_idle)
        for goes_on in (engine.generation_started, engine.prompt_progressed, engine.rounds_received):
            goes_on.connect(self._on_progress)
        for ended in (
            engine.generation_finished,
            engine.generation_failed,
            engine.plain_measured,
            engine.tokens_scored,
        ):
            ended.connect(self._on_ended)
        engine.state_changed.connect(self._on_state_changed)
        loader.engine_lost.connect(lambda: self._on_lost("engine"))
        loader.pair_given_up.connect(lambda: self._on_lost("pair"))
        loader.pair_refused.connect(lambda: self._on_state_changed(engine.state()))

    # ------------------------------------------------------------ jobs

    def submit(self, job: Job) -> None:
        """Queue a job; it may start at once."""
        self._last += 1
        job.place = (job.priority, self._last)
        self._wait(job)
        self._go_on()
        self._bring_back()

    def cancel(self, job: Job) -> bool:
        """Cancel a job: `Job.answered` still follows for a running one. Returns ``True`` if it only waited, and is
        over.
        """
        if job.request:
            job.is_canceled = True
            self._engine.cancel()
            return False
        was_open = not job.is_over
        self.drop(job)
        return was_open

    def drop(self, job: Job) -> None:
        """End a job at once, without emitting anything."""
        if not job.is_over:
            if job.request:
                self._engine.cancel()
            self._end(job)

    def cancel_all(self) -> None:
        for job in list(self._running.values()):
            self.cancel(job)

    def stop_thinking(self, job: Job) -> None:
        """Let its answer begin, if the model is still thinking."""
        if job.request:
            self._engine.stop_thinking()

    def before(self, job: Job) -> list[Priority]:
        """The jobs that go before a waiting job, in order."""
        if job.is_over or job.request:
            return []
        ahead = [one for one in self._waiting if one.place < job.place]
        return [one.priority for one in (*self._running.values(), *ahead)]

    # ------------------------------------------------------------ scheduling

    def _wait(self, job: Job) -> None:
        job.request, job.is_cut = 0, False
        insort(self._waiting, job, key=lambda one: one.place)
        self._note_change(job)

    def _end(self, job: Job) -> None:
        job.is_over = True
        job.deleteLater()  # also removes its connections
        self._running.pop(job.request, None)
        if job in self._waiting:
            self._waiting.remove(job)
        job.request = 0
        self._note_change(job)

    def _note_change(self, job: Job) -> None:
        if job.priority is not Priority.TRIAL:
            self._set_busy()
        self.changed.emit()

    def _set_busy(self) -> None:
        self._was_idle = False
        self._idle.stop()

    def _go_on(self) -> None:
        """Start the first job if the engine is free; otherwise interrupt what makes room for it."""
        while self._waiting and self._at is None:
            first = self._waiting[0]
            if self._running or not self._is_ready():
                self._make_room(first)
                return
            if first.priority is Priority.TRIAL and not self._was_idle:
                if not self._idle.isActive():
                    self._idle.start()
                return
            self._waiting.pop(0)
            self._ask(first)

    def _is_ready(self) -> bool:
        """Whether the engine is free and the loaded pair isn't being replaced."""
        return self._engine.state() is EngineState.READY and self._loader.pair() is not None

    def _make_room(self, first: Job) -> None:
        for job in self._running.values():
            if job.priority.makes_room and first.priority < job.priority and not job.is_cut:
                job.is_cut = True
                self._engine.cancel()

    def _bring_back(self) -> None:
        """Restart a dead engine if a chat waits."""
        if self._waiting and self._waiting[0].priority is Priority.CHAT and not self._running:
            self._loader.bring_back()

    def _ask(self, job: Job) -> None:
        """Ask a job's first question, or the next one of a series."""
        self._at = job
        try:
            question = job.ask()
        except Exception:
            _log.exception("a job couldn't say what to ask")  # it must not block the jobs behind it
            self._lose("bug", [job])
        finally:
            self._at = None
        if job.is_over:
            return  # dropped or lost meanwhile
        if question is None:
            self._end(job)
            return
        compared, served = job.priority in (Priority.COMPARISON, Priority.TRIAL), job.priority is Priority.SERVED
        try:
            job.request = self._engine.ask(question, compared=compared, served=served)
        except ProtocolError:
            self._over(job, GenerationFailed(request=0, message=TOO_LONG))
        else:
            self._running[job.request] = job
            self.changed.emit()

    @Slot()
    def _on_idle(self) -> None:
        self._was_idle = not self._running
        self._go_on()

    # ------------------------------------------------------------ events of the engine

    @Slot(object)
    def _on_progress(self, event: GenerationStarted | PromptProgressed | RoundsReceived) -> None:
        if (job := self._running.get(event.request)) is not None:
            match event:
                case GenerationStarted():
                    job.started.emit(event)
                case PromptProgressed():
                    job.prompt_progressed.emit(event)
                case RoundsReceived():
                    job.rounds_received.emit(event)

    @Slot(object)
    def _on_ended(self, event: LastEvent) -> None:
        job = self._running.pop(event.request, None)
        if job is not None:
            job.request = 0
            self._over(job, event)
        self._go_on()

    def _over(self, job: Job, event: LastEvent) -> None:
        """A question of the job has ended."""
        was_cut = isinstance(event, GenerationFinished) and event.finish_reason == "cancelled"
        if job.is_cut and not job.is_canceled and (was_cut or job.in_series):
            self._wait(job)
            job.put_off.emit(event)
            return
        goes_on = job.in_series and not job.is_canceled
        if goes_on:
            self._at = job
        else:
            self._end(job)
        self.answered.emit(job, event)
        (job.failed if isinstance(event, GenerationFailed) else job.answered).emit(event)
        if goes_on:
            self._at = None
            if not job.is_over:
                self._ask(job)

    @Slot(EngineState)
    def _on_state_changed(self, state: EngineState) -> None:
        if not state.has_pair:
            self._set_busy()
        if state.has_ended or (state is EngineState.EMPTY and not self._loader.is_planning()):
            self._lose("engine", [one for one in self._waiting if one.priority is not Priority.CHAT])
        self._go_on()

    def _on_lost(self, what: Loss) -> None:
        """Waiting chats keep waiting."""
        running = list(self._running.values())
        waiting = [one for one in self._waiting if one.priority is not Priority.CHAT]
        self._lose(what, [*running, *waiting, *([self._at] if self._at is not None else [])])
        self._go_on()
        if running:
            self._bring_back()

    def _lose(self, what: Loss, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if not job.is_over:
                self._end(job)
                job.lost.emit(what)
