from __future__ import annotations

import pytest

from app.engine.policy.policy import break_even, speeds_by_length


def test_a_length_is_as_quick_as_its_tokens_by_its_seconds() -> None:
    speeds = speeds_by_length([(10, [0.5, 0.8])], [1.0, 1.5, 2.0, 9.0], 0.25)
    assert speeds == pytest.approx([1.0, 1.5 / 1.75, 1.9 / 2.5])


@pytest.mark.parametrize(
    ("seconds", "draft", "expected"), [([1.0, 1.0], 0.5, 0.5), ([1.0, 3.0], 0.0, 1.0), ([1.0, 9.0, 1.5], 0.0, 0.366)]
)
def test_break_even_is_where_some_length_pays(seconds: list[float], draft: float, expected: float) -> None:
    assert break_even(seconds, draft) == pytest.approx(expected, abs=0.001)
