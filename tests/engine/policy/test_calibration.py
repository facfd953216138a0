from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from app.engine.host.engine import Engine
from app.engine.policy.calibration import METHOD, Build, MeasuredCosts, costs_file, measure, up_to_date
from app.engine.policy.costs import CostModel, Costs, DraftCosts
from app.protocol.options import DrafterName
from app.system import Canceled
from tests.support.generation import ask, run
from tests.support.pairs import Loader, Pair
from tests.support.simulator import pair_costs


def test_costs_are_measured_and_the_caches_are_empty_again(loaded: Engine) -> None:
    target, draft = loaded._target, loaded._draft
    assert target and draft
    costs = measure(target.context, {"model": draft.context}, lambda: False, budget=0.0)
    assert set(costs.verify) == {1, 2, 6, 17}
    assert all(seconds > 0 for seconds in costs.verify.values())
    assert costs.drafts["model"].token > 0
    assert (costs.drafts["model"].catch_up or 0.0) > 0
    assert target.context.tokens == [] and draft.context.tokens == []
    assert not measure(target.context, {}, lambda: False, budget=0.0).drafts


def test_what_an_answer_taught_is_kept(engine: Engine, load: Loader, random_pair: Pair) -> None:
    load(*random_pair)
    assert engine._costs
    before = engine._costs.costs
    run(engine, ask("x", draft_length="auto", max_tokens=60))
    learned = engine._costs.costs
    assert learned != before
    engine.unload()
    load(*random_pair)
    assert engine._costs and engine._costs.costs == learned


@pytest.mark.parametrize(
    "nonsense",
    [
        {"costs": {"verify": {"2": 0.1}}},
        {"costs": {"verify": {"1": 0.0}}},
        {"costs": {"verify": {"1": -1.0}, "drafts": {"model": {"token": 0.1}}}},
        {"costs": {"verify": {"1": 0.1}, "drafts": {"model": {"token": 0.0}}}},
        {"costs": {"verify": {"1": 0.1}, "growth": {"1": -0.1}}},
        {"costs": {"verify": {"1": 0.1}, "drafts": {"model": {"token": 0.1, "growth": -0.1}}}},
        {"costs": {"verify": {"1": 0.1}, "drafts": {"model": {"token": 0.1, "catch_up": -0.1}}}},
        {"plain": 0.0},
    ],
)
def test_costs_that_make_no_sense_are_not_used(tmp_path: Path, nonsense: dict[str, object]) -> None:
    sound = msgspec.to_builtins(MeasuredCosts(Costs({1: 0.1}), OLD, 0.1), str_keys=True)
    entries = {"sound": sound, "nonsense": sound | nonsense}
    path = tmp_path / "costs.json"
    path.write_bytes(msgspec.json.encode({"version": 3, "entries": entries}))
    store = costs_file(path)
    assert store.get("sound") == MeasuredCosts(Costs({1: 0.1}), OLD, 0.1)
    assert store.get("nonsense") is None


# ------------------------------------------------------------ another engine, another driver

OLD, NEW = Build("llama-cpp-python 0.3.36"), Build("llama-cpp-python 0.3.37")


def written_costs(plain: float, lately: float | None = None, build: Build = OLD) -> MeasuredCosts:
    return MeasuredCosts(pair_costs({1: plain if lately is None else lately, 2: 0.9}, 0.01), build, plain, METHOD)


class Bench:
    """Measures what it was told to."""

    def __init__(self, *plain: float) -> None:
        self.left = [pair_costs({1: seconds, 2: 0.5 + i}, 0.02 - 0.01 * i) for i, seconds in enumerate(plain)]

    def __call__(self) -> Costs:
        return self.left.pop(0)


ONE: tuple[DrafterName, ...] = ("model",)


@pytest.mark.parametrize(
    ("kept", "build", "measured", "drafters", "plain"),
    [
        (written_costs(0.1), OLD, [], ONE, 0.1),  # the same build measures nothing
        (written_costs(0.1), OLD, [0.2], ["mtp"], 0.2),  # other drafters, with which nothing is compared
        (None, NEW, [0.2], ONE, 0.2),
        (written_costs(0.1), NEW, [0.05], ONE, 0.05),
        (written_costs(0.1), NEW, [0.109], ONE, 0.109),  # about as quick
        (written_costs(0.1), NEW, [0.3, 0.105], ONE, 0.105),  # what looked slower once is noise
        (written_costs(0.1, lately=0.13), NEW, [0.14], ONE, 0.14),  # not slower than it was lately
        (written_costs(0.1, lately=0.08), NEW, [0.105], ONE, 0.105),  # nor than it was measured
    ],
)
def test_what_is_measured_anew_and_not_slower(
    kept: MeasuredCosts | None, build: Build, measured: list[float], drafters: Sequence[DrafterName], plain: float
) -> None:
    bench = Bench(*measured)
    latest, slower = up_to_date(kept, build, bench, drafters)
    assert (latest.plain, latest.build, slower, bench.left) == (plain, build, None, [])
    assert latest is kept or latest.costs.verify[1] == plain


def test_a_pair_that_got_slower_is_told_with_both_builds() -> None:
    latest, slower = up_to_date(written_costs(0.1), NEW, Bench(0.14, 0.13), ONE)
    assert slower is not None
    assert (slower.before, slower.now) == (OLD.engine, NEW.engine)
    assert slower.times == pytest.approx(1.3)
    assert latest.costs == pair_costs({1: 0.13, 2: 0.5}, 0.01)  # the quicker of each
    assert latest.plain == 0.13
    assert up_to_date(latest, NEW, Bench(), ONE) == (latest, None)  # once


def test_an_update_of_the_engine_measures_anew_and_says_what_got_slower(
    engine: Engine, load: Loader, random_pair: Pair
) -> None:
    assert load(*random_pair).slower is None
    assert engine._costs
    store, key, kept = engine._costs.store, engine._costs.key, engine._costs.written
    engine.unload()
    impossible = pair_costs({1: 2e-7, 2: 4e-7}, 2e-7)
    store.put(key, MeasuredCosts(impossible, Build("an older engine", kept.build.driver), 2e-7))
    slower = load(*random_pair).slower
    assert slower is not None and slower.times > 2 and slower.before == "an older engine"
    assert engine._costs.written.build == kept.build
    assert engine._costs.costs.verify[1] > 1e-5
    engine.unload()
    assert load(*random_pair).slower is None


# ------------------------------------------------------------ what is run


# ------------------------------------------------------------ graphs that are used again


def test_what_was_chosen_is_stored(tmp_path: Path) -> None:
    """Otherwise passes of other widths, which round otherwise, could change a text from one load to the next."""
    costs = Costs({1: 0.1}, {"model": DraftCosts(0.01, one_by_one=True)}, widths=(4, 8))
    measured = MeasuredCosts(costs, OLD, 0.1, METHOD)
    costs_file(tmp_path / "costs.json").put("key", measured)
    stored = costs_file(tmp_path / "costs.json").get("key")
    assert stored == measured
    assert up_to_date(stored, OLD, Bench(), ONE) == (measured, None)
    after = CostModel(stored.costs, 17).snapshot()
    assert (after.widths, after.drafts["model"].one_by_one) == ((4, 8), True)
    assert CostModel(stored.costs, 17, pads=False).snapshot().widths == (4, 8)


def test_measuring_can_be_canceled(loaded: Engine) -> None:
    assert loaded._target
    with pytest.raises(Canceled):
        measure(loaded._target.context, {}, lambda: True)
