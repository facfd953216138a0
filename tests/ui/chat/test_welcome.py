"""The page of an empty chat."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.ui.chat.parts import ChatCommands
from app.ui.chat.welcome import Welcome
from app.ui.widgets.entries import Widths


@pytest.mark.parametrize("width", [250, 312, 600])
def test_the_buttons_of_the_first_start_show_their_words_at_every_width(qtbot: QtBot, width: int) -> None:
    welcome = Welcome(ChatCommands(), guide=True, proposal="Qwen3 4B with draft 0.6B (3 GB to download)")
    qtbot.addWidget(welcome)
    welcome.resize(width, welcome.fit(Widths(prose=width, code=width)))
    welcome.show()
    assert welcome.card is not None
    assert all(button.width() >= button.sizeHint().width() for button in welcome.card.buttons)
    assert welcome.card.text.height() >= welcome.card.text.heightForWidth(welcome.card.text.width())
    beside = welcome.card.buttons[0].y() == welcome.card.buttons[1].y()
    assert beside == (width == 600)
