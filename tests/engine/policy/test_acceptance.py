from __future__ import annotations

import math
import random

import pytest

from app.engine.policy.acceptance import LEAD_EDGES, AcceptanceEstimate, MethodChoice, RatePrior

PRIOR = RatePrior(rate=0.7, weight=4.0)


def an_estimate(prior: RatePrior = PRIOR) -> AcceptanceEstimate:
    return AcceptanceEstimate(LEAD_EDGES, prior, (0.7,) * (len(LEAD_EDGES) + 1))


def feed(estimate: AcceptanceEstimate, rate: float, count: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        estimate.judge(rng.random() < rate, 0, rng.uniform(0.0, 6.0))


def test_a_change_of_text_is_noticed_within_a_few_tokens() -> None:
    estimate = an_estimate()
    feed(estimate, 0.95, 400)
    for _ in range(10):
        estimate.judge(False, 0, 1.0)
    assert estimate.rate < 0.5
    assert estimate.long_rate > 0.85
    for _ in range(25):
        estimate.judge(True, 0, 1.0)
    assert estimate.rate > 0.8


def test_confidence_is_calibrated() -> None:
    estimate = an_estimate()
    rng = random.Random(1)
    for _ in range(600):
        sure = rng.random() < 0.5
        estimate.judge(rng.random() < (0.95 if sure else 0.3), 0, 5.0 if sure else 0.3)
    assert estimate.chance(5.0, 0) > 0.88
    assert estimate.chance(0.3, 0) < 0.45
    assert estimate.chance(0.3, 0) <= estimate.chance(1.2, 0) <= estimate.chance(5.0, 0)


def test_strange_confidences_are_harmless() -> None:
    estimate = an_estimate()
    for confidence in (math.inf, math.nan, -1.0, None):
        estimate.judge(True, 40, confidence)
    assert 0.0 < estimate.chance(math.nan, 40) < 1.0
    feed(estimate, 0.0, 2000)
    feed(estimate, 1.0, 2000)
    assert 0.9 < estimate.rate < 1.0


def test_a_snapshot_starts_the_next_answer_but_weighs_little() -> None:
    estimate = an_estimate()
    rng = random.Random(1)
    for _ in range(600):
        sure = rng.random() < 0.5
        estimate.judge(rng.random() < (0.98 if sure else 0.6), 0, 5.0 if sure else 0.3)
    again = an_estimate(estimate.snapshot())
    assert again.rate == pytest.approx(estimate.long_rate)
    assert again.chance(5.0, 0) > again.chance(0.3, 0) + 0.1
    feed(again, 0.0, 10)
    assert again.rate < 0.3


def test_the_better_method_is_chosen() -> None:
    assert MethodChoice(0.0).best == "coupled"
    choice = MethodChoice(0.0)
    rng = random.Random(3)
    for _ in range(300):
        choice.judge(rng.random() < 0.7, rng.random() < 0.85)
    assert choice.best == "greedy"
    again = MethodChoice(choice.greedy_advantage, choice.weight)
    assert again.best == "greedy"
    assert again.greedy_advantage == choice.greedy_advantage
    for _ in range(10):
        again.judge(True, False)  # by chance: what an answer has taught weighs more
    assert again.best == "greedy"


def test_what_an_earlier_answer_learned_counts_for_a_few_tokens_only() -> None:
    bins = tuple((0.95, 500.0) for _ in range(len(LEAD_EDGES) + 1))
    estimate = an_estimate(RatePrior(rate=0.95, weight=500.0, calibration=bins))
    assert estimate.long_rate == pytest.approx(0.95)
    for _ in range(40):
        estimate.judge(False, 0, 1.0)
    assert estimate.long_rate < 0.5


def test_positions_are_learned() -> None:
    estimate = an_estimate()
    rng = random.Random(2)
    for _ in range(800):
        estimate.judge(rng.random() < 0.9, 0, 1.0)
        estimate.judge(rng.random() < 0.4, 3, 1.0)
    assert estimate.chance(1.0, 0) > estimate.chance(1.0, 3) + 0.25
    assert estimate.chances(4)[0] > estimate.chances(4)[3] + 0.25
