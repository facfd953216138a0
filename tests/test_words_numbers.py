"""How figures are written."""

from __future__ import annotations

import pytest

from app import words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (words.speed(None), "–"),
        (words.speed(0.0), "0.0 tok/s"),
        (words.speed(7.26), "7.3 tok/s"),
        (words.speed(9.96), "10 tok/s"),
        (words.speed(74.4), "74 tok/s"),
        (words.speed(1234.4), "1,234 tok/s"),
        (words.share(None), "–"),
        (words.share(0.684), "68%"),
        (words.share(1.0), "100%"),
        (words.milliseconds(None), "–"),
        (words.milliseconds(0.00812), "8.1 ms"),
        (words.milliseconds(1.2), "1,200 ms"),
        (words.speed_up(1.84), "1.8× faster"),
        (words.speed_up(1.04), "same speed"),
        (words.speed_up(0.74), "0.7× as fast"),
        (words.draft_tokens(1), "1 draft token"),
        (words.draft_tokens(1214), "1,214 draft tokens"),
        (words.accepted(0.684), "68% accepted"),
        (words.tokens_per_pass(2.89), "2.9 tokens per pass"),
        (words.tokens(1), "1 token"),
        (words.tokens(1214), "1,214 tokens"),
        (words.seconds(0.124), "0.12 s"),
        (words.seconds(3.44), "3.4 s"),
        (words.seconds(128.2), "128 s"),
    ],
)
def test_figures_carry_their_units(text: str, expected: str) -> None:
    assert text.replace("\u00a0", " ") == expected


def test_a_duration_is_short_to_read() -> None:
    times = [0.0, 0.42, 0.96, 12.4, 59.6, 65.0, 3600.0]
    expected = ["0.1 s", "0.4 s", "1 s", "12 s", "1 min 0 s", "1 min 5 s", "60 min 0 s"]
    assert [words.duration(one).replace(words.NO_BREAK, " ") for one in times] == expected
