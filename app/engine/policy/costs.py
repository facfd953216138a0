"""The costs of drafting and verifying on this machine, in seconds: measured at load, updated by every round.

What the context adds is taken from the first rounds at its length, and again when it is four times as long.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from msgspec import Meta

from app.protocol.options import DrafterName

MeasuredSeconds = Annotated[float, Meta(gt=1e-7)]
"""For a pass; as a file may contain it: above zero, because ratios need that."""
SecondsOrZero = Annotated[float, Meta(ge=0.0)]

COST_GAIN = 0.05
"""The share of a deviation that is applied to the cost of one thing alone."""
CERTAIN = 0.15
"""A deviation above this, several times in a row, is no coincidence."""
FLOOR = 1e-9
"""Seconds; nothing is free, and ratios need a positive number."""
LONG = 4000
"""A number of tokens of context that may double the time of a pass: the step in which growth is learned."""
SURPRISE_LIMIT = 0.25
"""The maximum (relative) deviation that counts, so that a single outlier changes little."""
_CATCH_UP, _CATCH_UP_PRIOR, _CATCH_UP_KEEP = 0.03, 8.0, 0.9
"""Of a token that the drafter has missed: its cost in drafted tokens if it wasn't measured; how many observed tokens
that is worth; and the factor by which what was observed decays with each catch-up."""
_MANY = 32
"""From this many tokens on, a catch-up tells what each token will cost in the next answer."""
_FIRST_DRAFTS, _DRAFT_LIMIT = 3, 8.0
"""The median of so many drafts replaces the cost of a token, which was measured without sampling, if that is off by
more than `CERTAIN`; at most so many times as much or as little."""


@dataclass(frozen=True)
class DraftCosts:
    """Measured on this machine at load; all in seconds."""

    token: MeasuredSeconds
    """One drafted token."""
    catch_up: SecondsOrZero | None = None
    """One of many tokens that the drafter processes at once; ``None`` if unknown."""
    growth: SecondsOrZero = 0.0
    """What each token of context adds to a drafted token."""
    one_by_one: bool = False
    """Whether the two tokens that are missing after a fully accepted draft are processed in two passes, which can reuse
    the graph of the others."""


class DraftCostModel:
    """Costs of one drafter at the context's ``length``, kept up to date."""

    def __init__(self, costs: DraftCosts) -> None:
        self._measured = costs
        """What was known when this began."""
        self.length = 0
        """Tokens in the context; the caller updates it."""
        self._base = max(costs.token, FLOOR)
        self._growth = costs.growth
        self._first: list[float] = []
        self._measured_catch_up = costs.catch_up
        self._caught_up = [0.0, 0.0]
        """Seconds that it took to catch up, and tokens."""

    @property
    def token(self) -> float:
        """Seconds per drafted token."""
        return self._base + self.length * self._growth

    @property
    def catch_up(self) -> float:
        """Seconds the drafter takes for each token it has missed."""
        seconds, tokens = self._caught_up
        measured = self._measured_catch_up
        prior = _CATCH_UP * self.token if measured is None else max(measured, FLOOR)
        return (seconds + _CATCH_UP_PRIOR * prior) / (tokens + _CATCH_UP_PRIOR)

    def observe(self, tokens: int, seconds: float) -> None:
        """It took ``seconds`` to draft ``tokens`` tokens."""
        if tokens <= 0:
            return
        if len(self._first) == _FIRST_DRAFTS:
            self._follow(COST_GAIN * surprise(seconds / tokens, self.token))
            return
        self._first.append(seconds / tokens / self.token)
        if len(self._first) == _FIRST_DRAFTS:
            times = statistics.median(self._first)
            if abs(times - 1.0) > CERTAIN:
                self._follow(min(max(times, 1.0 / _DRAFT_LIMIT), _DRAFT_LIMIT) - 1.0)

    def _follow(self, change: float) -> None:
        step = max(self._growth, self._base / LONG)
        weight = self.length * step / self.token
        common = change / (1.0 + weight * weight)
        self._base *= 1.0 + common
        self._growth = max(self._growth * (1.0 + common) + common * weight * step, 0.0)

    def observe_catch_up(self, tokens: int, seconds: float) -> None:
        """It took ``seconds`` for ``tokens`` tokens (≥ 1) it had missed."""
        spent = min(max(seconds, 0.0), (2.0 * self.catch_up + 0.1 * self.token) * tokens)  # an outlier moves little
        observed = zip(self._caught_up, (spent, tokens), strict=True)
        self._caught_up = [old * _CATCH_UP_KEEP + new for old, new in observed]
        if tokens >= _MANY and self._measured_catch_up is not None:
            self._measured_catch_up *= 1.0 + COST_GAIN * surprise(spent / tokens, self._measured_catch_up)

    def snapshot(self) -> DraftCosts:
        """The current costs, for the next answer; as in `CostModel.snapshot`, a change is only taken over by half."""
        token = math.sqrt(max(self._measured.token, FLOOR) * self._base)
        growth = self._growth * token / self._base
        return DraftCosts(token, self._measured_catch_up, growth, self._measured.one_by_one)


def surprise(seconds: float, expected: float) -> float:
    """The relative deviation from what was expected, within limits."""
    return min(max(seconds / expected - 1.0, -SURPRISE_LIMIT), SURPRISE_LIMIT)


_DRIFT_GAIN = 0.08
"""The share of a round's deviation that is applied to all widths: the context grew, the processor became slower."""
_CORRECTION_LIMIT = 2.0
"""A larger deviation means that it was measured wrongly, and the measurement itself is changed."""
_FORGOTTEN = 0.02
"""The share of a width's correction that is lost each time, so that a width that was slow once is tried again."""
_FIRST_RUNS = 3
"""Passes until the cost of an unmeasured width is known, not counting the first, in which drivers load and compile."""
_CHECK_SHARE, _LEAST_LOSS = 0.0025, 0.25
"""The most time that may go into plain passes that are run to be timed, as a share; and the least that such a pass
counts as a loss, as a share of itself."""
_CHECKS = 3
"""The number of passes whose median replaces the cost of width 1, if all of them were off by more than `CERTAIN`."""
_CHECK_LIMIT = 4.0
_ROW_SHARE = 0.3
"""Of what a round takes besides, expected to grow with its width before rounds of several widths were seen."""
_OTHER_KEEP = 1.0 - 1.0 / 60
_OTHER_LIMIT = 1.5
"""The maximum time of a round that counts, as a multiple of what was expected."""
_FAR, _TIMES_FAR = 1000, 4
"""What the context adds is taken anew after so many tokens, and after so many times as many as before."""
_FAR_PLAIN, _FAR_ENOUGH = 2, 75
"""How many passes over one token are used for that, and how many over several: the sum of their squared draft
lengths."""
_LEAST_BASE = 0.1
"""The minimum share of a pass that doesn't come from its context."""


@dataclass(frozen=True)
class Costs:
    """Measured on this machine at load; all in seconds. Raises `ValueError` if width 1 wasn't measured."""

    verify: Mapping[int, MeasuredSeconds]
    """Width → one target pass over that many tokens, for the measured widths. 1 is always included."""
    drafts: Mapping[DrafterName, DraftCosts] = field(default_factory=dict)
    """What each drafter that decodes takes."""
    since_plain: float = 0.0
    """Seconds of verify passes since width 1 was last timed."""
    growth: Mapping[int, SecondsOrZero] = field(default_factory=dict)
    """Width → what each token of context adds to its pass, for some widths; empty if unknown."""
    behind: int = 0
    """How many tokens of context there were when growth was looked at last."""
    widths: tuple[int, ...] = ()
    """In ascending order: passes over several tokens are padded to the next of these, if there is one."""

    def __post_init__(self) -> None:
        if 1 not in self.verify:
            raise ValueError("the cost of width 1 is needed")


def padded(width: int, widths: Sequence[int]) -> int:
    """To how many tokens a pass over ``width`` is padded, with these `Costs.widths`."""
    return next((each for each in widths if each >= width), width) if width > 1 else width


class OtherCosts:
    """What a round takes besides drafting and its pass: some work is done per position, some once.

    A line through the observed rounds, by least squares that forget exponentially; the slope stays near an expected one
    (ridge regression, Hoerl and Kennard 1970) while all rounds have the same width.
    """

    def __init__(self) -> None:
        self._sums = (0.0,) * 5
        """Sums of 1, width, seconds, width², width · seconds."""
        self._expected_slope = 0.0
        self._fixed = self._each = 0.0

    def line(self) -> tuple[float, float]:
        """Seconds of a round, and of each token of its width; 0 before one was observed."""
        return self._fixed, self._each

    def at(self, width: int) -> float:
        """Seconds of a round of ``width``; 0 before one was observed."""
        return self._fixed + self._each * width

    def observe(self, width: int, seconds: float) -> None:
        """A round of ``width`` took ``seconds``."""
        count, widths, total, squares, products = self._sums
        if count:
            seconds = min(seconds, _OTHER_LIMIT * self.at(width))
        else:
            self._expected_slope = _ROW_SHARE * seconds / width
        count = count * _OTHER_KEEP + 1.0
        widths = widths * _OTHER_KEEP + width
        total = total * _OTHER_KEEP + seconds
        squares = squares * _OTHER_KEEP + width * width
        products = products * _OTHER_KEEP + width * seconds
        self._sums = count, widths, total, squares, products
        mean_width, mean = widths / count, total / count
        variance = max(squares / count - mean_width * mean_width, 0.0)
        slope = (products / count - mean_width * mean + self._expected_slope) / (variance + 1.0)
        self._each = min(max(slope, 0.0), mean / mean_width)
        self._fixed = mean - self._each * mean_width


class CostModel:
    """Costs of every width at the context's ``length``, kept up to date.

    Attention reads the whole context for every token, so a pass costs v(width) + length · growth(width).

    Widths that weren't run a few times lie on the line between their known neighbors, or on the last line prolonged.
    Observed rounds move a factor for all widths and one for each width; both forget exponentially, and an outlier moves
    them little. The longer the context, the more of what is common is taken for growth.

    Drafting is compared with width 1 but never runs it, so it is timed now and then (`plain_due`).
    """

    def __init__(self, costs: Costs, limit: int, *, pads: bool = True, unit: int = 1) -> None:
        """``limit``: the largest width that is needed; ``pads``: whether passes are padded to `Costs.widths`; with a
        ``unit`` above 1, they are padded to its multiples instead."""
        limit += -limit % unit
        self._measured = costs
        """What was known when this began."""
        widths = [each for each in costs.widths if each <= limit] if pads else []
        self._padded = [padded(width, widths) if unit == 1 else width + -width % unit for width in range(limit + 1)]
        """How many tokens a pass of each width has; what is learned is about these."""
        self._known = {width: max(seconds, FLOOR) for width, seconds in costs.verify.items()}
        """The `_base` of widths that were measured, or run often enough since."""
        self.drafts = {name: DraftCostModel(each) for name, each in costs.drafts.items()}
        """Of each drafter that decodes."""
        self._length = 0
        self._base = [_interpolated(self._known, width) for width in range(limit + 1)]
        self._growth = [max(_line(costs.growth, width), 0.0) if costs.growth else 0.0 for width in range(limit + 1)]
        self._behind = costs.behind
        self._far_plain: list[float] = []
        self._far_drafted: list[tuple[int, float]] = []
        """What a token of context adds to passes after a longer context than before: to those over one token, and how
        much more to those over so many more."""
        self._first_runs: dict[int, list[float]] = {}
        """For the others, the passes so far: seconds at the current drift."""
        self._observed: set[int] = set()
        self._since_plain = costs.since_plain
        self._check_gap = 0.0
        """Seconds of verify passes between two plain passes that are run to be timed, as last planned."""
        self._checks: list[float] = []
        """For the plain passes of a check so far: seconds ÷ expected seconds."""
        self._corrections = [1.0] * (limit + 1)
        self._drift = 1.0
        self._turn = 0
        self._other = OtherCosts()

    @property
    def length(self) -> int:
        """Tokens in the context; the caller updates it."""
        return self._length

    @length.setter
    def length(self, length: int) -> None:
        self._length = length
        for costs in self.drafts.values():
            costs.length = length

    def width(self, width: int) -> int:
        """How many tokens a pass over ``width`` of them is padded to."""
        return self._padded[width]

    def verify(self, width: int) -> float:
        """Seconds of one target pass over ``width`` tokens (≥ 1), padded where that pays."""
        width = self._padded[width]
        seconds = self._base[width] + self.length * self._growth[width]
        return seconds * self._corrections[width] * self._drift

    def table(self) -> list[float]:
        """`verify` for width 0 (meaningless) to the limit."""
        drift, length = self._drift, self.length
        widths = zip(self._base, self._growth, self._corrections, strict=True)
        each = [(base + length * growth) * correction * drift for base, growth, correction in widths]
        return [each[width] for width in self._padded]

    def rounds(self) -> list[float]:
        """Seconds of a round that tests 0, 1, … tokens, without drafting them."""
        fixed, each = self._other.line()
        return [seconds + (fixed + each * width) for width, seconds in enumerate(self.table()) if width]

    def round(self, width: int) -> float:
        """Seconds of a round whose pass has ``width`` tokens, without drafting them."""
        return self.verify(width) + self._other.at(width)

    def plain_due(self, rate: float) -> bool:
        """Whether to run a plain pass now only to time it, if drafting yields ``rate`` tokens per second."""
        if self._is_far() and len(self._far_plain) < _FAR_PLAIN:
            return True
        plain = self.round(1)
        self._check_gap = max(plain - 1.0 / rate, _LEAST_LOSS * plain) / _CHECK_SHARE
        return bool(self._checks) or self._since_plain >= self._check_gap

    def observe_verify(self, width: int, seconds: float) -> None:
        """A pass over ``width`` tokens took ``seconds``."""
        self.look_far(width, seconds)
        width = self._padded[width]
        if width > 1:
            self._since_plain += min(seconds, (1.0 + SURPRISE_LIMIT) * self.verify(width))
        elif self._check(seconds):
            return
        if width not in self._known:
            self._observe_first(width, seconds)
            return
        self._observed.add(width)
        deviation = surprise(seconds, self.verify(width))
        self._follow(width, deviation)
        self._turn = (self._turn + 1) % len(self._base)
        self._corrections[self._turn] += _FORGOTTEN * (1.0 - self._corrections[self._turn])

    def _is_far(self) -> bool:
        """Whether the context is much longer than where growth was looked at last."""
        return self._length >= max(_FAR, _TIMES_FAR * self._behind)

    def look_far(self, width: int, seconds: float) -> None:
        """Take growth from a pass over ``width`` tokens, if it is one of the first after a much longer context than
        before: a line through what one token takes and what several take, at most as much as each by itself.
        """
        width = self._padded[width]
        is_wanted = len(self._far_plain) < _FAR_PLAIN if width == 1 else width in self._known
        if not (is_wanted and self._is_far()):
            return
        usual = self._corrections[width] * self._drift
        growth = max(seconds / usual - self._base[width], 0.0) / self._length
        if width == 1:
            self._far_plain.append(growth)
            self._since_plain = (1 - len(self._far_plain)) * self._check_gap  # the second one comes early
        plain, before = min(self._far_plain, default=growth / width), self._growth[1]
        if width > 1:
            self._far_drafted.append((width - 1, min(max(growth - plain, 0.0), (width - 1) * plain)))
        weight = sum(more * more for more, _ in self._far_drafted)
        slope = sum(more * added for more, added in self._far_drafted) / weight if weight else 0.0
        for each, growth in enumerate(self._growth):
            self._growth[each] = plain + slope * (each - 1) if weight and each else max(growth + plain - before, 0.0)
        if weight >= _FAR_ENOUGH:
            self._behind, self._far_plain, self._far_drafted = self._length, [], []

    def _follow(self, width: int, deviation: float) -> None:
        """Move all widths a little, and this one: their factors, and their growth as far as the context matters."""
        floors = [base / LONG for base in self._base]
        steps = [growth if growth > least else least for growth, least in zip(self._growth, floors, strict=True)]
        weight = self.length * steps[width] / (self._base[width] + self.length * self._growth[width])
        share = deviation / (1.0 + weight * weight)
        self._drift *= 1.0 + _DRIFT_GAIN * share
        if self.length:
            common, own = (gain * share * weight for gain in (_DRIFT_GAIN, COST_GAIN))
            changed = zip(self._growth, steps, strict=True)
            grown = [growth + common * step for growth, step in changed]
            self._growth = [growth if growth > 0.0 else 0.0 for growth in grown]
            self._growth[width] = max(self._growth[width] + own * steps[width], 0.0)
        self._correct(width, self._corrections[width] * (1.0 + COST_GAIN * share))

    def _observe_first(self, width: int, seconds: float) -> None:
        runs = self._first_runs.setdefault(width, [])
        whole = seconds / self._drift
        runs.append(max(whole - self.length * self._growth[width], _LEAST_BASE * whole))
        if len(runs) < _FIRST_RUNS:
            return
        self._known[width] = min(runs[1:])  # whatever else is running only adds to it
        del self._first_runs[width]
        self._observed.add(width)
        self._corrections[width] = 1.0
        self._base = [self._known.get(w) or _interpolated(self._known, w) for w in range(len(self._base))]

    def _correct(self, width: int, correction: float) -> None:
        if not 1.0 / _CORRECTION_LIMIT <= correction <= _CORRECTION_LIMIT:
            self._change(width, correction)
            correction = 1.0
        self._corrections[width] = correction

    def _change(self, width: int, times: float) -> None:
        """The measurement of ``width`` changes by the factor ``times``."""
        self._base[width] *= times
        self._growth[width] *= times
        self._known[width] = self._base[width]

    def _check(self, seconds: float) -> bool:
        """The first plain pass after a long time; returns whether it is too far off to be used like any other."""
        expected = self.verify(1)
        stale = self._since_plain * _CHECK_SHARE >= _LEAST_LOSS * expected
        self._since_plain = min(self._since_plain, 0.0)
        if not stale and not self._checks:
            return False
        self._checks.append(seconds / expected)
        self._since_plain = (1 - len(self._checks)) * self._check_gap  # the second and third come early
        if abs(self._checks[-1] - 1.0) <= CERTAIN:
            self._checks = []
            return False
        if len(self._checks) == _CHECKS:  # only this width is off, because the others were observed all the time
            self._change(1, min(max(statistics.median(self._checks), 1.0 / _CHECK_LIMIT), _CHECK_LIMIT))
            self._checks = []
        return True

    def observe_other(self, width: int, seconds: float) -> None:
        """A round over ``width`` tokens took ``seconds`` besides drafting and verifying."""
        self._other.observe(width, max(seconds, FLOOR))

    def snapshot(self) -> Costs:
        """The current costs, for the next answer, at the widths that were measured or run often enough.

        A change of all widths (the median of those observed), or of a drafter's cost, is only taken over by half (the
        square root): its cause may be something that ran during this answer. If it lasts, a few answers are enough.
        What was learned about single widths and their growth is taken over completely.
        """
        before, count = self._measured, len(self._base)
        common = statistics.median(self._corrections[width] * self._drift for width in self._observed or {1})
        half = math.sqrt(common)
        inside = {w: self._corrections[w] * self._drift / half for w in sorted(self._known) if w < count}
        verify = {width: self._base[width] * times for width, times in inside.items()}
        beyond = {width: max(seconds, FLOOR) * half for width, seconds in before.verify.items() if width >= count}
        growth = {width: self._growth[width] * times for width, times in inside.items()}
        growth_beyond = {width: each * half for width, each in before.growth.items() if width >= count}
        return Costs(
            verify | beyond,
            {name: each.snapshot() for name, each in self.drafts.items()},
            self._since_plain,
            growth | growth_beyond if any(growth.values()) else {},
            self._behind,
            before.widths,
        )


def _interpolated(measured: Mapping[int, float], width: int) -> float:
    return max(_line(measured, width), FLOOR)


def _line(measured: Mapping[int, float], width: int) -> float:
    """Between its neighbors, or on the last line extended."""
    if width in measured:
        return measured[width]
    widths = sorted(measured)
    if len(widths) == 1:
        return measured[widths[0]]
    place = min(max(bisect(widths, width), 1), len(widths) - 1)
    left, right = widths[place - 1], widths[place]
    slope = (measured[right] - measured[left]) / (right - left)
    if width > right:
        slope = max(slope, 0.0)  # a dip at the end of the curve doesn't continue forever
    return measured[right] + slope * (width - right)


# What it gains that llama.cpp reuses a graph: measured once per pair, only where a GPU computes.
#
# llama.cpp keeps only the graph of the last pass. A pass with another number of tokens or outputs builds and allocates
# its graph anew, and CUDA records a graph only after two equal passes. So verify passes may be padded to a few widths,
# and a draft model may process all tokens one by one.

_DRAFTED = (4, 3, 4, 2, 6, 3, 4, 8)
"""Widths as drafting runs them, one after the other: most of few tokens, some of many."""
_WIDTHS: tuple[tuple[int, ...], ...] = ((), (8,), (4, 8))
"""What passes may be padded to. Beyond 8, they take a GPU longer, and are rare."""
_AFTER_FULL_ACCEPTANCE: Mapping[bool, Sequence[int]] = {False: (2, 1, 1, 1), True: (1, 1, 1, 1, 1)}
"""The widths of the passes of a draft of four tokens, with the two missing ones at once and one by one."""
_TIMES = 3
_GAIN = 0.97
"""The longest time, as a share of what is usual, at which something else is chosen."""

K = TypeVar("K", bound=Hashable)


def quickest_widths(seconds: Callable[[int], float], reused: Callable[[], int]) -> tuple[int, ...]:
    """The `Costs.widths` with which passes of changing widths take the least time.

    ``seconds`` runs a pass over so many tokens; ``reused`` says how many passes have used a graph again so far.
    """
    passes = {widths: [padded(width, widths) for width in _DRAFTED] for widths in _WIDTHS}
    return _quickest(passes, (), seconds, reused)


def is_quicker_one_by_one(seconds: Callable[[int], float], reused: Callable[[], int]) -> bool:
    """See `DraftCosts.one_by_one`. The arguments are those of `quickest_widths`."""
    return _quickest(_AFTER_FULL_ACCEPTANCE, False, seconds, reused)


def _quickest(
    passes: Mapping[K, Sequence[int]], usual: K, seconds: Callable[[int], float], reused: Callable[[], int]
) -> K:
    """Which of several series of passes takes the least time; the ``usual`` one unless another gains by reusing
    graphs."""
    times, counts = dict.fromkeys(passes, float("inf")), dict.fromkeys(passes, 0)
    for _ in range(_TIMES):
        for choice, widths in passes.items():
            before = reused()
            total = sum(seconds(width) for width in widths)
            times[choice] = min(times[choice], total)  # whatever else is running only adds to it
            counts[choice] = reused() - before
    best = min(times, key=times.__getitem__)
    is_better = counts[best] > counts[usual] and times[best] <= _GAIN * times[usual]
    return best if is_better else usual
