"""The trial of a new pair: once, while nobody waits, and kept. With a scripted engine in a real process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.models.measurements import FileKey, StoredTrial, Trial, trials_file
from app.ui.compare.trial import PairTrial
from app.ui.engine import EngineState
from tests.ui.parts import WAIT_MS, Rig

MakeTried = Callable[[str], "Tried"]


class Tried:
    """A chat with a pair, and what tries it out."""

    def __init__(self, qtbot: QtBot, folder: Path, behavior: str) -> None:
        self.qtbot = qtbot
        self.rig = Rig(qtbot, folder, behavior)
        self.trials = trials_file(folder)
        self.trial = PairTrial(self.rig.ctx, self.trials)
        self.told: list[Trial] = []
        self.trial.tried.connect(self.told.append)

    def key(self) -> tuple[FileKey, FileKey]:
        return FileKey.of(self.rig.target), FileKey.of(self.rig.draft)

    def runs(self) -> None:
        self.qtbot.waitUntil(lambda: self.rig.engine.state() is EngineState.COMPARING, timeout=WAIT_MS)

    def rests(self) -> None:
        """Wait until there is nothing to try any more."""
        self.qtbot.waitUntil(
            lambda: not (self.trial._runner and self.trial._runner.is_running()) and self.trial._lane.is_idle(),
            timeout=WAIT_MS,
        )

    def close(self) -> None:
        self.rig.close()
        self.trial.deleteLater()


@pytest.fixture
def tried(qtbot: QtBot, tmp_path: Path) -> Iterator[MakeTried]:
    made: list[Tried] = []

    def make(behavior: str) -> Tried:
        made.append(Tried(qtbot, tmp_path, behavior))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_new_pair_is_tried_once_and_the_trial_is_kept(tried: MakeTried, qtbot: QtBot) -> None:
    one = tried("compare")
    with qtbot.waitSignal(one.trial.tried, timeout=WAIT_MS) as told:
        one.rig.load()
    (trial,) = told.args
    assert (trial.plain_speed, trial.drafted_speed) == (40.0, 80.0)
    assert trial.acceptance_rate == pytest.approx(5 / 7)
    assert trial.speed_up == 2.0
    for trials in (one.trials, trials_file(one.rig.folder)):
        assert trials.get(one.key()) == StoredTrial(*one.key(), trial)
    one.rests()
    one.rig.load()
    one.rests()
    assert len(one.told) == 1


def test_a_message_comes_first_and_the_trial_begins_again(tried: MakeTried, qtbot: QtBot) -> None:
    one = tried("compare endless")
    one.rig.load()
    one.runs()
    one.rig.begin_answer("Hello?")
    assert one.rig.engine.state() is EngineState.ANSWERING
    with qtbot.waitSignal(one.rig.model.answer_ended, timeout=WAIT_MS):
        one.rig.model.stop()
    assert one.rig.page.texts()[-1] == "Hello there, my friend."
    one.runs()
    assert one.told == []


def test_another_pair_ends_the_trial(tried: MakeTried) -> None:
    one = tried("compare endless")
    one.rig.load()
    one.runs()
    one.rig.pair_loader.pair_changed.emit(None)
    one.rests()
    assert one.told == []
