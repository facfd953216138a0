"""A model that thinks in the whole window, with a real engine: its thinking ends on request, is stopped, goes on, is
limited, is found again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chats.model import to_json
from app.chats.settings import ChatSettings
from app.chats.store import ChatStore
from app.protocol.answering import SamplingChoice
from app.protocol.options import LoadSettings
from app.ui.chat.answer import AnswerMessage, ThinkingPart
from app.ui.chat.model import ChatState
from app.ui.engine.pair_names import PairFiles, speaker
from tests.support.chats import add_question, begin_answer
from tests.support.thinking_models import ENDLESS, make_thinking_model
from tests.ui.shell.hearing import listening
from tests.ui.shell.running import WAIT_MS
from tests.ui.shell.test_messages import Chatting

CONTEXT = 32768
GREEDY = ChatSettings(sampling=SamplingChoice(temperature=0.0), drafter="none")


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thinks until it is stopped."""
    return make_thinking_model(tmp_path_factory.mktemp("thinking") / "endless.gguf", ENDLESS, context_length=CONTEXT)


class Thinking(Chatting):
    """With a model that thinks until it is stopped."""

    FIRST_SETTINGS = GREEDY

    def load(self, target: Path, context_length: int = CONTEXT) -> None:
        settings = LoadSettings(context_length=context_length)
        with self.qtbot.waitSignal(self.ctx.loader.pair_opened, timeout=WAIT_MS):
            self.ctx.loader.load(PairFiles(str(target), None, settings), anyway=True)
        self.ready()

    def live_answer(self) -> AnswerMessage:
        entry = self.window.transcript.column.entries[-1]
        assert isinstance(entry.widget, AnswerMessage)
        return entry.widget

    def begin_thinking(self, question: str) -> ThinkingPart:
        """Ask, and wait until something of the thinking is there."""
        self.type(question)
        self.qtbot.waitUntil(lambda: self.model.live is not None and bool(self.model.live.thinking()), timeout=WAIT_MS)
        part = self.live_answer().thinking
        assert part is not None
        return part

    def stop_thinking(self, part: ThinkingPart) -> None:
        assert part.stop_button is not None and part.stop_button.isVisible()
        QTest.mouseClick(part.stop_button, Qt.MouseButton.LeftButton)


@pytest.fixture
def running(qtbot: QtBot, endless: Path) -> Iterator[Thinking]:
    window = Thinking(qtbot)
    window.begin()
    window.load(endless)
    yield window
    window.close()


pytestmark = pytest.mark.usefixtures("guide_pair")


def is_laid_out(part: ThinkingPart) -> bool:
    return part.view is not None


def shown(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_thinking_ends_on_request_the_answer_follows_and_the_next_turn_knows_only_the_answer(
    running: Thinking, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(monkeypatch) as hearing:
        part = running.begin_thinking("Well?")
        assert shown(part.button.text()).startswith("Thinking…")
        assert part.button.accessibleName() == "Thinking, closed"
        assert not is_laid_out(part)
        running.stop_thinking(part)
        running.done()
    message = running.model.messages[-1]
    assert message.thinking.startswith("so")
    assert message.text.strip() == "yes no."
    assert (message.status, message.finish_reason) == ("complete", "end")
    assert shown(part.button.text()).startswith("Thought for ")
    assert part.stop_button is not None and not part.stop_button.isVisible()
    assert hearing.said[:3] == ["Answering…", "Thinking…", "Finished thinking"]
    assert not any("so" in said.split() for said in hearing.said)
    assert message.figures["thinking_tokens"]
    took = part.button.text()
    footer = running.answer().footer
    assert footer is not None and "Thinking: " in footer.accessibleDescription()

    second = running.begin_thinking("And now?")
    assert running.model.live is not None and running.model.live._asked is not None
    asked = running.model.live._asked.messages
    assert [one.content.strip() for one in asked] == ["Well?", "yes no.", "And now?"]
    running.stop_thinking(second)
    running.done()
    assert running.texts()[-1].strip() == "yes no."

    assert running.model.edit(message.id, "My own words.")
    running.settle()
    edited = running.model.messages[1]
    assert (edited.text, edited.thinking) == ("My own words.", message.thinking)
    shown_thinking = running.answer(1).thinking
    assert shown_thinking is not None and shown_thinking.button.text() == took


def test_thinking_is_stopped_from_the_menu_and_escape_closes_the_find_bar_first(running: Thinking) -> None:
    assert not running.is_enabled("stop_thinking")
    running.begin_thinking("Well?")
    asking = running.model
    assert running.is_enabled("stop_thinking")
    running.choose("new_chat")
    assert not running.is_enabled("stop_thinking")
    running.chats.open(asking.id)
    assert running.is_enabled("stop_thinking")
    running.choose("find_in_chat")
    bar = running.window.find_bar
    for part in (bar.field, bar.close_button):
        running.choose("find_in_chat")
        part.setFocus()
        QTest.keyClick(part, Qt.Key.Key_Escape)
        assert not bar.isVisible() and running.model.state is ChatState.ANSWERING
    QTest.keyClick(running.window.composer.editor, Qt.Key.Key_T, Qt.KeyboardModifier.ControlModifier)
    running.done()
    assert running.model.messages[-1].text.strip() == "yes no."
    assert not running.is_enabled("stop_thinking")


def test_an_answer_that_filled_the_context_goes_on_only_where_something_can_make_room(
    running: Thinking, endless: Path
) -> None:
    running.load(endless, context_length=256)
    running.ask("Well?")
    assert running.model.messages[-1].finish_reason == "context"
    assert not running.is_enabled("continue_answer")
    assert "Continue" not in running.entries(-1)
    running.load(endless, context_length=512)
    assert running.is_enabled("continue_answer")
    running.load(endless, context_length=256)
    assert not running.is_enabled("continue_answer")

    running.ask("And now?")
    second = running.model.messages[-1]
    assert second.finish_reason == "context"
    assert running.is_enabled("continue_answer")
    running.model.messages[-1] = replace(second, settings_json=to_json({**second.settings, "overflow": "stop"}))
    running.model.branch_changed.emit(3)
    assert not running.is_enabled("continue_answer")


@pytest.mark.parametrize("text", ["", "yes"])
def test_an_answer_without_tokens_goes_on_behind_its_thinking(running: Thinking, text: str) -> None:
    def make(store: ChatStore) -> str:
        chat = store.create_chat("Old")
        question = add_question(store, chat.id, None, "Well?")
        cut = begin_answer(store, chat.id, question.id, speaker(running.ctx.loader.pair()))
        store.finish_answer(replace(cut, text=text, thinking="so then", status="complete", finish_reason="length"))
        return chat.id

    running.chats.open(running.worker.submit(make).result(timeout=20))
    running.settle()
    running.qtbot.waitUntil(lambda: running.is_enabled("continue_answer"), timeout=WAIT_MS)
    running.model.set_settings(GREEDY)
    running.choose("continue_answer")

    def has_more() -> bool:
        live = running.model.live
        return live is not None and len(live.thinking()) + len(live.text()) > 20

    running.qtbot.waitUntil(has_more, timeout=WAIT_MS)
    running.model.stop()
    running.settle()
    message = running.model.messages[-1]
    assert message.thinking.startswith("so then" if text else "so then so then")
    assert message.text == "" if not text else message.text.startswith("yes so then")
    assert len(message.tokens) == len(message.provenance)
