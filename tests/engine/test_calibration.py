from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.engine.calibration import CostStore, key_of, measure
from app.engine.costs import Costs
from app.engine.engine import Engine
from app.engine.protocol import PairLoaded
from app.errors import Cancelled
from tests.support.generation import ask, run


@pytest.fixture
def loaded(engine: Engine, load: Callable[..., PairLoaded], random_pair: tuple[Path, Path]) -> Engine:
    load(*random_pair)
    return engine


def test_costs_are_measured_and_the_caches_are_empty_again(loaded: Engine) -> None:
    target, draft = loaded._target, loaded._draft
    assert target and draft
    costs = measure(target.context, draft.context, lambda: False, budget=0.0)
    assert {1, 2, 6} <= set(costs.verify)
    assert all(seconds > 0 for seconds in costs.verify.values())
    assert costs.draft is not None and costs.draft > 0
    assert target.context.tokens == [] and draft.context.tokens == []
    assert measure(target.context, None, lambda: False, budget=0.0).draft is None


def test_measuring_can_be_cancelled(loaded: Engine) -> None:
    assert loaded._target
    with pytest.raises(Cancelled):
        measure(loaded._target.context, None, lambda: True)


def test_costs_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    costs = Costs(verify={1: 0.5, 2: 0.625}, draft=0.125)
    CostStore(path).put("a", costs)
    CostStore(path).put("b", Costs(verify={1: 1.0}, draft=None))
    assert CostStore(path).get("a") == costs
    assert CostStore(path).get("c") is None


def test_only_so_many_are_kept_and_the_newest(tmp_path: Path) -> None:
    store = CostStore(tmp_path / "costs.json")
    for number in range(70):
        store.put(str(number), Costs(verify={1: float(number + 1)}, draft=None))
    assert store.get("0") is None
    assert store.get("69") == Costs(verify={1: 70.0}, draft=None)


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 3}', b'{"a": {"verify": {"1": "x"}, "draft": null}}', b"\xff"])
def test_a_broken_file_costs_a_measurement_only(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "costs.json"
    path.write_bytes(content)
    store = CostStore(path)
    assert store.get("a") is None
    store.put("a", Costs(verify={1: 1.0}, draft=None))
    assert store.get("a") == Costs(verify={1: 1.0}, draft=None)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    CostStore(file / "costs.json").put("a", Costs(verify={1: 1.0}, draft=None))


def test_a_key_names_what_it_depends_on() -> None:
    assert key_of({"threads": 1, "target": [3, 4]}) == key_of({"target": [3, 4], "threads": 1})
    assert key_of({"threads": 1}) != key_of({"threads": 2})


def test_a_second_load_does_not_measure_again(
    engine: Engine, load: Callable[..., PairLoaded], random_pair: tuple[Path, Path]
) -> None:
    load(*random_pair)
    assert engine._costs
    first = engine._costs.costs
    engine.unload()
    load(*random_pair)
    assert engine._costs and engine._costs.costs == first


def test_what_an_answer_taught_is_kept(
    engine: Engine, load: Callable[..., PairLoaded], random_pair: tuple[Path, Path]
) -> None:
    load(*random_pair)
    assert engine._costs
    before = engine._costs.costs
    run(engine, ask("x", draft_length="auto", max_tokens=60))
    learnt = engine._costs.costs
    assert learnt != before
    engine.unload()
    load(*random_pair)
    assert engine._costs and engine._costs.costs == learnt


@pytest.mark.parametrize("verify", [{2: 0.1}, {1: 0.0}, {1: -1.0}, {1: 0.1, 2: 1e-9}])
def test_costs_that_make_no_sense_are_measured_again(tmp_path: Path, verify: dict[int, float]) -> None:
    store = CostStore(tmp_path / "costs.json")
    store.put("a", Costs(verify=verify, draft=None))
    assert store.get("a") is None
    store.put("a", Costs(verify={1: 0.1}, draft=0.0))
    assert store.get("a") is None


def test_without_a_place_nothing_is_kept() -> None:
    store = CostStore(None)
    store.put("a", Costs(verify={1: 1.0}, draft=None))
    assert store.get("a") is None
