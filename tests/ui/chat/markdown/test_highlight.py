"""The window's side of finding the colors of code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.helper import Helper
from app.helper.messages import Highlight
from app.ui.chat.markdown.highlight import Highlighter


class Source:
    """Code of several blocks."""

    def __init__(self, *requests: Highlight) -> None:
        self._requests = list(requests)
        self.answers: list[list[list[int]] | None] = []

    def next_request(self) -> Highlight | None:
        return self._requests.pop(0) if self._requests else None

    def take_colors(self, lines: list[list[int]] | None, _seconds: float) -> None:
        self.answers.append(lines)


@pytest.fixture
def highlighter() -> Iterator[Highlighter]:
    one = Highlighter(Helper(seconds=100))
    yield one
    one.close()


def test_sources_get_what_was_found_in_turn(qtbot: QtBot, highlighter: Highlighter) -> None:
    first = Source(Highlight("python", "return"), Highlight("json", "1"))
    second = Source(Highlight("python", "import"))
    highlighter.want(first)
    highlighter.want(second)
    highlighter.want(second)
    qtbot.waitUntil(lambda: highlighter.is_idle)
    assert first.answers == [[[0, 6, 1]], [[0, 1, 3]]]
    assert second.answers == [[[0, 6, 1]]]


class Hurried(Source):
    """Its first block gets little time."""

    def __init__(self, helper: Helper, *requests: Highlight) -> None:
        super().__init__(*requests)
        self._helper = helper
        helper.seconds = 0.3

    def take_colors(self, lines: list[list[int]] | None, seconds: float) -> None:
        super().take_colors(lines, seconds)
        self._helper.seconds = 100


def test_what_takes_too_long_stays_plain_and_the_next_does_not(qtbot: QtBot) -> None:
    helper = Helper()
    highlighter = Highlighter(helper)
    source = Hurried(helper, Highlight("python", "a=1;" * 2_000_000), Highlight("python", "return"))
    highlighter.want(source)
    qtbot.waitUntil(lambda: highlighter.is_idle)
    highlighter.close()
    assert source.answers == [None, [[0, 6, 1]]]


def test_without_a_helper_everything_stays_plain(
    qtbot: QtBot, highlighter: Highlighter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.program.own_command", lambda *_: ["/no/such/program"])
    source = Source(Highlight("python", "return"))
    highlighter.want(source)
    qtbot.waitUntil(lambda: highlighter.is_idle)
    assert source.answers == [None]


def test_closing_ends_what_is_asked(highlighter: Highlighter) -> None:
    source = Source(Highlight("python", "return"))
    highlighter.want(source)
    highlighter.close()
    assert highlighter.is_idle
    assert source.answers == []
