"""Measures what a verify pass and a draft token cost on this machine, once per pair: kept for the next time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.engine.cache import Cache
from app.engine.costs import Costs
from app.engine.protocol import SpeedChange
from app.errors import Cancelled

_FIRST = (1, 2, 6)
_THEN = (8, 9, 17, 4, 3, 5, 12, 7, 10, 14)
"""Widths in the order in which they tell most: a cliff of GPU kernels lies between 8 and 9."""
_DRAFT_STEPS = 8
_BUDGET_SECONDS = 0.3
_LEAST_SECONDS = 1e-7
_SLOWER = 1.1
"""A plain pass that takes so many times as long as it did is news; below it is noise."""


def measure(
    target: Cache, draft: Cache | None, cancelled: Callable[[], bool], budget: float = _BUDGET_SECONDS
) -> Costs:
    """Time passes over the empty caches, which are empty again afterwards.

    The widths of ``_FIRST`` are always measured, the others while ``budget`` (seconds) lasts. Raises `Cancelled`.
    """
    end = time.perf_counter() + budget
    verify: dict[int, float] = {}
    for width in (*_FIRST, *_THEN):
        if width not in _FIRST and time.perf_counter() > end:
            break
        verify[width] = _pass_seconds(target, width, cancelled)
        if time.perf_counter() < end:  # else the model is so slow that what only a first pass costs does not matter
            verify[width] = _pass_seconds(target, width, cancelled)
    while time.perf_counter() < end:  # the least of several: whatever else runs only ever adds
        for width in verify:
            verify[width] = min(verify[width], _pass_seconds(target, width, cancelled))
    return Costs(verify=verify, draft=_draft_seconds(draft, cancelled) if draft else None)


def _pass_seconds(cache: Cache, width: int, cancelled: Callable[[], bool]) -> float:
    if cancelled():
        raise Cancelled
    begun = time.perf_counter()
    cache.decode([0] * width, width)
    seconds = time.perf_counter() - begun
    cache.roll_back(0)
    return seconds


def _draft_seconds(cache: Cache, cancelled: Callable[[], bool]) -> float:
    seconds = []
    for _ in range(_DRAFT_STEPS):
        if cancelled():
            raise Cancelled
        begun = time.perf_counter()
        cache.decode([0], 1)
        seconds.append(time.perf_counter() - begun)
    cache.roll_back(0)
    return statistics.median(seconds)


@dataclass(frozen=True)
class Build:
    """What computes: another one has other costs."""

    engine: str
    """For people, with its version."""
    driver: str = ""
    """Of the GPU, for people; empty where none computes."""


@dataclass(frozen=True)
class KeptCosts:
    """The costs of a pair as they are written down."""

    costs: Costs
    """As they are known now."""
    build: Build
    plain: float
    """Seconds of a plain pass when they were measured, on empty caches."""


def is_sound(kept: KeptCosts) -> bool:
    """Whether the figures can be costs at all."""
    costs = kept.costs
    seconds = [*costs.verify.values(), kept.plain, costs.draft if costs.draft is not None else math.inf]
    return 1 in costs.verify and min(seconds) > _LEAST_SECONDS


def up_to_date(
    kept: KeptCosts | None, build: Build, measured: Callable[[], Costs]
) -> tuple[KeptCosts, SpeedChange | None]:
    """``kept`` if it is of this ``build``; else measured anew, and whether the pair got slower by the change.

    What looks slower is measured once more, and the quicker of the two counts: something else may have run meanwhile.
    Slower is what takes longer than when it was measured and longer than in the last answers.
    """
    if kept and kept.build == build:
        return kept, None
    costs = measured()
    if not kept:
        return KeptCosts(costs, build, costs.verify[1]), None
    before = max(kept.plain, kept.costs.verify[1])
    if costs.verify[1] >= _SLOWER * before:
        costs = _quicker(costs, measured())
    now = costs.verify[1]
    slower = _change(kept.build, build, now / before) if now >= _SLOWER * before else None
    return KeptCosts(costs, build, now), slower


def _quicker(first: Costs, second: Costs) -> Costs:
    drafts = [costs.draft for costs in (first, second) if costs.draft is not None]
    both = {**first.verify, **second.verify}
    verify = {width: min(seconds, first.verify.get(width, seconds)) for width, seconds in both.items()}
    return Costs(verify, min(drafts, default=None))


def _change(before: Build, now: Build, times: float) -> SpeedChange:
    """Names what is not the same any more."""
    parts = [("engine", before.engine, now.engine), ("driver", before.driver, now.driver)]
    changed = [(old or f"no GPU {name}", new or f"no GPU {name}") for name, old, new in parts if old != new]
    old, new = zip(*changed, strict=True)
    return SpeedChange(before=" and ".join(old), now=" and ".join(new), times=times)
