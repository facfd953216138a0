"""What drafting and verifying cost on this machine, in seconds, and what may be spent on trying out drafting.

Measured at load, refreshed by every round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_DRIFT_GAIN = 0.08
"""Share of a round's surprise that is taken for all widths: context grew, the processor got slower."""
_CORRECTION_GAIN = 0.05
"""Share that is taken for this width alone: its measurement at load was off."""
_COST_GAIN = 0.05
_SURPRISE_LIMIT = 0.25
"""A round counts as at most so far off (relative), so that a single outlier moves little."""
_CORRECTION_LIMIT = 2.0
_FORGOTTEN = 0.02
"""Share of a width's correction lost each time its turn comes; a width seen as slow once is tried again."""
_FLOOR = 1e-9
"""Seconds; nothing is free, and ratios need it."""


_PROBE_SHARE = 0.015
"""Of the time, at most so much goes into probes by itself."""
_PROBE_PATIENCE, _PROBE_LEAST = 0.95, 0.25
"""Each failed probe makes the share smaller by this factor, down to this part of it; one that hits restores it."""
_GAIN_SHARE = 0.05
"""Of the time drafting saves, so much more may go into probes: text it pays on may come back."""
_START_CREDIT, _MOST_CREDIT, _MOST_DEBT = 0.5, 2.0, 0.6
"""Probing time to begin with, to save up and to owe, in plain passes."""
_PACE = 50.0
"""Rounds over which saved-up credit is spent."""
_PROBE_MOST = 0.6
"""Plain passes; a probe that costs more (the draft model missed much) is due when so much is saved up."""
_LOSS_LIMIT = 0.1
"""Plain passes of credit lost at most by testing what a probe drafted, which was expected to pay."""


@dataclass(frozen=True)
class Costs:
    """Measured on this machine at load; all in seconds."""

    verify: Mapping[int, float]
    """Width → one target pass over so many tokens, for the measured widths. 1 is always there."""
    draft: float | None
    """One token of the draft model; ``None`` without a draft model."""


class CostModel:
    """Costs of every width, kept up to date.

    Unmeasured widths lie on the line between their measured neighbours, or on the last one prolonged. Observed rounds
    move a factor common to all widths and one for each width; both forget exponentially and heed an outlier little.
    """

    def __init__(self, costs: Costs, limit: int) -> None:
        """``limit``: the largest width asked for often. Raises `ValueError` where width 1 was not measured."""
        if 1 not in costs.verify:
            raise ValueError("the cost of width 1 is needed")
        self._measured = {width: max(seconds, _FLOOR) for width, seconds in costs.verify.items()}
        self._base = [_interpolated(self._measured, width) for width in range(limit + 1)]
        self._corrections = [1.0] * (limit + 1)
        self._drift = 1.0
        self._turn = 0
        self.draft = max(costs.draft or 0.0, _FLOOR)
        """Seconds per token of the draft model."""
        self.overhead = 0.0
        """Seconds a round takes besides, whatever its width."""
        self._overhead_seen = False

    def verify(self, width: int) -> float:
        """Seconds of one target pass over ``width`` tokens (≥ 1)."""
        if width < len(self._base):
            return self._base[width] * self._corrections[width] * self._drift
        return _interpolated(self._measured, width) * self._drift

    def table(self, widths: int) -> list[float]:
        """`verify` for widths 0…``widths``; entry 0 is meaningless."""
        drift = self._drift
        known = [b * c * drift for b, c in zip(self._base[: widths + 1], self._corrections, strict=False)]
        return known + [self.verify(width) for width in range(len(known), widths + 1)]

    def observe_verify(self, width: int, seconds: float) -> None:
        """A pass over ``width`` tokens took ``seconds``."""
        surprise = _surprise(seconds, self.verify(width))
        self._drift *= 1.0 + _DRIFT_GAIN * surprise
        if width < len(self._base):
            correction = self._corrections[width] * (1.0 + _CORRECTION_GAIN * surprise)
            self._corrections[width] = min(max(correction, 1.0 / _CORRECTION_LIMIT), _CORRECTION_LIMIT)
        self._turn = (self._turn + 1) % len(self._base)
        self._corrections[self._turn] += _FORGOTTEN * (1.0 - self._corrections[self._turn])

    def observe_draft(self, tokens: int, seconds: float) -> None:
        """The draft model took ``seconds`` for ``tokens`` tokens."""
        if tokens > 0:
            self.draft *= 1.0 + _COST_GAIN * _surprise(seconds / tokens, self.draft)

    def observe_overhead(self, seconds: float) -> None:
        """A round took ``seconds`` besides drafting and verifying."""
        if not self._overhead_seen:
            self._overhead_seen, self.overhead = True, min(max(seconds, _FLOOR), self.verify(1))
            return
        self.overhead *= 1.0 + _COST_GAIN * _surprise(seconds, self.overhead)


class ProbeBudget:
    """When to try drafting again while it is paused, so that trying costs a small, known share of the time.

    A probe drafts, and tests the draft only where that pays by itself: the target's own token then judges the first
    drafted token for the price of drafting it. Probes are paid from a credit that grows with the time that passes and
    with what drafting saves; what a probe gains is paid in.
    """

    def __init__(self, plain: float) -> None:
        """``plain``: seconds of a plain round."""
        self._credit = _START_CREDIT * plain
        self._share = _PROBE_SHARE
        self._waited = 0
        self._again = False

    def due(self, draft: float, forced: float, plain: float) -> bool:
        """Whether to probe now: drafting takes ``draft`` seconds, testing that cannot be left out ``forced``."""
        if self._again and self._credit > -_MOST_DEBT * plain:
            return True
        income = self._share * plain + max(self._credit, 0.0) / _PACE
        cost = min(draft, _PROBE_MOST * plain) + forced
        return self._waited * income >= cost - min(self._credit, 0.0)

    def passed(self, tokens: int, plain: float) -> None:
        """A round gave ``tokens``."""
        self._waited += 1
        self._pay(self._share * plain * tokens, plain, 0.0)

    def saved(self, seconds: float, plain: float) -> None:
        """Drafting that was not a probe saved ``seconds``; negative: lost."""
        self._pay(_GAIN_SHARE * seconds, plain, 0.0)

    def probed(self, draft: float, gain: float, forced: float, plain: float) -> None:
        """A probe drafted for ``draft`` seconds; testing saved ``gain`` seconds (negative: lost)."""
        self._waited = 0
        self._again = False
        self._pay(max(gain, -_LOSS_LIMIT * plain - forced) - draft, plain, forced)

    def judged(self, hit: bool) -> None:
        """The first token of a probe was right or not."""
        self._again = hit
        self._share = _PROBE_SHARE if hit else max(self._share * _PROBE_PATIENCE, _PROBE_SHARE * _PROBE_LEAST)

    def _pay(self, seconds: float, plain: float, forced: float) -> None:
        self._credit = min(max(self._credit + seconds, -_MOST_DEBT * plain - forced), _MOST_CREDIT * plain)


def _surprise(seconds: float, expected: float) -> float:
    return min(max(seconds / expected - 1.0, -_SURPRISE_LIMIT), _SURPRISE_LIMIT)


def _interpolated(measured: Mapping[int, float], width: int) -> float:
    if width in measured:
        return measured[width]
    widths = sorted(measured)
    if len(widths) == 1:
        return measured[1]
    above = next((i for i, known in enumerate(widths) if known > width), len(widths) - 1)
    left, right = widths[max(above, 1) - 1], widths[max(above, 1)]
    slope = (measured[right] - measured[left]) / (right - left)
    if width > right:
        slope = max(slope, 0.0)  # a dip at the end of the curve does not go on for ever
    return max(measured[right] + slope * (width - right), _FLOOR)
