"""What is done before the store answers: no message and no typed word is lost, doubled or in another chat."""

from __future__ import annotations

import os
import random
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from PySide6.QtCore import QDeadlineTimer, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app import system
from app.chats.store import ChatStore
from app.client.connection import Timings
from app.ui.engine.client import EngineClient
from tests.ui.shell.running import Running

WAIT_MS = 20_000
SEQUENCES = int(os.environ.get("SLIPSTREAM_SEQUENCES") or 40)
WORD = re.compile(r"w\d+w")


class Slow(Running):
    """A window with a scripted engine whose chat store can be held up."""

    FIRST_SETTINGS = None

    def __init__(self, qtbot: QtBot) -> None:
        command = [sys.executable, "-m", "tests.ui.scripted_engine", "well"]
        super().__init__(qtbot, EngineClient(command, Timings(quit=0.5)))
        self.composer = self.window.composer
        self._held: threading.Event | None = None

    def begin(self) -> None:
        self.app.begin()
        self.qtbot.waitUntil(self.worker.opened.done, timeout=WAIT_MS)
        self.ready()

    # ------------------------------------------------------------ the store

    def hold(self) -> None:
        """The store does nothing more until `release`."""
        if self._held is None:
            self._held = threading.Event()
            self.worker.submit(lambda _store, held=self._held: held.wait(WAIT_MS / 1000))  # type: ignore[misc]

    def release(self) -> None:
        if self._held is not None:
            self._held.set()
            self._held = None

    def settle(self) -> None:
        """Wait until the store has nothing left to do and no answer is wanted."""
        self.release()
        for _ in range(2):  # what the store answered may have asked it for more
            done: Future[None] = self.worker.submit(lambda _store: None)
            deadline = QDeadlineTimer(WAIT_MS)
            while self.ctx.chats.answers.open or not done.done():
                assert not deadline.hasExpired()
                QTest.qWait(1)
            QApplication.processEvents()

    def stored(self) -> dict[str, list[str]]:
        """What the user said in each chat, all versions."""

        def read(store: ChatStore) -> dict[str, list[str]]:
            said = {chat.id: store.record(chat.id).messages for chat in store.chats()}
            return {chat_id: [one.text for one in messages if one.role == "user"] for chat_id, messages in said.items()}

        return self.worker.submit(read).result(WAIT_MS / 1000)

    # ------------------------------------------------------------ the user

    def click(self, chat_id: str | None) -> bool:
        """Choose a chat with the mouse; ``None`` is the button for a new one. Whether it is there to be clicked."""
        if chat_id is None:
            self.actions.qaction("new_chat").trigger()
            return True
        rows = self.window.chat_list.view
        if (place := rows.chats.place(chat_id)) is None:
            return False
        index = rows.chats.index(place)
        rows.scrollTo(index)
        QTest.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=rows.visualRect(index).center())
        return True

    def type(self, text: str) -> None:
        self.composer.editor.insertPlainText(text)

    def enter(self) -> None:
        QTest.keyClick(self.composer.editor, Qt.Key.Key_Return)

    def send(self, text: str) -> str:
        self.type(text)
        self.enter()
        return self.chats.current.id

    def chat_id(self) -> str | None:
        """The chat that is shown; ``None`` is the one that does not exist yet."""
        return None if self.chats.current.is_new else self.chats.current.id

    def close(self) -> None:
        self.release()
        super().close()


@pytest.fixture
def slow(qtbot: QtBot) -> Iterator[Slow]:
    made = Slow(qtbot)
    made.begin()
    yield made
    made.close()


@pytest.fixture
def two_chats(slow: Slow) -> tuple[str, str]:
    """Two chats; the second is shown."""
    ids = []
    for text in ("about one", "about two"):
        slow.click(None)
        ids.append(slow.send(text))
        slow.settle()
    return ids[0], ids[1]


def test_a_message_that_is_stopped_while_it_is_stored_gets_no_answer(slow: Slow, two_chats: tuple[str, str]) -> None:
    slow.hold()
    slow.send("never mind")
    QTest.keyClick(slow.composer.editor, Qt.Key.Key_Escape)
    slow.settle()
    assert [message.text for message in slow.chats.current.messages][-1] == "never mind"
    assert "unanswered" in slow.ctx.notices.notices()


def test_text_typed_into_a_chat_that_never_opened_is_kept_by_the_end_of_the_app(
    slow: Slow, two_chats: tuple[str, str]
) -> None:
    one, two = two_chats
    slow.type("stored for two")
    slow.click(one)
    slow.settle()
    slow.hold()
    slow.click(two)
    slow.type("and more")
    slow.close()
    with ChatStore(system.chat_file()) as store:
        assert store.unsent(two) == "stored for two\nand more"


def leave_unsent(text: str) -> str:
    """What the last run left: a chat, and text for the one to come."""
    with ChatStore(system.chat_file()) as store:
        chat = store.create_chat("The last one")
        store.set_unsent(None, text)
        return chat.id


def test_text_for_a_chat_to_come_is_there_again_also_where_another_chat_is_shown_first(qtbot: QtBot) -> None:
    chat_id = leave_unsent("left for later")
    slow = Slow(qtbot)
    slow.settings.values.last_chat_id = chat_id
    slow.begin()
    qtbot.waitUntil(lambda: slow.chats.current.id == chat_id, timeout=WAIT_MS)
    slow.settle()
    slow.click(None)
    slow.settle()
    assert slow.composer.text() == "left for later"
    slow.close()
    with ChatStore(system.chat_file()) as store:
        assert store.unsent(None) == "left for later"


def test_text_typed_before_the_chats_are_open_does_not_replace_what_was_stored(qtbot: QtBot) -> None:
    chat_id = leave_unsent("left for later")
    early = Slow(qtbot)
    early.settings.values.last_chat_id = chat_id
    early.type("quick")
    early.close()  # the chats never were open
    assert early.settings.values.last_chat_id == chat_id
    slow = Slow(qtbot)
    slow.type("thought")
    slow.chats.current.unsent.save()  # its time has come before the chats are open
    slow.begin()
    slow.settle()
    assert slow.composer.text() == "left for later\nquick\nthought"
    slow.close()
    with ChatStore(system.chat_file()) as store:
        assert store.unsent(None) == "left for later\nquick\nthought"


def test_a_chat_that_cannot_be_opened_is_told_once(slow: Slow, two_chats: tuple[str, str]) -> None:
    one, two = two_chats
    slow.worker.submit(lambda store: store.delete_chats([one]))
    slow.worker.submit(lambda store: store.erase_deleted([one])).result(WAIT_MS / 1000)
    slow.chats.open(one)
    slow.settle()
    told = slow.ctx.notices.notices()
    assert told["store"].text == "This chat has been deleted."
    assert "save" not in told
    slow.app.chat_list.delete_chats([two])
    slow.settle()
    slow.chats.open(two)  # by a notification that is still there
    slow.settle()
    assert slow.chats.current.is_new
    assert slow.ctx.notices.notices()["store"].text == "This chat is in the trash."


@pytest.mark.parametrize("is_left", [False, True])
def test_what_was_written_in_a_chat_that_cannot_be_opened_stands_in_the_new_one(
    slow: Slow, two_chats: tuple[str, str], is_left: bool
) -> None:
    one, two = two_chats
    slow.worker.submit(lambda store: store.delete_chats([one]))  # by another window
    slow.hold()
    slow.chats.open(one)
    slow.send("w1w")
    slow.type("w2w")
    if is_left:
        slow.chats.open(two)
    slow.settle()
    assert (slow.chats.current.id == two) is is_left
    slow.chats.new()
    assert slow.composer.text() == "w1w\nw2w"
    assert "w1w" not in str(slow.stored())


def test_a_deletion_that_was_undone_at_once_is_not_offered_to_be_undone(slow: Slow, two_chats: tuple[str, str]) -> None:
    _one, two = two_chats
    slow.hold()
    slow.app.chat_list.delete_chats([two])
    slow.ctx.operations.undo()
    slow.settle()
    assert slow.chats.current.id == two
    assert slow.window.undo_bar.isHidden()


def test_sending_shows_the_end(slow: Slow, two_chats: tuple[str, str]) -> None:
    slow.chats.current.edit(slow.chats.current.messages[0].id, "long\n" * 200)
    slow.settle()
    column = slow.window.transcript.column
    column.verticalScrollBar().setValue(0)
    assert column.verticalScrollBar().value() < column.verticalScrollBar().maximum()
    slow.send("and now?")
    slow.settle()
    assert column.verticalScrollBar().value() == column.verticalScrollBar().maximum()


class User:
    """Does one thing after another, and knows where each word should be."""

    def __init__(self, slow: Slow, dice: random.Random) -> None:
        self.slow, self.dice = slow, dice
        self.sent: dict[str, list[str]] = {}
        self.unsent: dict[str | None, set[str]] = {}
        self.current: str | None = None
        self.words = 0

    def click(self) -> None:
        if self.sent and self.slow.click(chat_id := self.dice.choice(list(self.sent))):
            self.current = chat_id

    def new(self) -> None:
        self.slow.click(None)
        self.current = None

    def type(self) -> None:
        self.words += 1
        self.unsent.setdefault(self.current, set()).add(f"w{self.words}w")
        self.slow.type(f"w{self.words}w ")

    def enter(self) -> None:
        text = self.slow.composer.text()
        self.slow.enter()
        words = set(WORD.findall(text))
        assert words <= self.unsent.get(self.current, set())
        if words and not self.slow.composer.text():
            self.unsent[self.current] -= words
            self.current = self.slow.chat_id()
            assert self.current is not None
            self.sent.setdefault(self.current, []).append(text)

    def release(self) -> None:
        self.slow.release()
        QApplication.processEvents()

    def regenerate(self) -> None:
        self.slow.actions.qaction("regenerate").trigger()

    def delete(self) -> None:
        if self.current is not None:
            self.slow.actions.qaction("delete_chat").trigger()
            del self.sent[self.current]
            self.unsent.pop(self.current, None)
            self.current = None

    def check(self, done: list[str]) -> None:
        slow = self.slow
        slow.settle()
        assert slow.stored() == self.sent, done
        assert slow.chat_id() == self.current, done
        shown = [message.text for message in slow.chats.current.messages if message.role == "user"]
        assert set(shown) <= set(self.sent.get(self.current or "", [])), done
        kept = slow.worker.submit(lambda store: {one: store.unsent(one) for one in self.unsent}).result(WAIT_MS / 1000)
        for chat_id, words in self.unsent.items():
            text = slow.composer.text() if chat_id == self.current else kept[chat_id]
            assert sorted(WORD.findall(text)) == sorted(words), done


def test_in_whatever_order_no_message_is_lost_doubled_or_in_another_chat(slow: Slow) -> None:
    seed = int(os.environ.get("SLIPSTREAM_SEED") or random.randrange(1_000_000))
    print(f"SLIPSTREAM_SEED={seed}")  # noqa: T201 - shown when the test fails
    user = User(slow, random.Random(seed))
    often = (user.click, user.type, user.enter)
    operations = (*often, *often, user.new, user.regenerate, user.delete, slow.hold, user.release)
    for _ in range(SEQUENCES):
        done = [user.dice.choice(operations) for _ in range(user.dice.randint(3, 12))]
        for operation in done:
            operation()
        user.check([operation.__name__ for operation in done])


def test_a_message_sent_before_the_store_answers_lands_in_the_chat_that_was_clicked(
    slow: Slow, two_chats: tuple[str, str]
) -> None:
    one, two = two_chats
    slow.hold()
    slow.click(one)
    slow.send("for one")
    assert slow.composer.text() == ""
    slow.click(two)  # and the chat is left before it ever was on the page
    slow.type("for two")
    slow.settle()
    assert slow.stored() == {one: ["about one", "for one"], two: ["about two"]}
    assert slow.composer.text() == "for two"
    slow.click(one)
    slow.settle()
    assert [message.text for message in slow.chats.current.messages] == [
        "about one",
        "Hello there",
        "for one",
        "Hello there",
    ]


def test_a_message_sent_while_another_version_is_fetched_goes_below_it(slow: Slow, two_chats: tuple[str, str]) -> None:
    _one, two = two_chats
    question = slow.chats.current.messages[0]
    slow.chats.current.edit(question.id, "about 2")
    slow.settle()
    slow.hold()
    slow.chats.current.choose_version(slow.chats.current.messages[0].id, -1)
    slow.send("below the first wording")
    slow.settle()
    assert slow.chats.current.id == two
    shown = [message.text for message in slow.chats.current.messages]
    assert shown == ["about two", "Hello there", "below the first wording", "Hello there"]
