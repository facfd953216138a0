"""The words of the trash."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.chats.model import Chat
from app.ui.chat.list.trash import TrashPanel, left_text
from tests.ui.recorded_actions import Recorded

DAY = 86400.0


@pytest.mark.parametrize(
    ("days", "text"),
    [(0.0, "30 days left"), (0.5, "30 days left"), (1.0, "29 days left"), (28.5, "2 days left"), (29.5, "1 day left")],
)
def test_days_left(days: float, text: str) -> None:
    assert left_text(100 * DAY, (100 + days) * DAY) == text


def test_a_list_that_comes_anew_keeps_what_is_selected(qtbot: QtBot) -> None:
    panel = TrashPanel(Recorded(), lambda: None)
    qtbot.addWidget(panel)
    chats = [Chat(name, name, 0.0, 0.0, None, deleted_at=100 * DAY) for name in ("a", "b", "c")]
    panel.set_chats(chats, 101 * DAY)
    panel.view.setCurrentIndex(panel.model.index(1))
    panel.set_chats([Chat("new", "new", 0.0, 0.0, None, deleted_at=101 * DAY), *chats], 101 * DAY)
    assert panel._selected() == ["b"]
    spoken = str(panel.model.data(panel.model.index(2), Qt.ItemDataRole.AccessibleTextRole))
    assert spoken.startswith("b, Deleted ")
    assert spoken.endswith(", 29 days left")


def test_the_keyboard_stays_when_its_button_can_do_nothing_more(qtbot: QtBot) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    panel, beside = TrashPanel(Recorded(), lambda: None), QLineEdit()
    layout = QHBoxLayout(host)
    layout.addWidget(panel)
    layout.addWidget(beside)
    chats = [Chat(name, name, 0.0, 0.0, None, deleted_at=100 * DAY) for name in ("a", "b")]
    panel.set_chats(chats, 101 * DAY)
    host.show()
    host.activateWindow()
    panel.view.setCurrentIndex(panel.model.index(0))
    panel.restore.setFocus()
    panel.set_chats(chats[1:], 101 * DAY)
    assert host.focusWidget() is panel.view
    panel.empty.setFocus()
    panel.set_chats([], 101 * DAY)
    assert host.focusWidget() is panel.back
    beside.setFocus()
    panel.set_chats(chats, 101 * DAY)
    panel.set_chats([], 101 * DAY)
    assert host.focusWidget() is beside
