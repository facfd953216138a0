"""The whole window with more than one model: an answer is written again by another one, and models that are moved."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app import system
from app.settings import Pair
from app.ui.engine import EngineState
from tests.ui.shell.running import WAIT_MS
from tests.ui.shell.test_messages import Chatting


class WithAnother(Chatting):
    """A window whose settings know another pair: the guide's draft model, by itself."""

    NAME = "other.gguf"

    def __init__(self, qtbot: QtBot, draft: Path) -> None:
        super().__init__(qtbot)
        self.other = system.models_dir() / self.NAME
        self.other.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(draft, self.other)
        self.settings.values.remember_pair(Pair(str(self.other)))
        self.settings.values.last_pair = None
        self.begin()
        self.ready()

    def load_other(self) -> None:
        with self.qtbot.waitSignal(self.ctx.loader.pair_opened, timeout=WAIT_MS):
            self.actions.run("load_recent", self.settings.values.recent_pairs[0])


@pytest.fixture
def running(qtbot: QtBot, guide_pair: tuple[Path, Path]) -> Iterator[WithAnother]:
    window = WithAnother(qtbot, guide_pair[1])
    yield window
    window.close()


def test_another_model_writes_an_answer_again(running: WithAnother) -> None:
    running.ask("What is a draft model?")
    running.ask("And then?")
    first = running.model.messages[1]
    running.entries(1)["other"].trigger()
    running.qtbot.waitUntil(lambda: running.model.state.is_busy, timeout=WAIT_MS)
    running.settle()
    question, again = running.model.messages
    assert (again.version, again.versions) == (2, 2)
    assert again.pair != first.pair and again.status == "complete"
    assert running.answer(1).isVisible()
    # The model is loaded now; so the next time nothing is loaded.
    running.entries(1)["other"].trigger()
    assert running.model.state.is_busy
    running.settle()
    assert (running.model.messages[1].pair, running.model.messages[1].version) == (again.pair, 3)
    assert running.model.messages[0].id == question.id
    with running.qtbot.waitSignal(running.ctx.loader.pair_opened, timeout=WAIT_MS):
        running.choose("load_guide")
    asked = running.model
    running.entries(1)["other"].trigger()  # who goes to another chat meanwhile gets no answer there
    running.choose("new_chat")
    with running.qtbot.waitSignal(running.ctx.loader.pair_opened, timeout=WAIT_MS):
        pass
    running.settle()
    assert running.model is not asked and not running.model.messages
    assert asked.messages[1].versions == 3


@pytest.mark.allow_logs
def test_a_model_that_is_gone_leaves_the_answer_as_it_was(running: WithAnother, guide_pair: tuple[Path, Path]) -> None:
    running.ask("What is a draft model?")
    before = running.model.messages[-1]
    running.other.unlink()
    running.entries(1)["other"].trigger()
    notices = running.ctx.notices.notices
    running.qtbot.waitUntil(lambda: "load" in notices(), timeout=WAIT_MS)
    assert "other.gguf has been moved or deleted" in notices()["load"].text
    assert running.engine.state() is EngineState.READY
    running.settle()
    assert running.model.messages[-1] == before
    shutil.copy(guide_pair[1], running.other)
    running.load_other()  # loading it another time is no wish for an answer
    assert not running.model.state.is_busy and running.model.messages[-1] == before
