"""The notices above the composer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.settings import Settings
from app.ui import notices
from app.ui.notices import Notice
from app.ui.shell.all_actions import all_actions
from app.ui.shell.main_window import MainWindow
from app.ui.shell.top_bar import NoticeBar, UndoBar
from app.ui.widgets.column import prose_margin
from tests.ui.recorded_actions import Recorded


@pytest.fixture
def bar(qtbot: QtBot) -> Iterator[NoticeBar]:
    host = QWidget()
    qtbot.addWidget(host)
    host.resize(640, 480)
    layout = QVBoxLayout(host)
    layout.setContentsMargins(0, 0, 0, 0)
    made = NoticeBar(Recorded())
    layout.addStretch(1)
    layout.addWidget(made)
    host.show()
    yield made
    host.close()  # until here nothing else holds it


def button(bar: NoticeBar, subject: str, text: str) -> QPushButton:
    return next(one for one in bar.cards[subject].buttons if one.text() == text)


def test_a_notice_is_plain_text_with_its_buttons(qtbot: QtBot, bar: NoticeBar) -> None:
    assert bar.isHidden()
    bar.set_notices({"save": Notice("bad", "It <b>failed</b>.", ("save_again", "dismiss"))})
    card = bar.cards["save"]
    assert card.isVisible()
    assert [card.text.text() for card in bar.cards.values()] == ["It <b>failed</b>."]
    assert card.text.textFormat() is Qt.TextFormat.PlainText
    for text in ("Try again", "Dismiss"):
        QTest.mouseClick(button(bar, "save", text), Qt.MouseButton.LeftButton)
    assert isinstance(bar._actions, Recorded)
    assert bar._actions.done == [("save_again",), ("dismiss", "save")]
    bar.set_notices({})
    assert bar.isHidden()


def test_a_notice_that_stays_keeps_its_card_and_the_focus(bar: NoticeBar) -> None:
    bar.set_notices({"load": notices.no_model()})
    card = bar.cards["load"]
    card.buttons[0].setFocus()
    bar.set_notices({"load": notices.no_model(), "save": notices.not_saved("The disk is full.")})
    assert bar.cards["load"] is card
    assert [card.text.text() for card in bar.cards.values()] == [notices.no_model().text, "The disk is full."]
    bar.set_notices({"load": notices.load_canceled()})
    assert [card.text.text() for card in bar.cards.values()] == [notices.load_canceled().text]


def test_many_notices_leave_room_for_the_chat_and_show_the_newest(qtbot: QtBot, bar: NoticeBar) -> None:
    host = bar.parentWidget()
    assert host is not None
    bar.set_notices({str(number): notices.load_failed("words " * 30) for number in range(5)})
    assert bar.height() <= 0.4 * host.height()
    newest = bar.cards["4"]

    right = host.width() - prose_margin(bar.font(), host.width())

    def is_whole_and_in_line() -> bool:
        end = newest.mapTo(host, newest.rect().topRight()).x()
        return newest.visibleRegion().boundingRect() == newest.rect() and end < right

    qtbot.waitUntil(is_whole_and_in_line)
    assert all(one.height() >= one.text.heightForWidth(one.text.width()) for one in bar.cards.values())


def test_what_happened_is_said_after_a_long_title(qtbot: QtBot) -> None:
    undo_bar = UndoBar(all_actions())
    qtbot.addWidget(undo_bar)
    undo_bar.resize(700, 60)
    undo_bar.offer(f"“{'A very long title ' * 5}” was moved to the trash.")
    qtbot.waitUntil(lambda: "…" in QLabel.text(undo_bar._label))
    assert QLabel.text(undo_bar._label).endswith("to the trash.")


def test_the_offer_to_undo_goes_after_a_while_but_not_under_the_hand(qtbot: QtBot) -> None:
    undo_bar = UndoBar(all_actions())
    qtbot.addWidget(undo_bar)
    undo_bar.offer("3 chats were moved to the trash.")
    assert undo_bar.isVisible()
    undo_bar.activateWindow()
    undo_bar.undo.setFocus()
    qtbot.waitUntil(undo_bar.undo.hasFocus)
    undo_bar._timer.setInterval(0)
    undo_bar._timer.start()
    with qtbot.waitSignal(undo_bar._timer.timeout):
        pass
    assert undo_bar.isVisible()
    undo_bar.undo.clearFocus()
    qtbot.waitUntil(lambda: not undo_bar.isVisible())
    assert undo_bar._label.text() == ""


def test_the_window_keeps_the_order_of_the_list_closed_folders_and_open_sections(qtbot: QtBot) -> None:
    settings = Settings(chat_sort="title", collapsed_folders=["work"], open_sections=["more", "of a newer version"])
    window = MainWindow(settings, all_actions())
    qtbot.addWidget(window)
    chats = window.chat_list.view.chats
    assert chats.order == "title" and chats.collapsed == {"work"}
    with qtbot.waitSignal(window.panels_changed):
        window.chat_list.view.arrange("oldest", ["home", "work"])
    window.store(settings)
    assert (settings.chat_sort, settings.collapsed_folders) == ("oldest", ["home", "work"])
    assert settings.open_sections == ["more", "of a newer version"]
    tab = window.settings_tab
    assert (tab.sampling_section.button.isChecked(), tab.more_section.button.isChecked()) == (False, True)
    with qtbot.waitSignal(window.panels_changed):
        tab.sampling_section.button.click()
    tab.more_section.button.click()
    window.store(settings)
    assert settings.open_sections == ["sampling"]


def test_a_button_that_is_alone_is_as_wide_as_its_text(qtbot: QtBot, bar: NoticeBar) -> None:
    bar.set_notices({"export": notices.exported("chat.md")})
    only = bar.cards["export"].buttons[0]
    qtbot.waitUntil(lambda: only.width() == only.sizeHint().width())


def test_when_a_notice_with_the_keyboard_goes_the_text_field_has_it(qtbot: QtBot) -> None:
    window = MainWindow(Settings(), all_actions())
    qtbot.addWidget(window)
    window.show()
    window.notice_bar.set_notices({"save": notices.not_saved("The disk is full.")})
    window.notice_bar.cards["save"].buttons[0].setFocus()
    window.notice_bar.set_notices({})
    assert window.focusWidget() is window.composer.editor
