"""How figures are written."""

from __future__ import annotations

import pytest

from app.ui.widgets import units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.speed(None), "–"),
        (units.speed(0.0), "0.0 tok/s"),
        (units.speed(7.26), "7.3 tok/s"),
        (units.speed(9.96), "10 tok/s"),
        (units.speed(74.4), "74 tok/s"),
        (units.speed(1234.4), "1,234 tok/s"),
        (units.share(None), "–"),
        (units.share(0.684), "68%"),
        (units.share(1.0), "100%"),
        (units.milliseconds(None), "–"),
        (units.milliseconds(0.00812), "8.1 ms"),
        (units.milliseconds(1.2), "1,200 ms"),
        (units.speed_up(1.84), "1.8× faster"),
        (units.speed_up(1.04), "same speed"),
        (units.speed_up(0.74), "0.7× as fast"),
        (units.draft_tokens(1), "1 draft token"),
        (units.draft_tokens(1214), "1,214 draft tokens"),
        (units.accepted(0.684), "68% accepted"),
        (units.tokens_per_pass(2.89), "2.9 tokens per pass"),
        (units.tokens(1), "1 token"),
        (units.tokens(1214), "1,214 tokens"),
        (units.seconds(0.124), "0.12 s"),
        (units.seconds(3.44), "3.4 s"),
        (units.seconds(128.2), "128 s"),
    ],
)
def test_figures_carry_their_units(text: str, expected: str) -> None:
    assert text.replace("\u00a0", " ") == expected


def test_a_duration_is_short_to_read() -> None:
    times = [0.0, 0.42, 0.96, 12.4, 59.6, 65.0, 3600.0]
    expected = ["0.1 s", "0.4 s", "1 s", "12 s", "1 min 0 s", "1 min 5 s", "60 min 0 s"]
    assert [units.duration(one).replace(units.NO_BREAK, " ") for one in times] == expected
