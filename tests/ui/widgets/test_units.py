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
