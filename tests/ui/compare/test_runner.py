"""Answers written plain and with draft by an engine that the chat uses too; scripted engines in real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.compare.prompts import Prompt
from app.compare.results import Comparison, Skipped
from app.compare.steps import Task, task_of
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Message, generate
from app.ui.compare.runner import DIED, ENGINE_LOST, NO_PAIR, PAIR_GIVEN_UP, End, Runner
from app.ui.engine import EngineState
from tests.ui.compare.conftest import MakeRig
from tests.ui.parts import WAIT_MS, Rig
from tests.ui.scripted_engine import OTHER_WORDS, PLAIN_WORDS

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@dataclass
class Heard:
    """What a runner said, in order."""

    runs: list[tuple[int, bool]] = field(default_factory=list)
    compared: list[Comparison] = field(default_factory=list)
    left_out: list[Skipped] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    rounds: int = 0


@dataclass
class Bench:
    """A runner beside a chat, and what it said."""

    rig: Rig
    runner: Runner
    heard: Heard = field(default_factory=Heard)

    def __post_init__(self) -> None:
        runner, heard = self.runner, self.heard
        runner.run_begun.connect(lambda number, drafted: heard.runs.append((number, drafted)))
        runner.compared.connect(heard.compared.append)
        runner.left_out.connect(heard.left_out.append)
        runner.ended.connect(heard.ends.append)
        runner.rounds_received.connect(self._count)

    def _count(self, rounds: list[Any]) -> None:
        self.heard.rounds += len(rounds)

    def wait(self) -> End:
        self.rig.qtbot.waitUntil(lambda: not self.runner.is_running(), timeout=WAIT_MS)
        return self.heard.ends[-1]


@pytest.fixture
def owner() -> Iterator[QObject]:
    parent = QObject()
    yield parent
    parent.deleteLater()


def bench(rig: Rig, owner: QObject) -> Bench:
    return Bench(rig, Runner(rig.engine, rig.queue, owner))


def task(text: str = "Hi", seed: int = 1) -> Task:
    prompt = Prompt(kind="prose", messages=[Message(role="user", content=text)])
    return Task(prompt, generate(AnswerSettings(), prompt.messages, seed=seed))


@pytest.mark.parametrize(("behavior", "is_tie"), [("compare differ", True), ("compare differ far", False)])
def test_where_the_answers_part_the_target_is_asked_again(
    make_rig: MakeRig, owner: QObject, behavior: str, is_tie: bool
) -> None:
    at = bench(make_rig(behavior), owner)
    at.runner.start_one(task())
    at.wait()
    difference = at.heard.compared[0].difference
    assert difference is not None
    assert difference.token == 4
    assert (difference.plain, difference.drafted) == (PLAIN_WORDS[4], OTHER_WORDS[4])
    assert difference.plain_logit == 17.31
    assert difference.near_tie is is_tie


@pytest.mark.parametrize("behavior", ["compare differ unscored", "compare differ nameless"])
def test_an_engine_that_cannot_tell_more_leaves_the_difference_as_it_is(
    make_rig: MakeRig, owner: QObject, behavior: str
) -> None:
    at = bench(make_rig(behavior), owner)
    at.runner.start_one(task())
    assert at.wait() == End("done")
    difference = at.heard.compared[0].difference
    assert difference is not None
    assert difference.near_tie is None
    assert (difference.token is None) == ("nameless" in behavior)
    assert difference.character == len("Hello there, my f")


def test_in_a_set_the_runs_take_turns_at_being_first(make_rig: MakeRig, owner: QObject) -> None:
    at = bench(make_rig("compare"), owner)
    at.runner.start_set([task("A", 4), task("B", 4), task("A", 5), task("B", 5)])
    assert at.wait() == End("done")
    plain, drafted = False, True
    assert at.heard.runs == [
        *((0, plain), (0, drafted), (1, drafted), (1, plain)),
        *((2, drafted), (2, plain), (3, plain), (3, drafted)),
    ]
    assert [one.seed for one in at.heard.compared] == [4, 4, 5, 5]


def test_a_message_is_answered_between_two_prompts_and_the_set_goes_on(make_rig: MakeRig, owner: QObject) -> None:
    at = bench(make_rig("compare"), owner)
    order: list[str] = []
    at.runner.compared.connect(lambda _: order.append("compared"))
    at.rig.model.answer_ended.connect(lambda: order.append("answer"))

    def send(number: int, drafted: bool) -> None:
        if (number, drafted) == (0, True):
            with at.rig.qtbot.waitSignal(at.rig.queue.changed, timeout=WAIT_MS):  # it waits when it is stored
                at.rig.model.send("And now?")

    at.runner.run_begun.connect(send)
    at.runner.start_set([task(seed=seed) for seed in range(8)])
    assert at.wait() == End("done")
    assert len(at.heard.compared) == 8
    assert 0 < order.index("answer") < 7
    assert at.rig.page.texts() == ["And now?", "".join(PLAIN_WORDS)]


def test_without_a_model_nothing_begins(qtbot: QtBot, make_rig: MakeRig, owner: QObject) -> None:
    at = bench(make_rig("compare"), owner)
    at.rig.engine.restart()
    at.runner.start_one(task())
    assert at.runner.waits_for() == []
    assert at.wait() == End("failed", NO_PAIR)
    assert at.rig.engine.state() is EngineState.EMPTY
    at.runner.start_one(task())
    assert at.heard.ends == [End("failed", NO_PAIR)] * 2


def test_a_prompt_the_engine_refuses_is_left_out(make_rig: MakeRig, owner: QObject) -> None:
    at = bench(make_rig("compare picky"), owner)
    tasks = [task("This is too long"), task("Short"), task("Also too long")]
    at.runner.start_set([*tasks, *(task_of(one.prompt, one.command, 2) for one in tasks)])
    assert at.wait() == End("done")
    assert [one.prompt.title for one in at.heard.compared] == ["Short", "Short"]
    assert [one.prompt.title for one in at.heard.left_out] == ["This is too long", "Also too long"]
    assert "9,000" in at.heard.left_out[0].reason
    at.runner.start_one(task("Far too long"))
    end = at.wait()
    assert end.kind == "failed"
    assert "9,000" in end.message


@posix
@pytest.mark.allow_logs
def test_an_engine_that_dies_ends_it(make_rig: MakeRig, owner: QObject) -> None:
    at = bench(make_rig("compare dies"), owner)
    at.runner.start_one(task())
    assert at.wait() == End("failed", ENGINE_LOST)
    assert at.heard.compared == []
    at.runner.start_one(task())
    assert at.wait() == End("failed", DIED)


def test_another_pair_ends_it(qtbot: QtBot, make_rig: MakeRig, owner: QObject) -> None:
    at = bench(make_rig("compare endless"), owner)
    at.runner.start_one(task())
    with qtbot.waitSignal(at.runner.rounds_received, timeout=WAIT_MS):
        pass
    at.rig.load()
    assert at.wait() == End("failed", PAIR_GIVEN_UP)
    assert at.rig.engine.state() is EngineState.READY
