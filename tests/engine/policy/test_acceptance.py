from __future__ import annotations

import math
import random

import pytest

from app.engine.policy.acceptance import LEAD_EDGES, MATCH_EDGES, AcceptanceEstimate, MethodChoice, RatePrior

PRIOR = RatePrior(rate=0.7, weight=4.0)


def an_arm(prior: RatePrior = PRIOR) -> AcceptanceEstimate:
    return AcceptanceEstimate(LEAD_EDGES, prior)


def feed(arm: AcceptanceEstimate, rate: float, count: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        arm.judge(rng.random() < rate, 0, rng.uniform(0.0, 6.0))


def test_it_starts_with_the_prior() -> None:
    arm = an_arm()
    assert arm.rate == pytest.approx(0.7)
    assert arm.chances(3) == pytest.approx([0.7] * 3)
    assert arm.chance(2.0, 0, arm.recent_odds()) == pytest.approx(0.7)


def test_steady_text_gives_a_steady_rate() -> None:
    arm = an_arm()
    feed(arm, 0.8, 300)
    rng = random.Random(5)
    rates = []
    for _ in range(300):
        arm.judge(rng.random() < 0.8, 0, 1.0)
        rates.append(arm.rate)
    assert sum(rates) / len(rates) == pytest.approx(0.8, abs=0.05)
    assert max(rates) - min(rates) < 0.25


def test_a_change_of_text_is_noticed_within_a_few_tokens() -> None:
    arm = an_arm()
    feed(arm, 0.95, 400)
    for _ in range(10):
        arm.judge(False, 0, 1.0)
    assert arm.rate < 0.5
    assert arm.long_rate > 0.85
    for _ in range(25):
        arm.judge(True, 0, 1.0)
    assert arm.rate > 0.8


def test_confidence_is_calibrated() -> None:
    arm = an_arm()
    rng = random.Random(1)
    for _ in range(600):
        sure = rng.random() < 0.5
        arm.judge(rng.random() < (0.95 if sure else 0.3), 0, 5.0 if sure else 0.3)
    odds = arm.recent_odds()
    assert arm.chance(5.0, 0, odds) > 0.88
    assert arm.chance(0.3, 0, odds) < 0.45
    assert arm.chance(0.3, 0, odds) <= arm.chance(1.2, 0, odds) <= arm.chance(5.0, 0, odds)


def test_confidence_without_meaning_leaves_the_recent_past_to_decide() -> None:
    arm = an_arm()
    for part in range(8):
        feed(arm, 0.9 if part % 2 else 0.3, 50, part)
    high = [arm.chance(lead, 0, arm.recent_odds()) for lead in (0.1, 1.2, 7.0)]
    feed(arm, 0.3, 30, 99)
    low = [arm.chance(lead, 0, arm.recent_odds()) for lead in (0.1, 1.2, 7.0)]
    assert min(high) > max(low) + 0.2
    assert max(high) - min(high) < 0.2


def test_chances_rise_with_confidence_even_where_counts_do_not() -> None:
    arm = AcceptanceEstimate(MATCH_EDGES, RatePrior(0.6, 4.0), (0.4, 0.45, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9))
    for _ in range(40):
        arm.judge(True, 0, 3.0)
        arm.judge(False, 0, 6.0)
    chances = [arm.chance(float(length), 0, 1.0) for length in range(3, 16)]
    assert chances == sorted(chances)


def test_positions_are_learnt() -> None:
    arm = an_arm()
    rng = random.Random(2)
    for _ in range(800):
        arm.judge(rng.random() < 0.9, 0, 1.0)
        arm.judge(rng.random() < 0.4, 3, 1.0)
    assert arm.chance(1.0, 0, arm.recent_odds()) > arm.chance(1.0, 3, arm.recent_odds()) + 0.25
    assert arm.chances(4)[0] > arm.chances(4)[3] + 0.25


def test_strange_confidences_are_harmless() -> None:
    arm = an_arm()
    for confidence in (math.inf, math.nan, -1.0, None):
        arm.judge(True, 40, confidence)
    assert 0.0 < arm.chance(math.nan, 40, arm.recent_odds()) < 1.0
    feed(arm, 0.0, 2000)
    feed(arm, 1.0, 2000)
    assert 0.9 < arm.rate < 1.0


def test_a_snapshot_starts_the_next_answer_but_weighs_little() -> None:
    arm = an_arm()
    rng = random.Random(1)
    for _ in range(600):
        sure = rng.random() < 0.5
        arm.judge(rng.random() < (0.98 if sure else 0.6), 0, 5.0 if sure else 0.3)
    again = an_arm(arm.snapshot())
    assert again.rate == pytest.approx(arm.long_rate)
    assert again.chance(5.0, 0, 1.0) > again.chance(0.3, 0, 1.0) + 0.1
    feed(again, 0.0, 10)
    assert again.rate < 0.3


def test_the_better_way_is_chosen() -> None:
    assert MethodChoice(0.0).way == "coupled"
    ways = MethodChoice(0.0)
    rng = random.Random(3)
    for _ in range(300):
        ways.judge(rng.random() < 0.7, rng.random() < 0.85)
    assert ways.way == "greedy"
    again = MethodChoice(ways.greedy_advantage, ways.weight)
    assert again.way == "greedy"
    assert again.greedy_advantage == ways.greedy_advantage
    for _ in range(10):
        again.judge(True, False)  # by chance: what an answer has taught weighs more
    assert again.way == "greedy"


def test_the_way_is_changed_back_when_the_text_changes() -> None:
    ways = MethodChoice(0.2)
    rng = random.Random(3)
    for _ in range(600):
        ways.judge(rng.random() < 0.85, rng.random() < 0.7)
    assert ways.way == "coupled"


def test_equal_ways_are_not_changed_all_the_time() -> None:
    ways = MethodChoice(0.0)
    rng = random.Random(4)
    changes, before = 0, ways.way
    for _ in range(3000):
        hit = rng.random() < 0.8
        ways.judge(hit, hit if rng.random() < 0.8 else rng.random() < 0.8)
        changes += ways.way != before
        before = ways.way
    assert changes <= 20
