from __future__ import annotations

import pytest

from app.engine.policy.probing import ProbeBudget


@pytest.mark.parametrize("draft", [0.003, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("forced", [0.0, 0.4])
def test_failing_probes_cost_at_most_their_share(draft: float, forced: float) -> None:
    budget = ProbeBudget(1.0)
    spent, rounds = 0.0, 4000
    for _ in range(rounds):
        budget.passed(1, 0.0, 1.0)
        if budget.due(draft + forced, 0.0, 1.0):
            budget.probed(draft, -forced, forced, 1.0)
            budget.judged(False)
            spent += draft + forced
    assert 0.001 * rounds < spent + draft + forced
    assert spent < 0.015 * rounds + 1.5


def test_a_probe_that_hits_is_repeated_at_once() -> None:
    budget = ProbeBudget(1.0)
    for _ in range(400):
        budget.passed(1, 0.0, 1.0)
        if budget.due(0.1, 0.0, 1.0):
            budget.probed(0.1, 0.0, 0.0, 1.0)
            budget.judged(False)
    budget.probed(0.1, 0.0, 0.0, 1.0)
    assert not budget.due(0.1, 0.0, 1.0)
    budget.judged(True)
    assert budget.due(0.1, 0.0, 1.0)


def test_what_drafting_saves_buys_probes() -> None:
    poor, rich = ProbeBudget(1.0), ProbeBudget(1.0)
    for _ in range(100):
        rich.saved(1.0, 1.0)
    probes = {poor: 0, rich: 0}
    for _ in range(100):
        for budget in (poor, rich):
            budget.passed(1, 0.0, 1.0)
            if budget.due(0.1, 0.0, 1.0):
                budget.probed(0.1, 0.0, 0.0, 1.0)
                budget.judged(False)
                probes[budget] += 1
    assert probes[rich] > probes[poor] * 1.4


@pytest.mark.parametrize("draft", [0.02, 0.3])
@pytest.mark.parametrize("growth", [0.0, 0.005, 0.01, 0.014, 0.016, 0.075])
def test_catching_up_is_paid_from_the_same_share(draft: float, growth: float) -> None:
    budget = ProbeBudget(1.0)
    spent, behind, gaps, highest, rounds = 0.0, 0, [], 0.0, 4000
    for _ in range(rounds):
        budget.passed(1, growth, 1.0)
        behind += 1
        price = draft + growth * behind
        if budget.due(price, growth, 1.0):
            budget.probed(price, 0.0, 0.0, 1.0)
            budget.judged(False)
            spent += price
            highest = max(highest, price)
            gaps.append(behind)
            behind = 0
    assert spent < 0.015 * rounds + 0.5 + highest
    if draft < 0.1 and growth <= 0.01:
        assert max(gaps) < 100 and behind < 100
    if growth > 0.015:
        assert behind > 3900  # there is no end to catching up
