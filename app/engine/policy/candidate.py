"""A drafter that decodes, as the policy sees it: what it costs, how often it is right, and when it is tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.policy.costs import CostModel
from app.engine.policy.draft_costs import DraftCostModel
from app.engine.policy.expectations import Expectations, Known
from app.engine.policy.policy import Outcome, Situation
from app.engine.policy.probing import ProbeBudget
from app.engine.policy.promises import Promise, promised
from app.engine.policy.stopping import Stopping
from app.protocol.options import DrafterName, ProposalMethod, Propose

_EXPECTED_LEFT = 300
"""Tokens that are expected to follow, in this answer and in the next ones of its chat: the cost of catching up is
distributed over them, or over those there is room for. A constant, because the length of an answer so far says little
about how much longer it gets.
"""
_TRIAL_SHARE = 0.03
"""The share of the expected time that catching up with a drafter that was never tried may cost."""


class Candidate:
    """A draft model, or the target's MTP head."""

    def __init__(
        self, name: DrafterName, costs: DraftCostModel, start: Known, probes: ProbeBudget, longest: int
    ) -> None:
        """``start``: what earlier answers taught; ``longest``: the most tokens it can draft at once."""
        self.name = name
        self.costs = costs
        self.longest = longest
        self.expectations = Expectations(name, start)
        self._probes = probes
        self._is_new = not any(prior.rates for prior in start.values())
        """Whether it has never been tried with this target."""
        self._must_test = False
        """Whether there was a sampled draft: an untested token says nothing then."""
        self._left_of_catch_up = 0.0
        """Seconds that were left of a catch-up that continues for a probe; 0: there is none."""

    def plan(
        self, situation: Situation, most: int, seconds: Sequence[float], propose: Propose, *, is_fixed: bool
    ) -> Plan:
        """What it promises for the next round; ``seconds``: of a round that tests 0, 1, … tokens."""
        method = self.expectations.methods.best if propose == "auto" else propose
        length = min(most, self.longest)
        chances = self.expectations[method].chances(length)
        promise = promised(chances, seconds, self.costs.token, length if is_fixed else 1)
        late = self.debt(situation) / _left(situation)
        return Plan(self, method, promise, seconds, late, promise.rate / (1.0 + promise.rate * late))

    def debt(self, situation: Situation) -> float:
        """Seconds it needs for everything it has missed."""
        return self.costs.catch_up * situation.missing[self.name]

    # ------------------------------------------------------------ probes

    def is_probe_due(self, situation: Situation, price: float, plain: float) -> bool:
        """Whether to try it although that saves no time, for ``price`` seconds and what it has missed. ``plain``:
        seconds of a plain round.
        """
        debt = self.debt(situation)
        if debt < self._left_of_catch_up:
            return True  # it goes on; otherwise, it hasn't become cheaper
        if self._is_new and debt <= _TRIAL_SHARE * _left(situation) * plain:
            debt = 0.0
        return self._probes.is_due(price + debt, self.costs.catch_up, plain)

    def forced(self, costs: CostModel) -> float:
        """Seconds that testing a token costs if it can't be left out."""
        return max(costs.round(2) - costs.round(1), 0.0) if self._must_test else 0.0

    def account(self, outcome: Outcome, costs: CostModel, each: float | None) -> None:
        """The cost of a probe and its catch-up is paid from the credit, and drafting that saves time adds to it.

        ``costs``: the target's; ``each``: if this round was a probe, the seconds that a token takes otherwise.
        """
        decision, tokens, plain = outcome.decision, outcome.accepted + 1, costs.round(1)
        if each is None:
            self._probes.pass_time(tokens, self.costs.catch_up, plain)
            self._left_of_catch_up = 0.0
            return
        catches_up = decision.catches_up == self.name
        self._probes.pass_time(tokens, self.costs.catch_up, plain)
        self._left_of_catch_up = self.debt(outcome.situation) if catches_up else 0.0
        if self._left_of_catch_up:
            if not self._is_new:
                spent = min(outcome.draft_seconds, 2.0 * self.costs.catch_up * decision.catch_up)
                self._probes.pay(-spent, plain)
        elif decision.drafter == self.name and outcome.proposal.tokens:
            drafted = len(outcome.proposal.tokens) + outcome.situation.missing[self.name]
            spent = min(outcome.draft_seconds, 2.0 * self.costs.token * drafted)  # the machine may have slept
            gain = each * tokens - costs.round(outcome.tested + 1)
            self._probes.probed(spent, gain, self.forced(costs) if outcome.tested else 0.0, plain)
            if not decision.paused:
                self._probes.judged(gain >= spent)

    def judge(self, outcome: Outcome, truth: Sequence[int], *, learns_methods: bool) -> None:
        """Its draft met the ``truth``, which ends with the target's own token."""
        proposal, method = outcome.proposal, outcome.decision.method
        self._is_new, self._must_test = False, proposal.distributions is not None
        own, methods = self.expectations[method], self.expectations.methods
        other = self.expectations["greedy" if method == "coupled" else "coupled"]
        others = proposal.others if learns_methods else []
        # An untested token that equals the target's would have been accepted; with samples, others would, too.
        known = len(truth) if proposal.distributions is None else min(len(truth), outcome.tested)
        for i, (token, right) in enumerate(zip(proposal.tokens[:known], truth, strict=False)):
            hit = i < outcome.accepted or token == right
            if outcome.decision.paused and not i:
                self._probes.judged(hit)
            own.judge(hit, i, proposal.confidences[i])
            if others:
                other_hit = others[i] == right
                other.judge(other_hit, i, None)
                methods.judge(*((hit, other_hit) if method == "coupled" else (other_hit, hit)))


@dataclass(slots=True)
class Plan:
    """What a candidate would do in the next round."""

    candidate: Candidate
    method: ProposalMethod
    promise: Promise
    seconds: Sequence[float]
    """Of a round that tests 0, 1, … tokens, without drafting them."""
    late: float
    """Seconds that each token has to pay for what the candidate has to catch up with."""
    rate: float
    """Tokens per second with that."""

    def loss(self, rate: float) -> float:
        """Seconds that a round of it is expected to lose where another drafter yields ``rate`` tokens per second."""
        length = self.promise.length
        taken = self.seconds[length] + length * self.candidate.costs.token
        return max(taken - self.promise.expected[length] / rate, 0.0)

    def stopping(self) -> Stopping:
        """When its draft ends."""
        estimate, promise = self.candidate.expectations[self.method], self.promise
        rate = max(promise.rate, 1.0 / self.seconds[0])
        token = self.candidate.costs.token
        return Stopping(estimate.chance, promise.expected, promise.survivals, self.seconds, token, rate)


def _left(situation: Situation) -> int:
    """Tokens that are expected to follow."""
    return max(min(situation.most, _EXPECTED_LEFT), 1)
