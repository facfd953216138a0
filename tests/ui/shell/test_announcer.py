"""What screen readers are told of answers, notices and models, and what the desktop's notifications say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.chats.model import StoredCall, StoredMessage
from app.ui import notices
from app.ui.chat.model import ChatState
from app.ui.chat.tool_cards import Question
from app.ui.engine.client import EngineClient
from app.ui.shell.announcer import end_of_answer, notification_text
from app.ui.widgets.focus import announce
from tests.ui.shell.hearing import Hearing, listening
from tests.ui.shell.running import WAIT_MS, Running


@pytest.fixture
def hearing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hearing]:
    with listening(monkeypatch) as found:
        yield found


@pytest.fixture
def running(qtbot: QtBot) -> Iterator[Running]:
    way = "endless if asked"
    window = Running(qtbot, EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", way]))
    window.begin()
    window.ready()
    yield window
    window.close()


def test_nothing_is_said_while_no_screen_reader_runs(
    qtbot: QtBot, hearing: Hearing, caplog: pytest.LogCaptureFixture
) -> None:
    widget = QWidget()
    qtbot.addWidget(widget)
    QAccessible.setActive(False)
    announce(widget, "Nobody hears this")
    QAccessible.setActive(True)
    announce(widget, "")
    announce(widget, "Well")
    announce(widget, "Now", is_urgent=True)
    assert (hearing.said, hearing.urgent) == (["Well", "Now"], ["Now"])


@pytest.mark.usefixtures("guide_pair")
def test_beginning_and_end_of_an_answer_and_loading_are_said_and_no_tokens(running: Running, hearing: Hearing) -> None:
    running.ask("Hello")
    assert hearing.said == ["Answering…", "Answer finished, 2\N{NO-BREAK SPACE}tokens"]
    assert hearing.urgent == []
    running.choose("new_chat")
    hearing.said.clear()
    running.type("endless")
    chats, chat_id = running.window.chat_list.view.chats, running.model.id

    def spoken() -> str:
        place = chats.place(chat_id)
        return "" if place is None else str(chats.index(place).data(Qt.ItemDataRole.AccessibleTextRole))

    running.qtbot.waitUntil(lambda: spoken().startswith("endless, answering now, "), timeout=WAIT_MS)
    running.qtbot.waitUntil(lambda: running.model.live is not None and bool(running.model.live.pieces))
    QTest.keyClick(running.window.composer.editor, Qt.Key.Key_Escape)
    running.done()
    assert hearing.said == ["Answering…", "Stopped"]
    assert spoken().startswith("endless, ") and "now" not in spoken()
    hearing.said.clear()
    running.ctx.loader.load_again()
    running.qtbot.waitUntil(lambda: len(hearing.said) == 2, timeout=WAIT_MS)
    assert hearing.said == ["Loading the model…", "Model loaded: Slipstream Guide  +  draft"]


@pytest.mark.usefixtures("guide_pair")
def test_each_notice_that_stays_is_said_once_and_bad_ones_at_once(running: Running, hearing: Hearing) -> None:
    shown = running.ctx.notices
    shown.show("export", notices.exported("chat.md"))
    shown.show("file", notices.not_opened("It is no model."))
    shown.show("export", notices.exported("chat.md"))
    shown.remove("export")
    running.qtbot.waitUntil(lambda: len(hearing.said) == 1)
    shown.show("export", notices.exported("chat.md"))
    running.qtbot.waitUntil(lambda: len(hearing.said) == 2)
    assert hearing.said == ["It is no model.", notices.exported("chat.md").text]
    assert hearing.urgent == ["It is no model."]


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        ("complete", "end", "Answer finished, 0\N{NO-BREAK SPACE}tokens"),
        ("complete", "length", "The answer was cut at the length limit"),
        ("complete", "context", "The answer was cut because the context is full"),
        ("stopped", "cancelled", "Stopped"),
        ("stopped", "repeats", "Stopped because it kept repeating itself"),
        ("interrupted", None, "The answer was interrupted"),
        ("failed", None, "The answer couldn't be finished"),
    ],
)
def test_how_an_answer_ended(status: str, reason: str | None, said: str) -> None:
    message = StoredMessage("1", "c", None, "assistant", "", status, 0.0, finish_reason=reason)  # type: ignore[arg-type]
    assert end_of_answer(message) == said


ANSWER = StoredMessage("m", "chat", None, "assistant", "First words.\n\n# And more", "complete", 0.0)


def test_it_is_told_with_the_first_words() -> None:
    assert notification_text(ANSWER) == "First words. # And more"


def test_not_what_the_user_stopped() -> None:
    assert notification_text(replace(ANSWER, status="stopped")) == ""


def test_what_went_wrong_is_told_too() -> None:
    for status in ("failed", "interrupted"):
        assert notification_text(replace(ANSWER, status=status)) == "The answer couldn't be finished."
    repeats = replace(ANSWER, status="stopped", finish_reason="repeats")
    assert notification_text(repeats) == "The answer couldn't be finished."


def test_it_is_short_and_plain() -> None:
    text = notification_text(replace(ANSWER, text="\x1b[31m" + "word " * 1000))
    assert len(text) <= 120
    assert "\x1b" not in text


@pytest.mark.usefixtures("guide_pair")
def test_of_another_chat_only_the_end_of_its_answer_is_said(running: Running, hearing: Hearing) -> None:
    running.type("endless")
    first = running.model
    running.qtbot.waitUntil(lambda: first.live is not None and bool(first.live.pieces), timeout=WAIT_MS)
    running.choose("new_chat")
    running.type("Hello")  # waits for the first
    waiting = running.model
    running.choose("new_chat")
    title = running.ctx.operations.title
    running.qtbot.waitUntil(lambda: title(waiting.id) == "Hello", timeout=WAIT_MS)  # its title comes with the list
    hearing.said.clear()
    first.stop()
    running.qtbot.waitUntil(lambda: not waiting.state.is_busy, timeout=WAIT_MS)
    assert hearing.said == ["Answer finished in “Hello”"]


@pytest.mark.usefixtures("guide_pair")
def test_a_tool_call_that_waits_is_said_marked_told_and_focused_unless_the_user_writes(
    running: Running, hearing: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(running.ctx.notifier, "tell", lambda title, text, _clicked: told.append((title, text)))
    running.type("endless")
    live = running.model.live
    assert live is not None
    running.qtbot.waitUntil(lambda: bool(live.pieces), timeout=WAIT_MS)
    running.qtbot.waitUntil(lambda: running.ctx.operations.title(live.chat_id) == "endless", timeout=WAIT_MS)
    hearing.said.clear()
    editor, chats = running.window.composer.editor, running.window.chat_list.view.chats
    assert editor.hasFocus()

    def asks(*ids: str) -> None:
        one = StoredCall(id="", name="calculate", arguments='{"expression": "1+1"}', text=len(live.text()))
        live.calls = live.calls + [msgspec.structs.replace(one, id=name) for name in ids]
        live.calls_changed.emit()

    live.offered = {tool.name: tool for tool in running.ctx.tools.all_tools()}
    asks("1", "2")
    question = "The tool calculate from Slipstream wants to run. Allow it?"
    assert hearing.said == [f"{question} 1 more call is waiting."]
    assert told == [("endless", question)]
    assert running.model.state is ChatState.ASKING
    row = chats.index(chats.place(live.chat_id) or 0)
    assert "waiting for you" in str(row.data(Qt.ItemDataRole.AccessibleTextRole))
    focused = QApplication.focusWidget()
    assert isinstance(focused, Question) and focused.text.text()  # what the tool itself says of it
    assert running.window.composer.hint.isVisible()
    running.choose("deny_call")
    running.choose("deny_call")
    assert [one.state for one in live.calls] == ["denied", "denied"]
    assert "answering now" in str(row.data(Qt.ItemDataRole.AccessibleTextRole))
    assert editor.hasFocus() and not running.actions.qaction("deny_call").isEnabled()
    assert len(hearing.said) == 1
    QTest.keyClicks(editor, "I write")
    asks("3")
    assert hearing.said[1:] == [question]
    assert editor.hasFocus()
    running.model.stop()
    running.done()
    assert "waits" not in str(row.data(Qt.ItemDataRole.AccessibleTextRole))
    editor.clear()
