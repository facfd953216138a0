"""Two numbers of threads are timed when a model is new; the quicker one is remembered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.engine.host import loading, pair_costs, threads
from app.engine.host.engine import Engine
from app.engine.llama.context import Context
from app.engine.policy.calibration import time_plain
from tests.support.generation import ask, run
from tests.support.pairs import Loader, Pair


@pytest.fixture(autouse=True)
def one_or_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor with two cores of each kind, without a GPU."""
    monkeypatch.setattr(loading, "gpu_devices", list)
    for module in (loading, pair_costs, threads):
        monkeypatch.setattr(module, "default_threads", lambda: 1)
    for module in (pair_costs, threads):
        monkeypatch.setattr(module, "other_threads", lambda: 2)


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[int]]:
    """Time passes as usual, but report these seconds; the list has the number of threads of each time."""

    def with_seconds(seconds: float) -> list[int]:
        asked: list[int] = []

        def timed(context: Context, is_canceled: Callable[[], bool], budget: float) -> float:
            asked.append(context.threads)
            assert time_plain(context, is_canceled, budget) > 0
            assert context.tokens == []
            return seconds

        monkeypatch.setattr(pair_costs, "time_plain", timed)
        return asked

    return with_seconds


def test_the_quicker_number_is_used_and_remembered(
    engine: Engine, load: Loader, random_pair: Pair, takes: Callable[[float], list[int]]
) -> None:
    asked = takes(1e-9)
    pair = load(*random_pair)
    assert (asked, pair.threads, pair.batch_threads) == ([2], 2, 1)
    assert engine._costs is not None and pair.plain_pass_seconds == engine._costs.costs.verify[1] == 1e-9
    assert len(run(engine, ask("x", max_tokens=5)).token_ids) == 5
    engine.unload()
    again = load(random_pair[0])  # without a draft its costs are measured, but the threads are those of the model
    assert (asked, again.threads, again.batch_threads) == ([2], 2, 1)


def test_chosen_threads_are_not_timed(
    engine: Engine, load: Loader, random_pair: Pair, takes: Callable[[float], list[int]]
) -> None:
    asked = takes(1e-9)
    assert load(*random_pair, threads=1).threads == 1
    assert asked == []
    assert load(*random_pair).threads == 2
    engine.unload()
    assert load(*random_pair, threads=1).threads == 1  # whatever is remembered
