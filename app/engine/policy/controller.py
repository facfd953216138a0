"""How many tokens to draft next, by whom and how: whatever yields the most tokens per second.

A round of n drafted tokens yields E(n) = 1 + Σ Π a_j tokens (a_j: acceptance of position j given those before it) in
T(n) = n·c + v(n + 1) + other seconds. Cost curves have steps and cliffs, so all n are compared. Within a round
drafting goes on, and tokens are tested, while the best continuation gains more tokens than its seconds are worth at
the rate of the whole (renewal reward; Dinkelbach, Management Science 13, 1967). Seconds come in as numbers: nothing
here looks at a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.engine.drafters import Proposal
from app.engine.policy.acceptance import AcceptanceEstimate, AcceptanceEstimates, AcceptancePrior, MethodChoice
from app.engine.policy.costs import CostModel, Costs
from app.engine.policy.curve import break_even, speeds_by_length
from app.engine.policy.probing import ProbeBudget
from app.engine.policy.stopping import count_worth_testing
from app.protocol.messages import DrafterName, Pause, Propose, TextKind, Way

_PAUSE = 0.98
"""Drafting stops when it promises less than this share of plain decoding's speed, and starts again when it is level."""
_GAIN_HORIZON = 200.0
"""Rounds over which planned and real tokens are compared."""
_GAIN_PRIOR = 100.0
"""Tokens that came as planned before the first round."""
_MOST_GAIN = 1.5
_STAY = 20.0
"""Tokens for which the draft model is expected to go on drafting where n-grams found something, and over which what it
missed is spread."""
_EXPECTED_LEFT = 300
"""Tokens that are expected to follow, in this answer and in the next ones of its chat: what the draft model has to
catch up with is spread over them, or over those there is room for. A constant: how long an answer has been tells
little about how much longer it gets."""
_PORTION, _LEAST_PORTION = 1.5, 32
"""Plain passes that a portion of a long catch-up takes as long as, so that the text flows meanwhile; and the least
tokens in it, for many at once are cheaper."""
_TRIAL_SHARE = 0.03
"""Of the time that is expected to follow, what catching up with a draft model that was never tried may cost."""
_TRIAL_GAP = 30
"""Rounds of the draft model between two widths whose cost is found out."""
_REST = 16
"""Rounds for which a pause is not thought over again while nothing new is learnt: on a small target that would show."""
_CURVE_WEIGHT = 16.0
"""Judged tokens from which on a kind of text has a curve."""


@dataclass(frozen=True)
class Plan:
    """What to do in a round."""

    drafter: DrafterName | None
    """Who drafts; ``None``: a plain pass."""
    length: int
    """At most so many tokens may be drafted."""
    way: Way
    """How the draft model proposes."""
    paused: Pause | None = None
    """Set when nothing pays, also while a probe runs."""
    catch_up: int = 0
    """So many tokens the draft model processes before the pass, to be able to draft in one of the next rounds."""


class Controller:
    """Decides before every round of one answer and learns from it afterwards.

    Each round: `plan`, `worth` for the tokens a draft model proposes, `tested`, `observe`.
    """

    def __init__(
        self,
        costs: Costs,
        *,
        drafters: Sequence[DrafterName],
        limit: int = 16,
        propose: Propose = "auto",
        start: Mapping[TextKind, AcceptancePrior] | None = None,
        fixed: int | None = None,
        reproducible: bool = False,
    ) -> None:
        """``start``: what earlier answers taught, by kind of text.

        ``fixed``: the draft length the user wants; then only drafter and way are chosen, and nothing stops early. With
        ``reproducible`` it is drafted in every round, for under the rules that sample the text depends on who drafted
        what: the draft model then catches up at once.
        """
        self._start = start = start or {}
        self.costs = CostModel(costs, max(limit, fixed or 0) + 1)
        self._drafters = tuple(drafters) if costs.draft is not None else tuple(d for d in drafters if d != "model")
        self.limit = max(limit, fixed or 0)
        """The most tokens ever drafted at once."""
        self._fixed = fixed
        self._propose = propose
        self._kind: TextKind = "prose"
        """Of the text that comes next."""
        prior = start.get("prose") or max(start.values(), key=AcceptancePrior.weight, default=AcceptancePrior())
        self._arms = AcceptanceEstimates(prior)
        self._by_kind: dict[TextKind, AcceptanceEstimates] = {self._kind: self._arms}
        """The estimates of each kind of text that occurred; those in use are `_arms`."""
        self._arm = self._arms.coupled
        self._ways = MethodChoice(prior.greedy_advantage, prior.greedy_advantage_weight)
        self._paused = False
        self._rest: Plan | None = None
        """The pause that goes on while nothing is judged."""
        self._rested = 0
        self._probing = False
        self._probes = ProbeBudget(self.costs.verify(1))
        self._must_test = False
        """Whether an untested token tells nothing: under the rules that sample."""
        self.behind = 0
        """Tokens of the context the draft model has not seen."""
        self._at_once = reproducible and fixed is not None
        self._probe_debt = 0.0
        """Seconds of the catch-up that goes on for a probe, as they were expected when it began; 0: there is none."""
        self._is_new = not any(way in prior.rates for prior in start.values() for way in ("coupled", "greedy"))
        """Whether this draft model was never tried on this target."""
        self._owed = 0.0
        """Seconds a probe has taken so far for catching up."""
        self._left = _EXPECTED_LEFT
        """Tokens that are expected to follow."""
        self._until_trial = _TRIAL_GAP
        self._trial = 0
        """The draft length that is to be tested as it is, to find out what its pass costs; 0: none."""
        self._planned_tokens = self._real_tokens = _GAIN_PRIOR
        self._needed: float | None = None
        self._needed_age = 0
        self._found = Proposal()
        self._seconds: list[float] = []
        """Of a round without drafting, by tokens tested."""
        self._rate = 0.0
        """Tokens per second a round has to earn."""
        self._expected: list[float] = []
        self._survivals: list[float] = []
        self._mean_chance = 0.0
        """Of the drafter that was considered last, over its best length."""
        self._reach = 0
        self._survival = 1.0
        self._sum = 0.0
        self._drafted = 0
        self._recent_odds = 1.0

    def leave_out(self, drafter: DrafterName) -> None:
        """``drafter`` failed and is not to be planned any more."""
        self._drafters = tuple(name for name in self._drafters if name != drafter)
        self._paused = self._paused and drafter != "model"
        self._rest = self._needed = None

    # ------------------------------------------------------------ before a round

    def enter(self, kind: TextKind) -> None:
        """What comes next is text of this ``kind``: expect what is known of that, if something is."""
        if kind == self._kind:
            return
        if kind not in self._by_kind:
            self._by_kind[kind] = self._arms.forked(self._start.get(kind, AcceptancePrior()))
        self._kind, self._arms = kind, self._by_kind[kind]
        self._rest = None

    def plan(self, found: Proposal, room: int) -> Plan:
        """What to do now. ``found``: what n-grams propose (free); ``room``: the most tokens that may be drafted."""
        self._found = found = found if "ngram" in self._drafters else Proposal()
        if self._rest and room > 0 and not found.tokens and self._rested < _REST and not self._probe_due():
            self._rested += 1
            return self._rest
        self._rest = None
        self._left = max(min(room, _EXPECTED_LEFT), 1)
        room = max(min(room, self.limit if self._fixed is None else self._fixed), 0)
        self._seconds = self.costs.rounds()
        plain = 1.0 / self._seconds[0]
        way = self._way()
        ngram_length, ngram_rate = self._plan_ngram(found, room)
        model_rate = self._plan_model(way, room) if "model" in self._drafters else 0.0
        self._rate = max(model_rate, plain)
        self._probing = False
        self._trial = 0
        if self._fixed is not None:
            return self._plan_fixed(found, room, way, ngram_rate >= self._with_catching_up(model_rate))
        if room == 0:
            return Plan(None, 0, way, self._pause() if self._paused else None)
        if ngram_length and ngram_rate > max(plain, self._with_catching_up(model_rate)):
            self._rate = ngram_rate
            drafting = Plan("ngram", ngram_length, way)
        elif "model" not in self._drafters:
            return Plan(None, 0, way, self._pause() if found.tokens else None)
        else:
            drafting = self._plan_draft(way, room, model_rate, plain)
        if drafting.drafter and drafting.paused is None and self.costs.plain_due(self._rate):
            return Plan(None, 0, way)
        return drafting

    def _plan_draft(self, way: Way, room: int, model_rate: float, plain: float) -> Plan:
        debt = self._debt()
        rate = _slowed(model_rate, debt / self._left)
        self._paused = rate < plain * (1.0 if self._paused else _PAUSE)
        if self._paused and debt >= self._probe_debt and not self._probe_due():  # or it got no cheaper meanwhile
            self._probe_debt = 0.0
            self._rest, self._rested = Plan(None, 0, way, self._pause()), 0
            return self._rest
        pause = self._pause() if self._paused else None
        if self.behind > (portion := self._portion()):
            self._probe_debt = self._probe_debt or debt if self._paused else 0.0
            self._needed = None
            return Plan(None, 0, way, pause, portion)
        self._probe_debt, self._probing = 0.0, self._paused
        self._start_draft(way, room)
        self._plan_trial(room, model_rate)
        return Plan("model", room, way, pause)

    def _plan_trial(self, room: int, model_rate: float) -> None:
        """Now and then, choose a draft length that might be the best if its pass costs less than is believed."""
        self._until_trial -= 1
        if self._until_trial > 0 or self._paused or self._fixed is not None:
            return
        expected, draft, gain = self._expected, self.costs.draft, self._gain()
        hopes = {width - 1: seconds for width, seconds in self.costs.hopes().items() if width - 1 <= room}
        rates = {length: gain * expected[length] / (hope + length * draft) for length, hope in hopes.items()}
        best = max(rates, key=rates.__getitem__, default=0)
        if best and rates[best] > model_rate:
            self._trial = best
            self.costs.run_again(best + 1)
        if not self._trial or self.costs.is_last_run(best + 1):
            self._until_trial = _TRIAL_GAP

    def _debt(self) -> float:
        """Seconds the draft model takes for all it has missed."""
        return self.costs.catch_up * self.behind

    def _portion(self) -> int:
        """The most tokens that the draft model processes between two passes of the target."""
        if self._at_once:
            return self.behind
        return max(round(_PORTION * self._seconds[0] / self.costs.catch_up), _LEAST_PORTION)

    def _probe_due(self) -> bool:
        debt = self._debt()
        if self._is_new and debt <= _TRIAL_SHARE * self._left * self._seconds[0]:
            debt = 0.0
        return self._probes.due(self.costs.draft + debt + self._forced(), self.costs.catch_up, self._seconds[0])

    def _forced(self) -> float:
        return max(self._seconds[1] - self._seconds[0], 0.0) if self._must_test else 0.0

    def _plan_fixed(self, found: Proposal, room: int, way: Way, ngram_better: bool) -> Plan:
        if room and found.tokens and (ngram_better or "model" not in self._drafters):
            return Plan("ngram", min(room, len(found.tokens)), way)
        if room and "model" in self._drafters:
            portion = self._portion()
            return Plan("model", room, way) if self.behind <= portion else Plan(None, 0, way, catch_up=portion)
        return Plan(None, 0, way)

    def _way(self) -> Way:
        return self._ways.way if self._propose == "auto" else self._propose

    def _plan_ngram(self, found: Proposal, room: int) -> tuple[int, float]:
        """The best number of ``found`` tokens to test, and the tokens per second that promises."""
        chances = self._chances(self._arms.ngram, found, room)
        if not chances:
            return 0, 0.0
        self._mean_chance = sum(chances) / len(chances)
        best, best_rate, survival, tokens = 0, 1.0 / self._seconds[0], 1.0, 1.0
        for length, chance in enumerate(chances, 1):
            survival *= chance
            tokens += survival
            rate = tokens / self._seconds[length]
            if rate > best_rate:
                best, best_rate = length, rate
        return best, best_rate

    def _plan_model(self, way: Way, room: int) -> float:
        """The tokens per second the draft model promises at its best length of at least 1."""
        draft = self.costs.draft
        best, survival, tokens, best_rate = 0, 1.0, 1.0, 0.0
        self._expected, self._survivals = [1.0], [1.0]
        chances = self._arms.model(way).chances(max(room, 1))
        for length, chance in enumerate(chances, 1):
            survival *= chance
            tokens += survival
            self._expected.append(tokens)
            self._survivals.append(survival)
            rate = tokens / (self._seconds[length] + length * draft)
            if rate > best_rate:
                best, best_rate = length, rate
        self._mean_chance = sum(chances[:best]) / best
        return best_rate * self._gain()

    def _with_catching_up(self, rate: float) -> float:
        """``rate`` of the draft model if it first has to see what n-grams wrote.

        Only for the choice between the two: without n-grams to take its place, what it missed is paid back in time.
        """
        return _slowed(rate, self._debt() / _STAY)

    def _start_draft(self, way: Way, room: int) -> None:
        self._reach = room
        self._arm = self._arms.model(way)
        self._recent_odds = self._arm.recent_odds()
        self._survival, self._sum, self._drafted = 1.0, 1.0, 0

    def worth(self, confidence: float) -> bool:
        """Whether one more token pays, after a token of ``confidence``. What was drafted so far is paid for."""
        if self._fixed is not None:
            return True
        done = self._drafted
        if done + 1 >= (self._trial or self._reach):
            return False
        if self._trial:
            self._drafted += 1
            return True
        self._survival *= self._arm.chance(confidence, done, self._recent_odds)
        self._drafted = done = done + 1
        rate, seconds, expected = self._rate, self._seconds, self._expected
        # To stop here is to test all, to leave this token to the target, or to pass all of them one by one.
        best = max(self._sum - rate * seconds[done - 1], done * (1.0 - rate * seconds[0]))
        self._sum += self._survival
        best = max(best, self._sum - rate * seconds[done])
        scale = self._survival / self._survivals[done]
        base = self._sum - scale * expected[done]
        cost = rate * self.costs.draft
        for more in range(done + 1, self._reach + 1):
            if base + scale * expected[more] - rate * seconds[more] - cost * (more - done) > best:
                return True
        return False

    def tested(self, plan: Plan, proposal: Proposal) -> int:
        """How many of the proposed tokens the verify pass should test; the rest is ignored."""
        count = min(len(proposal.tokens), plan.length)
        # Where drafts are samples a token is right only if its test does not depend on what it is, and the
        # confidence of the tokens behind it does.
        if self._fixed is not None or self._trial or plan.drafter != "model" or proposal.distributions is not None:
            return count
        chances = self._chances(self._arms.model(plan.way), proposal, count)
        return count_worth_testing(chances, self._rate, self._seconds, self.costs.draft)

    def _chances(self, arm: AcceptanceEstimate, proposal: Proposal, count: int) -> list[float]:
        count = min(count, len(proposal.tokens))
        if not proposal.confidences:
            return arm.chances(count)
        odds = arm.recent_odds()
        return [arm.chance(sure, i, odds) for i, sure in enumerate(proposal.confidences[:count])]

    # ------------------------------------------------------------ after a round

    def observe(
        self,
        plan: Plan,
        proposal: Proposal,
        tested: int,
        accepted: int,
        target_token: int,
        *,
        draft_seconds: float,
        verify_seconds: float,
        other_seconds: float,
    ) -> None:
        """What became of ``plan``: ``tested`` tokens went through the pass, ``accepted`` of them were right.

        ``proposal`` is whole, with the tokens that were not tested. ``target_token`` is the target's own token behind
        the accepted ones. It also judges a token that was proposed there but not tested, which is all a probe needs,
        and what the other way of proposing would have put in each place.
        """
        by_model = plan.drafter == "model" and bool(proposal.tokens)
        if by_model:
            self._must_test = proposal.distributions is not None
            self._observe_draft(len(proposal.tokens), draft_seconds)
        elif plan.catch_up and "model" in self._drafters:
            self.costs.observe_catch_up(plan.catch_up, draft_seconds)
        if self._seconds:
            self._account(plan, proposal, tested, accepted, draft_seconds)
        self.costs.observe_verify(tested + 1, verify_seconds)
        self.costs.observe_other(tested + 1, other_seconds)
        self.behind = 0 if by_model else self.behind + accepted + 1
        self._arms.tokens += accepted + 1
        if plan is self._rest and not self._found.tokens:
            return  # nothing was guessed
        truth = [*proposal.tokens[:accepted], target_token]
        if by_model:
            self._judge_model(plan.way, proposal, tested, accepted, truth)
            self._judge_ngram(self._found, truth)
        elif plan.drafter == "ngram":
            self._judge_ngram(proposal, truth)
        else:
            self._judge_ngram(self._found, truth)

    def _observe_draft(self, tokens: int, seconds: float) -> None:
        if self.behind:
            self.costs.observe_catch_up(self.behind, seconds - tokens * self.costs.draft)
        else:
            self.costs.observe_draft(tokens, seconds)

    def _judge_model(self, way: Way, proposal: Proposal, tested: int, accepted: int, truth: list[int]) -> None:
        self._is_new, self._owed = False, 0.0
        arm = self._arms.model(way)
        other = self._arms.model("greedy" if way == "coupled" else "coupled")
        # An untested token that equals the target's would have been accepted; of samples others would, too.
        known = len(truth) if proposal.distributions is None else min(len(truth), tested)
        for i, (token, right) in enumerate(zip(proposal.tokens[:known], truth, strict=False)):
            hit = i < accepted or token == right
            if self._probing and not i:
                self._probes.judged(hit)
            arm.judge(hit, i, proposal.confidences[i] if proposal.confidences else None)
            if proposal.others and self._propose == "auto":
                other_hit = proposal.others[i] == right
                other.judge(other_hit, i, None)
                if way == "coupled":
                    self._ways.judge(hit, other_hit)
                else:
                    self._ways.judge(other_hit, hit)

    def _judge_ngram(self, proposal: Proposal, truth: list[int]) -> None:
        for i, (token, right) in enumerate(zip(proposal.tokens, truth, strict=False)):
            hit = token == right
            self._arms.ngram.judge(hit, i, proposal.confidences[i] if proposal.confidences else None)
            if not hit:
                break

    def _account(self, plan: Plan, proposal: Proposal, tested: int, accepted: int, draft_seconds: float) -> None:
        """Compare what the round brought with what was planned; a probe is paid from the credit."""
        plain, tokens = self._seconds[0], 1 + accepted
        keep = 1.0 - 1.0 / _GAIN_HORIZON
        self._probes.passed(tokens, self.costs.catch_up, plain)
        if plan.catch_up and plan.paused and not self._is_new:
            self._owed += min(draft_seconds, 2.0 * self.costs.catch_up * plan.catch_up)
        elif self._probing:
            gain = plain * tokens - self._seconds[tested]
            most = 2.0 * self.costs.draft * (len(proposal.tokens) + self.behind)  # the machine may have slept
            spent = min(draft_seconds, most) + self._owed
            self._probes.probed(spent, gain, self._forced() if tested else 0.0, plain)
        elif plan.drafter == "model" and proposal.tokens:
            used = len(proposal.tokens) * self.costs.draft + self._seconds[tested]
            self._probes.saved(plain * tokens - used - self._debt(), plain)
            self._planned_tokens = self._planned_tokens * keep + self._rate * used / self._gain()
            self._real_tokens = self._real_tokens * keep + tokens
        if self._paused:
            self._real_tokens += (1.0 - keep) * (self._planned_tokens - self._real_tokens)

    def _gain(self) -> float:
        """Tokens that came for each one planned: stopping early and leaving out yields more than the plan knows."""
        return min(max(self._real_tokens / self._planned_tokens, 1.0), _MOST_GAIN)

    # ------------------------------------------------------------ pausing

    def _pause(self) -> Pause:
        """What the decision was made from. A little may be kept more than is needed: see `_PAUSE`."""
        return Pause(kept=self._mean_chance, needed=self.needed())

    def needed(self) -> float:
        """The smallest acceptance rate at which some draft length ≥ 1 is as quick as plain decoding; 1 if none is."""
        if self._needed is None or self._needed_age >= 64:
            draft = self.costs.draft if "model" in self._drafters else 0.0
            late = self._debt() / self._left if draft else 0.0
            self._needed, self._needed_age = break_even(self._seconds[: self.limit + 1], draft, late), 0
        self._needed_age += 1
        return self._needed

    def curve(self) -> list[float]:
        """Tokens per second that each draft length of the draft model from 0 on brings on text like this answer's.

        Empty without a draft model, and where too little was judged to say. n-grams have no such curve: how much they
        bring depends on how often they find something, not on how far they draft.
        """
        if "model" not in self._drafters:
            return []
        way = self._way()
        kinds = [(arms.tokens, arms.model(way)) for arms in self._by_kind.values() if arms.tokens]
        text = [(tokens, arm.long_chances(self.limit)) for tokens, arm in kinds if arm.weight >= _CURVE_WEIGHT]
        return speeds_by_length(text, self.costs.rounds(), self.costs.draft)

    def snapshot(self) -> dict[TextKind, AcceptancePrior]:
        """What was learnt, as the next answer's start; what was not tried in this answer stays as it was."""
        lead, weight = self._ways.greedy_advantage, self._ways.weight
        known = {
            kind: AcceptancePrior({**self._start.get(kind, AcceptancePrior()).rates, **arms.snapshot()}, lead, weight)
            for kind, arms in self._by_kind.items()
        }
        return {**self._start, **{kind: prior for kind, prior in known.items() if prior.rates}}


def _slowed(rate: float, late: float) -> float:
    """``rate`` in tokens per second if each token takes ``late`` seconds more."""
    return rate / (1.0 + rate * late)
