"""Every window and dialog of the app: each control has a name that says more than a sign, each letter of a menu leads
to one line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QDialog,
    QLabel,
    QMenu,
    QStackedWidget,
    QTabBar,
    QTabWidget,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app import system
from app.chats.model import Chat, Folder
from app.ui import notices
from app.ui.chat.list.model import FolderRow
from app.ui.engine.client import EngineClient
from app.ui.settings.network_page import TokenDialog
from app.ui.shell.help import LicensesDialog
from tests.support.keyrings import MemoryKeyring
from tests.ui.shell.running import WAIT_MS, Running

pytestmark = pytest.mark.usefixtures("guide_pair", "dressed", "user")


@pytest.fixture
def running(qtbot: QtBot, kept: MemoryKeyring) -> Iterator[Running]:
    window = Running(qtbot, EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", "compare"]))
    window.begin()
    window.ready()
    window.ask("Hello")
    yield window
    window.close()


@pytest.fixture
def windows(running: Running) -> list[QWidget]:
    """All windows, as many dialogs as there are, with something in the lists."""
    app, others = running.app, running.app.windows
    main = running.window
    for name in ("show_shortcuts", "show_figures", "show_about", "chat_settings", "compare_last"):
        running.choose(name)
    LicensesDialog(system.licenses(), main).open()
    app.opening.open_models()
    others.settings().show_page("General")
    with running.qtbot.waitSignal(app.library.scanned, timeout=WAIT_MS):
        others.models().show_library()
    main.chat_list.view.ask_for_folder()
    app.chat_list.import_chats()
    running.choose("export_chat")
    TokenDialog("https://huggingface.co", main).open()
    main.settings_tab.save_button.click()
    app.ctx.notices.show("file", notices.not_opened("It is no model."))
    main.undo_bar.offer("A chat was moved to the trash.")
    main.chat_list.show_trash()
    running.qtbot.waitUntil(lambda: not running.app.compare.one.is_running(), timeout=WAIT_MS)
    QCoreApplication.processEvents()
    found = [one for one in QApplication.topLevelWidgets() if is_window(one)]
    names = {one.windowTitle() for one in found}
    assert {"Slipstream", "Settings", "Models", "Compare", "Open models", "Keyboard shortcuts", "Licenses"} <= names
    assert {"About Slipstream", "What the figures mean", "New folder", "Import chats", "Export chat"} <= names
    assert len(found) >= 13
    return found


def is_window(widget: QWidget) -> bool:
    return bool(widget.windowTitle()) and not isinstance(widget, QMenu)


def is_of_qt(widget: QWidget) -> bool:
    """A part of a widget of Qt's, such as the field within a number's, or a box of a message."""
    return widget.objectName().startswith("qt_") and not isinstance(widget, QTabBar)


def can_be_there(widget: QWidget) -> bool:
    """Whether it is shown, or on a page that a tab shows; not in what is still without content."""
    around: list[QWidget] = [widget]
    while not around[-1].isWindow() and (parent := around[-1].parentWidget()) is not None:
        around.append(parent)
    return not any(one.isHidden() and not isinstance(one.parentWidget(), QStackedWidget) for one in around[:-1])


def name_of(widget: QWidget) -> str:
    """What a screen reader says; Qt itself takes the text of a label that stands for a field."""
    text = widget.text() if isinstance(widget, QAbstractButton) else ""
    own = widget.accessibleName() or text
    buddies = (one for one in widget.window().findChildren(QLabel) if one.buddy() is widget)
    return own or next((one.text() for one in buddies), "")


def is_named(widget: QWidget) -> bool:
    return any(character.isalnum() for character in name_of(widget))


def every_control_has_a_name_in_words(windows: list[QWidget]) -> None:
    controls = [
        (window.windowTitle(), widget)
        for window in windows
        for widget in window.findChildren(QWidget)
        if widget.window() is window and widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        if not is_of_qt(widget) and can_be_there(widget)
    ]
    assert len(controls) > 120
    passing = (QTabWidget,)  # what it shows has names
    unnamed = [one for one in controls if not is_named(one[1]) and not isinstance(one[1], passing)]
    assert unnamed == []


def lists_have_names_and_rows_say_something(windows: list[QWidget]) -> None:
    views = [view for window in windows for view in window.findChildren(QAbstractItemView) if not is_of_qt(view)]
    assert len(views) > 8
    roles = Qt.ItemDataRole
    silent = []
    for view in views:
        model = view.model()
        for place in range(model.rowCount() if model is not None else 0):
            index = model.index(place, 0)
            if not (index.data(roles.AccessibleTextRole) or index.data(roles.DisplayRole)):
                silent.append((view, place))
    assert silent == []


def signs_are_said_in_words(windows: list[QWidget]) -> None:
    labels = [
        label for window in windows for label in window.findChildren(QLabel) if label.text() and label.isVisible()
    ]
    assert len(labels) > 80
    signs = [one for one in labels if not any(character.isalnum() for character in one.text())]
    assert "●" in [one.text() for one in signs]
    silent = [one for one in signs if not one.accessibleName() and one.text() not in ("–", "—")]
    assert [(one.text(), one.parentWidget()) for one in silent] == []


def no_two_lines_of_a_menu_have_the_same_letter(windows: list[QWidget], running: Running) -> None:
    chat, folder = Chat("1", "One", 0.0, 0.0, None), Folder("f", "Work", 0.0)
    view = running.window.chat_list.view
    made = [QMenu(running.window) for _ in range(6)]
    view._fill_chats_menu(made[0], [chat])
    view._fill_chats_menu(made[1], [chat, chat])
    view._fill_move_menu(made[2], [chat])
    view._fill_folder_menu(made[3], FolderRow(folder, 1, True))
    view._fill_folder_menu(made[4], FolderRow(folder, 1, False))
    view.fill_list_menu(made[5])
    menus = {menu for window in windows for menu in window.findChildren(QMenu)}
    assert len(menus) > 12
    doubled = []
    for menu in menus:
        letters = Counter(letter(action.text()) for action in menu.actions())
        doubled += [(menu.title(), one) for one, times in letters.items() if one and times > 1]
    assert doubled == []


def letter(text: str) -> str:
    """What is underlined."""
    place = text.replace("&&", "").find("&")
    return text.replace("&&", "")[place + 1].lower() if place >= 0 else ""


def every_dialog_begins_with_the_focus_where_it_is_used(windows: list[QWidget]) -> None:
    dialogs = [one for one in windows if isinstance(one, QDialog) and one.isVisible()]
    assert len(dialogs) >= 7
    assert [one.windowTitle() for one in dialogs if one.focusWidget() is None] == []


def test_every_window_can_be_used_by_keyboard_and_screen_reader(windows: list[QWidget], running: Running) -> None:
    every_dialog_begins_with_the_focus_where_it_is_used(windows)
    every_control_has_a_name_in_words(windows)
    lists_have_names_and_rows_say_something(windows)
    signs_are_said_in_words(windows)
    no_two_lines_of_a_menu_have_the_same_letter(windows, running)
