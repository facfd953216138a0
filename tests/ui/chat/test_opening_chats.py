"""What is done before the store answers: no message and no typed word is lost, doubled or in another chat."""

from __future__ import annotations

import os
import random
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import pytest
from PySide6.QtCore import QDeadlineTimer, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app import paths
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.client.stalls import Timings
from app.settings import SettingsFile
from app.ui import notices
from app.ui.engine.interface import EngineState
from app.ui.engine.local_engine import LocalEngine
from app.ui.shell.controller import Controller
from app.ui.shell.main_window import MainWindow

WAIT_MS = 20_000
SEQUENCES = int(os.environ.get("SLIPSTREAM_SEQUENCES") or 60)
WORD = re.compile(r"w\d+w")


class Slow:
    """A window with a scripted engine whose chat store can be held up."""

    def __init__(self, qtbot: QtBot, behavior: str = "well") -> None:
        self.qtbot = qtbot
        self.settings = SettingsFile(paths.settings_file())
        self.window = MainWindow(self.settings.values)
        self.engine = LocalEngine(
            [sys.executable, "-m", "tests.ui.scripted_engine", behavior], Timings(quit=0.5), self.window
        )
        self.worker = ChatWorker(paths.chat_file())
        self.controller = Controller(self.window, self.settings, self.engine, self.worker)
        self.chats = self.controller.chats
        self.composer = self.window.composer
        self._held: threading.Event | None = None

    def begin(self) -> None:
        self.controller.begin()
        self.qtbot.waitUntil(self.worker.opened.done, timeout=WAIT_MS)
        self.qtbot.waitUntil(lambda: self.engine.state() is EngineState.READY, timeout=WAIT_MS)

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
            while self.controller.queue.is_wanted() or not done.done():
                assert not deadline.hasExpired()
                QTest.qWait(1)  # `waitUntil` looks only every 10 ms, which hundreds of sequences would feel
            QApplication.processEvents()

    def stored(self) -> dict[str, list[str]]:
        """What the user said in each chat, all versions."""

        def read(store: ChatStore) -> dict[str, list[str]]:
            query = "SELECT text FROM messages WHERE chat_id = ? AND role = 'user' ORDER BY seq"
            return {
                chat.id: [text for (text,) in store._connection.execute(query, (chat.id,))] for chat in store.chats()
            }

        return self.worker.submit(read).result(WAIT_MS / 1000)

    def unsent(self, chat_id: str | None) -> str:
        return self.all_unsent([chat_id])[0]

    def all_unsent(self, chat_ids: Sequence[str | None]) -> list[str]:
        return self.worker.submit(lambda store: [store.unsent(one) for one in chat_ids]).result(WAIT_MS / 1000)

    # ------------------------------------------------------------ the user

    def click(self, chat_id: str | None) -> bool:
        """Choose a chat with the mouse; ``None`` is the button for a new one. Whether it is there to be clicked."""
        if chat_id is None:
            self.window.menus.action("new_chat").trigger()
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
        self.window.close()
        self.window.deleteLater()


@pytest.fixture
def slow(qtbot: QtBot) -> Iterator[Slow]:
    made = Slow(qtbot)
    made.begin()
    made.window.show()
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


def test_a_message_sent_before_the_store_answers_lands_in_the_chat_that_was_clicked(
    slow: Slow, two_chats: tuple[str, str]
) -> None:
    one, two = two_chats
    slow.hold()
    assert slow.click(one)
    slow.send("for one")
    assert slow.composer.text() == ""
    assert slow.click(two)  # and the chat is left before it ever was on the page
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


def test_a_new_chat_before_the_store_answers(slow: Slow, two_chats: tuple[str, str]) -> None:
    one, two = two_chats
    slow.hold()
    slow.click(None)
    first = slow.send("first")
    slow.click(None)
    second = slow.send("second")
    slow.settle()
    assert slow.stored() == {one: ["about one"], two: ["about two"], first: ["first"], second: ["second"]}
    assert slow.chat_id() == second
    assert [message.text for message in slow.chats.current.messages] == ["second", "Hello there"]


def test_deleting_before_the_store_answers(slow: Slow, two_chats: tuple[str, str]) -> None:
    one, _two = two_chats
    slow.hold()
    slow.window.menus.action("delete_chat").trigger()
    new = slow.send("not into what was deleted")
    slow.settle()
    assert slow.stored() == {one: ["about one"], new: ["not into what was deleted"]}


def test_a_message_that_is_stopped_while_it_is_stored_gets_no_answer(slow: Slow, two_chats: tuple[str, str]) -> None:
    slow.hold()
    slow.send("never mind")
    QTest.keyClick(slow.composer.editor, Qt.Key.Key_Escape)
    slow.settle()
    assert [message.text for message in slow.chats.current.messages][-1] == "never mind"
    assert "unanswered" in slow.controller.notice_list.notices()


def test_regenerate_before_the_store_answers_is_for_the_chat_that_was_clicked(
    slow: Slow, two_chats: tuple[str, str]
) -> None:
    one, two = two_chats
    slow.hold()
    slow.click(one)
    slow.window.menus.action("regenerate").trigger()
    slow.settle()
    slow.qtbot.waitUntil(lambda: slow.chats.current.messages[-1].versions == 2, timeout=WAIT_MS)
    assert slow.chat_id() == one
    slow.settle()
    slow.click(two)
    slow.settle()
    assert slow.chats.current.messages[-1].versions == 1


def test_a_message_sent_while_another_version_is_fetched_goes_below_it(slow: Slow, two_chats: tuple[str, str]) -> None:
    _one, two = two_chats
    question = slow.chats.current.messages[0]
    slow.chats.current.edit(question.id, "about 2")
    slow.settle()
    slow.hold()
    slow.chats.current.choose_version(slow.chats.current.messages[0].id, -1)
    slow.send("below the first wording")
    slow.settle()
    assert slow.chat_id() == two
    shown = [message.text for message in slow.chats.current.messages]
    assert shown == ["about two", "Hello there", "below the first wording", "Hello there"]


def test_text_typed_while_a_chat_opens_is_joined_with_what_was_there(slow: Slow, two_chats: tuple[str, str]) -> None:
    one, two = two_chats
    slow.type("stored for two")
    slow.click(one)
    slow.settle()
    assert slow.composer.text() == ""
    slow.hold()
    slow.click(two)
    slow.type("typed for two")
    slow.settle()
    assert slow.composer.text() == "stored for two\ntyped for two"
    slow.click(one)
    slow.settle()
    assert slow.unsent(two) == "stored for two\ntyped for two"


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
    with ChatStore(paths.chat_file()) as store:
        assert store.unsent(two) == "stored for two\nand more"


def test_text_typed_before_the_chats_are_open_is_kept_by_the_end_of_the_app(qtbot: QtBot) -> None:
    slow = Slow(qtbot)
    slow.settings.values.last_chat_id = "the last one"
    slow.type("quick")
    slow.close()
    assert slow.settings.values.last_chat_id == "the last one"
    with ChatStore(paths.chat_file()) as store:
        assert store.unsent(None) == "quick"


def leave_unsent(text: str) -> str:
    """What the last run left: a chat, and text for the one to come."""
    with ChatStore(paths.chat_file()) as store:
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
    with ChatStore(paths.chat_file()) as store:
        assert store.unsent(None) == "left for later"


def test_text_typed_before_the_chats_are_open_does_not_replace_what_was_stored(qtbot: QtBot) -> None:
    leave_unsent("left for later")
    slow = Slow(qtbot)
    slow.type("quick")
    slow.chats.current.unsent.save()  # its time has come before the chats are open
    slow.begin()
    slow.settle()
    assert slow.composer.text() == "left for later\nquick"
    slow.close()
    with ChatStore(paths.chat_file()) as store:
        assert store.unsent(None) == "left for later\nquick"


def test_a_chat_that_cannot_be_opened_is_told_once(slow: Slow, two_chats: tuple[str, str]) -> None:
    one, _two = two_chats
    slow.worker.submit(lambda store: store.delete_chats([one]))
    slow.worker.submit(lambda store: store.erase_deleted([one])).result(WAIT_MS / 1000)
    slow.chats.open(one)
    slow.settle()
    told = slow.controller.notice_list.notices()
    assert told["store"].text == "This chat has been deleted."
    assert "save" not in told


def test_a_chat_in_the_trash_is_not_opened(slow: Slow, two_chats: tuple[str, str]) -> None:
    one, _two = two_chats
    slow.controller.chat_commands.delete_chats([one])
    slow.settle()
    slow.chats.open(one)  # by a notification that is still there
    slow.settle()
    assert slow.chats.current.is_new
    assert slow.controller.notice_list.notices()["store"].text == "This chat is in the trash."


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
    assert slow.stored()[two] == ["two"] or "w1w" not in str(slow.stored())


def test_a_deletion_that_was_undone_at_once_is_not_offered_to_be_undone(slow: Slow, two_chats: tuple[str, str]) -> None:
    _one, two = two_chats
    slow.hold()
    slow.controller.chat_commands.delete_chats([two])
    slow.controller.operations.undo()
    slow.settle()
    assert slow.chats.current.id == two
    assert slow.window.undo_bar.isHidden()


def test_notices_stay_whatever_happens_to_the_messages(slow: Slow, two_chats: tuple[str, str]) -> None:
    one, _two = two_chats
    slow.controller.notice_list.show("engine", notices.load_failed("It is true."))
    bar = slow.window.notice_bar
    for change in (
        slow.chats.current.regenerate,
        lambda: slow.chats.current.edit(slow.chats.current.messages[0].id, "other words"),
        lambda: slow.click(one),
        lambda: slow.click(None),
        lambda: slow.send("a message"),
    ):
        change()
        slow.settle()
        assert [card.text.text() for card in bar.cards.values()] == ["It is true."]
        assert bar.isVisible()
    slow.controller.notice_list.remove("engine")
    assert bar.isHidden()


def test_sending_shows_the_end(slow: Slow, two_chats: tuple[str, str]) -> None:
    slow.chats.current.edit(slow.chats.current.messages[0].id, "long\n" * 200)
    slow.settle()
    column = slow.window.transcript.column
    column.verticalScrollBar().setValue(0)
    assert column.verticalScrollBar().value() < column.verticalScrollBar().maximum()
    slow.send("and now?")
    slow.settle()
    assert column.verticalScrollBar().value() == column.verticalScrollBar().maximum()


class Expected:
    """Where each word should be, by what the user did."""

    def __init__(self) -> None:
        self.sent: dict[str, list[str]] = {}
        self.unsent: dict[str | None, set[str]] = {}
        self.current: str | None = None
        self.words = 0

    def next_word(self) -> str:
        self.words += 1
        word = f"w{self.words}w"
        self.unsent.setdefault(self.current, set()).add(word)
        return word


class User:
    """Does one thing after another, at random."""

    def __init__(self, slow: Slow, dice: random.Random) -> None:
        self.slow = slow
        self.dice = dice
        self.expected = Expected()

    def act(self) -> str:
        """Do something; gives back what it was."""
        often = (self.click, self.type, self.enter)
        what = self.dice.choice((*often, *often, self.new, self.regenerate, self.delete, self.hold, self.release))
        what()
        return what.__name__

    def click(self) -> None:
        if self.expected.sent:
            chat_id = self.dice.choice(list(self.expected.sent))
            if self.slow.click(chat_id):
                self.expected.current = chat_id

    def new(self) -> None:
        self.slow.click(None)
        self.expected.current = None

    def type(self) -> None:
        self.slow.type(self.expected.next_word() + " ")

    def enter(self) -> None:
        expected, text = self.expected, self.slow.composer.text()
        self.slow.enter()
        words = WORD.findall(text)
        assert set(words) <= expected.unsent.get(expected.current, set())
        if words and not self.slow.composer.text():
            expected.unsent[expected.current] -= set(words)
            expected.current = self.slow.chat_id()
            assert expected.current is not None
            expected.sent.setdefault(expected.current, []).append(text)

    def regenerate(self) -> None:
        self.slow.window.menus.action("regenerate").trigger()

    def delete(self) -> None:
        current = self.expected.current
        if current is not None:
            self.slow.window.menus.action("delete_chat").trigger()
            self.expected.sent.pop(current, None)
            self.expected.unsent.pop(current, None)
            self.expected.current = None

    def hold(self) -> None:
        self.slow.hold()

    def release(self) -> None:
        self.slow.release()
        QApplication.processEvents()


def test_in_whatever_order_no_message_is_lost_doubled_or_in_another_chat(slow: Slow) -> None:
    seed = int(os.environ.get("SLIPSTREAM_SEED") or random.randrange(1_000_000))
    print(f"SLIPSTREAM_SEED={seed}")  # noqa: T201 - shown when the test fails
    user = User(slow, random.Random(seed))
    expected = user.expected
    for _ in range(SEQUENCES):
        done = [user.act() for _ in range(user.dice.randint(3, 12))]
        slow.settle()
        assert slow.stored() == expected.sent, done
        assert slow.chat_id() == expected.current, done
        shown = [message.text for message in slow.chats.current.messages if message.role == "user"]
        assert set(shown) <= set(expected.sent.get(expected.current or "", [])), done
        for (chat_id, words), stored in zip(
            expected.unsent.items(), slow.all_unsent(list(expected.unsent)), strict=True
        ):
            text = slow.composer.text() if chat_id == expected.current else stored
            assert sorted(WORD.findall(text)) == sorted(words), done
