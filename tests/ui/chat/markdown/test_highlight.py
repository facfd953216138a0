"""The window's side of finding the colors of code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.helper import Helper
from app.helper.messages import Highlight
from app.ui.chat.markdown.code_blocks import Found, Highlighter


class Answers(list[list[list[int]] | None]):
    """What was found, in the order it came."""

    def __call__(self, found: Found) -> None:
        self.append(found[0])


@pytest.fixture
def highlighter() -> Iterator[Highlighter]:
    one = Highlighter(Helper(seconds=100))
    yield one
    one.close()


def ask(highlighter: Highlighter, answers: Answers, language: str, text: str) -> None:
    highlighter.ask(Highlight(language, text), lambda: True, answers)


def test_answers_come_in_the_order_of_the_requests(qtbot: QtBot, highlighter: Highlighter) -> None:
    first, second = Answers(), Answers()
    ask(highlighter, first, "python", "return")
    ask(highlighter, second, "python", "import")
    ask(highlighter, first, "json", "1")
    qtbot.waitUntil(lambda: highlighter.is_idle)
    assert first == [[[0, 6, 1]], [[0, 1, 3]]]
    assert second == [[[0, 6, 1]]]


def test_what_takes_too_long_stays_plain_and_the_next_does_not(qtbot: QtBot) -> None:
    helper = Helper(seconds=0.3)
    highlighter = Highlighter(helper)
    answers = Answers()
    ask(highlighter, answers, "python", "a=1;" * 2_000_000)
    qtbot.waitUntil(lambda: highlighter.is_idle)
    helper.seconds = 100
    ask(highlighter, answers, "python", "return")
    qtbot.waitUntil(lambda: highlighter.is_idle)
    highlighter.close()
    assert answers == [None, [[0, 6, 1]]]


def test_without_a_helper_everything_stays_plain(
    qtbot: QtBot, highlighter: Highlighter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.system.own_command", lambda *_: ["/no/such/program"])
    answers = Answers()
    ask(highlighter, answers, "python", "return")
    qtbot.waitUntil(lambda: highlighter.is_idle)
    assert answers == [None]


def test_closing_ends_what_is_asked(qtbot: QtBot, highlighter: Highlighter) -> None:
    answers = Answers()
    ask(highlighter, answers, "python", "return")
    ask(highlighter, answers, "python", "import")
    highlighter.close()
    qtbot.waitUntil(lambda: highlighter.is_idle)
    assert answers == []
