"""What is done with chats and folders, with the list and a real store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QMessageBox
from pytestqt.qtbot import QtBot

from app.chats.model import Found
from app.chats.store import TRASH_DAYS, ChatStore
from app.chats.worker import ChatWorker
from app.ui.chat.chat_list import ChatList
from app.ui.chat.list.view import _drag_picture
from app.ui.chat.operations import ChatOperations
from app.ui.chat.writer import StoredChats
from app.ui.notices import NoticeList
from tests.support.chats import add_question
from tests.ui.recorded_actions import Recorded

pytestmark = pytest.mark.qt_log_ignore("^This plugin does not support", extend=True)

WAIT_MS = 20_000
Key = Qt.Key
SHIFT = Qt.KeyboardModifier.ShiftModifier
T = TypeVar("T")


class Rig:
    """A list on screen, and the operations and the store behind it."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.qtbot = qtbot
        self.worker = ChatWorker(folder / "chats.sqlite")
        self.notice_list = NoticeList()
        self.chat_store = StoredChats(self.worker, self.notice_list)
        self.operations = ChatOperations(self.chat_store, self.notice_list)
        self.actions = Recorded()
        self.list = ChatList(self.actions)
        qtbot.addWidget(self.list)
        operations = self.operations
        self.list.begin(operations)
        self.sentences: list[str] = []
        operations.deletion_done.connect(self.sentences.append)
        self.actions.answers = {
            "name_chat": operations.rename,
            "name_folder": operations.rename_folder,
            "delete_chats": operations.delete,
            "delete_folder": operations.delete_folder,
            "pin_chats": operations.pin,
            "move_chats": operations.move,
            "create_folder": operations.create_folder,
            "search": operations.search,
            "watch_trash": operations.watch_trash,
            "restore_chats": operations.restore,
            "erase_chats": operations.erase,
        }
        self.list.resize(220, 600)
        self.list.show()
        self.list.activateWindow()

    def stored(self, function: Callable[[ChatStore], T]) -> T:
        return self.worker.submit(function).result(WAIT_MS / 1000)

    def make(self, *titles: str) -> list[str]:
        """Chats with these titles; their ids."""
        ids = [self.stored(lambda store, title=title: store.create_chat(title).id) for title in titles]  # type: ignore[misc]
        self.operations.refresh()
        self.settle()
        return ids

    def settle(self) -> None:
        """Wait until all is done that was asked of the store, and what that led to."""
        for _ in range(4):
            done: list[object] = []
            self.chat_store.ask(lambda _store: None, done.append)
            self.qtbot.waitUntil(lambda: bool(done), timeout=WAIT_MS)  # noqa: B023

    def titles(self) -> list[str]:
        model = self.list.view.chats
        return [str(model.data(model.index(place))) for place in range(model.rowCount())]

    def select(self, *ids: str) -> None:
        view = self.list.view
        view.setFocus()
        view.select(ids[0])
        for _ in ids[1:]:
            QTest.keyClick(view, Key.Key_Down, SHIFT)
        assert {chat.id for chat in view.selected_chats()} == set(ids)

    def refuse(self, state: str = "ON") -> None:
        """Let the store write nothing, until it is ``OFF``."""
        self.stored(lambda store: store._connection.execute(f"PRAGMA query_only = {state}"))

    def close(self) -> None:
        self.chat_store.close()
        self.chat_store.deleteLater()
        self.notice_list.deleteLater()


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(qtbot, tmp_path)
    yield made
    made.close()


def answer(rig: Rig, button: str) -> str:
    """Press a button of the question that is asked; gives back what it asks."""
    box = rig.list.findChild(QMessageBox)
    assert box is not None
    text = box.text()
    next(one for one in box.buttons() if one.text().replace("&", "") == button).click()
    return text


def texts(*buttons: QAbstractButton) -> list[bool]:
    return [button.isEnabled() for button in buttons]


def test_each_deletion_can_be_undone_the_last_one_first(rig: Rig) -> None:
    first, second, third = rig.make("first", "second", "third")
    rig.select(third, second)
    QTest.keyClick(rig.list.view, Key.Key_Delete)
    assert rig.titles() == ["Today", "first"]  # at once
    rig.operations.delete([first])
    rig.settle()
    assert rig.sentences == ["2 chats were moved to the trash.", "“first” was moved to the trash."]
    assert rig.stored(ChatStore.chats) == []
    rig.operations.undo()
    rig.settle()
    assert rig.titles() == ["Today", "first"]
    for _ in range(2):  # the second time there is nothing more
        rig.operations.undo()
        rig.settle()
        assert rig.titles() == ["Today", "third", "second", "first"]


def test_a_list_that_was_read_before_a_deletion_does_not_bring_the_chat_back(rig: Rig) -> None:
    (first, second) = rig.make("first", "second")
    shown: list[list[str]] = []
    rig.operations.chats_listed.connect(lambda chats, _folders: shown.append([chat.id for chat in chats]))
    rig.operations.refresh()
    rig.operations.delete([first])
    rig.settle()
    assert shown
    assert all(ids == [second] for ids in shown)


def test_a_chat_that_cannot_be_deleted_or_renamed_stays(rig: Rig) -> None:
    (first,) = rig.make("first")
    rig.refuse()
    rig.operations.delete([first])
    rig.settle()
    assert rig.titles() == ["Today", "first"]
    assert "store" in rig.notice_list.notices()
    model = rig.list.view.chats
    assert model.setData(model.index(1), "other")
    assert rig.titles() == ["Today", "other"]
    rig.settle()
    assert rig.titles() == ["Today", "first"]
    rig.refuse("OFF")


def test_folders(rig: Rig) -> None:
    first, second, third = rig.make("first", "second", "third")
    rig.operations.create_folder("Work", [first, second])
    rig.settle()
    assert rig.titles() == ["Work", "second", "first", "Today", "third"]
    [folder] = rig.stored(ChatStore.folders)
    rig.operations.rename_folder(folder.id, "Play")
    rig.operations.move([second], None)
    rig.operations.move([third], folder.id)
    rig.settle()
    assert rig.titles() == ["Play", "third", "first", "Today", "second"]
    rig.list.view.setFocus()
    rig.list.view.select(f"folder {folder.id}")
    QTest.keyClick(rig.list.view, Key.Key_Delete)
    rig.settle()
    assert rig.titles() == ["Today", "third", "second", "first"]
    assert rig.sentences == ["The folder “Play” was deleted. Its chats were kept."]
    rig.operations.undo()
    rig.settle()
    assert rig.titles() == ["Play", "third", "first", "Today", "second"]


def test_the_trash(rig: Rig) -> None:
    first, second, third = rig.make("first", "second", "third")
    rig.operations.delete([first, second, third])
    rig.list.view.setFocus()
    rig.list.show_trash()
    rig.settle()
    assert rig.list.trash.view.hasFocus()
    trash, view = rig.list.trash, rig.list.trash.view
    assert trash.isVisible()
    assert len(trash.model.rows) == 3
    assert texts(trash.restore, trash.delete_now, trash.empty) == [False, False, True]
    view.setFocus()
    view.setCurrentIndex(trash.model.index(0))
    chosen = trash.model.rows[0].chat
    trash.restore.click()
    rig.settle()
    assert rig.titles() == ["Today", chosen.title]
    QTest.keyClick(view, Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClick(view, Key.Key_Delete)
    assert answer(rig, "Cancel") == "Permanently delete 2 chats?"
    rig.settle()
    assert len(rig.stored(ChatStore.trash)) == 2
    view.setCurrentIndex(trash.model.index(1))
    erased: list[list[str]] = []
    rig.operations.copies_unwanted.connect(erased.append)
    trash.delete_now.click()
    assert answer(rig, "Delete") == "Permanently delete 1 chat?"
    rig.settle()
    assert len(trash.model.rows) == 1
    trash.empty.click()
    assert answer(rig, "Empty trash") == "Permanently delete all chats in the trash (1 chat)?"
    rig.settle()
    assert trash.model.rows == []
    assert len(erased) == 2
    assert trash._empty_text.isVisible()
    assert texts(trash.restore, trash.delete_now, trash.empty) == [False, False, False]
    trash.setFocus()
    QTest.keyClick(trash, Key.Key_Escape)
    assert rig.list.view.isVisible()


def test_while_the_app_goes_on_chats_are_erased_after_their_month(rig: Rig) -> None:
    first, _second = rig.make("first", "second")
    erased: list[list[str]] = []
    rig.operations.copies_unwanted.connect(erased.append)
    rig.operations.delete([first])
    rig.operations.tidy()
    rig.settle()
    assert (len(rig.stored(ChatStore.trash)), erased) == (1, [[first]])
    rig.stored(lambda store: setattr(store, "_clock", lambda: time.time() + TRASH_DAYS * 86400))
    rig.operations.tidy()
    rig.settle()
    assert (rig.stored(ChatStore.trash), erased, rig.titles()) == ([], [[first], []], ["Today", "second"])


def test_what_was_erased_or_restored_by_hand_is_no_deletion_to_undo_any_more(rig: Rig) -> None:
    first, second, third, fourth = rig.make("first", "second", "third", "fourth")
    rig.operations.delete([first])
    rig.operations.offer_undo(lambda _put_back: None, "Deleted a message.", second)
    rig.operations.delete([second, third])
    rig.operations.delete([fourth])
    rig.settle()
    rig.operations.restore([fourth])
    rig.operations.erase([second])
    rig.settle()
    rig.operations.undo()  # not of the fourth, and only what is left of the two
    rig.settle()
    assert rig.titles() == ["Today", "fourth", "third"]
    rig.operations.erase()
    rig.settle()
    assert not rig.operations.can_undo()  # the message was in a chat that has gone


def test_what_the_store_refuses_to_bring_back_can_be_brought_back_later(rig: Rig) -> None:
    (first,) = rig.make("first")
    rig.operations.create_folder("Work", [first])
    rig.settle()
    [folder] = rig.stored(ChatStore.folders)
    deletions: list[Callable[[], None]] = [
        lambda: rig.operations.delete_folder(folder.id),
        lambda: rig.operations.delete([first]),
    ]
    for delete in deletions:
        delete()
        rig.settle()
        rig.refuse()
        rig.operations.undo()
        rig.settle()
        assert "store" in rig.notice_list.notices()
        rig.refuse("OFF")
        assert rig.operations.can_undo()
        rig.operations.undo()
        rig.settle()
        assert rig.titles() == ["Work", "first"]
        assert not rig.operations.can_undo()


def test_search_shows_passages_and_goes_to_them(rig: Rig) -> None:
    first, _second = rig.make("first", "second")
    message = rig.stored(lambda store: add_question(store, first, None, "I always wanted to know why cats purr."))
    field, results = rig.list.search_field, rig.list.results
    field.setFocus()
    QTest.keyClicks(field, "purr")
    rig.qtbot.waitUntil(lambda: len(results.results()) == 2, timeout=WAIT_MS)
    title, passage = results.results()
    assert (title.text, title.message_id) == ("first", "")
    [(start, length)] = passage.matches
    assert passage.text[start : start + length] == "purr"
    assert passage.text.startswith("…")  # so that the match can be seen in a narrow list
    assert start <= 16
    QTest.keyClick(field, Key.Key_Down)
    QTest.keyClick(field, Key.Key_Down)
    QTest.keyClick(field, Key.Key_Return)
    assert rig.actions.calls["open_message"] == [(first, message.id)]
    QTest.mouseClick(
        results.viewport(), Qt.MouseButton.LeftButton, pos=results.visualRect(results.model().index(0, 0)).center()
    )
    assert rig.actions.calls["open_chat"] == [(first,)]
    assert field.text() == "purr"


def test_answers_to_what_was_typed_before_are_not_shown(rig: Rig) -> None:
    rig.make("one", "two")
    told: list[tuple[str, list[Found]]] = []
    rig.operations.chats_found.connect(lambda text, found: told.append((text, found)))
    for text in ("one", "two", "", "tw"):
        rig.operations.search(text)
    rig.settle()
    assert [(text, [one.chat.title for one in found]) for text, found in told] == [("tw", ["two"])]
    rig.list.search_field.setText("t")
    rig.list.set_found("tw", told[0][1])
    assert not rig.list.results.isVisible()


def test_deleting_from_the_results_of_a_search(rig: Rig) -> None:
    first, _second = rig.make("word one", "word two")
    rig.list.search_field.setText("word")
    rig.qtbot.waitUntil(lambda: len(rig.list.results.results()) == 2, timeout=WAIT_MS)
    view = rig.list.results
    view.setFocus()
    view.setCurrentIndex(view.model().index(1, 0))
    QTest.keyClick(view, Key.Key_Delete)
    rig.qtbot.waitUntil(lambda: [one.text for one in view.results()] == ["word two"], timeout=WAIT_MS)
    assert [chat.id for chat in rig.stored(ChatStore.trash)] == [first]
    assert rig.list._count.text() == "1 chat found"


def test_a_drag_shows_what_is_dragged(qapp: object) -> None:
    assert 0 < _drag_picture("A title " * 30).width() < 400
