"""The composer: what is sent, when, and what is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.ui.chat.composer import MAX_LINES, Composer


@pytest.fixture
def composer(qtbot: QtBot) -> Iterator[Composer]:
    host = QWidget()
    qtbot.addWidget(host)
    host.resize(700, 400)
    layout = QVBoxLayout(host)
    result = Composer()
    layout.addStretch(1)
    layout.addWidget(result)
    host.show()
    result.setFocus()
    yield result


def press(composer: Composer, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    QTest.keyClick(composer.editor, key, modifier)


def write(composer: Composer, text: str) -> None:
    QTest.keyClicks(composer.editor, text)


def test_enter_sends_and_the_button_does(qtbot: QtBot, composer: Composer) -> None:
    write(composer, "one")
    with qtbot.assertNotEmitted(composer.message_sent):
        press(composer, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    write(composer, "two")
    with qtbot.waitSignal(composer.message_sent) as sent:
        press(composer, Qt.Key.Key_Return)
    assert sent.args == ["one\ntwo"]
    composer.set_text("Hello")
    with qtbot.waitSignal(composer.message_sent) as sent:
        QTest.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert sent.args == ["Hello"]


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "\t \n"])
def test_nothing_is_not_sent(qtbot: QtBot, composer: Composer, text: str) -> None:
    composer.set_text(text)
    assert not composer.button.isEnabled()
    with qtbot.assertNotEmitted(composer.message_sent):
        press(composer, Qt.Key.Key_Enter)
    assert composer.text() == text


def test_while_busy_one_can_write_but_not_send(qtbot: QtBot, composer: Composer) -> None:
    composer.set_busy(True)
    write(composer, "next")
    with qtbot.assertNotEmitted(composer.message_sent):
        press(composer, Qt.Key.Key_Return)
    assert composer.text() == "next"
    composer.set_busy(False)
    with qtbot.waitSignal(composer.message_sent):
        press(composer, Qt.Key.Key_Return)


def test_escape_and_the_button_stop(qtbot: QtBot, composer: Composer) -> None:
    with qtbot.assertNotEmitted(composer.stop_requested):
        press(composer, Qt.Key.Key_Escape)
    composer.set_busy(True)
    with qtbot.waitSignal(composer.stop_requested):
        press(composer, Qt.Key.Key_Escape)
    with qtbot.waitSignal(composer.stop_requested):
        QTest.mouseClick(composer.button, Qt.MouseButton.LeftButton)


def test_the_keyboard_goes_back_to_the_field_when_the_button_has_stopped_an_answer(
    qtbot: QtBot, composer: Composer
) -> None:
    host = composer.parentWidget()
    assert host is not None
    QPushButton("Next in the order of the Tab key", host).show()
    composer.set_busy(True)
    composer.button.setFocus()
    QTest.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert composer.button.hasFocus()
    composer.set_busy(False)
    assert composer.editor.hasFocus()


def test_only_text_is_pasted(composer: Composer) -> None:
    data = QMimeData()
    data.setHtml("<b>bold</b><img src='file:///etc/hostname'>")
    data.setText("bold")
    composer.editor.insertFromMimeData(data)
    assert composer.text() == "bold"
    only_html = QMimeData()
    only_html.setData("image/png", b"x")
    composer.editor.insertFromMimeData(only_html)
    assert composer.text() == "bold"


def test_it_grows_with_its_text_up_to_a_limit(qtbot: QtBot, composer: Composer) -> None:
    def height_of(lines: int) -> int:
        composer.set_text("\n".join("x" * (at % 3) for at in range(lines)))
        qtbot.waitUntil(lambda: composer.editor.height() == composer.editor.sizeHint().height())
        return composer.editor.height()

    one, three = height_of(1), height_of(3)
    assert composer.editor.verticalScrollBar().value() == 0  # short text is never scrolled
    eight, many = height_of(MAX_LINES), height_of(40)
    assert one < three < eight == many
    assert height_of(1) == one


def test_a_megabyte_can_be_sent(qtbot: QtBot, composer: Composer) -> None:
    composer.editor.insertPlainText("word " * 200_000)
    with qtbot.waitSignal(composer.message_sent) as sent:
        press(composer, Qt.Key.Key_Return)
    assert sent.args is not None
    assert len(sent.args[0]) == 1_000_000


def test_where_there_is_little_room_the_button_has_no_text(qtbot: QtBot, composer: Composer) -> None:
    host = composer.window()
    assert composer.button.text() == "Send"
    for widget in (host, composer):
        widget.setMinimumWidth(1)
    host.resize(260, 400)
    qtbot.waitUntil(lambda: composer.button.text() == "")
    assert composer.button.accessibleName() == "Send (Enter)"
    composer.set_busy(True)
    assert composer.button.text() == ""
    host.resize(700, 400)
    qtbot.waitUntil(lambda: composer.button.text() == "Stop")
