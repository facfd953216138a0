"""Measures what a verify pass and a draft token cost on this machine, once per pair: known for the next time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.engine.decoding.kv_cache import MeasurableCache
from app.engine.policy.costs import Costs, MeasuredSeconds
from app.errors import Canceled
from app.protocol.messages import SpeedChange

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
_SLOWER = 1.1
"""A plain pass that takes so many times as long as it did is news; below it is noise."""
_LONG, _LONG_IF_SLOW, _LEAST_LONG = 8000, 2000, 1000
"""Tokens of context at which growth is measured, where the context holds them; where passes are slow, for what a token
adds is the same at any length; and the fewest that tell something."""
_LONG_WIDTHS = (1, 6, 17)
_SPACE = 64
"""Tokens that are fed behind such a context at most."""
_SLOW_PASS = 0.1
"""Seconds of a pass from which on one is enough there: it was run before."""
METHOD = 3
"""Of measuring. What an older one measured is measured anew."""


def measure(
    target: MeasurableCache,
    draft: MeasurableCache | None,
    canceled: Callable[[], bool],
    budget: float = _BUDGET_SECONDS,
) -> Costs:
    """Time passes over the empty caches, which are empty again afterwards.

    The widths of ``_ALWAYS`` are always measured, the others, and all of them more often, while ``budget`` (seconds)
    lasts. Then a few of them as behind a long context, where the caches can hold one. Raises `Canceled`.
    """
    end = time.perf_counter() + budget
    passes = _Passes(target, canceled)
    try:
        verify = {width: passes.first(width) for width in _ALWAYS}
        for width in _THEN:
            if time.perf_counter() < end:
                verify[width] = passes.first(width)
        for _ in range(_MOST_TIMED - _TIMED):  # the least of several: whatever else runs only ever adds
            for width in verify:
                if time.perf_counter() < end:
                    verify[width] = min(verify[width], passes.seconds(width))
        length = _LONG if verify[max(_ALWAYS)] < _SLOW_PASS else _LONG_IF_SLOW
        growth = passes.growth(verify, length)
    finally:
        target.roll_back(0)
    if draft is None:
        return Costs(verify=verify, draft=None, growth=growth)
    try:
        catch_up = _catch_up_seconds(draft, canceled)
        each = _draft_seconds(draft, canceled)
        draft_growth = _draft_growth(draft, canceled, each, length)
    finally:
        draft.roll_back(0)
    return Costs(verify=verify, draft=each, catch_up=catch_up, growth=growth, draft_growth=draft_growth)


class _Passes:
    """Verify passes as the loop runs them, behind one token at least: of an empty memory no running state can be saved,
    and none can go back over a whole pass."""

    def __init__(self, cache: MeasurableCache, canceled: Callable[[], bool]) -> None:
        self._cache = cache
        self._canceled = canceled

    def first(self, width: int) -> float:
        """Seconds of the first passes of a ``width``, the very first left out: drivers load and compile in it."""
        untimed = self.seconds(width)
        seconds = self.seconds(width)
        if untimed >= _SLOW and seconds >= _AGREE * untimed:
            return seconds
        return min(seconds, *(self.seconds(width) for _ in range(_TIMED - 1)))

    def growth(self, short: Mapping[int, float], length: int) -> dict[int, float]:
        """What a token of context adds to a pass, by width; ``short`` is what passes take without any.

        Empty where a long context cannot be had.
        """
        length = _lengthened(self._cache, length)
        if not length:
            return {}
        growth, most = {}, 0.0
        for width in reversed(_LONG_WIDTHS):
            seconds = self.first(width) if short[width] < _SLOW_PASS else self.seconds(width)
            most = max((seconds - short[width]) / length, most * width)
            growth[width] = most
            most /= width  # a token alone takes no less than one of many
        return growth

    def seconds(self, width: int) -> float:
        """One pass, with the copy of a running state that the loop makes before it."""
        cache = self._cache
        if self._canceled():
            raise Canceled
        if not cache.tokens:
            cache.decode([0], 0)
        before = len(cache.tokens)
        begun = time.perf_counter()
        cache.hold(width - 1)
        cache.decode([0] * width, width)
        seconds = time.perf_counter() - begun
        cache.roll_back(before + 1)
        return seconds


def _draft_seconds(cache: MeasurableCache, canceled: Callable[[], bool]) -> float:
    """Of one token. The cache is empty before and after, as in the other measurements of a draft model."""
    seconds = [_timed(cache, 1, canceled) for _ in range(_DRAFT_STEPS)]
    cache.roll_back(0)
    return statistics.median(seconds)


def _draft_growth(cache: MeasurableCache, canceled: Callable[[], bool], short: float, length: int) -> float:
    """What a token of context adds to a token, which takes ``short`` without any; 0 where it cannot be measured."""
    length = _lengthened(cache, length)
    if not length:
        return 0.0
    cache.decode([0], 1)  # not timed
    return max(_draft_seconds(cache, canceled) - short, 0.0) / length


def _catch_up_seconds(cache: MeasurableCache, canceled: Callable[[], bool]) -> float:
    """For each of many tokens at once."""
    count = min(_CATCH_UP_TOKENS, cache.chunk, cache.length)
    seconds = []
    for _ in range(1 + _TIMED):
        seconds.append(_timed(cache, count, canceled))
        cache.roll_back(0)
    return min(seconds[1:]) / count


def _lengthened(cache: MeasurableCache, length: int) -> int:
    """Make it as if ``length`` tokens were processed, or as many as it holds; how many, 0 where it cannot be had."""
    length = min(length, cache.length - _SPACE)
    if length < _LEAST_LONG:
        return 0
    cache.roll_back(0)
    cache.decode([0], 0)
    return length if cache.lengthen(length) else 0


def _timed(cache: MeasurableCache, count: int, canceled: Callable[[], bool]) -> float:
    """Seconds for ``count`` tokens at once. Raises `Canceled`."""
    if canceled():
        raise Canceled
    begun = time.perf_counter()
    cache.decode([0] * count, 1)  # without logits llama.cpp returns before a GPU is done
    return time.perf_counter() - begun


@dataclass(frozen=True)
class Build:
    """What computes: another one has other costs."""

    engine: str
    """For people, with its version."""
    driver: str = ""
    """Of the GPU, for people; empty where none computes."""


@dataclass(frozen=True)
class MeasuredCosts:
    """The costs of a pair as they are written down."""

    costs: Costs
    """As they are known now."""
    build: Build
    plain: MeasuredSeconds
    """Seconds of a plain pass when they were measured, on empty caches."""
    method: int = 1
    """Of measuring, when they were measured: files of older versions do not say it."""


def up_to_date(
    known: MeasuredCosts | None, build: Build, measured: Callable[[], Costs]
) -> tuple[MeasuredCosts, SpeedChange | None]:
    """``known`` if it is of this ``build`` and was measured as now; else measured anew, and whether that got slower.

    What looks slower is measured once more, and the quicker of the two counts: something else may have run meanwhile.
    Slower is what takes longer than when it was measured and longer than in the last answers.
    """
    if known and known.build == build and known.method == METHOD:
        return known, None
    costs = measured()
    if not known or known.build == build:
        return MeasuredCosts(costs, build, costs.verify[1], METHOD), None
    before = max(known.plain, known.costs.verify[1])
    if costs.verify[1] >= _SLOWER * before:
        costs = _quicker(costs, measured())
    now = costs.verify[1]
    slower = _change(known.build, build, now / before) if now >= _SLOWER * before else None
    return MeasuredCosts(costs, build, now, METHOD), slower


def _quicker(first: Costs, second: Costs) -> Costs:
    both = {**first.verify, **second.verify}
    verify = {width: min(seconds, first.verify.get(width, seconds)) for width, seconds in both.items()}
    drafts = [one.draft for one in (first, second) if one.draft is not None]
    catch_ups = [one.catch_up for one in (first, second) if one.catch_up is not None]
    return Costs(
        verify,
        min(drafts, default=None),
        catch_up=min(catch_ups, default=None),
        growth={width: min(each, first.growth.get(width, each)) for width, each in second.growth.items()},
        draft_growth=min(first.draft_growth, second.draft_growth),
    )


def _change(before: Build, now: Build, times: float) -> SpeedChange:
    """Names what is not the same any more."""
    parts = [("engine", before.engine, now.engine), ("driver", before.driver, now.driver)]
    changed = [(old or f"no GPU {name}", new or f"no GPU {name}") for name, old, new in parts if old != new]
    old, new = zip(*changed, strict=True)
    return SpeedChange(before=" and ".join(old), now=" and ".join(new), times=times)
