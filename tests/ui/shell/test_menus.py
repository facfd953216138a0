"""The menu bar: each key does one thing, on every system, and none is taken from a field for text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenuBar
from pytestqt.qtbot import QtBot

from app.ui.shell.edit_menu import NAMES
from app.ui.shell.menus import Menus

# From the table of standard shortcuts in the documentation of QKeySequence, where Ctrl is Command on a Mac.
_COMMON = "Ctrl+X Ctrl+C Ctrl+V Ctrl+Z Ctrl+A Ctrl+Left Ctrl+Right Ctrl+Home Ctrl+End Shift+Del Shift+Ins Ctrl+Ins"
TEXT_KEYS = {
    "Windows": f"{_COMMON} Ctrl+Y Alt+Backspace Alt+Shift+Backspace Ctrl+Backspace Ctrl+Del",
    "GNOME": f"{_COMMON} Ctrl+Shift+Z Ctrl+Y Ctrl+D Ctrl+E Ctrl+K Ctrl+U Ctrl+Backspace Ctrl+Del Ctrl+Shift+Ins F14",
    "KDE": f"{_COMMON} Ctrl+Shift+Z Ctrl+D Ctrl+E Ctrl+K Ctrl+U Ctrl+Backspace Ctrl+Del",
    "macOS": "Ctrl+X Ctrl+C Ctrl+V Ctrl+Z Ctrl+Shift+Z Ctrl+A Ctrl+Left Ctrl+Right Ctrl+Up Ctrl+Down Alt+Left "
    "Alt+Right Alt+Backspace Alt+Del Meta+A Meta+B Meta+D Meta+E Meta+F Meta+K Meta+N Meta+P",
}
SYSTEM_KEYS = {
    "Windows": "Alt+F4 Alt+Tab Alt+Space Alt+Esc Ctrl+Esc Ctrl+Shift+Esc Ctrl+Alt+Del",
    "GNOME": "Alt+F4 Alt+Tab Alt+F2 Alt+Space Ctrl+Alt+Up Ctrl+Alt+Down Print",
    "KDE": "Alt+F4 Alt+Tab Alt+F2 Alt+F3 Ctrl+Alt+Esc Ctrl+F1 Ctrl+F2 Ctrl+Esc",
    "macOS": "Ctrl+H Ctrl+Alt+H Ctrl+M Ctrl+W Ctrl+Tab Ctrl+Space Ctrl+Alt+Esc Ctrl+Shift+3 Ctrl+Shift+4 Ctrl+Shift+5 "
    "Ctrl+Shift+Q Ctrl+` Ctrl+?",
}
SYSTEMS = pytest.mark.parametrize("system", sorted(TEXT_KEYS))


@pytest.fixture
def menus(qtbot: QtBot) -> Iterator[Menus]:
    bar = QMenuBar()
    qtbot.addWidget(bar)
    yield Menus(bar, bar)


def keys(menus: Menus) -> list[tuple[str, str]]:
    """Each key of what is not the usual editing, with the name of its action."""
    return [
        (one.toString(), name)
        for name, action in menus._actions.items()
        if name not in NAMES
        for one in action.shortcuts()
    ]


def test_no_two_actions_have_the_same_keys(menus: Menus) -> None:
    used = Counter(one.toString() for action in menus._actions.values() for one in action.shortcuts())
    assert [one for one, times in used.items() if times > 1] == []
    assert len(used) > 30


@SYSTEMS
def test_no_key_is_one_that_the_system_or_a_field_for_text_has_for_itself(menus: Menus, system: str) -> None:
    taken = {QKeySequence(one).toString() for one in f"{TEXT_KEYS[system]} {SYSTEM_KEYS[system]}".split()}
    assert "" not in taken
    assert [(one, name) for one, name in keys(menus) if one in taken] == []


def test_no_key_is_a_standard_one_of_this_system_for_editing(menus: Menus) -> None:
    standard = QKeySequence.StandardKey
    editing = [one for one in standard if one.name.startswith(("Move", "Select", "Delete", "Cut", "Paste", "Undo"))]
    assert len(editing) > 20
    taken = {keys.toString() for one in editing for keys in QKeySequence.keyBindings(one)}
    assert [(one, name) for one, name in keys(menus) if one in taken] == []


def test_a_mac_finds_its_own_entries(menus: Menus) -> None:
    roles = {name: action.menuRole() for name, action in menus._actions.items()}
    role = QAction.MenuRole
    special = {"show_settings": role.PreferencesRole, "quit": role.QuitRole, "show_about": role.AboutRole}
    assert {name: one for name, one in roles.items() if one is not role.NoRole} == special


def test_an_action_can_be_used_once_it_is_connected(menus: Menus) -> None:
    action = menus.action("find_in_chat")
    assert not action.isEnabled()
    done: list[str] = []
    menus.connect_action("find_in_chat", lambda: done.append("found"))
    action.trigger()
    assert done == ["found"]


def test_every_line_of_a_menu_has_a_letter_of_its_own(menus: Menus) -> None:
    for title in ("File", "Edit", "View", "Chat", "Help"):
        texts = [action.text() for action in menus.menu(title).actions() if not action.isSeparator()]
        letters = Counter(text[text.index("&") + 1].lower() for text in texts)
        assert [letter for letter, times in letters.items() if times > 1] == [], title
