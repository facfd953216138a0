"""Words that an input method composes, and text from right to left, where messages are written."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QInputMethodEvent, QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.protocol.events import Piece
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.composer import Composer
from app.ui.chat.parts import MessageEditor
from app.ui.chat.transcript import Transcript
from tests.ui.chat import stored


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
def test_keys_that_choose_a_word_send_nothing(composer: Composer, key: Qt.Key, modifier: Qt.KeyboardModifier) -> None:
    sent: list[str] = []
    composer.message_sent.connect(sent.append)
    composer.set_text("こんにちは ")
    compose(composer.editor, "せかい")
    QTest.keyClick(composer.editor, key, modifier)
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


def test_a_word_that_is_composed_stays_while_the_answer_is_written(qtbot: QtBot, composer: Composer) -> None:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.resize(600, 400)
    transcript.show()
    compose(composer.editor, "にほ")
    composer.set_busy(True)
    transcript.set_busy(True)
    transcript.begin_answer(stored.answer("a"))
    (entry,) = transcript.column.entries
    assert isinstance(entry.widget, AnswerMessage)
    view = entry.widget.view
    for _ in range(3):
        transcript.append_pieces([Piece(text="some words\n\n")])
        qtbot.waitUntil(lambda: view.is_drawn)
        assert composed(composer.editor) == "にほ"
    compose(composer.editor, "にほん")
    composer.set_busy(False)
    commit(composer.editor, "日本")
    assert composer.text() == "日本"


def test_the_editor_of_a_message_composes_too(qtbot: QtBot) -> None:
    editor = MessageEditor("Edit your message")
    qtbot.addWidget(editor)
    editor.show()
    events: list[str] = []
    editor.submitted.connect(lambda: events.append("submitted"))
    editor.escaped.connect(lambda: events.append("escaped"))
    compose(editor, "ni hao")
    for key in (Qt.Key.Key_Return, Qt.Key.Key_Escape):
        QTest.keyClick(editor, key)
    assert events == [] and composed(editor) == "ni hao"
    commit(editor, "你好")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    assert events == ["submitted"] and editor.toPlainText() == "你好"


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
