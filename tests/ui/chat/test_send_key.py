"""Which key sends, in the composer and where a message is edited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.ui.chat.composer import Composer, Editing, MessageEditor, enter, send_key

_KEYS = Qt.KeyboardModifier
_NONE, _SHIFT, _CTRL = _KEYS.NoModifier, _KEYS.ShiftModifier, _KEYS.ControlModifier


@pytest.fixture(autouse=True)
def usual_key_later() -> Iterator[None]:
    yield
    send_key().choose(needs_ctrl=False)


def pressed(qtbot: QtBot, modifiers: Qt.KeyboardModifier, key: Qt.Key = Qt.Key.Key_Return) -> str:
    """What a key with Enter on it does at the end of a word."""
    editor = MessageEditor("Message")
    qtbot.addWidget(editor)
    sent: list[str] = []
    editor.submitted.connect(lambda: sent.append("sent"))
    QTest.keyClicks(editor, "word")
    QTest.keyClick(editor, key, modifiers)
    text = editor.toPlainText()
    assert text in ("word", "word\n")
    return "sent" if sent else "line" if text == "word\n" else "nothing"


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Enter])
@pytest.mark.parametrize(
    ("needs_ctrl", "plain", "with_shift", "with_ctrl", "with_both"),
    [(False, "sent", "line", "sent", "line"), (True, "line", "line", "sent", "line")],
)
def test_enter(
    qtbot: QtBot, key: Qt.Key, needs_ctrl: bool, plain: str, with_shift: str, with_ctrl: str, with_both: str
) -> None:
    send_key().choose(needs_ctrl=needs_ctrl)
    assert pressed(qtbot, _NONE, key) == plain
    assert pressed(qtbot, _SHIFT, key) == with_shift
    assert pressed(qtbot, _CTRL, key) == with_ctrl
    assert pressed(qtbot, _CTRL | _SHIFT, key) == with_both


def test_the_buttons_name_the_key(qtbot: QtBot) -> None:
    composer = Composer()
    editing = Editing("Hello", is_question=True, parent=composer)
    qtbot.addWidget(composer)
    send_key().choose(needs_ctrl=True)
    assert composer.button.accessibleName() == composer.button.toolTip() == "Send (Ctrl+Enter)"
    assert editing.save_button.accessibleName() == editing.save_button.toolTip() == "Send again (Ctrl+Enter)"
    send_key().choose(needs_ctrl=False)
    assert composer.button.toolTip() == "Send (Enter)"
    assert editing.save_button.toolTip() == "Send again (Enter)"
    composer.set_busy(True)
    send_key().choose(needs_ctrl=True)
    assert composer.button.toolTip() == "Stop the answer (Esc)"


def test_keys_are_written_as_on_the_keyboard() -> None:
    assert (enter(), enter("Shift+"), enter("Ctrl+")) == ("Enter", "Shift+Enter", "Ctrl+Enter")
