"""The table of actions, walked through with keys alone: each line of the menu bar by its letters and by its keys, each
button of a notice, what can be done with messages and with chats in the list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QWidget
from pytestqt.qtbot import QtBot

from app.ui import notices
from app.ui.actions import Actions, Choice
from app.ui.shell.all_actions import ELSEWHERE, MENUS
from tests.support.keyrings import MemoryKeyring
from tests.ui.shell.test_by_keyboard import Typist
from tests.ui.test_notices import ALL as NOTICES

pytestmark = pytest.mark.usefixtures("guide_pair", "dressed", "usual_settings_later", "user")
_Key = Qt.Key
ASKED_BY_VIEWS = {  # no command: what a view needs to know, or has done by what it does anyway
    *(
        "tokens_of",
        "load_thumbnail",
        "about_tool",
        "search",
        "watch_trash",
        "open_chat",
        "open_message",
        "choose_version",
    ),
    *("name_chat", "name_folder", "create_folder", "edit_message", "show_attachment", "open_model_file"),
}
ELSEWHERE_TESTED = {
    *("allow_in_chat", "always_allow"),  # only while a tool call waits: test_tool_cards
    *("continue_message", "skip_thinking"),  # only of an answer that was cut, or thinks: test_thinking
    *("ask", "hide_introduction", "get_proposed", "load_starter"),  # test_welcome, test_starter
    *("delete_folder", "restore_chats", "erase_chats"),  # test_by_keyboard, test_trash
    *("load_files", "load_pair", "open_pair", "hide_starter", "show_folders", "ask_for_token"),  # tests/ui/models
    "cancel_loading",  # test_top_bar
}


class Walker(Typist):
    """Somebody who reaches everything and whose commands are only noted, from `begin_noting` on."""

    def __init__(self, qtbot: QtBot) -> None:
        self.noted: list[str] = []
        super().__init__(qtbot)

    def begin_noting(self, patch: pytest.MonkeyPatch) -> None:
        def run(_actions: Actions, name: str, *_values: object) -> Any:
            self.noted.append(name)

        def offered(_actions: Actions, name: str, *_values: object) -> list[Choice]:
            return [Choice("One", ("1",))] if name in ("load_recent", "regenerate_with") else []

        patch.setattr(Actions, "run", run)
        patch.setattr(Actions, "is_enabled", lambda _actions, _name: True)
        patch.setattr(Actions, "choices", offered)
        self.actions.refresh()
        self.noted.clear()

    def focused(self) -> QWidget:
        found = QApplication.focusWidget()
        assert found is not None
        return found

    def back_to(self, name: str) -> None:
        """Press Shift+Tab until a button with this text has the focus."""
        for _ in range(20):
            self.press(_Key.Key_Backtab, Qt.KeyboardModifier.ShiftModifier)
            if self.focused().property("text") == name:
                return
        raise AssertionError(f"Shift+Tab leads to nothing called {name}")

    def choose_line(self, text: str) -> None:
        """A line of the menu that is open: by its letter, or else with the arrow keys."""
        place = text.find("&")
        if place >= 0:
            QTest.keyClicks(self.popup(), text[place + 1].lower())
            return
        menu = self.popup()
        for _ in menu.actions():
            if (active := menu.activeAction()) is not None and active.text() == text:
                break
            self.press(_Key.Key_Down)
        self.press(_Key.Key_Return)


@pytest.fixture
def walker(qtbot: QtBot, kept: MemoryKeyring) -> Iterator[Walker]:
    made = Walker(qtbot)
    yield made
    made.close()


def in_the_menus() -> Iterator[tuple[str, Any]]:
    for title, menu in MENUS.items():
        yield from ((title, one) for one in menu if one is not None)


def test_each_line_of_the_menus_by_letters_and_keys(walker: Walker, monkeypatch: pytest.MonkeyPatch) -> None:
    walker.begin_noting(monkeypatch)
    walker.window.chat_list.new_button.setFocus()  # which has no keys of its own
    for title, one in in_the_menus():
        if one.shown is not None and not one.shown():
            continue  # the starter model, which is not installed
        walker.press(getattr(_Key, f"Key_{title[1]}"), Qt.KeyboardModifier.AltModifier)
        walker.choose_line(one.text)
        if one.choices is not None:
            walker.press(_Key.Key_Return)
        assert walker.noted == [one.name]
        assert QApplication.activePopupWidget() is None
        walker.noted.clear()
        for keys in one.key_sequences():
            if not keys.isEmpty():
                QTest.keySequence(walker.focused(), QKeySequence(keys))
                assert walker.noted == [one.name], keys.toString()
                walker.noted.clear()


def test_each_button_of_each_notice(walker: Walker, monkeypatch: pytest.MonkeyPatch) -> None:
    walker.begin_noting(monkeypatch)
    named = set()
    after_a_gpu = notices.engine_ended("It crashed.", had_draft=True, crashed_with_gpu=True)
    for notice in (*NOTICES, after_a_gpu, notices.server_failed("It needs a key.", "key")):
        for name in notice.actions:
            walker.ctx.notices.remove(*walker.ctx.notices.notices())
            walker.ctx.notices.show("subject", notice)
            walker.window.composer.setFocus()
            walker.back_to(walker.actions.text(name))
            walker.press(_Key.Key_Space)
            assert walker.noted == [name]
            walker.noted.clear()
            named.add(name)
    assert {one.name for one in ELSEWHERE["In notices"]} <= named


def test_what_can_be_done_with_a_message_and_a_chat(walker: Walker, monkeypatch: pytest.MonkeyPatch) -> None:
    walker.say("Hello")
    walker.ctx.operations.create_folder("Work", ())
    walker.until(lambda: bool(walker.folders()))
    walker.press(_Key.Key_Up, Qt.KeyboardModifier.AltModifier)
    message = walker.focused()
    walker.begin_noting(monkeypatch)
    reached: set[str] = set()
    names = ("regenerate_answer", "compare_answer", "branch_message", "delete_message", "delete_from_here")
    for name in names:
        QTest.keyClick(message, _Key.Key_Return)
        walker.choose_line(walker.actions.text(name))
        assert walker.noted == [name]
        reached.add(walker.noted.pop())
        message.setFocus()
    QTest.keyClick(message, _Key.Key_Return)
    walker.choose_line(walker.actions.text("regenerate_with"))
    walker.press(_Key.Key_Return)
    reached.add(walker.noted.pop())
    view = walker.window.chat_list.view
    view.setFocus()
    for key, modifiers, name in (
        (_Key.Key_Delete, Qt.KeyboardModifier.NoModifier, "delete_chats"),
        (_Key.Key_P, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier, "pin_chats"),
    ):
        QTest.keyClick(view, key, modifiers)
        assert walker.noted == [name]
        reached.add(walker.noted.pop())
    QTest.keyClick(view, _Key.Key_M, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    walker.choose_line("Work")
    reached.add(walker.noted.pop())
    menu = QMenu(view)
    view._fill_chats_menu(menu, view.selected_chats())
    menu.popup(view.mapToGlobal(view.rect().center()))
    walker.choose_line(walker.actions._table["export_chats"].text)
    reached.add(walker.noted.pop())
    there = {one.name for place in ("In the messages", "In the chat list") for one in ELSEWHERE[place]}
    assert there - reached - ASKED_BY_VIEWS - ELSEWHERE_TESTED == set()


def test_what_is_in_several_places_is_looked_at_somewhere() -> None:
    several = {one.name for one in ELSEWHERE["In several places"]}
    assert several - ELSEWHERE_TESTED == {"choose_models"}  # a notice has it, and the top bar
