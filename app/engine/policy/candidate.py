"""A drafter that decodes, as the policy sees it: what it costs, how often it is right, and when it is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.engine.policy.acceptance import STARTING_POINTS, AcceptanceEstimate, AcceptancePrior, MethodChoice
from app.engine.policy.costs import CostModel, DraftCostModel
from app.engine.policy.policy import Outcome, Promise, Situation, Stopping, promised
from app.protocol.options import DrafterName, ProposalMethod, Propose, TextKind

Known = Mapping[TextKind, AcceptancePrior]


class Expectations:
    """How often the target accepts the tokens of one drafter: for each kind of text, and for each way to propose."""

    def __init__(self, names: Sequence[str], start: Known) -> None:
        """``names``: of the rates in a prior, see `STARTING_POINTS`. ``start``: what earlier answers taught."""
        self._start = start
        prior = start.get("prose") or max(start.values(), key=AcceptancePrior.weight, default=AcceptancePrior())
        self._texts: dict[TextKind, dict[str, AcceptanceEstimate]] = {
            "prose": {name: _estimate(name, prior) for name in names}
        }
        """The estimates for each kind of text that has occurred, by the names of the rates in a prior."""
        self._kind: TextKind = "prose"
        self.methods = MethodChoice(prior.greedy_advantage, prior.greedy_advantage_weight)

    def enter(self, kind: TextKind) -> None:
        """Text of this ``kind`` comes next. A new one begins with what is known about it, or with what was expected of
        the text before it."""
        if kind not in self._texts:
            known = self._start.get(kind, AcceptancePrior()).rates
            before = self._texts[self._kind].items()
            self._texts[kind] = {name: estimate.forked(known.get(name)) for name, estimate in before}
        self._kind = kind

    def __getitem__(self, name: str) -> AcceptanceEstimate:
        """In the text that comes next: `MATCH`, or a way to propose."""
        return self._texts[self._kind][name]

    def in_text(self, kind: TextKind, name: str) -> AcceptanceEstimate:
        """As `__getitem__`, in text of a ``kind`` that has occurred."""
        return self._texts[kind][name]

    def judged(self) -> int:
        """How many tokens were judged in this answer."""
        return sum(estimate.judged for estimates in self._texts.values() for estimate in estimates.values())

    def learned(self) -> dict[TextKind, AcceptancePrior]:
        """For the next answer; what wasn't tried in this one stays as it was."""
        priors = dict(self._start)
        for kind, estimates in self._texts.items():
            known = priors[kind].rates if kind in priors else {}
            rates = {**known, **{name: each.snapshot() for name, each in estimates.items() if each.judged}}
            if rates:
                priors[kind] = AcceptancePrior(rates, self.methods.greedy_advantage, self.methods.weight)
        return priors


def _estimate(name: str, prior: AcceptancePrior) -> AcceptanceEstimate:
    edges, usual, shape = STARTING_POINTS[name]
    return AcceptanceEstimate(edges, prior.rates.get(name, usual), shape)


_SHARE = 0.015
"""The largest share of the time that may go into probes, of all drafters together."""
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

    A probe drafts, and tests the draft only if that saves time by itself: otherwise the target's own token judges the
    first drafted one, for the price of drafting it and of catching up. What a probe gains is added to the credit.

    What has to be caught up with grows with every token. If it grows faster than the credit, as with a large draft
    model on a CPU, there are no more probes in this answer once the credit is spent.
    """

    def __init__(self, plain: float, drafters: int = 1, failed: float = 0.0) -> None:
        """``plain``: seconds of a plain round; ``drafters``: how many have such a budget; ``failed``: how many probes
        failed in earlier answers."""
        self._most = _SHARE / drafters
        self._share: float = max(self._most * _PATIENCE**failed, self._most * _LEAST)
        self._credit: float = _START_CREDIT * plain * (self._share / self._most)
        self._waited = 0
        """Rounds since the last probe."""
        self._again = False

    def is_due(self, price: float, growth: float, each: float) -> bool:
        """Whether to probe now for ``price`` seconds, which grow by ``growth`` with each token, of which ``each`` takes
        so many seconds."""
        if self._again and self._credit > -_MOST_DEBT * each:
            return True
        income = self._income(growth, each)
        if growth >= income:
            return self._credit >= price
        saved_up = self._credit * min(self._waited / _PACE, 1.0) if self._credit > 0.0 else self._credit
        return self._waited * income + saved_up >= price

    def pass_time(self, tokens: int, growth: float, each: float, plain: float) -> None:
        """A round yielded ``tokens``, which took ``each`` so many seconds."""
        self._waited += 1
        self.pay(self._income(growth, each) * tokens, plain)

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

    def _income(self, growth: float, each: float) -> float:
        """Seconds of credit per token: failed probes only reduce what is left for the probe itself."""
        return min(self._share * each + growth, self._most * each)

    def pay(self, seconds: float, plain: float) -> None:
        """Add ``seconds`` to the credit; negative: subtract them."""
        self._credit = min(self._credit + seconds, _MOST_CREDIT * plain)


_EXPECTED_LEFT = 300
"""Tokens that are expected to follow, in this answer and the next ones of its chat: the cost of catching up is spread
over them, or over those there is room for. The length of an answer so far says little about how much longer it gets."""
_TRIAL_SHARE = 0.03
"""The share of the expected time that catching up with a drafter that was never tried may cost."""


class Candidate:
    """A draft model, or a head of the target's."""

    def __init__(
        self, name: DrafterName, costs: DraftCostModel, start: Known, plain: float, drafters: int, longest: int
    ) -> None:
        """``start``: what earlier answers taught; ``longest``: the most tokens it can draft at once. ``plain`` and
        ``drafters``: see `ProbeBudget`."""
        self.name = name
        self.costs = costs
        self.longest = longest
        self.expectations = Expectations(("coupled", "greedy"), start)
        rates = [rate for prior in start.values() for rate in prior.rates.values()]
        failed = sum(rate.weight * (1.0 - 2.0 * rate.rate) for rate in rates)
        self._probes = ProbeBudget(plain, drafters, max(failed, 0.0))
        self._is_new = not any(prior.rates for prior in start.values())
        """Whether it has never been tried with this target."""
        self._must_test = False
        """Whether drafts are sampled: then a token says nothing unless it is tested."""
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

    def is_probe_due(self, situation: Situation, price: float, each: float) -> bool:
        """Whether to try it although that saves no time, for ``price`` seconds and what it has missed. ``each``:
        seconds that a token takes otherwise."""
        debt = self.debt(situation)
        if debt < self._left_of_catch_up:
            return True  # it goes on; otherwise, it hasn't become cheaper
        if self._is_new and debt <= _TRIAL_SHARE * _left(situation) * each:
            debt = 0.0
        return self._probes.is_due(price + debt, self.costs.catch_up, each)

    def forced(self, costs: CostModel) -> float:
        """Seconds that testing a token costs if it can't be left out."""
        return max(costs.round(2) - costs.round(1), 0.0) if self._must_test else 0.0

    def account(self, outcome: Outcome, costs: CostModel, each: float | None) -> None:
        """Pay for a probe and its catch-up from the credit, to which drafting that saves time adds.

        ``costs``: the target's; ``each``: if this round was a probe, the seconds that a token takes otherwise.
        """
        decision, tokens, plain = outcome.decision, outcome.accepted + 1, costs.round(1)
        taken = outcome.draft_seconds + outcome.verify_seconds + outcome.other_seconds
        self._probes.pass_time(tokens, self.costs.catch_up, min(taken / tokens, plain), plain)
        catches_up = each is not None and decision.catches_up == self.name
        self._left_of_catch_up = self.debt(outcome.situation) if catches_up else 0.0
        if each is None:
            return
        if self._left_of_catch_up:
            if not self._is_new:
                spent = min(outcome.draft_seconds, 2.0 * self.costs.catch_up * decision.catch_up)
                self._probes.pay(-spent, plain)
        elif outcome.tried.tokens:
            self._probes.probed(self.costs.token + self.debt(outcome.situation), 0.0, 0.0, plain)
        elif decision.drafter == self.name and outcome.proposal.tokens:
            drafted = len(outcome.proposal.tokens) + outcome.situation.missing[self.name]
            spent = min(outcome.draft_seconds, 2.0 * self.costs.token * drafted)  # the machine may have slept
            gain = each * tokens - costs.round(outcome.tested + 1)
            self._probes.probed(spent, gain, self.forced(costs) if outcome.tested else 0.0, plain)
            if not decision.paused:
                self._probes.judged(gain >= spent)

    def judge_try(self, outcome: Outcome, right: int, *, learns_methods: bool) -> None:
        """The single token that it drafted besides met the target's."""
        alone = replace(outcome, proposal=outcome.tried, tested=0, accepted=0)
        self.judge(alone, [right], learns_methods=learns_methods)
        self._probes.judged(outcome.tried.tokens[0] == right)

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

    def stopping(self, continuing: Callable[[float, int], float]) -> Stopping:
        """When its draft ends. ``continuing``: see `Stopping`."""
        estimate, promise = self.candidate.expectations[self.method], self.promise
        rate = max(promise.rate, 1.0 / self.seconds[0])
        token = self.candidate.costs.token
        return Stopping(estimate.chance, promise.expected, promise.survivals, self.seconds, token, rate, continuing)


def _left(situation: Situation) -> int:
    """Tokens that are expected to follow."""
    return max(min(situation.most, _EXPECTED_LEFT), 1)
