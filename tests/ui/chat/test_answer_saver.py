"""An answer is stored while it is being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.ui.chat import answer_saver
from app.ui.chat.model import ChatState
from tests.ui.parts import WAIT_MS, Rig


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """An answer comes to a few words, and never ends by itself."""
    monkeypatch.setattr(answer_saver, "SAVE_INTERVAL_MS", 10)
    made = Rig(qtbot, tmp_path, "endless")
    made.load()
    made.begin_answer("Go on")
    yield made
    made.close()


def stored_text(rig: Rig) -> str:
    message_id = rig.model.messages[-1].id
    return next(one.text for one in rig.stored(lambda store: store.branch(rig.model.id)) if one.id == message_id)


def test_what_is_written_is_stored_before_the_end(rig: Rig) -> None:
    rig.qtbot.waitUntil(lambda: stored_text(rig) == "Hello there", timeout=WAIT_MS)
    assert rig.model.state is ChatState.ANSWERING


def test_after_the_end_nothing_more_is_saved(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = rig.model._answer_saver
    rig.model.stop()
    rig.settle()
    writes: list[str] = []
    monkeypatch.setattr(saver._saver, "write", lambda _write, *, replaces: writes.append(replaces))
    saver._on_due()
    assert not writes and not saver._timer.isActive()


@pytest.mark.parametrize(("tokens", "intervals"), [(1, 1), (4999, 1), (5000, 2), (10_000, 3), (40_000, 5)])
def test_a_long_answer_is_saved_less_often(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tokens: int, intervals: int
) -> None:
    live, saver = rig.model.live, rig.model._answer_saver
    assert live is not None and len(live.pieces) == 1
    saver._timer.stop()
    rig.qtbot.waitUntil(rig.model.saver.is_idle, timeout=WAIT_MS)
    monkeypatch.setattr(live, "pieces", live.pieces * tokens)
    writes: list[str] = []
    monkeypatch.setattr(saver._saver, "write", lambda _write, *, replaces: writes.append(replaces))
    saver.begin(live)
    saver._timer.stop()
    for _ in range(2 * intervals):
        saver._on_due()
    assert writes == ["answer"] * 2
    monkeypatch.undo()  # the end of the answer is stored again
