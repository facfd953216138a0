from __future__ import annotations

import pytest

from app.engine.policy.costs import CostModel, Costs, DraftCosts
from tests.support.simulator import pair_costs


def a_model(draft: float = 0.1) -> CostModel:
    return CostModel(pair_costs({1: 1.0, 4: 2.5, 8: 2.9, 12: 2.5}, draft), 16)


def test_unmeasured_widths_lie_between_their_neighbors() -> None:
    model = a_model()
    assert [model.verify(width) for width in (1, 2, 3, 4)] == pytest.approx([1.0, 1.5, 2.0, 2.5])
    assert model.verify(6) == pytest.approx(2.7)
    assert model.verify(10) == pytest.approx(2.7)


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


def test_an_outlier_moves_little() -> None:
    model = a_model()
    draft = model.drafts["model"]
    draft.observe(2, 50.0)
    for _ in range(20):
        model.observe_verify(1, 1.0)
        draft.observe(2, 0.2)
        model.observe_other(1, 0.01)
    model.observe_verify(1, 50.0)
    draft.observe(2, 50.0)
    model.observe_other(1, 50.0)
    assert model.verify(1) == pytest.approx(1.0, rel=0.05)
    assert draft.token == pytest.approx(0.1, rel=0.05)
    assert others(model)[0] == pytest.approx(0.01, rel=0.05)


def others(model: CostModel) -> list[float]:
    """What rounds take besides their pass, by tokens tested."""
    return [whole - verify for whole, verify in zip(model.rounds(), model.table()[1:], strict=True)]


def seen(model: CostModel, seconds: dict[int, float], rounds: int) -> None:
    for _ in range(rounds):
        for width, value in seconds.items():
            model.observe_verify(width, value)


def test_an_untouched_snapshot_is_what_was_measured() -> None:
    costs = Costs({1: 1.0, 4: 2.5, 24: 9.0}, {"model": DraftCosts(0.1), "mtp": DraftCosts(0.2, 0.05)}, 7.0)
    again = CostModel(costs, 16).snapshot()
    assert again.verify == pytest.approx(costs.verify)
    assert {name: each.token for name, each in again.drafts.items()} == pytest.approx({"model": 0.1, "mtp": 0.2})
    assert again.drafts["mtp"].catch_up == pytest.approx(0.05)
    assert again.since_plain == 7.0
    assert CostModel(Costs({1: 1.0}), 16).snapshot() == Costs({1: 1.0})


@pytest.mark.parametrize("factor", [0.4, 0.5, 2.0])
def test_a_check_of_the_plain_pass_puts_it_right_and_leaves_the_other_widths(factor: float) -> None:
    model = a_model()
    rounds = 0
    while not model.plain_due(1.5):
        model.observe_verify(8, 2.9)
        rounds += 1
    assert rounds * 2.9 >= 100
    passes = 0
    while model.plain_due(1.5):
        model.observe_verify(1, factor)
        passes += 1
    assert passes == 3
    assert model.verify(1) == pytest.approx(factor)
    assert model.verify(8) == pytest.approx(2.9)


# ------------------------------------------------------------ widths that were never run, and wrong measurements


def test_a_width_that_was_never_run_is_known_after_three_passes_the_first_of_which_does_not_count() -> None:
    model = CostModel(Costs({1: 1.0, 2: 1.5, 6: 2.0, 17: 3.1}), 17)
    for seconds in (40.0, 5.0, 5.2):  # a cliff behind width 8; drivers compile in the first pass
        assert model.verify(9) == pytest.approx(2.3)
        model.observe_verify(9, seconds)
    assert model.verify(9) == pytest.approx(5.0)
    assert model.verify(8) == pytest.approx(4.0)  # between its new neighbors
    assert model.verify(1) == pytest.approx(1.0)
    assert CostModel(model.snapshot(), 17).verify(9) == pytest.approx(5.0)


# ------------------------------------------------------------ the context's length

GROWTH = {1: 1e-4, 4: 2.5e-4, 8: 4.5e-4, 12: 6.5e-4}


def a_growing_model(times: float = 1.0) -> CostModel:
    return CostModel(Costs({1: 1.0, 4: 2.5, 8: 2.9}, growth={w: times * each for w, each in GROWTH.items()}), 16)


def truth(width: int, length: int) -> float:
    return Costs({1: 1.0, 4: 2.5, 8: 2.9, 12: 3.3}).verify[width] + length * GROWTH[width]


def answer(model: CostModel, length: int, slower: float = 1.0) -> None:
    """Many rounds at about one length."""
    for i in range(200):
        model.length = length + i
        for width in (1, 4, 8):
            model.observe_verify(width, slower * truth(width, length + i))


def test_costs_depend_on_the_length() -> None:
    model = a_growing_model()
    assert model.verify(16) == pytest.approx(3.7)
    model.length = 8000
    assert model.verify(1) == pytest.approx(1.0 + 0.8)
    assert model.verify(6) == pytest.approx(2.7 + 2.8)
    assert model.verify(16) == pytest.approx(3.7 + 8000 * 8.5e-4)
    assert model.table()[1:] == [model.verify(width) for width in range(1, 17)]


@pytest.mark.parametrize("told", [0.0, 0.5, 2.0])
def test_growth_is_learned_from_answers_of_several_lengths(told: float) -> None:
    """Not measured, or measured wrongly: each answer begins with what the one before left."""
    costs = Costs({1: 1.0, 4: 2.5, 8: 2.9}, growth={w: told * each for w, each in GROWTH.items() if told})
    for length in (100, 7000, 500, 4000, 200, 6000, 1000, 8000) * 3:
        model = CostModel(costs, 16)
        answer(model, length)
        costs = model.snapshot()
    after = CostModel(costs, 16)
    for length in (0, 2000, 8000):
        after.length = length
        assert [after.verify(w) for w in (1, 4, 8)] == pytest.approx([truth(w, length) for w in (1, 4, 8)], rel=0.1)


@pytest.mark.parametrize(("length", "times"), [(8000, 1.0), (33_000, 0.5)])
def test_the_first_passes_behind_a_long_context_say_what_it_adds(length: int, times: float) -> None:
    model = CostModel(Costs({1: 1.0, 4: 2.5, 8: 2.9}), 16)
    if length > 8000:  # looked at before
        model.length = 8000
        seen(model, {1: truth(1, 8000), 8: truth(8, 8000)}, 2)
        model = CostModel(model.snapshot(), 16)
        model.length = 31_000
        assert not model.plain_due(1.5)
    model.length = length
    seconds = {width: truth(width, 0) + times * length * GROWTH[width] for width in (1, 4, 8)}
    for width in (1, 1, 8, 8):
        assert model.plain_due(1.5) == (width == 1)
        model.observe_verify(width, seconds[width])
    assert [model.verify(width) for width in seconds] == pytest.approx(list(seconds.values()), rel=0.02)


# ------------------------------------------------------------ passes that are padded


PADDED = Costs({1: 1.0, 2: 1.5, 4: 2.0, 8: 3.0, 17: 6.0}, widths=(4, 8))


def test_a_padded_pass_costs_what_its_width_does() -> None:
    model = CostModel(PADDED, 17)
    assert [model.width(width) for width in range(1, 11)] == [1, 4, 4, 4, 8, 8, 8, 8, 9, 10]
    assert model.table()[1:9] == pytest.approx([1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0])
    assert [model.verify(width) for width in range(1, 18)] == model.table()[1:]
    model.observe_other(1, 0.5)
    assert model.rounds()[1] > model.table()[2]
    assert CostModel(PADDED, 6).table()[1:] == pytest.approx([1.0, 2.0, 2.0, 2.0, 2.25, 2.5])  # 8 is too many
