"""Compare in the whole window, with the bundled pair in a real engine process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from app.ui.chat.answer import AnswerMessage
from app.ui.compare.window import CompareWindow
from app.ui.engine import EngineState
from tests.ui.shell.running import LONGEST_ANSWER, WAIT_MS, Running

pytestmark = pytest.mark.usefixtures("guide_pair", "dressed")


class Comparing(Running):
    """An open window that compares."""

    @property
    def compare(self) -> CompareWindow:
        return self.app.compare

    def compared(self) -> None:
        self.qtbot.waitUntil(lambda: not self.compare.runner.is_running(), timeout=WAIT_MS)

    def endless(self) -> None:
        """From now on no answer finds an end."""
        endless = SamplingChoice(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0)
        self.model.set_settings(ChatSettings(sampling=endless))

    def stopped_answer(self) -> None:
        """An endless answer, stopped after a while."""
        self.endless()
        self.type("Tell me a story")
        with self.qtbot.waitSignal(self.engine.rounds_received, timeout=WAIT_MS):
            pass
        self.choose("stop")
        self.done()


@pytest.fixture
def running(qtbot: QtBot) -> Iterator[Comparing]:
    made = Comparing(qtbot)
    made.begin()
    made.ready()
    yield made
    made.close()


def more_menu(running: Comparing) -> Callable[[], None]:
    """What the ⋯ menu of the last answer does."""
    answers = [entry.widget for entry in running.window.transcript.column.entries]
    message = next(one for one in reversed(answers) if isinstance(one, AnswerMessage))
    assert message.buttons.more_button.isVisible()
    assert message.buttons.more_button.accessibleName() == "More about this message"
    menu = message.buttons.more_button.menu()
    menu.aboutToShow.emit()
    return next(one for one in menu.actions() if one.text() == "Compare without a draft").trigger


def test_an_answer_is_compared_from_its_menu(qtbot: QtBot, running: Comparing) -> None:
    running.model.set_settings(ChatSettings(seed=5, max_tokens=LONGEST_ANSWER))
    running.ask("What is a draft model?")
    answer = running.model.messages[-1]
    running.actions.qaction("show_drafted").trigger()
    assert "compare" not in vars(running.app)  # it is made when it is wanted
    states: list[str] = []
    running.engine.state_changed.connect(lambda _: states.append(running.window.top_bar._label.text()))
    more_menu(running)()
    running.compared()
    one = running.compare.one
    assert one._title.text() == "What is a draft model?"
    assert one._settings.text().startswith("Seed 5 · ")
    assert not one._notes.isVisible()
    assert one.verdict.text().startswith("✓ Same text, 24 tokens, same seed")
    assert one.plain._text().view.content == one.drafted._text().view.content == answer.text
    assert "comparing" in states
    assert running.window.top_bar._label.text() == "ready"
    assert running.model.messages[-1].id == answer.id
    for pane in (one.plain, one.drafted):
        assert all(figure.text().endswith(("tok/s", "s")) for figure in pane._figures.values())
    assert one.drafted._text().view._shows_drafted
    running.actions.qaction("show_drafted").trigger()
    assert not one.drafted._text().view._shows_drafted
    with qtbot.waitSignal(running.ctx.operations.chats_deleted, timeout=WAIT_MS):
        running.choose("delete_chat")
    assert one.plain._text().view.content == ""
    assert "was deleted" in one._empty_text.text()


def test_the_shortcut_compares_the_last_answer_and_needs_one(running: Comparing) -> None:
    action = running.actions.qaction("compare_last")
    assert action.shortcut().toString() == "Ctrl+Shift+R"
    assert not action.isEnabled()
    running.ask("Hello")
    assert action.isEnabled()
    running.window.activateWindow()
    keys = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    QTest.keyClick(running.window.windowHandle(), Qt.Key.Key_R, keys)
    assert running.engine.state() is EngineState.COMPARING
    running.choose("measure_plain")  # which waits
    assert running.window.speed_panel.plain_speed.buttons[0].text() == "Waiting to measure…"
    running.compared()
    running.ready()
    assert running.compare.one._title.text() == "Hello"
