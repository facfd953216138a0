"""When a drafter is tried that isn't expected to save time, so that trying costs a small, known share of the time."""

from __future__ import annotations

import math

_SHARE = 0.015
"""The largest share of the time that may go into probes if there is one drafter to try; of several, each gets this
divided by the square root of their number.
"""
_PATIENCE, _LEAST = 0.95, 0.25
"""Each failed probe reduces that share by this factor, down to this fraction; a successful one restores it."""
_START_CREDIT, _MOST_CREDIT, _MOST_DEBT = 0.5, 2.0, 0.6
"""Probing time at the start, at most saved up, and owed before a successful probe is repeated; in plain passes."""
_PACE = 50.0
"""The number of rounds over which saved-up credit is spent."""
_LOSS_LIMIT = 0.3
"""Plain passes of credit that testing a probe's draft may cost at most, when it was expected to pay off."""


class ProbeBudget:
    """Says when to probe, from a credit that grows over time.

    A probe drafts, and tests the draft only if that saves time by itself: the target's own token then judges the first
    drafted token for the price of drafting it, and of what the draft model has to catch up with first. All of that is
    paid for; what a probe gains is added to the credit.

    What has to be caught up with grows with every token. If it grows faster than the credit, as with a large draft
    model on a CPU, the credit is never enough once it is spent, and there are no more probes in this answer. The next
    one starts with the draft model up to date.
    """

    def __init__(self, plain: float, drafters: int = 1) -> None:
        """``plain``: seconds of a plain round; ``drafters``: how many have such a budget."""
        self._credit = _START_CREDIT * plain
        self._most = self._share = _SHARE / math.sqrt(drafters)
        self._waited = 0
        """Rounds since the last probe."""
        self._again = False

    def is_due(self, price: float, growth: float, plain: float) -> bool:
        """Whether to probe now for ``price`` seconds, which grow by ``growth`` with each token."""
        if self._again and self._credit > -_MOST_DEBT * plain:
            return True
        income = self._income(growth, plain)
        if growth >= income:
            return self._credit >= price
        saved_up = self._credit * min(self._waited / _PACE, 1.0) if self._credit > 0.0 else self._credit
        return self._waited * income + saved_up >= price

    def pass_time(self, tokens: int, growth: float, plain: float) -> None:
        """A round yielded ``tokens``."""
        self._waited += 1
        self.pay(self._income(growth, plain) * tokens, plain)

    def probed(self, draft: float, gain: float, forced: float, plain: float) -> None:
        """A probe drafted for ``draft`` seconds; testing saved ``gain`` seconds (negative: lost).

        ``forced``: seconds that testing costs if it can't be left out.
        """
        self._waited = 0
        self._again = False
        self.pay(max(gain, -_LOSS_LIMIT * plain - forced) - draft, plain)

    def judged(self, hit: bool) -> None:
        """The first token of a probe was right or not; a probe whose token was right is repeated at once."""
        self._again = hit
        self._share = self._most if hit else max(self._share * _PATIENCE, self._most * _LEAST)

    def _income(self, growth: float, plain: float) -> float:
        """Seconds of credit per token: failed probes only reduce what is left for the probe itself."""
        return min(self._share * plain + growth, self._most * plain)

    def pay(self, seconds: float, plain: float) -> None:
        """Add ``seconds`` to the credit; negative: subtract them."""
        self._credit = min(self._credit + seconds, _MOST_CREDIT * plain)
