"""An answer is stored while it is being written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.ui.chat import answer_saver
from app.ui.chat.answer_saver import AnswerSaver
from app.ui.chat.model import ChatState
from tests.ui.parts import WAIT_MS, Rig


def test_what_is_written_is_stored_before_the_end(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_saver, "SAVE_INTERVAL_MS", 10)
    rig = Rig(qtbot, tmp_path, "endless")
    rig.load()
    rig.begin_answer("Go on")
    message_id = rig.model.messages[-1].id

    def stored_text() -> str:
        return next(one.text for one in rig.stored(lambda store: store.branch(rig.model.id)) if one.id == message_id)

    qtbot.waitUntil(lambda: stored_text() == "Hello there", timeout=WAIT_MS)
    assert rig.model.state is ChatState.ANSWERING
    rig.close()


class Idle:
    """A store that has nothing else to do, and counts what is written."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    def is_idle(self) -> bool:
        return True

    def write(self, _operation: Callable[..., object], *, replaces: str) -> None:
        self.writes.append(replaces)


@pytest.mark.parametrize(
    ("tokens", "intervals"), [(0, 0), (1, 1), (4999, 1), (5000, 2), (10_000, 3), (20_000, 5), (40_000, 5)]
)
def test_a_long_answer_is_saved_less_often_and_nothing_after_its_end(qapp: object, tokens: int, intervals: int) -> None:
    live = SimpleNamespace(
        message=SimpleNamespace(id="a"), pieces=[None] * tokens, stored_tokens=list, text=str, packed=list, thinking=str
    )
    owner, saver = QObject(), Idle()
    made = AnswerSaver(saver, owner)  # type: ignore[arg-type]
    made.begin(live)  # type: ignore[arg-type]
    for _ in range(2 * intervals or 9):
        made._on_due()
    assert saver.writes == (["answer"] * 2 if intervals else [])
    made.end()
    for _ in range(9):
        made._on_due()
    assert len(saver.writes) <= 2 and not made._timer.isActive()
