"""The page of an empty chat."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.ui.chat.transcript import EXAMPLES, Introduction, Transcript, Welcome
from app.ui.widgets.column import Widths
from tests.ui.chat import stored
from tests.ui.chat.stored import calls, click, has_button, keys, named, settle
from tests.ui.recorded_actions import Recorded


@pytest.mark.parametrize("model", ["guide", "starter model"])
@pytest.mark.parametrize("width", [250, 312, 700])
def test_the_buttons_of_the_first_start_show_their_words_at_every_width(
    qtbot: QtBot, width: int, model: Literal["guide", "starter model"]
) -> None:
    welcome = Welcome(Recorded(), Introduction(model, True, model == "guide", "Qwen3 4B (3 GB to download)"))
    qtbot.addWidget(welcome)
    welcome.resize(width, welcome.fit(Widths(prose=width, code=width)))
    welcome.show()
    assert welcome.card is not None
    assert all(button.width() >= button.sizeHint().width() for button in welcome.card.buttons)
    assert welcome.card.text.height() >= welcome.card.text.heightForWidth(welcome.card.text.width())
    shapes = [button.geometry() for button in welcome.card.buttons]
    assert not any(one.intersects(other) for one, other in combinations(shapes, 2))
    assert (len({shape.y() for shape in shapes}) == 1) is (width == 700)


def test_the_examples_can_be_chosen(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.show_welcome()
    settle(qtbot, transcript)
    asked = calls(transcript, "ask")
    for text in EXAMPLES:
        click(named(transcript, text))
    assert asked == [(text,) for text in EXAMPLES]
    assert not has_button(transcript, "Keep the guide")
    transcript.add_all([stored.question("u", "Hello")])
    assert keys(transcript) == ["u"]


def test_the_card_of_the_first_start(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.introduce(Introduction("guide", has_card=True))
    transcript.show_welcome()
    settle(qtbot, transcript)
    opened, hidden = calls(transcript, "choose_models"), calls(transcript, "hide_introduction")
    click(named(transcript, "Open models…"))
    keep = named(transcript, "Keep the guide")
    click(keep)
    assert not keep.isVisible()
    assert opened == hidden == [()]
    transcript.introduce(proposal="Qwen3 8B, 5.7 GB")
    settle(qtbot, transcript)
    assert any("Qwen3 8B, 5.7 GB" in one.text() for one in transcript.findChildren(QLabel))
    wanted = calls(transcript, "get_proposed")
    click(named(transcript, "Get this model"))
    assert wanted == [()]
    transcript.introduce(proposal="")
    settle(qtbot, transcript)
    assert not has_button(transcript, "Get this model") and not has_button(transcript, "Use the starter model")
    transcript.introduce(Introduction("guide", has_card=True, offers_starter=True))
    settle(qtbot, transcript)
    used = calls(transcript, "load_starter")
    click(named(transcript, "Use the starter model"))
    assert used == [()]
    transcript.add_all([stored.question("u", "Hello")])
    transcript.introduce(proposal="Qwen3 8B, 5.7 GB")
    assert keys(transcript) == ["u"]
