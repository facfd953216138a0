"""Measures the costs of verify passes and draft tokens on this machine, once per pair; the results are stored."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.engine.decoding.sequence import MeasurableCache
from app.engine.policy.costs import Costs, DraftCosts, MeasuredSeconds, is_quicker_one_by_one, quickest_widths
from app.protocol.events import SpeedChange
from app.protocol.options import DrafterName, Sampling
from app.storage.json_file import KeyedFile
from app.system import Canceled

log = logging.getLogger("slipstream.engine")

_ALWAYS = (1, 2, 6, 17)
"""Widths that are measured however long it takes."""
_THEN = (8, 9, 12, 4, 3, 5, 14, 10, 7)
"""The others, most informative first: a cliff of GPU kernels lies between 8 and 9."""
_TIMED, _MOST_TIMED = 2, 5
"""The minimum and maximum number of timed passes of one width."""
_SLOW, _AGREE = 0.25, 0.9
"""A pass of at least so many seconds is timed once if it takes nearly as long as the untimed one before it."""
_DRAFT_STEPS = 8
_CATCH_UP_TOKENS = 64
_BUDGET_SECONDS = 1.0
_SLOWER = 1.1
"""A plain pass that takes this many times as long as before is reported; less is noise."""
_SLOW_PASS = 0.1
"""A pass that takes at least this many seconds is run as seldom as possible."""
_NEEDED = Sampling().top_k
"""Passes as in most answers, which on a GPU don't return whole rows of logits."""
_LONG_PASS = 0.05
"""If a pass takes at least so many seconds, the few milliseconds of building its graph don't matter."""
METHOD = 3
"""The version of the measurement. Results of an older one are measured again."""


def measure(
    target: MeasurableCache,
    drafts: Mapping[DrafterName, MeasurableCache],
    canceled: Callable[[], bool],
    budget: float = _BUDGET_SECONDS,
) -> Costs:
    """Time passes over caches that are empty before and after. ``drafts``: those of the drafters that decode.

    The widths of ``_ALWAYS`` are always measured; the others, and all of them more often, within ``budget`` (seconds).
    Where a GPU computes, also what reusing graphs gains. Raises `Canceled`.
    """
    end = time.perf_counter() + budget
    passes = _Passes(target, canceled)
    try:
        verify = {width: passes.first(width) for width in _ALWAYS}
        for width in _THEN:
            if time.perf_counter() < end:
                verify[width] = passes.first(width)
        for _ in range(_MOST_TIMED - _TIMED):  # the least of several, because whatever else is running only adds to it
            for width in verify:
                if time.perf_counter() < end:
                    verify[width] = min(verify[width], passes.seconds(width))
        widths = _widths(target, passes, verify)
    finally:
        target.roll_back(0)
    costs = {name: _draft_costs(cache, canceled) for name, cache in drafts.items()}
    return Costs(verify, costs, widths=widths)


def _widths(target: MeasurableCache, passes: _Passes, verify: dict[int, float]) -> tuple[int, ...]:
    """To which widths passes are padded; ``verify`` gets what these take."""
    if not target.may_reuse_graphs or verify[1] >= _LONG_PASS:
        return ()
    widths = quickest_widths(passes.seconds, target.graphs_reused)
    log.info("verify passes are padded to: %s", widths or "nothing")
    verify.update({width: passes.first(width) for width in widths if width not in verify})
    return widths


def time_plain(cache: MeasurableCache, canceled: Callable[[], bool], budget: float) -> float:
    """Seconds of a plain pass over a cache that is empty before and after: the least of one, or of a few within
    ``budget`` (seconds). Raises `Canceled`."""
    end = time.perf_counter() + budget
    passes = _Passes(cache, canceled)
    try:
        seconds = passes.seconds(1)
        for _ in range(_MOST_TIMED - 1):
            if time.perf_counter() + seconds < end:
                seconds = min(seconds, passes.seconds(1))
    finally:
        cache.roll_back(0)
    return seconds


class _Passes:
    """Verify passes as the loop runs them, after at least one token: a running state can't be saved from an empty
    memory, nor go back over a whole pass."""

    def __init__(self, cache: MeasurableCache, canceled: Callable[[], bool]) -> None:
        self._cache = cache
        self._canceled = canceled
        self._plain = 0.0
        """Seconds of a pass over one token without context, once it is known."""

    def first(self, width: int) -> float:
        """Seconds of the first passes of a ``width``, without the very first, in which drivers load and compile. With
        slow plain passes, one has to do, unless it took longer than its tokens one by one.
        """
        untimed = self.seconds(width)
        if self._plain >= _SLOW_PASS and untimed <= width * self._plain:
            return untimed
        seconds = self.seconds(width)
        if untimed < _SLOW or seconds < _AGREE * untimed:
            seconds = min(seconds, *(self.seconds(width) for _ in range(_TIMED - 1)))
        if width == 1:
            self._plain = self._plain or seconds
        return seconds

    def seconds(self, width: int) -> float:
        """One pass, including the copy of a running state that the loop makes before it."""
        cache = self._cache
        if self._canceled():
            raise Canceled
        if not cache.tokens:
            cache.decode_largest([0], 1, _NEEDED)  # with logits, so that a GPU has finished when the clock starts
        before = len(cache.tokens)
        begun = time.perf_counter()
        cache.hold(width - 1)
        cache.decode_largest([0] * width, width, _NEEDED)
        seconds = time.perf_counter() - begun
        cache.roll_back(before + 1)
        return seconds


def _draft_costs(cache: MeasurableCache, canceled: Callable[[], bool]) -> DraftCosts:
    """Of a drafter with this empty cache."""
    try:
        catch_up = _catch_up_seconds(cache, canceled)
        each = statistics.median(_timed(cache, 1, canceled) for _ in range(_DRAFT_STEPS))
        cache.roll_back(0)
        one_by_one = each < _LONG_PASS and _is_quicker_one_by_one(cache, canceled)
        return DraftCosts(each, catch_up, one_by_one=one_by_one)
    finally:
        cache.roll_back(0)


def _is_quicker_one_by_one(cache: MeasurableCache, canceled: Callable[[], bool]) -> bool:
    """See `DraftCosts.one_by_one`. The cache is empty before and after."""
    if not cache.may_reuse_graphs:
        return False
    quicker = is_quicker_one_by_one(lambda width: _timed(cache, width, canceled), cache.graphs_reused)
    cache.roll_back(0)
    log.info("after full acceptance, the draft model processes two tokens %s", "one by one" if quicker else "at once")
    return quicker


def _catch_up_seconds(cache: MeasurableCache, canceled: Callable[[], bool]) -> float:
    """Per token, for many tokens at once."""
    count = min(_CATCH_UP_TOKENS, cache.chunk, cache.length)
    seconds = []
    for _ in range(1 + _TIMED):
        seconds.append(_timed(cache, count, canceled))
        cache.roll_back(0)
    return min(seconds[1:]) / count


def _timed(cache: MeasurableCache, count: int, canceled: Callable[[], bool]) -> float:
    """Seconds for ``count`` tokens at once. Raises `Canceled`."""
    if canceled():
        raise Canceled
    begun = time.perf_counter()
    # without logits llama.cpp returns before a GPU has finished
    cache.decode_largest([0] * count, 1, _NEEDED)
    return time.perf_counter() - begun


@dataclass(frozen=True)
class Build:
    """The software that computes: with another one, the costs are different."""

    engine: str
    """For display, with its version."""
    driver: str = ""
    """The driver of the GPU, for display; empty if none is used."""


@dataclass(frozen=True)
class MeasuredCosts:
    """The costs of a pair as they are stored."""

    costs: Costs
    """The current costs."""
    build: Build
    plain: MeasuredSeconds
    """Seconds of a plain pass when it was measured, on empty caches."""
    method: int = 1
    """The version of the measurement."""


def costs_file(path: Path | None) -> KeyedFile[MeasuredCosts]:
    """The measured costs of pairs at ``path``; nothing is stored without one."""
    return KeyedFile(path, MeasuredCosts, version=3)


def up_to_date(
    known: MeasuredCosts | None, build: Build, measured: Callable[[], Costs], drafters: Collection[DrafterName] = ()
) -> tuple[MeasuredCosts, SpeedChange | None]:
    """``known`` if it is of this ``build``, of these ``drafters`` (that decode) and of the current method; otherwise
    measured again, and whether the pair became slower: than when it was measured, and than in the last answers.

    If it seems slower, it is measured once more, and the faster result counts: something else may have been running.
    """
    if known and known.costs.drafts.keys() != set(drafters):
        known = None
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
    drafts = {name: _quicker_draft(first.drafts.get(name, each), each) for name, each in second.drafts.items()}
    return Costs(verify, drafts, widths=second.widths)


def _quicker_draft(first: DraftCosts, second: DraftCosts) -> DraftCosts:
    catch_ups = [one.catch_up for one in (first, second) if one.catch_up is not None]
    return DraftCosts(min(first.token, second.token), min(catch_ups, default=None), one_by_one=second.one_by_one)


def _change(before: Build, now: Build, times: float) -> SpeedChange:
    """What has changed."""
    parts = [("engine", before.engine, now.engine), ("driver", before.driver, now.driver)]
    changed = [(old or f"no GPU {name}", new or f"no GPU {name}") for name, old, new in parts if old != new]
    old, new = zip(*changed, strict=True)
    return SpeedChange(before=" and ".join(old), now=" and ".join(new), times=times)
