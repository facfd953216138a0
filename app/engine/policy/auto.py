"""Decides which drafter drafts next, how, and how many tokens: whatever yields the most tokens per second.

A round of n drafted tokens yields E(n) = 1 + Σ Π a_j tokens (a_j: acceptance of position j given those before it) in
T(n) = n·c + v(n + 1) + other seconds. Cost curves have steps and cliffs, so all n are compared. Seconds are passed in
as numbers: nothing here uses a clock. ``benchmarks/notes/policy.md`` says how much each mechanism contributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.engine.drafters import Proposal
from app.engine.policy.acceptance import MATCH, AcceptanceEstimate, Priors
from app.engine.policy.candidate import Candidate, Expectations, Plan
from app.engine.policy.costs import CostModel, Costs
from app.engine.policy.policy import (
    Decision,
    Learned,
    Outcome,
    Promise,
    Situation,
    break_even,
    promised,
    speeds_by_length,
)
from app.protocol.events import Pause
from app.protocol.options import CONTINUES, DrafterName, Propose, TextKind

_PAUSE = 0.98
"""Drafting pauses when it promises less than this share of the speed without a draft, and resumes when both are equal:
the promise doesn't include what ending drafts early will gain."""
_CHANGE = 1.03
"""Another drafter takes over when it promises so many times the speed of the current one: both promises follow the same
last few tokens, and what the other has missed is to be caught up with at every change."""
_PORTION, _LEAST_PORTION = 1.5, 32
"""A portion of a long catch-up takes as long as this many plain passes, so that the text goes on meanwhile, but has at
least so many tokens: many at once are cheaper."""
_REST = 16
"""Rounds until a pause is reconsidered if nothing new is learned: with a small target, deciding takes notable time."""
_CURVE_WEIGHT = 16.0
"""The number of judged tokens above which a kind of text has a curve."""


class AutoPolicy:
    """Chooses the drafter, the method and the draft length, from measured costs and what was accepted so far."""

    def __init__(
        self,
        costs: Costs,
        *,
        limit: int = 16,
        longest: Mapping[DrafterName, int] | None = None,
        propose: Propose = "auto",
        start: Priors | None = None,
        fixed: int | None = None,
        samples: bool = False,
        unit: int = 1,
    ) -> None:
        """``longest``: the most tokens a drafter can draft at once, if that is less than the ``limit``. ``start``: what
        earlier answers taught. ``fixed``: the draft length the user wants; then only drafter and method are chosen, and
        no draft ends early. ``samples``: drafts are sampled, so that the text depends on who drafts: with a fixed
        length the chosen drafter then drafts in every round, and catches up at once. ``unit``: see `Task.unit`.
        """
        self.limit = max(limit, fixed or 0)
        pads = fixed is None  # a fixed length is one width already
        self.costs = CostModel(costs, self.limit + 1, pads=pads, unit=unit)
        self._fixed = fixed
        self._propose: Propose = propose
        self._samples = samples
        self._kind: TextKind = "prose"
        self._tokens: Counter[TextKind] = Counter()
        """So far in this answer, by kind."""
        self._start = start = start or {}
        self._free: dict[DrafterName, Expectations] = {}
        """Of the drafters whose drafts cost nothing, as they appear."""
        plain, longest, count = self.costs.verify(1), longest or {}, len(self.costs.drafts)
        self._candidates = [
            Candidate(name, each, start.get(name, {}), plain, count, longest.get(name, self.limit))
            for name, each in self.costs.drafts.items()
        ]
        """The drafters that decode."""
        self._probe: tuple[Candidate, float] | None = None
        """The one that is being tried in this round, and the seconds that a token takes otherwise."""
        self._drafting: Candidate | None = None
        """The last one that drafted because it was the best."""
        self._is_paused = False
        self._break_even: dict[Candidate | None, tuple[float, int]] = {}
        """As last worked out for each one, or for free drafts, and how many rounds have used it."""
        self._rest: Decision | None = None
        """The pause that continues while nothing is judged."""
        self._rested = 0

    # ------------------------------------------------------------ before a round

    def decide(self, situation: Situation) -> Decision:
        """What to do in the next round."""
        self.costs.length = situation.length
        self._enter(situation.kind)
        self._probe = None
        candidates = [one for one in self._candidates if one.name in situation.missing]
        if (
            self._rest
            and not situation.free
            and self._rested < _REST
            and not any(self._is_due(one, situation) for one in candidates)
        ):
            return self._rest
        most = max(min(situation.most, self.limit if self._fixed is None else self._fixed), 0)
        if most == 0:
            return self._rest or Decision()
        seconds, is_fixed = self.costs.rounds(), self._fixed is not None
        plans = [one.plan(situation, most, seconds, self._propose, is_fixed=is_fixed) for one in candidates]
        current = self._drafting
        best = max(plans, key=lambda plan: plan.rate * (_CHANGE if plan.candidate is current else 1.0), default=None)
        promises = {name: self._promise(name, proposal, most, seconds) for name, proposal in situation.free.items()}
        name = max(promises, key=lambda one: promises[one].rate, default=None)
        free = promises[name] if name else promised([], seconds, 0.0)
        if name and self._pays(free, best, seconds):
            decision = Decision(name, free.length, best.method if best else "coupled")
        elif best:
            decision = self._with_model(situation, plans, best)
        else:
            mean = sum(free.chances) / len(free.chances) if free.chances else 0.0
            return Decision(paused=self._pause(mean, seconds) if free.chances and self._fixed is None else None)
        rate = max(free.rate, best.promise.rate if best else 0.0)
        if self._fixed is None and decision.drafter and not decision.paused and self.costs.plain_due(rate):
            self._probe = None
            return Decision(method=decision.method)
        return decision

    def _enter(self, kind: TextKind) -> None:
        if kind != self._kind:
            self._kind, self._rest = kind, None
            for expectations in (*self._free.values(), *(one.expectations for one in self._candidates)):
                expectations.enter(kind)

    def _of_free(self, name: DrafterName) -> AcceptanceEstimate:
        """Of a drafter whose drafts cost nothing, in the text that comes next."""
        if name not in self._free:
            self._free[name] = Expectations((MATCH,), self._start.get(name, {}))
            self._free[name].enter(self._kind)
        return self._free[name][MATCH]

    def _promise(self, name: DrafterName, proposal: Proposal, most: int, seconds: Sequence[float]) -> Promise:
        """What a draft that costs nothing promises."""
        estimate = self._of_free(name)
        chances = [estimate.chance(one, i) for i, one in enumerate(proposal.confidences[:most])]
        return promised(chances, seconds, 0.0, 1 if self._fixed is None else len(chances))

    def _pays(self, free: Promise, best: Plan | None, seconds: Sequence[float]) -> bool:
        """Whether a draft that costs nothing promises more than the ``best`` of the others, and than none."""
        rate = best.promise.rate if best else 0.0
        if self._fixed is not None:
            return bool(free.length) and free.rate >= rate
        return free.rate > max(1.0 / seconds[0], rate)

    def _with_model(self, situation: Situation, plans: Sequence[Plan], best: Plan) -> Decision:
        """Draft with the ``best`` of several plans, or try another; in a pause, try one of them or none."""
        promise, plain = best.promise, 1.0 / best.seconds[0]
        if self._fixed is not None or best.rate >= plain * (1.0 if self._is_paused else _PAUSE):
            decision = self._draft(situation, best)
            if not decision.drafter or not (tried := self._tried(situation, plans, best)):
                return decision
            return self._draft(situation, tried, meanwhile=decision)
        chance = sum(promise.chances[: promise.length]) / promise.length
        pause = self._pause(chance, best.seconds, best.candidate, best.late)
        by_promise = sorted(plans, key=lambda plan: -plan.rate)
        due = (plan for plan in by_promise if self._is_due(plan.candidate, situation))
        if not (probe := next(due, None)):
            return Decision(method=best.method, paused=pause)
        self._probe = probe.candidate, best.seconds[0]
        return self._draft(situation, probe, pause)

    def _tried(self, situation: Situation, plans: Sequence[Plan], best: Plan) -> Plan | None:
        """Another plan that is tried although it isn't the ``best``: for a token of its own, or a round if drafts are
        sampled, because these have to be tested."""
        rate = best.promise.rate
        for plan in plans:
            price = plan.loss(rate) if self._samples else plan.candidate.costs.token
            if plan is not best and plan.candidate.is_probe_due(situation, price, 1.0 / rate):
                self._probe = plan.candidate, 1.0 / rate
                return plan
        return None

    def _draft(
        self, situation: Situation, plan: Plan, pause: Pause | None = None, meanwhile: Decision | None = None
    ) -> Decision:
        """Draft as in ``plan`` if little is missing; otherwise catch up with a portion first, and draft ``meanwhile``.
        If there is such a draft and it isn't sampled, ``plan`` is only tried beside it."""
        name, stopping = plan.candidate.name, None
        if self._fixed is None:
            stopping = plan.stopping(self._of_free(CONTINUES).chance)
        decision = Decision(name, len(plan.promise.chances), plan.method, stopping, paused=pause)
        if self._samples and self._fixed is not None:
            return decision
        portion = max(round(_PORTION * plan.seconds[0] / plan.candidate.costs.catch_up), _LEAST_PORTION)
        if situation.missing[name] <= portion:
            return replace(meanwhile, tries=name) if meanwhile and not self._samples else decision
        meanwhile = meanwhile or Decision(method=plan.method, paused=pause)
        return replace(meanwhile, catch_up=portion, catches_up=name)

    def _is_due(self, candidate: Candidate, situation: Situation) -> bool:
        """Whether it is tried in a pause: its first token is judged even if it isn't tested."""
        price = candidate.costs.token + candidate.forced(self.costs)
        return candidate.is_probe_due(situation, price, self.costs.round(1))

    def _pause(
        self, chance: float, seconds: Sequence[float], candidate: Candidate | None = None, late: float = 0.0
    ) -> Pause:
        """What the decision was based on."""
        rate, age = self._break_even.get(candidate, (0.0, 0))
        if age % _REST == 0:
            rate = break_even(seconds[: self.limit + 1], candidate.costs.token if candidate else 0.0, late)
        self._break_even[candidate] = rate, age + 1
        return Pause(acceptance_rate=chance, break_even_rate=rate)

    def width(self, width: int) -> int:
        return self.costs.width(width)

    # ------------------------------------------------------------ after a round

    def learn(self, outcome: Outcome) -> None:
        """Learn from the result and the times of a round.

        The target's own token also judges what was proposed at its position but not tested (all that a probe needs),
        what the other method would have proposed, and what was proposed for nothing. Each drafter is judged by its own
        tokens, also where n-grams continued its draft.
        """
        situation, decision, proposal = outcome.situation, outcome.decision, outcome.proposal
        decodes = decision.drafter in {one.name for one in self._candidates}
        drafted = next((one for one in self._candidates if one.name == decision.drafter and proposal.tokens), None)
        self._tokens[self._kind] += outcome.accepted + 1
        truth = [*proposal.tokens[: outcome.accepted], outcome.target_token]
        own = len(proposal.tokens) - proposal.continued
        if proposal.continued:
            _judge(self._of_free(CONTINUES), proposal, truth, own)
            outcome = replace(outcome, proposal=proposal.first(own))
        tried, each = self._probe or (None, 0.0)
        for candidate in self._candidates:
            if candidate.name in situation.missing:
                candidate.account(outcome, self.costs, each if candidate is tried else None)
        self._learn_costs(outcome, drafted, tried)
        if drafted:
            drafted.judge(outcome, truth, learns_methods=self._propose == "auto")
            if drafted is not tried:
                self._drafting = drafted
        if tried and outcome.tried.tokens:
            tried.judge_try(outcome, truth[0], learns_methods=self._propose == "auto")
        for name, free in situation.free.items():
            _judge(self._of_free(name), free, truth)
        if decodes or not decision.drafter:
            self._is_paused = decision.paused is not None
        is_idle = decision.paused and not decision.drafter and not decision.catch_up and not situation.free
        self._rested = self._rested + 1 if decision is self._rest else 0
        self._rest = decision if is_idle else None

    def _learn_costs(self, outcome: Outcome, drafted: Candidate | None, tried: Candidate | None) -> None:
        costs, decision, tokens = self.costs, outcome.decision, len(outcome.proposal.tokens)
        own = drafted.costs.token * tokens if drafted else 0.0
        if tried and outcome.tried.tokens:
            if missing := outcome.situation.missing[tried.name]:
                tried.costs.observe_catch_up(missing, outcome.draft_seconds - own - tried.costs.token)
        elif decision.catches_up in costs.drafts:
            costs.drafts[decision.catches_up].observe_catch_up(decision.catch_up, outcome.draft_seconds - own)
        elif drafted and (missing := outcome.situation.missing[drafted.name]):
            drafted.costs.observe_catch_up(missing, outcome.draft_seconds - own)
        elif drafted:
            drafted.costs.observe(tokens, outcome.draft_seconds)
        costs.observe_verify(outcome.tested + 1, outcome.verify_seconds)
        costs.observe_other(outcome.tested + 1, outcome.other_seconds)

    # ------------------------------------------------------------ after an answer

    def learned(self) -> Learned:
        """For the next answer; what wasn't tried in this one stays as it was."""
        priors = dict(self._start)
        by_name = {**self._free, **{one.name: one.expectations for one in self._candidates}}
        for name, expectations in by_name.items():
            if known := expectations.learned():
                priors[name] = known
        return Learned(self.costs.snapshot(), priors, self._curve())

    def _curve(self) -> list[float]:
        """The speed of each draft length of the drafter that drafted most; empty if too little was judged. n-grams have
        no such curve: their gain depends on how often they find something, not on a length.
        """
        if not self._candidates:
            return []
        candidate = max(self._candidates, key=lambda one: one.expectations.judged())
        expectations, length = candidate.expectations, min(candidate.longest, self.limit)
        method = expectations.methods.best if self._propose == "auto" else self._propose
        texts = [
            (tokens, estimate.chances(length, long=True))
            for kind, tokens in self._tokens.items()
            if tokens and (estimate := expectations.in_text(kind, method)).weight >= _CURVE_WEIGHT
        ]
        return speeds_by_length(texts, self.costs.rounds(), candidate.costs.token)


def _judge(estimate: AcceptanceEstimate, proposal: Proposal, truth: Sequence[int], begin: int = 0) -> None:
    """The tokens from ``begin`` on of a draft that cost nothing met the ``truth``."""
    for i, (token, right) in enumerate(zip(proposal.tokens[begin:], truth[begin:], strict=False), begin):
        hit = token == right
        estimate.judge(hit, i, proposal.confidences[i])
        if not hit:
            break
