from __future__ import annotations

import pytest

from app.engine.costs import CostModel, Costs, ProbeBudget


def a_model(draft: float | None = 0.1) -> CostModel:
    return CostModel(Costs({1: 1.0, 4: 2.5, 8: 2.9, 12: 2.5}, draft), 16)


def test_unmeasured_widths_lie_between_their_neighbours() -> None:
    model = a_model()
    assert [model.verify(width) for width in (1, 2, 3, 4)] == pytest.approx([1.0, 1.5, 2.0, 2.5])
    assert model.verify(6) == pytest.approx(2.7)
    assert model.verify(10) == pytest.approx(2.7)


def test_the_last_slope_goes_on_but_not_downwards() -> None:
    assert a_model().verify(16) == pytest.approx(2.5)
    rising = CostModel(Costs({1: 1.0, 8: 8.0}, None), 16)
    assert rising.verify(16) == pytest.approx(16.0)
    assert rising.verify(40) == pytest.approx(40.0)


def test_one_measured_width_holds_for_all() -> None:
    assert CostModel(Costs({1: 3.0}, None), 16).verify(9) == 3.0


def test_width_one_must_be_measured() -> None:
    with pytest.raises(ValueError):
        CostModel(Costs({2: 1.0}, None), 16)


def test_the_table_is_what_verify_says() -> None:
    model = a_model()
    model.observe_verify(4, 3.0)
    assert model.table(20)[1:] == [model.verify(width) for width in range(1, 21)]


def test_a_slower_machine_moves_every_width() -> None:
    model = a_model()
    for _ in range(400):
        model.observe_verify(1, 1.3)
        model.observe_verify(4, 2.5 * 1.3)
    assert model.verify(4) == pytest.approx(2.5 * 1.3, rel=0.01)
    assert model.verify(12) == pytest.approx(2.5 * 1.3, rel=0.05)


def test_a_width_that_was_measured_wrongly_is_corrected() -> None:
    """Two widths that disagree leave open which one is off, so the others move less than halfway."""
    model = a_model()
    for _ in range(300):
        model.observe_verify(1, 1.0)
        model.observe_verify(4, 3.5)
    assert model.verify(4) == pytest.approx(3.5, rel=0.05)
    assert model.verify(1) == pytest.approx(1.0, rel=0.05)
    assert 2.5 <= model.verify(12) < 3.0


def test_a_correction_is_forgotten_while_its_width_is_not_seen() -> None:
    model = a_model()
    for _ in range(300):
        model.observe_verify(1, 1.0)
        model.observe_verify(4, 3.5)
    for _ in range(3000):
        model.observe_verify(1, 1.0)
    assert model.verify(4) == pytest.approx(2.5, rel=0.05)


def test_an_outlier_moves_little() -> None:
    model = a_model()
    model.observe_overhead(0.01)
    for _ in range(20):
        model.observe_verify(1, 1.0)
    model.observe_verify(1, 50.0)
    model.observe_draft(2, 50.0)
    model.observe_overhead(50.0)
    assert model.verify(1) == pytest.approx(1.0, rel=0.05)
    assert model.draft == pytest.approx(0.1, rel=0.05)
    assert model.overhead == pytest.approx(0.01, rel=0.05)


def test_draft_and_overhead_are_followed() -> None:
    model = a_model()
    for _ in range(200):
        model.observe_draft(4, 0.8)
        model.observe_overhead(0.03)
    model.observe_draft(0, 5.0)
    assert model.draft == pytest.approx(0.2, rel=0.02)
    assert model.overhead == pytest.approx(0.03, rel=0.02)


@pytest.mark.parametrize("draft", [0.003, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("forced", [0.0, 0.4])
def test_failing_probes_cost_at_most_their_share(draft: float, forced: float) -> None:
    budget = ProbeBudget(1.0)
    spent, rounds = 0.0, 4000
    for _ in range(rounds):
        budget.passed(1, 1.0)
        if budget.due(draft, forced, 1.0):
            budget.probed(draft, -forced, forced, 1.0)
            budget.judged(False)
            spent += draft + forced
    assert 0.001 * rounds < spent + draft + forced
    assert spent < 0.015 * rounds + 1.5


def test_a_probe_that_hits_is_repeated_at_once() -> None:
    budget = ProbeBudget(1.0)
    for _ in range(400):
        budget.passed(1, 1.0)
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
            budget.passed(1, 1.0)
            if budget.due(0.1, 0.0, 1.0):
                budget.probed(0.1, 0.0, 0.0, 1.0)
                budget.judged(False)
                probes[budget] += 1
    assert probes[rich] > probes[poor] * 1.4
