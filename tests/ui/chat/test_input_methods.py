"""Words that an input method composes, and text from right to left, where messages are written."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QInputMethodEvent, QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.ui.chat.composer import Composer, MessageEditor


@pytest.fixture
def composer(qtbot: QtBot) -> Composer:
    result = Composer()
    qtbot.addWidget(result)
    result.resize(600, 120)
    result.show()
    result.editor.setFocus()
    return result


def compose(editor: MessageEditor, text: str) -> None:
    """The input method shows what is typed so far."""
    QApplication.sendEvent(editor, QInputMethodEvent(text, []))


def commit(editor: MessageEditor, text: str) -> None:
    """The user has chosen a candidate."""
    event = QInputMethodEvent()
    event.setCommitString(text)
    QApplication.sendEvent(editor, event)


def composed(editor: MessageEditor) -> str:
    return editor.textCursor().block().layout().preeditAreaText()


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Escape])
@pytest.mark.parametrize("modifier", [Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ControlModifier])
def test_keys_that_choose_a_word_send_nothing(
    qtbot: QtBot, composer: Composer, key: Qt.Key, modifier: Qt.KeyboardModifier
) -> None:
    sent: list[str] = []
    composer.message_sent.connect(sent.append)
    composer.set_text("こんにちは ")
    compose(composer.editor, "せかい")
    QTest.keyClick(composer.editor, key, modifier)
    composer.set_busy(True)
    with qtbot.assertNotEmitted(composer.stop_requested):
        QTest.keyClick(composer.editor, key, modifier)
    composer.set_busy(False)
    assert sent == [] and composed(composer.editor) == "せかい"
    commit(composer.editor, "世界")
    assert composer.text() == "こんにちは 世界" and sent == []
    QTest.keyClick(composer.editor, Qt.Key.Key_Return)
    assert sent == ["こんにちは 世界"]


def test_candidates_appear_at_the_cursor(qtbot: QtBot, composer: Composer) -> None:
    def cursor() -> QRectF:
        return QRectF(composer.editor.inputMethodQuery(Qt.InputMethodQuery.ImCursorRectangle))

    at_first = cursor()
    compose(composer.editor, "にほん")
    assert cursor().left() > at_first.left()
    commit(composer.editor, "日本")
    QTest.keyClick(composer.editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    compose(composer.editor, "ご")
    qtbot.waitUntil(lambda: cursor().top() > at_first.top())  # the field has grown
    assert QRectF(composer.editor.rect()).contains(cursor().center())


@pytest.mark.parametrize(("text", "is_mirrored"), [("שלום hello", True), ("hello שלום", False), ("12 مرحبا", True)])
def test_text_is_written_from_the_side_on_which_it_begins(composer: Composer, text: str, is_mirrored: bool) -> None:
    composer.set_text(text)
    layout = composer.editor.document().firstBlock().layout()
    left = layout.lineAt(0).naturalTextRect().left()
    assert (left > 100) is is_mirrored
    composer.set_text("")
    composer.set_text("plain")
    assert composer.editor.document().firstBlock().layout().lineAt(0).naturalTextRect().left() < 10


def test_the_side_changes_while_a_word_is_composed(composer: Composer) -> None:
    compose(composer.editor, "של")
    commit(composer.editor, "שלום")
    compose(composer.editor, "עו")
    assert composed(composer.editor) == "עו"
    event = QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_Return, Qt.KeyboardModifier.NoModifier)
    QApplication.sendEvent(composer.editor, event)
    assert composer.text() == "שלום"
