from __future__ import annotations

import itertools
import random

import pytest

from app.engine.policy.policy import Stopping

FLAT = [1.0 + 0.01 * n for n in range(17)]


def count_worth_testing(chances: list[float], rate: float, seconds: list[float], draft: float) -> int:
    """Of a draft whose confidences are its chances."""
    return Stopping(lambda confidence, _: confidence, (), (), seconds, draft, rate).count_worth_testing(chances)


def test_all_is_tested_where_that_costs_nothing() -> None:
    assert count_worth_testing([0.9, 0.5, 0.1], 1.0, FLAT, 0.0) == 3
    assert count_worth_testing([], 1.0, FLAT, 0.0) == 0


def simulated(chances: list[float], rate: float, seconds: list[float], draft: float, first: int) -> float:
    """What testing ``first`` now and then whatever is best is worth: each way is followed to its end."""

    def worth(start: int, chosen: int | None) -> float:
        left = chances[start:]
        values = []
        for count in range(len(left) + 1) if chosen is None else [chosen]:
            survival = total = 1.0
            for chance in left[:count]:
                survival *= chance
                total += survival
            value = total - rate * seconds[count]
            if count + 1 < len(left):
                again = worth(start + count + 1, None) - rate * draft * (len(left) - count - 1)
                value += survival * left[count] * min(again, 0.0)
            values.append(value)
        return max(values)

    return worth(0, first)


def test_nothing_else_is_worth_more() -> None:
    rng = random.Random(4)
    for _ in range(300):
        chances = [rng.choice([0.05, 0.5, 0.9, 0.99, 1.0]) for _ in range(rng.randint(1, 7))]
        steps = [rng.choice([0.0, 0.1, 0.6, 1.5]) for _ in range(8)]
        seconds = [1.0, *(1.0 + sum for sum in itertools.accumulate(steps))]
        rate, draft = rng.uniform(1.0, 3.0), rng.choice([0.0, 0.05, 0.3])
        chosen = count_worth_testing(chances, rate, seconds, draft)
        values = [simulated(chances, rate, seconds, draft, count) for count in range(len(chances) + 1)]
        assert values[chosen] == pytest.approx(max(values))
