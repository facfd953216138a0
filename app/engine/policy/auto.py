"""Decides which drafter drafts next, how, and how many tokens: whatever yields the most tokens per second.

A round of n drafted tokens yields E(n) = 1 + Σ Π a_j tokens (a_j: acceptance of position j given those before it) in
T(n) = n·c + v(n + 1) + other seconds. Cost curves have steps and cliffs, so all n are compared. Seconds are passed in
as numbers: nothing here uses a clock. ``docs/policy.md`` says how much each mechanism contributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.engine.drafters import Proposal
from app.engine.policy.acceptance import AcceptanceEstimate, AcceptancePrior, MethodChoice, estimates_from
from app.engine.policy.costs import CostModel, Costs
from app.engine.policy.policy import Decision, Learned, Outcome, Situation
from app.engine.policy.probing import ProbeBudget
from app.engine.policy.stopping import Stopping
from app.protocol.events import Pause
from app.protocol.options import ProposalMethod, Propose, TextKind

_PAUSE = 0.98
"""Drafting stops when it promises less than this share of the speed without a draft, and starts again when both are
equal, because the promise doesn't include what stopping early will gain.
"""
_EXPECTED_LEFT = 300
"""Tokens that are expected to follow, in this answer and in the next ones of its chat: the cost of catching up is
distributed over them, or over those there is room for. A constant, because the length of an answer so far says little
about how much longer it gets.
"""
_TRIAL_SHARE = 0.03
"""The share of the expected time that catching up with a draft model that was never tried may cost."""
_PORTION, _LEAST_PORTION = 1.5, 32
"""A portion of a long catch-up takes as long as this many plain passes, so that the text continues meanwhile; and the
minimum number of tokens in it, because many at once are cheaper.
"""
_REST = 16
"""Rounds before a pause is reconsidered if nothing new is learned: on a small target, the time for that would show."""
_TRIED = 16
"""Tokens of n-grams that must have been judged in an answer before they go first where they don't from the start."""
_CURVE_WEIGHT = 16.0
"""The number of judged tokens above which a kind of text has a curve."""


@dataclass(frozen=True)
class _Promise:
    """What a drafter promises for the next round, before the confidences of a draft model's tokens are known."""

    chances: Sequence[float]
    """For positions 0, 1, …, each given that those before it are accepted."""
    survivals: Sequence[float]
    """How likely all of 0, 1, … tokens are accepted."""
    expected: Sequence[float]
    """Tokens yielded by a round whose draft has 0, 1, … tokens."""
    length: int
    """The best length of at least 1; 0 if nothing can be drafted."""
    rate: float
    """Tokens per second at that length."""


def _promise(chances: Sequence[float], seconds: Sequence[float], draft: float) -> _Promise:
    """``seconds``: for a round that tests 0, 1, … tokens; ``draft``: for a drafted token."""
    survivals, expected = [1.0], [1.0]
    best, best_rate = 0, 0.0
    for length, chance in enumerate(chances, 1):
        survivals.append(survivals[-1] * chance)
        expected.append(expected[-1] + survivals[-1])
        rate = expected[-1] / (seconds[length] + length * draft)
        if rate > best_rate:
            best, best_rate = length, rate
    return _Promise(chances, survivals, expected, best, best_rate)


def speeds_by_length(
    text: Sequence[tuple[int, Sequence[float]]], seconds: Sequence[float], draft: float
) -> list[float]:
    """The speed of each fixed draft length from 0 to as many as there are chances; empty without text.

    ``text``: parts of it, each with its tokens and the chances that position 0, 1, … of a draft is accepted, given that
    those before it are. ``seconds``: of a round that tests 0, 1, … tokens, without ``draft``, the seconds of a drafted
    token. A length n takes (n·draft + seconds[n]) ÷ (1 + Σ Π chances) for each token of a part.
    """
    if not text:
        return []
    all_tokens = sum(tokens for tokens, _ in text)
    spent = [0.0] * (min(len(chances) for _, chances in text) + 1)
    for tokens, chances in text:
        survival = expected = 1.0
        for length in range(len(spent)):
            if length:
                survival *= chances[length - 1]
                expected += survival
            spent[length] += tokens * (length * draft + seconds[length]) / expected
    return [all_tokens / total for total in spent]


def break_even(seconds: Sequence[float], draft: float, late: float = 0.0) -> float:
    """The smallest acceptance rate at which some draft length of 1 or more is as fast as 0; 1 if none is.

    ``seconds`` and ``draft`` are those of `speeds_by_length`; ``late``: seconds that each token has to pay for what the
    draft model has to catch up with.
    """
    rounds = [round_ + length * draft for length, round_ in enumerate(seconds)]
    low, high = 0.0, 1.0
    for _ in range(10):
        rate = (low + high) / 2
        survival = tokens = 1.0
        pays = False
        for round_ in rounds[1:]:
            survival *= rate
            tokens += survival
            pays = pays or tokens * (rounds[0] - late) >= round_
        low, high = (low, rate) if pays else (rate, high)
    return high


class AutoPolicy:
    """Chooses the drafter, the method and the draft length, from measured costs and what was accepted so far."""

    def __init__(
        self,
        costs: Costs,
        *,
        limit: int = 16,
        propose: Propose = "auto",
        start: Mapping[TextKind, AcceptancePrior] | None = None,
        fixed: int | None = None,
        samples: bool = False,
        ngrams_first: bool = True,
    ) -> None:
        """``start``: what earlier answers taught, by kind of text.

        ``fixed``: the draft length the user wants; then only drafter and method are chosen, and nothing stops early.
        ``samples``: drafts are sampled, so that the text depends on who drafted what: with a fixed length the draft
        model then drafts in every round, and catches up at once.
        ``ngrams_first``: n-grams may draft before it is known how good they are in this answer. Otherwise the draft
        model does, and what they would have proposed is judged meanwhile, which costs nothing.
        """
        self.limit = max(limit, fixed or 0)
        self.costs = CostModel(costs, self.limit + 1)
        self._fixed = fixed
        self._propose = propose
        self._samples = samples
        self._ngrams_first = ngrams_first
        self._start = start = start or {}
        prior = start.get("prose") or max(start.values(), key=AcceptancePrior.weight, default=AcceptancePrior())
        self._kind: TextKind = "prose"
        self._texts: dict[TextKind, dict[str, AcceptanceEstimate]] = {"prose": estimates_from(prior)}
        """What is expected of each kind of text that has occurred."""
        self._tokens: Counter[TextKind] = Counter()
        """For each kind in the answer."""
        self._methods = MethodChoice(prior.greedy_advantage, prior.greedy_advantage_weight)
        self._probes = ProbeBudget(self.costs.verify(1))
        self._is_new = not any(method in prior.rates for prior in start.values() for method in ("coupled", "greedy"))
        """Whether this draft model has never been tried with this target."""
        self._must_test = False
        """Whether there was a sampled draft: an untested token says nothing then."""
        self._is_measured = costs.draft is not None
        self._has_model = self._is_measured
        self._is_paused = False
        self._rest: Decision | None = None
        """The pause that continues while nothing is judged."""
        self._rested = 0
        self._probe_debt = 0.0
        """Seconds that were left of a catch-up that continues for a probe; 0: there is none."""

    # ------------------------------------------------------------ before a round

    def decide(self, situation: Situation) -> Decision:
        """What to do in the next round."""
        self.costs.length = situation.length
        self._has_model = self._is_measured and situation.has_model
        estimates = self._enter(situation.kind)
        found = situation.found
        if self._rest and not found.tokens and self._rested < _REST and not self._is_probe_due(situation):
            return self._rest
        most = max(min(situation.most, self.limit if self._fixed is None else self._fixed), 0)
        if most == 0:
            return self._rest or Decision()
        seconds, method = self.costs.rounds(), self._method
        likely = [estimates["ngram"].chance(one, i) for i, one in enumerate(found.confidences[:most])]
        ngrams = _promise(likely, seconds, 0.0)
        model = _promise(estimates[method].chances(most) if self._has_model else (), seconds, self.costs.draft)
        may_find = self._ngrams_first or not self._has_model or estimates["ngram"].judged >= _TRIED
        if self._fixed is not None:
            if found.tokens and ngrams.rate >= model.rate and may_find:
                return Decision("ngram", min(most, len(found.tokens)), method)
            return self._draft(situation, Decision("model", most, method)) if self._has_model else Decision()
        if may_find and ngrams.rate > max(1.0 / seconds[0], model.rate):
            decision = Decision("ngram", ngrams.length, method)
        elif self._has_model:
            decision = self._with_model(situation, model, seconds, method)
        else:
            mean = sum(ngrams.chances) / len(ngrams.chances) if ngrams.chances else 0.0
            return Decision(paused=self._pause(mean, seconds, 0.0) if found.tokens else None)
        if decision.drafter and not decision.paused and self.costs.plain_due(max(ngrams.rate, model.rate)):
            return Decision(method=method)
        return decision

    def _enter(self, kind: TextKind) -> dict[str, AcceptanceEstimate]:
        """What is expected of text of this ``kind``; for a new one, what is known about it, or about the text before
        it.
        """
        if kind != self._kind:
            if kind not in self._texts:
                known = self._start.get(kind, AcceptancePrior()).rates
                before = self._texts[self._kind].items()
                self._texts[kind] = {name: estimate.forked(known.get(name)) for name, estimate in before}
            self._kind, self._rest = kind, None
        return self._texts[kind]

    @property
    def _method(self) -> ProposalMethod:
        return self._methods.best if self._propose == "auto" else self._propose

    def _with_model(
        self, situation: Situation, model: _Promise, seconds: Sequence[float], method: ProposalMethod
    ) -> Decision:
        plain = 1.0 / seconds[0]
        late = self._debt(situation) / _left(situation)
        pause = None
        slowed = model.rate / (1.0 + model.rate * late)  # each token takes this many seconds more
        if slowed < plain * (1.0 if self._is_paused else _PAUSE):
            pause = self._pause(sum(model.chances[: model.length]) / model.length, seconds, late)
            goes_on = self._debt(situation) < self._probe_debt  # otherwise, it hasn't become cheaper
            if not goes_on and not self._is_probe_due(situation):
                return Decision(method=method, paused=pause)
        estimate = self._texts[self._kind][method]
        stopping = Stopping(
            estimate.chance, model.expected, model.survivals, seconds, self.costs.draft, max(model.rate, plain)
        )
        return self._draft(situation, Decision("model", len(model.chances), method, stopping, paused=pause))

    def _draft(self, situation: Situation, decision: Decision) -> Decision:
        """Draft as in ``decision`` if little is missing, otherwise catch up with a portion first."""
        if self._samples and self._fixed is not None:
            return decision
        portion = max(round(_PORTION * self.costs.round(1) / self.costs.catch_up), _LEAST_PORTION)
        if situation.missing <= portion:
            return decision
        return Decision(method=decision.method, catch_up=portion, paused=decision.paused)

    def _debt(self, situation: Situation) -> float:
        """Seconds the draft model needs for everything it has missed."""
        return self.costs.catch_up * situation.missing

    def _is_probe_due(self, situation: Situation) -> bool:
        debt, plain = self._debt(situation), self.costs.round(1)
        if self._is_new and debt <= _TRIAL_SHARE * _left(situation) * plain:
            debt = 0.0
        return self._probes.is_due(self.costs.draft + debt + self._forced(), self.costs.catch_up, plain)

    def _forced(self) -> float:
        """Seconds that testing a token costs if it can't be left out."""
        return max(self.costs.round(2) - self.costs.round(1), 0.0) if self._must_test else 0.0

    def _pause(self, chance: float, seconds: Sequence[float], late: float) -> Pause:
        """What the decision was based on."""
        draft = self.costs.draft if self._has_model else 0.0
        return Pause(acceptance_rate=chance, break_even_rate=break_even(seconds[: self.limit + 1], draft, late))

    # ------------------------------------------------------------ after a round

    def learn(self, outcome: Outcome) -> None:
        """Learn from the result and the times of a round.

        The target's own token also judges what was proposed at its position but not tested, which is all a probe needs,
        what the other method would have proposed, and what n-grams proposed in vain.
        """
        situation, decision, proposal = outcome.situation, outcome.decision, outcome.proposal
        by_model = decision.drafter == "model" and bool(proposal.tokens)
        self._tokens[self._kind] += outcome.accepted + 1
        truth = [*proposal.tokens[: outcome.accepted], outcome.target_token]
        self._account(outcome, by_model)
        self._learn_costs(outcome, by_model)
        if by_model:
            self._is_new, self._must_test = False, proposal.distributions is not None
            self._judge_model(outcome, truth)
        found = proposal if decision.drafter == "ngram" else situation.found
        _judge_ngrams(self._texts[self._kind]["ngram"], found, truth)
        if decision.drafter != "ngram":
            self._is_paused = decision.paused is not None
        is_idle = decision.paused and not decision.drafter and not decision.catch_up and not situation.found.tokens
        self._rested = self._rested + 1 if decision is self._rest else 0
        self._rest = decision if is_idle else None

    def _learn_costs(self, outcome: Outcome, by_model: bool) -> None:
        costs, missing, tokens = self.costs, outcome.situation.missing, len(outcome.proposal.tokens)
        if by_model and missing:
            costs.observe_catch_up(missing, outcome.draft_seconds - tokens * costs.draft)
        elif by_model:
            costs.observe_draft(tokens, outcome.draft_seconds)
        elif outcome.decision.catch_up and self._has_model:
            costs.observe_catch_up(outcome.decision.catch_up, outcome.draft_seconds)
        costs.observe_verify(outcome.tested + 1, outcome.verify_seconds)
        costs.observe_other(outcome.tested + 1, outcome.other_seconds)

    def _account(self, outcome: Outcome, by_model: bool) -> None:
        """The cost of a probe and its catch-up is paid from the credit, and drafting that saves time adds to it."""
        costs, decision, tokens = self.costs, outcome.decision, outcome.accepted + 1
        plain, round_ = costs.round(1), costs.round(outcome.tested + 1)
        drafted, missing = len(outcome.proposal.tokens), outcome.situation.missing
        debt = self._debt(outcome.situation)
        self._probes.pass_time(tokens, costs.catch_up, plain)
        self._probe_debt = debt if decision.paused and decision.catch_up else 0.0
        if self._probe_debt and not self._is_new:
            self._probes.pay(-min(outcome.draft_seconds, 2.0 * costs.catch_up * decision.catch_up), plain)
        elif by_model and decision.paused:
            spent = min(outcome.draft_seconds, 2.0 * costs.draft * (drafted + missing))  # the machine may have slept
            self._probes.probed(spent, plain * tokens - round_, self._forced() if outcome.tested else 0.0, plain)

    def _judge_model(self, outcome: Outcome, truth: Sequence[int]) -> None:
        proposal, method = outcome.proposal, outcome.decision.method
        estimates = self._texts[self._kind]
        own, other = estimates[method], estimates["greedy" if method == "coupled" else "coupled"]
        # An untested token that equals the target's would have been accepted; with samples, others would, too.
        known = len(truth) if proposal.distributions is None else min(len(truth), outcome.tested)
        for i, (token, right) in enumerate(zip(proposal.tokens[:known], truth, strict=False)):
            hit = i < outcome.accepted or token == right
            if outcome.decision.paused and not i:
                self._probes.judged(hit)
            own.judge(hit, i, proposal.confidences[i])
            if proposal.others and self._propose == "auto":
                other_hit = proposal.others[i] == right
                other.judge(other_hit, i, None)
                self._methods.judge(*((hit, other_hit) if method == "coupled" else (other_hit, hit)))

    # ------------------------------------------------------------ after an answer

    def learned(self) -> Learned:
        """For the next answer; what wasn't tried in this one stays as it was."""
        priors = dict(self._start)
        for kind, estimates in self._texts.items():
            known = priors[kind].rates if kind in priors else {}
            rates = {**known, **{name: each.snapshot() for name, each in estimates.items() if each.judged}}
            if rates:
                priors[kind] = AcceptancePrior(rates, self._methods.greedy_advantage, self._methods.weight)
        return Learned(self.costs.snapshot(), priors, self._curve())

    def _curve(self) -> list[float]:
        """The speed of each draft length of the draft model; empty without one, and if too little was judged.

        n-grams have no such curve: their gain depends on how often they find something, not on their draft length.
        """
        if not self._has_model:
            return []
        method = self._method
        texts = [
            (self._tokens[kind], estimates[method].chances(self.limit, long=True))
            for kind, estimates in self._texts.items()
            if self._tokens[kind] and estimates[method].weight >= _CURVE_WEIGHT
        ]
        return speeds_by_length(texts, self.costs.rounds(), self.costs.draft)


def _judge_ngrams(estimate: AcceptanceEstimate, proposal: Proposal, truth: Sequence[int]) -> None:
    for i, (token, right) in enumerate(zip(proposal.tokens, truth, strict=False)):
        hit = token == right
        estimate.judge(hit, i, proposal.confidences[i])
        if not hit:
            break


def _left(situation: Situation) -> int:
    """Tokens that are expected to follow."""
    return max(min(situation.most, _EXPECTED_LEFT), 1)
