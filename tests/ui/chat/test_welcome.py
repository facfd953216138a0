"""The page of an empty chat."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import pytest
from pytestqt.qtbot import QtBot

from app.ui.chat.parts import ChatCommands
from app.ui.chat.welcome import Welcome
from app.ui.engine.pair_names import Introduction
from app.ui.widgets.entries import Widths


@pytest.mark.parametrize("model", ["guide", "starter model"])
@pytest.mark.parametrize("width", [250, 312, 700])
def test_the_buttons_of_the_first_start_show_their_words_at_every_width(
    qtbot: QtBot, width: int, model: Literal["guide", "starter model"]
) -> None:
    welcome = Welcome(ChatCommands(), Introduction(model, True, model == "guide", "Qwen3 4B (3 GB to download)"))
    qtbot.addWidget(welcome)
    welcome.resize(width, welcome.fit(Widths(prose=width, code=width)))
    welcome.show()
    assert welcome.card is not None
    assert all(button.width() >= button.sizeHint().width() for button in welcome.card.buttons)
    assert welcome.card.text.height() >= welcome.card.text.heightForWidth(welcome.card.text.width())
    shapes = [button.geometry() for button in welcome.card.buttons]
    assert not any(one.intersects(other) for one, other in combinations(shapes, 2))
    assert (len({shape.y() for shape in shapes}) == 1) is (width == 700)
