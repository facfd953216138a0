"""Help → Keyboard shortcuts."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.ui.actions import plain
from app.ui.chat.composer import send_key
from app.ui.shell.all_actions import ELSEWHERE, MENUS, all_actions
from app.ui.shell.help import ShortcutsDialog


def opened(qtbot: QtBot) -> ShortcutsDialog:
    dialog = ShortcutsDialog(all_actions().shortcuts())
    qtbot.addWidget(dialog)
    dialog.show()
    return dialog


def shown(dialog: ShortcutsDialog) -> dict[str, str]:
    return {
        row.text(0): row.text(1)
        for heading, rows in dialog._rows
        for row in rows
        if not row.isHidden() and not heading.isHidden()
    }


def test_every_action_with_keys_is_listed(qtbot: QtBot) -> None:
    listed = shown(opened(qtbot))
    actions = all_actions()
    lines = [one for menu in MENUS.values() for one in menu if one is not None and actions.keys(one.name)]
    assert len(lines) > 25
    for one in lines:
        assert listed[plain(one.text)] == actions.keys(one.name)
    assert listed["Pin the chat"] == "Ctrl+Shift+P" and listed["Delete the chat"] == "Del"
    assert (listed["Find next"], listed["Speed panel"], listed["Stop"]) == ("F3 or Ctrl+G", "Ctrl+.", "Esc")
    assert "" not in listed.values()


def test_the_keys_for_writing_are_those_that_were_chosen(qtbot: QtBot, usual_settings_later: None) -> None:
    listed = shown(opened(qtbot))
    assert (listed["Send the message"], listed["Start a new line"]) == ("Enter", "Shift+Enter")
    send_key().choose(needs_ctrl=True)
    listed = shown(opened(qtbot))
    assert (listed["Send the message"], listed["Start a new line"]) == ("Ctrl+Enter", "Enter")


def test_the_filter_takes_names_and_keys(qtbot: QtBot) -> None:
    dialog = opened(qtbot)
    assert dialog.focusWidget() is dialog.filter
    QTest.keyClicks(dialog.filter, "zoom in")
    assert set(shown(dialog)) == {"Zoom in"}
    dialog.filter.setText("ctrl+shift+n")
    assert set(shown(dialog)) == {"New temporary chat"}
    dialog.filter.setText("no such thing")
    assert shown(dialog) == {}
    assert dialog.list.isHidden()
    dialog.filter.clear()
    assert len(shown(dialog)) > 30
    assert dialog.list.isVisible()
    with qtbot.waitSignal(dialog.rejected):
        QTest.keyClick(dialog.filter, Qt.Key.Key_Escape)


def test_no_shortcut_takes_what_keyboards_write_with_altgr_or_alone() -> None:
    """AltGr is Ctrl+Alt on Windows, where Ctrl+Alt+Q is @ in Germany and Ctrl+Alt+E is € in most of Europe."""
    alt, none = Qt.KeyboardModifier.AltModifier, Qt.KeyboardModifier.NoModifier
    places = (*MENUS.values(), *ELSEWHERE.values())
    every = [keys for place in places for action in place if action is not None for keys in action.key_sequences()]
    keys = [one[0] for one in every if not one.isEmpty()]  # type: ignore[index]  # PySide's stubs don't know it
    assert len(keys) > 25
    written = range(Qt.Key.Key_Space, Qt.Key.Key_ydiaeresis + 1)
    for one in keys:
        if one.key() in written:
            shift = Qt.KeyboardModifier.ShiftModifier
            assert not one.keyboardModifiers() & alt and one.keyboardModifiers() & ~shift != none
