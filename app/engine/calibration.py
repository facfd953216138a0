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

_ALWAYS = (1, 2, 6, 17)
"""Widths that are measured however long it takes."""
_THEN = (8, 9, 12, 4, 3, 5, 14, 10, 7)
"""The others, in the order in which they tell most: a cliff of GPU kernels lies between 8 and 9."""
_TIMED, _MOST_TIMED = 2, 5
"""Passes of a width that are timed at least, and at most."""
_SLOW, _AGREE = 0.25, 0.9
"""Seconds of a pass from which on one timed pass is enough, where it takes nearly as long as the untimed one before."""
_DRAFT_STEPS = 8
_CATCH_UP_TOKENS = 64
_BUDGET_SECONDS = 1.0
_LEAST_SECONDS = 1e-7
_SLOWER = 1.1
"""A plain pass that takes so many times as long as it did is news; below it is noise."""
METHOD = 2
"""Of measuring. What an older one measured is measured anew."""


def measure(
    target: Cache, draft: Cache | None, cancelled: Callable[[], bool], budget: float = _BUDGET_SECONDS
) -> Costs:
    """Time passes over the empty caches, which are empty again afterwards.

    The widths of ``_ALWAYS`` are always measured, the others, and all of them more often, while ``budget`` (seconds)
    lasts. Raises `Cancelled`.
    """
    end = time.perf_counter() + budget
    passes = _Passes(target, cancelled)
    try:
        verify = {width: passes.first(width) for width in _ALWAYS}
        for width in _THEN:
            if time.perf_counter() < end:
                verify[width] = passes.first(width)
        for _ in range(_MOST_TIMED - _TIMED):  # the least of several: whatever else runs only ever adds
            for width in verify:
                if time.perf_counter() < end:
                    verify[width] = min(verify[width], passes.seconds(width))
    finally:
        target.roll_back(0)
    if draft is None:
        return Costs(verify=verify, draft=None)
    return Costs(verify=verify, draft=_draft_seconds(draft, cancelled), catch_up=_catch_up_seconds(draft, cancelled))


class _Passes:
    """Verify passes as the loop runs them, behind one token: of an empty memory no running state can be saved."""

    def __init__(self, cache: Cache, cancelled: Callable[[], bool]) -> None:
        self._cache = cache
        self._cancelled = cancelled

    def first(self, width: int) -> float:
        """Seconds of the first passes of a ``width``, the very first left out: drivers load and compile in it."""
        untimed = self.seconds(width)
        seconds = self.seconds(width)
        if untimed >= _SLOW and seconds >= _AGREE * untimed:
            return seconds
        return min(seconds, *(self.seconds(width) for _ in range(_TIMED - 1)))

    def seconds(self, width: int) -> float:
        """One pass, with the copy of a running state that the loop makes before it."""
        cache = self._cache
        if self._cancelled():
            raise Cancelled
        if not cache.tokens:
            cache.decode([0], 0)
        begun = time.perf_counter()
        cache.hold(width - 1)
        cache.decode([0] * width, width)
        seconds = time.perf_counter() - begun
        cache.roll_back(1)
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


def _catch_up_seconds(cache: Cache, cancelled: Callable[[], bool]) -> float:
    """For each of many tokens at once."""
    count = min(_CATCH_UP_TOKENS, cache.chunk, cache.length)
    seconds = []
    for _ in range(1 + _TIMED):
        if cancelled():
            raise Cancelled
        begun = time.perf_counter()
        cache.decode([0] * count, 1)  # without logits llama.cpp returns before a GPU is done
        seconds.append(time.perf_counter() - begun)
        cache.roll_back(0)
    return min(seconds[1:]) / count


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
    method: int = 1
    """Of measuring, when they were measured: files of older versions do not say it."""


def is_sound(kept: KeptCosts) -> bool:
    """Whether the figures can be costs at all."""
    costs = kept.costs
    seconds = [*costs.verify.values(), kept.plain, costs.draft if costs.draft is not None else math.inf]
    catch_up = costs.catch_up if costs.catch_up is not None else 0.0
    return 1 in costs.verify and min(seconds) > _LEAST_SECONDS and 0.0 <= catch_up < math.inf


def up_to_date(
    kept: KeptCosts | None, build: Build, measured: Callable[[], Costs]
) -> tuple[KeptCosts, SpeedChange | None]:
    """``kept`` if it is of this ``build`` and was measured as now; else measured anew, and whether that got slower.

    What looks slower is measured once more, and the quicker of the two counts: something else may have run meanwhile.
    Slower is what takes longer than when it was measured and longer than in the last answers.
    """
    if kept and kept.build == build and kept.method == METHOD:
        return kept, None
    costs = measured()
    if not kept or kept.build == build:
        return KeptCosts(costs, build, costs.verify[1], METHOD), None
    before = max(kept.plain, kept.costs.verify[1])
    if costs.verify[1] >= _SLOWER * before:
        costs = _quicker(costs, measured())
    now = costs.verify[1]
    slower = _change(kept.build, build, now / before) if now >= _SLOWER * before else None
    return KeptCosts(costs, build, now, METHOD), slower


def _quicker(first: Costs, second: Costs) -> Costs:
    drafts = [costs.draft for costs in (first, second) if costs.draft is not None]
    catch_ups = [costs.catch_up for costs in (first, second) if costs.catch_up is not None]
    both = {**first.verify, **second.verify}
    verify = {width: min(seconds, first.verify.get(width, seconds)) for width, seconds in both.items()}
    return Costs(verify, min(drafts, default=None), catch_up=min(catch_ups, default=None))


def _change(before: Build, now: Build, times: float) -> SpeedChange:
    """Names what is not the same any more."""
    parts = [("engine", before.engine, now.engine), ("driver", before.driver, now.driver)]
    changed = [(old or f"no GPU {name}", new or f"no GPU {name}") for name, old, new in parts if old != new]
    old, new = zip(*changed, strict=True)
    return SpeedChange(before=" and ".join(old), now=" and ".join(new), times=times)
