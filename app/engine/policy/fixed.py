"""The policy of an answer that names a drafter `AutoPolicy` doesn't choose: it drafts in every round."""

from __future__ import annotations

from app.engine.policy.acceptance import Priors
from app.engine.policy.costs import Costs
from app.engine.policy.policy import Decision, Learned, Outcome, Situation
from app.protocol.options import DrafterName


class FixedPolicy:
    """One drafter and one length; nothing is learned."""

    def __init__(self, drafter: DrafterName, limit: int, costs: Costs, known: Priors | None = None) -> None:
        self.limit = limit
        self._drafter = drafter
        self._learned = Learned(costs, known or {}, [])

    def decide(self, situation: Situation) -> Decision:
        """Draft as many tokens as fit."""
        length = min(situation.most, self.limit)
        return Decision(self._drafter, length) if length > 0 and self._drafter in situation.missing else Decision()

    def width(self, width: int) -> int:
        """Passes aren't padded."""
        return width

    def learn(self, outcome: Outcome) -> None:
        """Nothing would change."""

    def learned(self) -> Learned:
        """What was known before."""
        return self._learned
