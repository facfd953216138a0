"""The list on the left by itself."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QMenu, QMessageBox, QPushButton
from pytestqt.qtbot import QtBot

from app.chats.model import Chat
from app.ui.chat.chat_list import ChatList, group_of
from app.ui.widgets import theme

TODAY = date(2026, 11, 20)


def at(day: int, hour: int = 12) -> float:
    return datetime(2026, 11, day, hour).timestamp()


def chat(name: str, updated_at: float) -> Chat:
    return Chat(name, f"About {name}" if name != "untitled" else "", updated_at, updated_at, None)


def titles(chat_list: ChatList) -> list[str]:
    """What stands in the list, headings included."""
    return [chat_list._list.item(row).text() for row in range(chat_list._list.count())]


@pytest.fixture
def chat_list(qtbot: QtBot) -> ChatList:
    widget = ChatList()
    qtbot.addWidget(widget)
    widget.resize(220, 500)
    widget.show()
    widget.set_chats([chat("a", at(20)), chat("b", at(19, 1)), chat("c", at(18)), chat("untitled", at(2))], TODAY)
    return widget


@pytest.mark.parametrize(
    ("moment", "group"),
    [(at(20, 0), "Today"), (at(21), "Today"), (at(19, 23), "Yesterday"), (at(18, 23), "Earlier")],
)
def test_groups(moment: float, group: str) -> None:
    assert group_of(moment, TODAY) == group


def test_titles_under_their_days(chat_list: ChatList) -> None:
    assert titles(chat_list) == ["Today", "About a", "Yesterday", "About b", "Earlier", "About c", "New chat"]


def test_choosing_with_keys_skips_headings(qtbot: QtBot, chat_list: ChatList) -> None:
    chat_list.set_current("a")
    with qtbot.waitSignal(chat_list.chat_chosen) as chosen:
        QTest.keyClick(chat_list._list, Qt.Key.Key_Down)
    assert chosen.args == ["b"]


@pytest.mark.qt_log_ignore("^This plugin does not support", extend=True)
def test_a_menu_that_is_open_while_the_list_is_filled_anew(qtbot: QtBot, chat_list: ChatList) -> None:
    place = chat_list._list.visualItemRect(chat_list._list.item(1)).center()
    chat_list._list.customContextMenuRequested.emit(place)
    rename, delete = chat_list.findChildren(QMenu)[-1].actions()
    chat_list.set_chats([chat("b", at(20)), chat("a", at(19))], TODAY)
    with qtbot.waitSignal(chat_list.chat_deletion_requested) as asked:
        delete.trigger()
    assert asked.args == ["a"]
    rename.trigger()
    assert [editor.text() for editor in chat_list._list.findChildren(QLineEdit)] == ["About a"]


def test_marking_the_shown_chat_tells_nobody(qtbot: QtBot, chat_list: ChatList) -> None:
    with qtbot.assertNotEmitted(chat_list.chat_chosen):
        chat_list.set_current("c")
        chat_list.set_current(None)
        chat_list.set_chats([chat("a", at(20))], TODAY)


def test_renaming_in_place(qtbot: QtBot, chat_list: ChatList) -> None:
    chat_list.set_current("b")
    chat_list.rename_current()
    editor = chat_list._list.findChild(QLineEdit)
    assert editor is not None
    editor.selectAll()
    QTest.keyClicks(editor, "Rain")
    with qtbot.waitSignal(chat_list.chat_renamed) as renamed:
        QTest.keyClick(editor, Qt.Key.Key_Return)
    assert renamed.args == ["b", "Rain"]


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Escape])
def test_a_title_being_typed_outlives_whatever_happens_to_the_list(
    qtbot: QtBot, chat_list: ChatList, key: Qt.Key
) -> None:
    renamed: list[tuple[str, str]] = []
    chat_list.chat_renamed.connect(lambda chat_id, title: renamed.append((chat_id, title)))
    chat_list.set_current("b")
    chat_list.rename_current()
    editor = chat_list._list.findChild(QLineEdit)
    assert editor is not None
    editor.selectAll()
    QTest.keyClicks(editor, "Ra")
    chat_list.set_chats([chat("new", at(20)), chat("b", at(19))], TODAY)  # an answer came to its end
    chat_list.set_current("new")  # a message made a chat
    QTest.keyClicks(editor, "in")
    assert chat_list._list.findChild(QLineEdit) is editor
    assert renamed == []
    QTest.keyClick(editor, key)
    qtbot.waitUntil(lambda: titles(chat_list) == ["Today", "About new", "Yesterday", "About b"])
    assert renamed == ([("b", "Rain")] if key == Qt.Key.Key_Return else [])
    assert chat_list._list.currentItem().text() == "About new"


def test_deleting_a_chat_ends_the_renaming_of_it(qtbot: QtBot, chat_list: ChatList) -> None:
    chat_list.set_current("b")
    chat_list.rename_current()
    with qtbot.assertNotEmitted(chat_list.chat_renamed):
        chat_list.hide_chat("b")
        qtbot.waitUntil(lambda: "About b" not in titles(chat_list))


def test_a_chat_that_is_being_deleted_cannot_be_chosen(qtbot: QtBot, chat_list: ChatList) -> None:
    chats = [chat("a", at(20)), chat("b", at(19))]
    chat_list.hide_chat("b")
    chat_list.set_chats(chats, TODAY)  # the store had not come to it
    assert titles(chat_list) == ["Today", "About a"]
    chat_list.show_chat("b")  # it could not be deleted
    chat_list.set_chats(chats, TODAY)
    assert titles(chat_list) == ["Today", "About a", "Yesterday", "About b"]


def test_rows_that_stay_are_not_made_again(chat_list: ChatList) -> None:
    def row(chat_id: str) -> object:
        return chat_list._item(chat_id)

    kept = row("b"), row("untitled")
    chat_list.set_chats([chat("c", at(20, 13)), chat("a", at(20)), chat("b", at(19)), chat("untitled", at(2))], TODAY)
    assert titles(chat_list) == ["Today", "About c", "About a", "Yesterday", "About b", "Earlier", "New chat"]
    assert row("untitled") is kept[1]
    before = row("b")
    chat_list.set_chats([chat("a", at(20)), chat("b", at(19)), chat("untitled", at(2))], TODAY)
    assert row("b") is before


@pytest.mark.qt_log_ignore("^This plugin does not support", extend=True)
@pytest.mark.parametrize(("answer", "deleted"), [("Delete", ["b"]), ("Cancel", [])])
def test_the_delete_key_asks_first(chat_list: ChatList, answer: str, deleted: list[str]) -> None:
    asked: list[str] = []
    chat_list.chat_deletion_requested.connect(asked.append)
    chat_list.set_current("b")
    chat_list.activateWindow()
    chat_list._list.setFocus()
    QTest.keyClick(chat_list._list, Qt.Key.Key_Delete)
    box = chat_list.findChild(QMessageBox)
    assert box is not None
    assert box.text() == "Delete “About b”?"
    assert box.defaultButton().text() == "Cancel"
    chat_list.set_current("c")  # whatever happens meanwhile
    next(button for button in box.buttons() if button.text() == answer).click()
    assert asked == deleted


def test_search_is_told_once_typing_pauses(qtbot: QtBot, chat_list: ChatList) -> None:
    heard: list[str] = []
    chat_list.search_changed.connect(heard.append)
    with qtbot.waitSignal(chat_list.search_changed):
        QTest.keyClicks(chat_list._search, "poem")
    assert heard == ["poem"]


def test_new_chat_button(qtbot: QtBot, chat_list: ChatList) -> None:
    with qtbot.waitSignal(chat_list.new_button.clicked):
        QTest.mouseClick(chat_list.findChildren(QPushButton)[0], Qt.MouseButton.LeftButton)


def test_headings_follow_the_theme(chat_list: ChatList) -> None:
    theme.override(theme.DARK)
    try:
        assert chat_list._list.item(0).foreground().color() == theme.DARK.quiet
    finally:
        theme.override(None)


def test_titles_are_plain_text_in_tool_tips(chat_list: ChatList) -> None:
    wicked = Chat("w", "<img src='file:///etc/hostname'>", at(20), at(20), None)
    chat_list.set_chats([wicked], TODAY)
    assert "<img" not in chat_list._list.item(1).toolTip()
