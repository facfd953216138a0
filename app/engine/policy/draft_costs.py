"""What a drafter that decodes costs on this machine, in seconds: measured at load, updated by every draft."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

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
"""Of a token the drafter has missed: its cost in drafted tokens where it was not measured; the missed tokens the first
figure is worth; and what is left of what was observed after one more catch-up."""
_MANY = 32
"""The number of tokens in one catch-up above which it says what each token costs in the next answer."""
_FIRST_DRAFTS, _DRAFT_LIMIT = 3, 8.0
"""Drafts whose median replaces the cost of a token, measured at load without sampling, where that is off by more than
`CERTAIN`; at most so many times as much or as little."""


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
    """Whether two tokens that are missing before a draft, as after one that was accepted completely, are processed in
    two passes: the others have one token, too, and can use the same graph.
    """


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
        """The current costs, for the next answer. Like a change of all widths (`CostModel.snapshot`), a change is only
        taken over by half (the square root).
        """
        token = math.sqrt(max(self._measured.token, FLOOR) * self._base)
        growth = self._growth * token / self._base
        return DraftCosts(token, self._measured_catch_up, growth, self._measured.one_by_one)


def surprise(seconds: float, expected: float) -> float:
    """The relative deviation from what was expected, within limits."""
    return min(max(seconds / expected - 1.0, -SURPRISE_LIMIT), SURPRISE_LIMIT)
