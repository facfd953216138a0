from __future__ import annotations

import pytest

from app.engine.policy.candidate import ProbeBudget


@pytest.mark.parametrize("draft", [0.003, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("forced", [0.0, 0.4])
def test_failing_probes_cost_at_most_their_share(draft: float, forced: float) -> None:
    budget = ProbeBudget(1.0)
    spent, rounds = 0.0, 4000
    for _ in range(rounds):
        budget.pass_time(1, 0.0, 1.0, 1.0)
        if budget.is_due(draft + forced, 0.0, 1.0):
            budget.probed(draft, -forced, forced, 1.0)
            budget.judged(False)
            spent += draft + forced
    assert 0.001 * rounds < spent + draft + forced
    assert spent < 0.015 * rounds + 1.5


@pytest.mark.parametrize("draft", [0.02, 0.3])
@pytest.mark.parametrize("growth", [0.0, 0.005, 0.01, 0.014, 0.016, 0.075])
def test_catching_up_is_paid_from_the_same_share(draft: float, growth: float) -> None:
    budget = ProbeBudget(1.0)
    spent, missing, gaps, highest, rounds = 0.0, 0, [], 0.0, 4000
    for _ in range(rounds):
        budget.pass_time(1, growth, 1.0, 1.0)
        missing += 1
        price = draft + growth * missing
        if budget.is_due(price, growth, 1.0):
            budget.probed(price, 0.0, 0.0, 1.0)
            budget.judged(False)
            spent += price
            highest = max(highest, price)
            gaps.append(missing)
            missing = 0
    assert spent < 0.015 * rounds + 0.5 + highest
    if draft < 0.1 and growth <= 0.01:
        assert max(gaps) < 100 and missing < 100
    if growth > 0.015:
        assert missing > 3800  # there is no end to catching up
