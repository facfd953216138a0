"""What one does to messages in the whole window: edit, continue, delete, branch, regenerate, find, go from one to the
next, by button and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QAction, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QMenu
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.chats.store import ChatStore, new_id
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.messages import MessageWidget
from app.ui.chat.model import ChatState
from tests.support.chats import add_question, begin_answer
from tests.ui.shell.running import WAIT_MS, Running

SETTINGS = ChatSettings(max_tokens=8)


class Chatting(Running):
    """With what a user sees of messages."""

    FIRST_SETTINGS = SETTINGS

    def widget(self, place: int) -> MessageWidget:
        """The message at this place of the branch, on the screen."""
        message_id = self.model.messages[place].id
        widget = self.window.transcript.show_message(message_id)
        assert widget is not None
        self.qtbot.waitUntil(lambda: widget.is_drawn() and self.window.transcript.column.is_complete(), timeout=WAIT_MS)
        return widget

    def answer(self, place: int = -1) -> AnswerMessage:
        widget = self.widget(place)
        assert isinstance(widget, AnswerMessage)
        return widget

    def entries(self, place: int) -> dict[str, QAction]:
        """What the menu of a message offers now, and what its submenus do."""
        menu = self.answer(place).buttons.more_button.menu()
        menu.aboutToShow.emit()
        found: dict[str, QAction] = {}
        for action in menu.actions():
            found[action.text()] = action
            if isinstance(submenu := action.menu(), QMenu):
                found.update({inner.text(): inner for inner in submenu.actions()})
        return found

    def settle(self) -> None:
        self.qtbot.waitUntil(lambda: self.model.state is ChatState.IDLE, timeout=WAIT_MS)
        self.done()

    def is_enabled(self, name: str) -> bool:
        return self.actions.qaction(name).isEnabled()

    def texts(self) -> list[str]:
        return [one.text for one in self.model.messages]

    def make_long_chat(self, count: int) -> str:
        """A stored chat with so many questions and answers, each with the word “needle”."""

        def make(store: ChatStore) -> str:
            chat = store.create_chat("Long")
            for number in range(count):
                parent = store.chat(chat.id).leaf_id
                question = add_question(store, chat.id, parent, f"needle {number}?")
                answer = begin_answer(store, chat.id, question.id)
                text = f"Answer {number}: **nee**dle and Needle.\n\n" + "words " * 60
                store.finish_answer(replace(answer, text=text, status="complete"))
            return chat.id

        return self.worker.submit(make).result(timeout=20)


@pytest.fixture
def running(qtbot: QtBot) -> Iterator[Chatting]:
    window = Chatting(qtbot)
    window.begin()
    yield window
    window.close()


guide = pytest.mark.usefixtures("guide_pair")


@guide
def test_an_answer_is_edited_in_its_place_and_copied(running: Chatting) -> None:
    running.ask("What is a draft model?")
    before = running.model.messages[-1]
    running.entries(-1)["Edit…"].trigger()
    editing = running.answer().editing
    assert editing is not None
    assert editing.save_button.text() == "Save"
    assert editing.text.hasFocus()
    editing.text.setPlainText("A **bold** word")
    QTest.keyClick(editing.text, Qt.Key.Key_Return)
    running.settle()
    after = running.model.messages[-1]
    assert (after.text, after.version, after.versions, list(after.tokens)) == ("A **bold** word", 2, 2, [])
    footer = running.answer().footer
    assert footer is not None and footer.text() == "edited"
    for entry, text in (("Copy as plain text", "A bold word"), ("Copy as Markdown", "A **bold** word")):
        running.entries(-1)[entry].trigger()
        assert QGuiApplication.clipboard().text() == text
    running.entries(-1)["Show raw text"].trigger()
    running.qtbot.waitUntil(lambda: running.answer().view.toPlainText() == "A **bold** word")
    assert running.model.choose_version(after.id, -1)
    running.settle()
    assert running.model.messages[-1].text == before.text


@guide
def test_a_cut_answer_goes_on_by_its_button(running: Chatting) -> None:
    running.ask("What is a draft model?")
    cut = running.model.messages[-1]
    assert cut.finish_reason == "length"
    running.qtbot.waitUntil(lambda: running.is_enabled("continue_answer"), timeout=WAIT_MS)
    button = running.answer().buttons.own.get("end")
    assert button is not None and button.isVisible()
    assert "Continue" in running.entries(-1)
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert running.model.state.is_busy
    running.settle()
    longer = running.model.messages[-1]
    assert longer.id == cut.id
    assert longer.text.startswith(cut.text) and len(longer.tokens) > len(cut.tokens)


@guide
def test_what_was_deleted_comes_back(running: Chatting) -> None:
    running.ask("One")
    running.ask("Two")
    before = running.texts()
    assert not running.is_enabled("undo_chat")
    for place in (3, 1):
        running.entries(place)["Delete this message"].trigger()
        running.settle()
        assert not running.window.undo_bar.isHidden()
    running.choose("undo")  # one takes back one deletion
    running.settle()
    assert running.texts() == before[:-1]
    running.choose("undo_chat")
    running.settle()
    assert running.texts() == before and not running.is_enabled("undo_chat")
    running.choose("regenerate")
    running.settle()
    before = running.texts()
    running.actions.run("delete_from_here", running.model.messages[2].id)
    running.settle()
    assert running.texts() == before[:2]
    # Other versions were not seen.
    assert "Deleted 2 messages." in [one.text() for one in running.window.undo_bar.findChildren(QLabel)]
    running.choose("new_chat")
    running.choose("undo_chat")
    running.qtbot.waitUntil(lambda: running.texts() == before, timeout=WAIT_MS)
    assert running.model.messages[3].versions == 2


@guide
def test_a_branch_is_a_new_chat(running: Chatting) -> None:
    running.ask("One")
    running.ask("Two")
    before, chat_id = running.texts(), running.model.id
    running.entries(1)["Branch into a new chat"].trigger()
    running.qtbot.waitUntil(lambda: running.model.id != chat_id, timeout=WAIT_MS)
    running.settle()
    assert running.texts() == before[:2]
    first = running.model.id
    running.choose("branch_chat")
    running.qtbot.waitUntil(lambda: running.model.id != first, timeout=WAIT_MS)
    running.settle()
    assert running.texts() == before[:2]


@guide
def test_the_same_settings_and_seed_repeat_an_answer(running: Chatting) -> None:
    running.ask("Tell me a story")
    first = running.model.messages[-1]
    running.entries(-1)["The same settings and seed"].trigger()
    assert running.model.state.is_busy
    running.settle()
    second = running.model.messages[-1]
    assert (second.text, second.seed, second.version) == (first.text, first.seed, 2)
    running.entries(-1)["Without a draft"].trigger()
    running.settle()
    assert running.model.messages[-1].settings["drafter"] == "none"
    assert running.model.settings == SETTINGS


def test_the_keyboard_goes_from_message_to_message(running: Chatting) -> None:
    running.chats.open(running.make_long_chat(10))
    running.settle()
    transcript, messages = running.window.transcript, running.model.messages
    running.window.composer.setFocus()
    for place in (19, 18, 17):
        running.choose("previous_message")
        assert transcript.focused_message() == messages[place].id
    widget = QApplication.focusWidget()
    assert isinstance(widget, MessageWidget)
    name = QAccessible.queryAccessibleInterface(widget).text(QAccessible.Text.Name)
    assert name.startswith("Guide: Answer 8: **nee**dle and")
    QTest.keyClick(widget, Qt.Key.Key_Return)
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    assert "Delete this message" in [one.text() for one in menu.actions()]
    menu.close()
    QTest.keyClick(widget, Qt.Key.Key_Tab)
    assert widget.view.hasFocus()
    for _ in range(3):
        running.choose("next_message")
    assert running.window.composer.editor.hasFocus()
    running.choose("previous_message")
    widget = QApplication.focusWidget()
    assert isinstance(widget, MessageWidget)
    QTest.keyClick(widget, Qt.Key.Key_Escape)
    assert running.window.composer.editor.hasFocus()


def test_find_in_a_chat(running: Chatting) -> None:
    running.chats.open(running.make_long_chat(5))
    running.settle()
    bar = running.window.find_bar

    def says(count: str) -> None:
        running.qtbot.waitUntil(lambda: bar.count_text() == count, timeout=WAIT_MS)

    running.choose("find_in_chat")
    assert bar.field.hasFocus()
    QTest.keyClicks(bar.field, "NEEDLE")
    running.qtbot.waitUntil(lambda: bar.count_text().endswith(" of 15"), timeout=WAIT_MS)
    running.choose("find_in_chat")
    bar.field.setText("needle 3")
    says("1 of 1")
    running.window.transcript.column.verticalScrollBar().setValue(0)
    bar.field.setText("needle")
    says("1 of 15")
    QTest.keyClick(bar.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    says("15 of 15")
    widget = running.widget(-1)
    running.qtbot.waitUntil(lambda: widget.view.find_box() is not None)
    assert not widget.visibleRegion().isEmpty()
    running.choose("find_next")
    says("1 of 15")
    running.choose("find_previous")
    says("15 of 15")
    assert running.model.delete(running.model.messages[-1].id)  # what is found follows the chat
    running.settle()
    running.qtbot.waitUntil(lambda: bar.count_text().endswith("13") or bar.count_text() == "13 found", timeout=WAIT_MS)
    running.chats.open(running.make_long_chat(2))
    running.settle()
    running.qtbot.waitUntil(lambda: "6" in bar.count_text(), timeout=WAIT_MS)
    QTest.keyClick(bar.field, Qt.Key.Key_Escape)
    assert bar.isHidden()
    assert running.window.composer.editor.hasFocus()


def test_a_search_result_shows_its_message(running: Chatting) -> None:
    chat_id = running.make_long_chat(20)

    def edit(store: ChatStore) -> str:
        first = store.branch(chat_id)[2]
        store.add_message(replace(first, id=new_id(), text="another wording"))
        return first.id

    message_id = running.worker.submit(edit).result(timeout=20)
    running.window.chat_list.search_field.setText("needle 1")
    running.app.messages.open_message(chat_id, message_id)
    running.qtbot.waitUntil(lambda: running.model.place(message_id) is not None, timeout=WAIT_MS)
    running.settle()
    assert len(running.model.messages) == 40
    running.qtbot.waitUntil(lambda: running.window.find_bar.count_text().startswith("1 of"), timeout=WAIT_MS)
    assert not running.widget(2).visibleRegion().isEmpty()


def test_a_temporary_chat_says_so_and_what_was_deleted_goes_with_it(running: Chatting) -> None:
    for name in ("continue_answer", "branch_chat", "find_next", "previous_message", "undo_chat"):
        assert not running.is_enabled(name), name
    running.choose("new_temporary_chat")
    says_so = running.window.transcript._temporary
    assert running.model.is_temporary and says_so.isVisible()
    assert running.model.send("Off the record")
    running.model.stop()
    running.settle()
    for name in ("rename_chat", "delete_chat", "export_chat", "branch_chat"):
        assert not running.is_enabled(name), name
    assert running.is_enabled("find_next")
    running.actions.run("delete_message", running.model.messages[0].id)
    running.settle()
    assert running.is_enabled("undo_chat")
    assert not running.window.undo_bar.isHidden()
    running.choose("new_chat")
    assert not running.is_enabled("undo_chat")
    assert running.window.undo_bar.isHidden() and not says_so.isVisible()


def test_messages_that_the_store_refuses_to_bring_back_can_be_brought_back_later(running: Chatting) -> None:
    running.chats.open(running.make_long_chat(2))
    running.settle()
    before = running.texts()
    running.entries(1)["Delete this message"].trigger()
    running.settle()
    running.qtbot.waitUntil(lambda: running.is_enabled("undo_chat"), timeout=WAIT_MS)
    for enabled in ("ON", "OFF"):
        running.worker.submit(lambda store, to=enabled: store._connection.execute(f"PRAGMA query_only = {to}"))  # type: ignore[misc]
        running.choose("undo_chat")
        running.qtbot.waitUntil(lambda: running.model.state is ChatState.OPENING, timeout=WAIT_MS)
        running.settle()
        assert running.is_enabled("undo_chat") is (enabled == "ON")
    assert running.texts() == before
