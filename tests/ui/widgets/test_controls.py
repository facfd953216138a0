"""Small helpers for widgets."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.ui.widgets.controls import ElidedLabel, label, show_text


def test_a_line_without_room_ends_in_an_ellipsis(qtbot: QtBot) -> None:
    line = ElidedLabel()
    qtbot.addWidget(line)
    line.resize(120, 20)
    line.setText("A sentence that is much longer than there is room for")
    assert QLabel.text(line).endswith("…")
    assert line.text() == line.accessibleName() == "A sentence that is much longer than there is room for"
    line.resize(2000, 20)
    line.show()
    assert QLabel.text(line) == line.text()


@pytest.mark.parametrize(
    ("text", "is_marked"),
    [
        ("שלום.gguf is in 2 pieces.", True),
        ("“مخطط الشاي” was moved to the trash.", True),
        ("שלום עולם", False),
        ("שלום.txt", False),
        ("Tea שלום is in 2 pieces.", False),
        ("Tea", False),
    ],
)
def test_sentences_that_begin_with_a_name_from_the_right_are_read_from_the_left(
    qtbot: QtBot, text: str, is_marked: bool
) -> None:
    shown = ElidedLabel()
    qtbot.addWidget(shown)
    shown.resize(2000, 30)
    shown.setText(text)
    plain = label()
    qtbot.addWidget(plain)
    show_text(plain, text)
    for written in (plain.text(), QLabel.text(shown)):
        assert written == ("\u200e" if is_marked else "") + text
    assert shown.text() == text
