"""The plainest policy that measures: what anything cleverer has to beat. It is no option of the app."""

from __future__ import annotations

from app.engine.policy.costs import CostModel, Costs
from app.engine.policy.policy import Decision, Learned, Outcome, Situation

_PRIOR = (2.8, 4.0)
"""Accepted and judged tokens before the first ones."""
_KEEP = 1.0 - 1.0 / 40
_PROBE_GAP = 32
"""Rounds without a draft after which one token is tried."""


class BaselinePolicy:
    """Measured costs and one running acceptance rate: drafts the length that promises most, and never stops early."""

    def __init__(self, costs: Costs, *, limit: int = 16, fixed: int | None = None, **_: object) -> None:
        self.limit = limit
        self._fixed = fixed
        self._costs = CostModel(costs, limit + 1)
        self._accepted, self._judged = _PRIOR
        self._waited = 0

    def decide(self, situation: Situation) -> Decision:
        most = min(situation.most, self.limit if self._fixed is None else self._fixed)
        if (found := situation.free.get("ngram")) and most > 0:
            return Decision("ngram", min(most, len(found.tokens)))
        if "model" not in situation.missing or most <= 0:
            return Decision()
        best = most if self._fixed is not None else self._best(most)
        return Decision("model", best) if best else Decision()

    def width(self, width: int) -> int:
        return self._costs.width(width)

    def _best(self, most: int) -> int:
        seconds, rate, tokens, speeds = self._costs.rounds(), self._accepted / self._judged, 0.0, []
        for length in range(most + 1):
            tokens += rate**length
            speeds.append(tokens / (seconds[length] + length * self._costs.drafts["model"].token))
        best = max(range(most + 1), key=speeds.__getitem__)
        return best or int(self._waited >= _PROBE_GAP)

    def learn(self, outcome: Outcome) -> None:
        self._costs.observe_verify(outcome.tested + 1, outcome.verify_seconds)
        self._costs.observe_other(outcome.tested + 1, outcome.other_seconds)
        self._waited = 0 if outcome.tested else self._waited + 1
        for i in range(min(outcome.accepted + 1, outcome.tested)):
            self._accepted = self._accepted * _KEEP + (i < outcome.accepted)
            self._judged = self._judged * _KEEP + 1.0

    def learned(self) -> Learned:
        return Learned(self._costs.snapshot(), {}, [])
