from __future__ import annotations

import math
import random

import pytest

from app.engine.policy.acceptance import LEAD_EDGES, MATCH_EDGES, AcceptanceEstimate, MethodChoice, RatePrior

PRIOR = RatePrior(rate=0.7, weight=4.0)


def an_estimate(prior: RatePrior = PRIOR) -> AcceptanceEstimate:
    return AcceptanceEstimate(LEAD_EDGES, prior, (0.7,) * (len(LEAD_EDGES) + 1))


def feed(estimate: AcceptanceEstimate, rate: float, count: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        estimate.judge(rng.random() < rate, 0, rng.uniform(0.0, 6.0))


def test_it_starts_with_the_prior() -> None:
    estimate = an_estimate()
    assert estimate.rate == pytest.approx(0.7)
    assert estimate.chances(3) == pytest.approx([0.7] * 3)
    assert estimate.chance(2.0, 0) == pytest.approx(0.7)


def test_steady_text_gives_a_steady_rate() -> None:
    estimate = an_estimate()
    feed(estimate, 0.8, 300)
    rng = random.Random(5)
    rates = []
    for _ in range(300):
        estimate.judge(rng.random() < 0.8, 0, 1.0)
        rates.append(estimate.rate)
    assert sum(rates) / len(rates) == pytest.approx(0.8, abs=0.05)
    assert max(rates) - min(rates) < 0.25


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


def test_what_an_earlier_answer_learned_counts_for_a_few_tokens_only() -> None:
    bins = tuple((0.95, 500.0) for _ in range(len(LEAD_EDGES) + 1))
    estimate = an_estimate(RatePrior(rate=0.95, weight=500.0, calibration=bins))
    assert estimate.long_rate == pytest.approx(0.95)
    for _ in range(20):
        estimate.judge(False, 0, 1.0)
    assert estimate.long_rate < 0.5


def test_confidence_is_calibrated() -> None:
    estimate = an_estimate()
    rng = random.Random(1)
    for _ in range(600):
        sure = rng.random() < 0.5
        estimate.judge(rng.random() < (0.95 if sure else 0.3), 0, 5.0 if sure else 0.3)
    assert estimate.chance(5.0, 0) > 0.88
    assert estimate.chance(0.3, 0) < 0.45
    assert estimate.chance(0.3, 0) <= estimate.chance(1.2, 0) <= estimate.chance(5.0, 0)


def test_confidence_without_meaning_leaves_the_recent_past_to_decide() -> None:
    estimate = an_estimate()
    for part in range(8):
        feed(estimate, 0.9 if part % 2 else 0.3, 50, part)
    high = [estimate.chance(lead, 0) for lead in (0.1, 1.2, 7.0)]
    feed(estimate, 0.3, 30, 99)
    low = [estimate.chance(lead, 0) for lead in (0.1, 1.2, 7.0)]
    assert min(high) > max(low) + 0.2
    assert max(high) - min(high) < 0.2


def test_chances_rise_with_confidence_even_where_counts_do_not() -> None:
    estimate = AcceptanceEstimate(
        MATCH_EDGES, RatePrior(0.6, 4.0), (0.4, 0.45, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
    )
    for _ in range(40):
        estimate.judge(True, 0, 3.0)
        estimate.judge(False, 0, 6.0)
    chances = [estimate.chance(float(length), 0) for length in range(3, 16)]
    assert chances == sorted(chances)


def test_positions_are_learned() -> None:
    estimate = an_estimate()
    rng = random.Random(2)
    for _ in range(800):
        estimate.judge(rng.random() < 0.9, 0, 1.0)
        estimate.judge(rng.random() < 0.4, 3, 1.0)
    assert estimate.chance(1.0, 0) > estimate.chance(1.0, 3) + 0.25
    assert estimate.chances(4)[0] > estimate.chances(4)[3] + 0.25


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


def test_the_method_is_changed_back_when_the_text_changes() -> None:
    choice = MethodChoice(0.2)
    rng = random.Random(3)
    for _ in range(600):
        choice.judge(rng.random() < 0.85, rng.random() < 0.7)
    assert choice.best == "coupled"


def test_equal_methods_are_not_changed_all_the_time() -> None:
    choice = MethodChoice(0.0)
    rng = random.Random(4)
    changes, before = 0, choice.best
    for _ in range(3000):
        hit = rng.random() < 0.8
        choice.judge(hit, hit if rng.random() < 0.8 else rng.random() < 0.8)
        changes += choice.best != before
        before = choice.best
    assert changes <= 20
