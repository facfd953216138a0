"""Who has the engine, in thousands of random orders: nothing is lost, doubled, starved, or goes before its turn.

The engine here is played without a process, so that an order takes a millisecond; with real processes the queue is
tested where it is used (chats, comparisons, other programs). ``SLIPSTREAM_SEQUENCES`` says how many orders are tried,
``SLIPSTREAM_SEED`` repeats them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from PySide6.QtCore import QObject, Signal

from app.client.connection import EngineState, Question
from app.protocol.commands import Generate, MeasurePlain, ScoreTokens
from app.protocol.events import (
    Figures,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainMeasured,
    PromptProgressed,
    Round,
    RoundsReceived,
    TokensScored,
)
from app.protocol.frames import ProtocolError
from app.ui.engine import Priority
from app.ui.engine.queue import EngineQueue, Job, Loss

SEQUENCES = int(os.environ.get("SLIPSTREAM_SEQUENCES") or 600)
STEPS = 60
CHAT, MEASUREMENT, COMPARISON, SERVED, TRIAL = Priority
TOO_LARGE = 10**9
"""Tokens of a question that can't be sent."""


class PlayedEngine(QObject):
    """Does what an engine does, one step at a time."""

    generation_started = Signal(object)
    prompt_progressed = Signal(object)
    rounds_received = Signal(object)
    generation_finished = Signal(object)
    generation_failed = Signal(object)
    plain_measured = Signal(object)
    tokens_scored = Signal(object)
    state_changed = Signal(EngineState)

    def __init__(self) -> None:
        super().__init__()
        self._state = self._told = EngineState.EMPTY
        self._is_telling = False
        self.question: Question | None = None
        self.request = self._left = 0
        self.is_canceled = False
        self.sent: dict[int, int] = {}
        """Rounds by request."""

    def state(self) -> EngineState:
        return self._state

    def ask(self, question: Question, *, compared: bool = False, served: bool = False) -> int:
        assert self._state is EngineState.READY, "it is asked for two things at a time"
        left = (question.max_tokens or 0) if isinstance(question, Generate) else 1
        if left == TOO_LARGE:
            raise ProtocolError("too large")
        self.request += 1
        self.question, self._left, self.is_canceled = question, left, False
        busy = EngineState.COMPARING if compared else EngineState.SERVING if served else EngineState.ANSWERING
        self.become(busy)
        return self.request

    def cancel(self) -> None:
        self.is_canceled = True

    def stop_thinking(self) -> None:
        pass

    def become(self, state: EngineState) -> None:
        """Tell a state after what led there, in order."""
        self._state = state
        while not self._is_telling and self._told is not self._state:
            self._told, self._is_telling = self._state, True
            self.state_changed.emit(self._told)
            self._is_telling = False

    def step(self, dice: random.Random) -> None:
        """A pass, or the end of what it does."""
        if self.question is None:
            return
        request = self.request
        if self.is_canceled:
            self._end(self.generation_finished, finished(request, "cancelled"))
        elif isinstance(self.question, MeasurePlain):
            measured = PlainMeasured(request=request, tokens=9, decode_tokens_per_second=40.0)
            self._end(self.plain_measured, measured)
        elif isinstance(self.question, ScoreTokens):
            self._end(self.tokens_scored, TokensScored(request=request, logits=[], scores=[]))
        elif dice.random() < 0.05:
            self._end(self.generation_failed, GenerationFailed(request=request, message="no"))
        elif self._left:
            self._left -= 1
            if request not in self.sent:
                self.generation_started.emit(GenerationStarted(request=request, seed=1, prompt_tokens=1))
                self.prompt_progressed.emit(PromptProgressed(request=request, done=1, total=1))
            self.sent[request] = self.sent.get(request, 0) + 1
            self.rounds_received.emit(RoundsReceived(request=request, rounds=[Round(index=0, verify_passes=1)]))
        else:
            self._end(self.generation_finished, finished(request, "stop"))

    def _end(self, signal: Any, event: object) -> None:
        """The state is another one before the event is told, as `Connection` has it."""
        self.question, self._state = None, EngineState.READY
        signal.emit(event)
        self.become(self._state)

    def stop(self, state: EngineState) -> None:
        """What it does is over, and it says nothing more of it."""
        self.question = None
        self.become(state)


class PlayedLoader(QObject):
    engine_lost = Signal()
    pair_given_up = Signal()
    pair_refused = Signal()

    def __init__(self, engine: PlayedEngine) -> None:
        super().__init__()
        self._engine = engine
        self.has_pair = True
        self.plans = False
        self.is_wanted = 0
        """How often a chat asked to have the engine back."""

    def is_planning(self) -> bool:
        return self.plans

    def pair(self) -> object:
        return self if self.has_pair and self._engine.state().has_pair else None

    def bring_back(self) -> None:
        self.is_wanted += 1

    def load(self) -> None:
        if self.pair() is not None:
            self.has_pair = False
            self.pair_given_up.emit()
            self.has_pair = True
        self._engine.stop(EngineState.LOADING)

    def crash(self) -> None:
        self._engine.stop(EngineState.DIED)
        self.engine_lost.emit()


def finished(request: int, reason: Any) -> GenerationFinished:
    return GenerationFinished(request=request, finish_reason=reason, figures=Figures())


def question(tokens: int) -> Generate:
    return Generate(request=0, messages=[], max_tokens=tokens)


class Wanted:
    """Somebody's job, and everything that was heard of it."""

    def __init__(self, world: World, priority: Priority, tokens: int) -> None:
        self.world = world
        self.tokens = tokens
        self.done = 0
        """Rounds that count: a trial begins anew."""
        self.asked: list[int] = []
        self.ends: list[str] = []
        self.was_put_off = 0
        self.in_series = priority in (COMPARISON, TRIAL)
        self._plan: Iterator[Question] = iter(())
        self.job = job = Job(self._ask, priority, in_series=self.in_series)
        job.rounds_received.connect(self._on_rounds)
        job.answered.connect(lambda event: self._on_end("answered", event))
        job.failed.connect(lambda event: self._on_end("failed", event))
        job.put_off.connect(self._on_put_off)
        job.lost.connect(self._on_lost)

    def _steps(self) -> Iterator[Question]:
        match self.job.priority:
            case Priority.MEASUREMENT:
                yield MeasurePlain(request=0, messages=[])
            case Priority.COMPARISON | Priority.TRIAL:
                yield question(self.tokens)
                yield question(self.tokens)
                yield ScoreTokens(request=0, messages=[], answer=[1], candidates=[1, 2])
            case Priority.SERVED:
                yield question(max(self.tokens - self.done, 0))
            case _:
                yield question(self.tokens)

    def _ask(self) -> Question | None:
        self.world.note_turn(self)
        if not self.asked or not self.in_series:
            self._plan = self._steps()
        found = next(self._plan, None)
        if found is None:
            self.ends.append("done")
        else:
            self.asked.append(self.world.engine.request + 1)
        return found

    def _on_rounds(self, event: RoundsReceived) -> None:
        assert self.is_open() and event.request == self.asked[-1]
        self.done += len(event.rounds)

    def _on_end(self, what: str, _event: object) -> None:
        assert self.is_open()
        if not self.in_series or self.job.is_canceled:
            self.ends.append(what)
        if what == "answered" and self.world.dice.random() < 0.2:
            self.world.want()  # the next message was waiting for this

    def _on_put_off(self, _event: object) -> None:
        assert self.is_open() and self.job.priority.makes_room and not self.job.is_canceled
        self.was_put_off += 1
        if self.in_series:
            self.asked.clear()

    def _on_lost(self, what: Loss) -> None:
        assert self.is_open()
        self.ends.append(f"lost: {what}")

    def is_open(self) -> bool:
        return not self.ends

    def cancel(self) -> None:
        if self.world.queue.cancel(self.job):
            self.ends.append("withdrawn")

    def drop(self) -> None:
        if self.is_open():
            self.ends.append("dropped")
        self.world.queue.drop(self.job)


class World:
    """A queue, its engine and all who want something of it, in a random order."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.engine = PlayedEngine()
        self.loader = PlayedLoader(self.engine)
        self.queue = EngineQueue(self.engine, self.loader, idle_ms=10**8)  # type: ignore[arg-type]
        self.all: list[Wanted] = []

    def want(self) -> None:
        chosen = self.dice.choice([CHAT, CHAT, *Priority])
        tokens = TOO_LARGE if chosen is CHAT and self.dice.random() < 0.02 else self.dice.randrange(5)
        if self.engine.state().has_pair or chosen is CHAT:  # else it is told at once that there is no model
            self.all.append(one := Wanted(self, chosen, tokens))
            self.queue.submit(one.job)

    def open(self) -> list[Wanted]:
        return [one for one in self.all if one.is_open()]

    def note_turn(self, one: Wanted) -> None:
        """Nobody who waits goes before this one, unless it has the engine already."""
        if not (one.in_series and one.asked):
            waiting = [other.job.place for other in self.open() if other is not one and not other.job.is_running()]
            assert all(place > one.job.place for place in waiting if place[1])

    def act(self) -> None:
        """One thing that may happen."""
        acts: list[tuple[int, Callable[[], object]]] = [
            (9, self.want),
            (16, lambda: self.engine.step(self.dice)),
            (3, self.queue._idle.timeout.emit),
            (2, lambda: self._any(Wanted.cancel)),
            (1, lambda: self._any(Wanted.drop)),
            (1, self.loader.load),
            (1, self.loader.crash),
            (3, self._load_if_none),
        ]
        self.dice.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()
        self.check()

    def _any(self, act: Callable[[Wanted], None]) -> None:
        if self.all:
            act(self.dice.choice(self.all))

    def _load_if_none(self) -> None:
        if not self.engine.state().has_pair:
            self.engine.stop(EngineState.READY)

    def check(self) -> None:
        running = [one for one in self.open() if one.job.is_running()]
        assert len(running) <= 1
        waiting = [one for one in self.open() if not one.job.is_running()]
        if running and not self.engine.is_canceled:
            ahead = [one for one in waiting if one.job.priority < running[0].job.priority]
            assert not (running[0].job.priority.makes_room and ahead), "it keeps the engine"
        if self.engine.state() is EngineState.READY:
            assert all(one.job.priority is TRIAL for one in waiting), "the engine is free, and somebody waits"
        if not self.engine.state().has_pair:
            assert all(one.job.priority is CHAT for one in waiting)
        for one in self.all:
            assert len(one.ends) <= 1
            assert one.job.is_over or one.is_open()
            assert len(self.queue.before(one.job)) <= len(self.open())

    def finish(self) -> None:
        """Nobody wants anything more: all that is open comes to its end."""
        self._load_if_none()
        steps = 0
        while self.open():
            self.engine.step(self.dice)
            self.queue._idle.timeout.emit()
            steps += 1
            assert steps < 100 * len(self.all), "somebody is starved"
        self.check()
        for one in self.all:
            rounds = sum(self.engine.sent.get(request, 0) for request in one.asked)
            whole = one.ends[0] == "answered" and not one.job.is_canceled
            if whole and one.job.priority in (CHAT, SERVED):
                assert one.done == rounds == one.tokens


def play(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(STEPS):
        world.act()
    world.finish()


@pytest.mark.usefixtures("qapp")
def test_in_any_order_nothing_is_lost_doubled_or_starved() -> None:
    seed = int(os.environ.get("SLIPSTREAM_SEED") or random.randrange(10**9))
    for number in range(SEQUENCES):
        try:
            play(seed + number)
        except Exception as error:
            raise AssertionError(f"SLIPSTREAM_SEED={seed + number} SLIPSTREAM_SEQUENCES=1") from error


@pytest.fixture
def world(qapp: object) -> World:
    made = World(random.Random(0))
    made.engine.stop(EngineState.READY)
    return made


def want(world: World, priority: Priority, tokens: int = 3) -> Wanted:
    one = Wanted(world, priority, tokens)
    world.all.append(one)
    world.queue.submit(one.job)
    return one


def test_who_waits_knows_what_goes_first(world: World) -> None:
    first, second, measured, served = (want(world, one) for one in (CHAT, CHAT, MEASUREMENT, SERVED))
    before = partial(map, lambda one: world.queue.before(one.job))
    assert list(before((first, second, measured, served))) == [[], [CHAT], [CHAT, CHAT], [CHAT, CHAT, MEASUREMENT]]
    first.drop()
    assert world.queue.before(second.job) == []  # the engine still has to end the one before
    world.engine.step(world.dice)
    assert second.job.is_running()
    assert world.queue.before(served.job) == [CHAT, MEASUREMENT]


def test_a_message_brings_back_an_engine_that_died(world: World) -> None:
    first, second = want(world, CHAT), want(world, CHAT)
    measured = want(world, MEASUREMENT)
    world.loader.crash()
    assert first.ends == measured.ends == ["lost: engine"] and second.is_open()
    assert world.loader.is_wanted == 1
    want(world, CHAT)
    assert world.loader.is_wanted == 2


@pytest.mark.allow_logs
def test_a_bug_in_what_somebody_asks_keeps_nobody_waiting(world: World) -> None:
    def fail() -> Question | None:
        raise RuntimeError("a bug")

    busy, broken, next_one = want(world, CHAT, 0), Wanted(world, CHAT, 0), Wanted(world, CHAT, 0)
    broken.job.ask = fail
    for one in (broken, next_one):
        world.queue.submit(one.job)
    world.engine.step(world.dice)
    assert busy.ends == ["answered"] and broken.ends == ["lost: bug"]
    world.engine.step(world.dice)
    assert next_one.ends == ["answered"]


def test_nothing_goes_to_the_pair_before_the_one_that_is_wanted(world: World) -> None:
    """It may be on somebody else's computer, and the message meant for this one."""
    world.loader.has_pair = False
    chat = want(world, CHAT, 0)
    assert not chat.asked
    world.loader.load()
    world.loader.has_pair = True
    world.engine.stop(EngineState.READY)
    assert chat.job.is_running()


def test_what_waits_for_the_first_pair_gets_it_or_hears_that_there_is_none(qapp: object) -> None:
    world = World(random.Random(0))
    world.loader.plans = True
    first, second = want(world, COMPARISON, 0), want(world, COMPARISON, 0)
    world.engine.stop(EngineState.EMPTY)
    assert first.is_open()
    world.loader.load()
    world.engine.stop(EngineState.READY)
    assert first.job.is_running()
    first.drop()
    second.drop()
    other = World(random.Random(0))
    other.loader.plans = True
    waiting = want(other, COMPARISON, 0)
    other.loader.plans = False
    other.loader.pair_refused.emit()
    assert waiting.ends == ["lost: engine"]
