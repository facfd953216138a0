from __future__ import annotations

import pytest

from app.engine.policy.costs import CostModel, Costs
from app.engine.policy.draft_costs import DraftCostModel, DraftCosts
from tests.support.simulator import pair_costs


def a_model(draft: float = 0.1) -> CostModel:
    return CostModel(pair_costs({1: 1.0, 4: 2.5, 8: 2.9, 12: 2.5}, draft), 16)


def test_unmeasured_widths_lie_between_their_neighbors() -> None:
    model = a_model()
    assert [model.verify(width) for width in (1, 2, 3, 4)] == pytest.approx([1.0, 1.5, 2.0, 2.5])
    assert model.verify(6) == pytest.approx(2.7)
    assert model.verify(10) == pytest.approx(2.7)


def test_the_last_slope_goes_on_but_not_downwards() -> None:
    assert a_model().verify(16) == pytest.approx(2.5)
    rising = CostModel(Costs({1: 1.0, 8: 8.0}), 16)
    assert rising.verify(16) == pytest.approx(16.0)


def test_width_one_must_be_measured() -> None:
    with pytest.raises(ValueError):
        Costs({2: 1.0})


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


def test_draft_costs_are_followed_and_soon_include_sampling() -> None:
    model = DraftCostModel(DraftCosts(0.1))
    for _ in range(3):
        model.observe(4, 1.2)
    assert model.token == pytest.approx(0.3)
    for _ in range(200):
        model.observe(4, 0.8)
    model.observe(0, 5.0)
    assert model.token == pytest.approx(0.2, rel=0.02)


def test_what_a_round_takes_besides_grows_with_its_width() -> None:
    model = a_model()
    assert not any(others(model))
    model.observe_other(1, 0.04)
    assert others(model)[0] == pytest.approx(0.04)
    assert others(model)[10] == pytest.approx(0.16)  # a share of it for each row, until more is known
    for _ in range(40):
        for width in (1, 4, 11):
            model.observe_other(width, 0.03 + 0.01 * width)
    assert others(model)[0] == pytest.approx(0.04, rel=0.1)
    assert others(model)[10] == pytest.approx(0.14, rel=0.1)


def test_what_a_round_takes_besides_is_never_negative_at_any_width() -> None:
    model = a_model()
    for _ in range(40):
        model.observe_other(1, 0.5)
        model.observe_other(11, 0.1)
    assert min(others(model)) > 0.0
    for _ in range(400):
        model.observe_other(11, 0.1)
    assert others(model)[10] == pytest.approx(0.1, rel=0.02)


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


def test_a_long_context_hardly_spoils_the_next_answer_but_a_slower_machine_gets_through() -> None:
    model = a_model()
    slower = {1: 1.6, 4: 4.0, 8: 4.64, 12: 4.0}
    seen(model, slower, 100)
    assert model.verify(1) == pytest.approx(1.6, rel=0.02)
    model = CostModel(model.snapshot(), 16)
    assert model.verify(1) == pytest.approx(1.6**0.5, rel=0.05)
    for _ in range(4):
        seen(model, slower, 100)
        model = CostModel(model.snapshot(), 16)
    assert model.verify(1) == pytest.approx(1.6, rel=0.05)


def test_what_drafting_costs_now_is_half_taken_over() -> None:
    model = a_model(0.1)
    for _ in range(300):
        model.drafts["model"].observe(1, 0.4)
    assert model.snapshot().drafts["model"].token == pytest.approx(0.2, rel=0.02)


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


def test_a_check_ends_with_the_first_pass_that_confirms_and_an_outlier_does_nothing() -> None:
    model = a_model()
    seen(model, {8: 2.9}, 100)
    model.observe_verify(1, 1.02)
    assert not model.plain_due(1.5)
    seen(model, {8: 2.9}, 100)
    for seconds in (5.0, 1.0):
        assert model.plain_due(1.5)
        model.observe_verify(1, seconds)
    assert not model.plain_due(1.5)
    assert model.verify(1) == pytest.approx(1.0, rel=0.01)
    seen(model, {8: 2.9}, 80)
    assert not model.plain_due(1.5)  # the second pass was ahead of its time
    seen(model, {8: 2.9}, 20)
    assert model.plain_due(1.5)


def test_the_more_drafting_gains_the_rarer_plain_passes_are_timed() -> None:
    def seconds(rate: float) -> float:
        model = a_model()
        while not model.plain_due(rate):
            model.observe_verify(1 + 7, 2.9)
        return model.snapshot().since_plain

    for rate in (1.05, 2.0, 6.0):
        assert 1.0 - 1.0 / rate <= 0.0025 * seconds(rate)
    assert seconds(6.0) > 1.5 * seconds(2.0) > 2 * seconds(1.05)


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


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_no_limit_locks_in_a_measurement_that_was_far_off(factor: float) -> None:
    model = CostModel(Costs({1: 1.0, 6: 2.0 * factor, 17: 3.0}), 17)
    for _ in range(1500):
        model.observe_verify(1, 1.0)
        model.observe_verify(6, 2.0)
        model.observe_verify(17, 3.0)
    assert model.verify(6) == pytest.approx(2.0, rel=0.05)
    assert model.verify(1) == pytest.approx(1.0, rel=0.05)


def test_what_a_missed_token_costs_is_measured_then_learned_and_handed_over() -> None:
    model = DraftCostModel(DraftCosts(0.1, catch_up=0.01))
    assert model.catch_up == pytest.approx(0.01)
    for _ in range(200):
        model.observe_catch_up(100, 2.0)
    assert model.catch_up == pytest.approx(0.02, rel=0.05)
    assert model.snapshot().catch_up == pytest.approx(0.02, rel=0.05)
    few = DraftCostModel(DraftCosts(0.1, catch_up=0.01))
    for _ in range(200):
        few.observe_catch_up(1, 0.08)  # one by one is dearer, and tells nothing of many at once
    assert few.snapshot().catch_up == pytest.approx(0.01)


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


def test_what_is_true_moves_nothing_at_any_length() -> None:
    model = a_growing_model()
    for length in (0, 8000, 100, 4000):
        answer(model, length)
        assert [model.verify(w) for w in (1, 4, 8, 12)] == pytest.approx(
            [truth(w, model.length) for w in (1, 4, 8, 12)]
        )
    assert model.snapshot().growth == pytest.approx({w: each for w, each in GROWTH.items() if w < 12})


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


def test_a_machine_that_became_slower_is_not_taken_for_growth() -> None:
    costs = a_growing_model().snapshot()
    for length in (100, 7000, 500, 8000) * 4:
        model = CostModel(costs, 16)
        answer(model, length, slower=1.3)
        costs = model.snapshot()
    after = CostModel(costs, 16)
    for length in (0, 8000):
        after.length = length
        assert after.verify(4) == pytest.approx(1.3 * truth(4, length), rel=0.1)


@pytest.mark.parametrize("growth", [0.0, 1e-5])
def test_the_draft_models_cost_at_long_contexts_is_learned(growth: float) -> None:
    costs = pair_costs({1: 1.0}, 0.1, draft_growth=growth)
    for length in (100, 7000, 500, 8000) * 8:
        model = CostModel(costs, 16)
        model.length = length
        for _ in range(200):
            model.drafts["model"].observe(4, 4 * (0.1 + 2e-5 * length))
        assert model.drafts["model"].token == pytest.approx(0.1 + 2e-5 * length, rel=0.01)
        costs = model.snapshot()
    for length in (100, 8000):
        after = CostModel(costs, 16)
        after.length = length
        assert after.drafts["model"].token == pytest.approx(0.1 + 2e-5 * length, rel=0.25)


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


def test_growth_from_few_passes_has_its_limits() -> None:
    model = a_model()
    model.length = 4000
    for width, seconds in ((1, 0.9), (8, 9.0)):  # no growth at all, and then a lot: something else was running
        model.observe_verify(width, seconds)
    assert model.verify(8) < 1.5 * a_model().verify(8)


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


def test_a_padded_pass_teaches_what_its_width_costs() -> None:
    model = CostModel(PADDED, 17)
    seen(model, {1: 1.0, 4: 2.0, 3: 3.0, 2: 3.0}, 300)
    assert model.verify(2) == model.verify(4) > 2.4
    again = model.snapshot()
    assert again.widths == (4, 8) and again.verify[2] == pytest.approx(1.5, rel=0.3)


def test_a_fixed_length_is_not_padded() -> None:
    model = CostModel(PADDED, 17, pads=False)
    assert model.verify(2) == 1.5 and model.width(2) == 2
    assert model.snapshot().widths == (4, 8)


def test_a_width_that_is_first_run_behind_a_long_context_is_known_at_any_length() -> None:
    model = CostModel(Costs({1: 1.0, 8: 2.9}, growth=GROWTH), 16)
    model.length = 8000
    for _ in range(3):
        model.observe_verify(4, 2.5 + 8000 * GROWTH[4])
    model.length = 0
    assert model.verify(4) == pytest.approx(2.5)


def test_one_measured_width_holds_for_all() -> None:
    assert CostModel(Costs({1: 3.0}), 16).verify(9) == 3.0


def test_the_table_is_what_verify_says() -> None:
    model = a_model()
    model.observe_verify(4, 3.0)
    assert model.table()[1:] == [model.verify(width) for width in range(1, 17)]


def test_a_snapshot_keeps_what_was_learned_of_a_width() -> None:
    model = a_model()
    seen(model, {1: 1.0, 4: 2.5, 6: 4.0}, 300)
    again = CostModel(model.snapshot(), 16)
    assert again.verify(6) == pytest.approx(4.0, rel=0.05)
    assert again.verify(4) == pytest.approx(2.5, rel=0.05)
    assert again.verify(1) == pytest.approx(1.0, rel=0.05)


def test_how_long_ago_a_plain_pass_was_timed_is_handed_over() -> None:
    """Short answers would otherwise never get to it."""
    costs = a_model().snapshot()
    for _ in range(30):
        model = CostModel(costs, 16)
        if model.plain_due(1.5):
            break
        seen(model, {8: 2.9}, 5)
        costs = model.snapshot()
    assert model.plain_due(1.5)
