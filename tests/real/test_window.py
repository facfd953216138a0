"""A window that opens SmolLM2 as one does, asks it something, and shows what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.ui.chat.answer import AnswerMessage
from app.ui.engine.pair_files import PairFiles
from tests.ui.conftest import application, user
from tests.ui.shell.running import WAIT_MS, Running

__all__ = ["application", "user"]


@pytest.fixture
def running(qtbot: QtBot, user: Path) -> Iterator[Running]:
    running = Running(qtbot)
    running.begin()
    yield running
    running.close()


def test_it_answers(running: Running, smollm2_file: Path) -> None:
    loader, window = running.controller.pair_loader, running.window
    with running.qtbot.waitSignal(loader.pair_opened, timeout=WAIT_MS):
        loader.load(PairFiles(str(smollm2_file)), anyway=True)
    running.ready()
    pair = loader.pair()
    assert pair is not None and pair.template == "model"
    assert "135M · Q4_1" in window.top_bar.pair.toolTip()
    running.ask("Name three colors.")
    question, answer = running.model.messages
    assert question.text == "Name three colors." and answer.status == "complete" and answer.text.strip()
    widget = window.transcript.show_message(answer.id)
    assert isinstance(widget, AnswerMessage)
    running.qtbot.waitUntil(widget.is_drawn, timeout=WAIT_MS)
    assert widget.view.content == answer.text
    assert set(widget.view.toPlainText().split()) & set(answer.text.split())
