"""The Edit menu acts on what has the focus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QGuiApplication, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractItemView,
    QLineEdit,
    QListWidget,
    QMainWindow,
    QPlainTextEdit,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.ui.actions import Actions
from app.ui.chat.composer import MessageEditor
from app.ui.chat.operations import ChatOperations
from app.ui.context import AppContext
from app.ui.shell.all_actions import MENUS
from app.ui.shell.menus import NAMES, EditMenu


class Deletions(ChatOperations):
    """Some that can be undone."""

    def __init__(self, parent: QObject) -> None:
        QObject.__init__(self, parent)
        self.count = 0

    def can_undo(self) -> bool:
        return bool(self.count)

    def undo(self) -> None:
        self.count -= 1
        self.undo_changed.emit()


class Window(QMainWindow):
    def __init__(self) -> None:
        super().__init__()
        self.actions_ = Actions({"&Edit": MENUS["&Edit"][:8]}, {}, self)
        self.deletions = Deletions(self)
        self.menu = self.actions_.fill_menu_bar(self.menuBar())["Edit"]
        ctx = SimpleNamespace(actions=self.actions_, operations=self.deletions)
        edit_menu = self.edit_menu = EditMenu(cast(AppContext, ctx), self.menu)
        self.actions_.begin(SimpleNamespace(edit_menu=edit_menu))
        self.field = QPlainTextEdit()
        self.view = QTextBrowser()
        self.view.setPlainText("an answer")
        self.line = QLineEdit()
        self.list = QListWidget()
        self.list.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.list.addItems(["one", "two"])
        content = QWidget()
        layout = QVBoxLayout(content)
        for part in (self.field, self.view, self.line, self.list):
            layout.addWidget(part)
        self.setCentralWidget(content)

    def action(self, name: str) -> QAction:
        return self.actions_.qaction(name)

    def open_menu(self) -> set[str]:
        """What can be chosen in the Edit menu."""
        self.menu.aboutToShow.emit()
        return {name for name in NAMES if self.action(name).isEnabled()}


@pytest.fixture
def window(qtbot: QtBot) -> Window:
    made = Window()
    qtbot.addWidget(made)
    QGuiApplication.clipboard().clear()
    made.show()
    made.activateWindow()
    made.field.setFocus()
    qtbot.waitUntil(made.field.hasFocus)
    return made


def test_only_what_can_be_done_can_be_chosen(window: Window) -> None:
    assert window.open_menu() == set()
    QTest.keyClicks(window.field, "words")
    assert window.open_menu() == {"undo", "select_all"}
    window.action("select_all").trigger()
    assert window.open_menu() == {"undo", "cut", "copy", "select_all"}
    window.action("cut").trigger()
    assert window.field.toPlainText() == ""
    assert window.open_menu() == {"undo", "paste"}
    window.action("paste").trigger()
    assert window.field.toPlainText() == "words"
    window.action("undo").trigger()
    assert window.field.toPlainText() == ""
    assert "redo" in window.open_menu()
    window.action("redo").trigger()
    assert window.field.toPlainText() == "words"


def test_undo_takes_back_a_deletion_where_no_text_can_be_undone(window: Window, qtbot: QtBot) -> None:
    undo = window.action("undo")
    window.deletions.count = 2
    window.edit_menu.reset()
    QTest.keyClicks(window.field, "words")
    window.open_menu()
    assert undo.text() == "&Undo"
    undo.trigger()
    assert (window.field.toPlainText(), window.deletions.count) == ("", 2)
    window.open_menu()
    assert undo.text() == "&Undo delete"
    undo.trigger()
    assert window.deletions.count == 1
    window.menu.aboutToHide.emit()
    assert undo.text() == "&Undo"
    window.list.setFocus()
    qtbot.waitUntil(window.list.hasFocus)
    QTest.keySequence(window.list, QKeySequence(QKeySequence.StandardKey.Undo))
    assert window.deletions.count == 0
    assert "undo" not in window.open_menu()


def test_the_key_stays_with_a_field_until_nothing_was_written_in_it(window: Window, qtbot: QtBot) -> None:
    keys = QKeySequence(QKeySequence.StandardKey.Undo)
    editor = MessageEditor("Your message", window.centralWidget())
    editor.show()
    editor.setFocus()
    qtbot.waitUntil(editor.hasFocus)
    window.deletions.count = 2
    window.edit_menu.reset()
    QTest.keyClicks(editor, "words")
    for _ in range(3):  # held too long
        QTest.keySequence(editor, keys)
    assert (editor.toPlainText(), window.deletions.count) == ("", 2)
    editor.setPlainText("")  # it was sent
    QTest.keySequence(editor, keys)
    assert window.deletions.count == 1


def test_each_part_offers_what_it_can(window: Window, qtbot: QtBot) -> None:
    QGuiApplication.clipboard().setText("before")
    select_all = window.action("select_all")

    def focus(part: QWidget) -> None:
        part.setFocus()
        qtbot.waitUntil(part.hasFocus)

    focus(window.view)  # which is only read
    assert window.open_menu() == {"select_all"}
    select_all.trigger()
    assert window.open_menu() == {"copy", "select_all"}
    window.action("copy").trigger()
    assert QGuiApplication.clipboard().text() == "an answer"
    focus(window.list)
    assert window.open_menu() == {"select_all"}
    select_all.trigger()
    assert len(window.list.selectedItems()) == 2
    QGuiApplication.clipboard().clear()
    window.line.setEchoMode(QLineEdit.EchoMode.Password)
    focus(window.line)
    QTest.keyClicks(window.line, "secret")
    window.line.selectAll()
    assert window.open_menu() == {"undo", "select_all"}


def test_the_keys_stay_with_whatever_has_the_focus(window: Window, qtbot: QtBot) -> None:
    """An action that is enabled takes its key from a list, which has it for itself."""
    window.field.setPlainText("words")
    window.field.selectAll()
    assert "copy" in window.open_menu()
    window.list.setFocus()
    qtbot.waitUntil(window.list.hasFocus)
    window.list.setCurrentRow(1)
    QTest.keyClick(window.list, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "two"


def test_a_menu_that_takes_the_focus_acts_on_what_had_it(window: Window, qtbot: QtBot) -> None:
    window.field.setPlainText("words")
    window.menuBar().setFocus(Qt.FocusReason.MenuBarFocusReason)
    qtbot.waitUntil(window.menuBar().hasFocus)
    assert "select_all" in window.open_menu()
