"""The table of actions: each key does one thing, on every system, and none is taken from a field for text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QPushButton
from pytestqt.qtbot import QtBot

from app.ui.actions import Action, Actions, Choice, Menu, native
from app.ui.shell.all_actions import ELSEWHERE, MENUS
from app.ui.shell.menus import NAMES

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


def keys() -> list[tuple[str, str]]:
    """Each key of what is not the usual editing, with the name of its action."""
    return [(one.toString(), action.name) for action in every() if action.name not in NAMES for one in keys_of(action)]


def every(places: Mapping[str, Menu] = MENUS) -> list[Action[Any]]:
    return [one for place in places.values() for one in place if one is not None]


def keys_of(action: Action[Any]) -> list[QKeySequence]:
    return [one for one in action.key_sequences() if not one.isEmpty()]


def test_a_held_key_allows_one_tool_call() -> None:
    made = Actions(MENUS, ELSEWHERE)._qactions
    assert made["zoom_in"].autoRepeat() and not made["allow_call"].autoRepeat()


def test_no_two_actions_have_the_same_keys() -> None:
    used = Counter(one.toString() for action in (*every(), *every(ELSEWHERE)) for one in keys_of(action))
    assert [one for one, times in used.items() if times > 1] == []
    assert len(used) > 30


@SYSTEMS
def test_no_key_is_one_that_the_system_or_a_field_for_text_has_for_itself(system: str) -> None:
    taken = {QKeySequence(one).toString() for one in f"{TEXT_KEYS[system]} {SYSTEM_KEYS[system]}".split()}
    assert "" not in taken
    assert [(one, name) for one, name in keys() if one in taken] == []


def test_no_key_is_a_standard_one_of_this_system_for_editing() -> None:
    standard = QKeySequence.StandardKey
    editing = [one for one in standard if one.name.startswith(("Move", "Select", "Delete", "Cut", "Paste", "Undo"))]
    assert len(editing) > 20
    taken = {keys.toString() for one in editing for keys in QKeySequence.keyBindings(one)}
    assert [(one, name) for one, name in keys() if one in taken] == []


def test_a_mac_finds_its_own_entries() -> None:
    role = QAction.MenuRole
    special = {"show_settings": role.PreferencesRole, "quit": role.QuitRole, "show_about": role.AboutRole}
    assert {one.name: one.role for one in every() if one.role is not role.NoRole} == special


def test_every_line_of_a_menu_has_a_letter_of_its_own() -> None:
    for title, menu in MENUS.items():
        letters = Counter(one.text[one.text.index("&") + 1].lower() for one in menu if one is not None)
        assert [letter for letter, times in letters.items() if times > 1] == [], title


def test_the_words_of_a_button_say_what_it_does() -> None:
    for one in (*every(), *every(ELSEWHERE)):
        assert "&" not in one.on_button()
        assert one.on_button() or not one.description


def test_an_action_can_be_used_once_the_app_is_there(qtbot: QtBot) -> None:
    done: list[object] = []
    can = [False]
    first = Action[list[object]]("first", "&First", lambda app: app.append, "Ctrl+N", lambda _: can[0])
    other = Action[list[object]]("other", "", lambda app: app.extend)
    actions = Actions({"&Menu": (first, None)}, {"Elsewhere": (other,)})
    bar = QMenuBar()
    qtbot.addWidget(bar)
    menus = actions.fill_menu_bar(bar)
    assert [one.text() for one in menus["Menu"].actions()] == ["&First", ""]
    assert actions.run("first", 1) is None and not actions.is_enabled("other")
    actions.begin(done)
    assert actions.is_enabled("other") and not actions.qaction("first").isEnabled()
    can[0] = True
    actions.refresh()
    assert actions.qaction("first").isEnabled()
    actions.run("other", [1, 2])
    actions.run("first", 3)
    assert done == [1, 2, 3]
    with pytest.raises(KeyError):
        actions.run("no such thing")


def test_buttons_and_lines_of_menus_carry_it_out_with_their_values(qtbot: QtBot) -> None:
    done: list[object] = []
    one = Action[list[object]]("one", "&One…", lambda app: app.append, "Ctrl+N", description="Does one thing")
    some = Action[list[object]](
        "some", "So&me", lambda app: lambda *values: app.append(values), choices=lambda app: lambda: offered
    )
    offered = [Choice("A & B", (1,)), Choice(""), Choice("C", (2, 3))]
    actions = Actions({"&Menu": (one, some)}, {})
    bar, button = QMenuBar(), QPushButton(actions.text("one"))
    qtbot.addWidget(bar)
    qtbot.addWidget(button)
    menu = actions.fill_menu_bar(bar)["Menu"]
    submenu = menu.actions()[1].menu()
    assert isinstance(submenu, QMenu) and not submenu.isEnabled()
    actions.begin(done)
    actions.connect_button(button, "one", "value")
    assert (button.text(), button.accessibleName(), button.toolTip()) == (
        "One…", "Does one thing", f"Does one thing ({native('Ctrl+N')})",
    )  # fmt: skip
    button.click()
    menu.aboutToShow.emit()
    assert [line.text() for line in submenu.actions()] == ["A && B", "", "C"] and submenu.isEnabled()
    submenu.actions()[2].trigger()
    line = actions.add(QMenu(bar), "one", "other")
    assert line.text() == f"&One…\t{native('Ctrl+N')}"
    line.trigger()
    assert done == ["value", (2, 3), "other"]
    offered.clear()
    menu.aboutToShow.emit()
    assert submenu.isEmpty() and not submenu.isEnabled()
