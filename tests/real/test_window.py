"""A window that opens SmolLM2 as one does, asks it something, and shows what it answers; also as the starter model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.models import starter
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.transcript import STARTER_EXAMPLES
from app.ui.engine.pair_names import PairFiles
from tests.ui.conftest import application, user
from tests.ui.shell.running import WAIT_MS, Running, button

__all__ = ["application", "user"]


@pytest.fixture
def running(qtbot: QtBot, user: Path) -> Iterator[Running]:
    running = Running(qtbot)
    running.begin()
    yield running
    running.close()


def test_it_answers(running: Running, smollm2_file: Path) -> None:
    loader, window = running.ctx.loader, running.window
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


@pytest.mark.usefixtures("user", "guide_pair")
def test_from_the_card_of_the_first_start_to_an_answer_of_the_starter_model(
    qtbot: QtBot, smollm2_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter, "_places", lambda: [smollm2_file])
    running = Running(qtbot)
    running.begin()
    running.ready()
    loader, transcript = running.ctx.loader, running.window.transcript
    with qtbot.waitSignal(loader.pair_opened, timeout=WAIT_MS):
        button(transcript, "Use the starter model").click()
    running.ready()
    settings = running.ctx.chats.answers.settings(running.model.settings)
    assert (settings.sampling.temperature, settings.sampling.top_p) == (0.2, 0.9)
    button(transcript, "Rewrite a sentence").click()
    qtbot.waitUntil(lambda: running.model.state.is_busy or len(running.model.messages) == 2, timeout=WAIT_MS)
    running.done()
    question, answer = running.model.messages
    assert question.text == STARTER_EXAMPLES["Rewrite a sentence"]
    assert answer.status == "complete" and "coffee" in answer.text
    running.close()
