"""A text whose tokens a drafter gets right or wrong, and a machine whose costs are known, to try policies on.

Every position of the text has its own latent difficulty, so a run can be repeated with any policy on the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Distributions
from app.engine.drafters import Proposal
from app.engine.policy.costs import CostModel, Costs, DraftCosts
from app.engine.policy.policy import Decision, Outcome, Policy, Situation
from app.protocol.events import Pause
from app.protocol.options import DrafterName, ProposalMethod, TextKind

LIMIT = 16
_ROWS = [Distributions(np.zeros((n, 1), np.int64), np.zeros((n, 1))) for n in range(LIMIT + 1)]
"""Stand for the distributions tokens are drawn from: what is drawn has to be tested."""
_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_MEASURED: dict[str, tuple[float, ...]] = {
    "27 M F16": (1.45, 2.30, 2.36, 2.77, 3.39, 3.23, 4.43, 5.31, 5.98),
    "27 M Q8_0": (1.20, 2.83, 3.42, 3.96, 4.39, 4.54, 5.22, 6.16, 5.42),
    "100 M F16": (6.69, 8.39, 8.83, 9.13, 10.9, 10.1, 14.3, 16.5, 17.7),
    "100 M Q8_0": (3.83, 10.5, 14.2, 14.8, 16.6, 17.5, 16.4, 19.6, 21.3),
    "600 M F16": (33.0, 44.1, 45.1, 49.9, 64.6, 54.3, 78.0, 86.1, 97.6),
    "600 M Q8_0": (21.8, 46.9, 57.5, 65.7, 69.6, 70.3, 73.4, 93.6, 107.0),
    "600 M Q4_K_M": (11.8, 18.8, 23.7, 33.3, 39.2, 45.0, 49.9, 78.2, 68.0),
}
"""Milliseconds a verify pass took on a 2-core machine with AVX-512."""


def pair_costs(
    verify: Mapping[int, float],
    token: float,
    catch_up: float | None = None,
    *,
    growth: Mapping[int, float] | None = None,
    draft_growth: float = 0.0,
    name: DrafterName = "model",
) -> Costs:
    """Of a target and one drafter that decodes."""
    return Costs(verify, {name: DraftCosts(token, catch_up, draft_growth)}, growth=growth or {})


def draft_changed(costs: Costs, **changes: Any) -> Costs:
    """The same with ``changes`` to the `DraftCosts` of the draft model."""
    return replace(costs, drafts={**costs.drafts, "model": replace(costs.drafts["model"], **changes)})


def curves() -> dict[str, Costs]:
    """Cost curves by name: measured ones with a draft of 0.08 ms a token, and made ones like a GPU's."""
    known = {
        name: pair_costs({width: ms / 1000 for width, ms in zip(_WIDTHS, row, strict=True)}, 0.00008)
        for name, row in _MEASURED.items()
    }
    known["600 M F16, large draft"] = pair_costs(known["600 M F16"].verify, 0.0033)
    flat = {width: 0.020 * (1 + 0.01 * (width - 1)) for width in range(1, LIMIT + 2)}
    cliff = {width: seconds if width <= 8 else seconds + 0.020 for width, seconds in flat.items()}
    return known | {"flat": pair_costs(flat, 0.002), "cliff at 9": pair_costs(cliff, 0.002)}


DEAR = pair_costs({1: 0.020, LIMIT + 1: 0.0232}, 0.006)
"""A large draft model: a token of it costs 0.3 plain passes."""
DEAR_CATCH_UP = 0.25
"""Cost of a token it has missed, in tokens it drafts: on a CPU a batch is not much cheaper."""


@dataclass(frozen=True)
class Trace:
    """A text of ``length`` positions (and some more, to draft beyond its end)."""

    length: int
    hits: Mapping[ProposalMethod, Sequence[bool]]
    """Whether the draft model is right at each position, by proposal method."""
    confidences: Sequence[float]
    matches: Sequence[int] = field(default_factory=list)
    """Length of the n-gram match that ends before each position; 0: none."""
    copied: Sequence[bool] = field(default_factory=list)
    """Whether a matching n-gram is right at each position."""
    kinds: Sequence[TextKind] = field(default_factory=list)
    """The kind of text at each position; empty where nothing is known of it."""
    _rounds: dict[ProposalMethod, list[tuple[int, int]]] = field(default_factory=dict)

    def fixed_rounds(self, method: ProposalMethod) -> list[tuple[int, int]]:
        """Tokens and rounds for each fixed draft length from 0 to `LIMIT`; they do not depend on costs."""
        if method not in self._rounds:
            ahead = [0] * (len(self.hits[method]) + 1)
            for i in reversed(range(len(self.hits[method]))):
                ahead[i] = ahead[i + 1] + 1 if self.hits[method][i] else 0
            self._rounds[method] = [_rounds(ahead, self.length, draft) for draft in range(LIMIT + 1)]
        return self._rounds[method]


def _rounds(ahead: Sequence[int], length: int, draft: int) -> tuple[int, int]:
    at = rounds = 0
    while at < length:
        at += min(ahead[at], draft) + 1
        rounds += 1
    return at, rounds


def trace(
    means: Sequence[float],
    *,
    length: int = 3000,
    segment: int = 50,
    informative: bool = True,
    seed: int = 0,
    greedy_lead: float = 0.0,
) -> Trace:
    """The mean acceptance goes round ``means``, changing every ``segment`` positions.

    A position's own chance is drawn from a Beta distribution of that mean, many of them near 0 or 1. Its confidence
    rises with it, but is noisy; an uninformative one has the same distribution and no connection. Greedy proposals
    are accepted ``greedy_lead`` more often; the two methods share their luck half of the time.
    """
    rng = np.random.default_rng([seed, round(1000 * sum(means))])
    total = length + 2 * LIMIT
    mean = np.array([means[(i // segment) % len(means)] for i in range(total)])
    chance = _chances(rng, mean)
    luck = rng.random(total)
    hits = {"coupled": luck < chance}
    other = np.where(rng.random(total) < 0.5, luck, rng.random(total))
    hits["greedy"] = other < np.clip(chance + greedy_lead, 0, 1)
    clipped = np.clip(chance, 0.001, 0.999)
    leads = np.logaddexp(0.0, np.log(clipped / (1 - clipped)) + rng.normal(0.0, 1.0, total))
    if not informative:
        rng.shuffle(leads)
    by_method: dict[ProposalMethod, Sequence[bool]] = {
        "coupled": hits["coupled"].tolist(),
        "greedy": hits["greedy"].tolist(),
    }
    return Trace(length, by_method, leads.tolist())


def _chances(rng: np.random.Generator, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    concentration = 1.5
    inner = np.clip(mean, 0.001, 0.999)
    drawn = rng.beta(inner * concentration, (1 - inner) * concentration)
    return np.where(mean >= 1.0, 1.0, drawn)


def with_copies(text: Trace, *, seed: int = 0) -> Trace:
    """The same, of which 80 in every 200 positions repeat earlier text; elsewhere short matches mislead."""
    rng = np.random.default_rng([seed, 77])
    positions = np.arange(len(text.confidences))
    inside = positions % 200 - 120
    copying = inside >= 0
    spurious = np.where(rng.random(len(positions)) < 0.15, 3 + (rng.random(len(positions)) < 0.3), 0)
    matches = np.where(inside >= 3, np.minimum(inside, 12), np.where(copying, 0, spurious))
    copied = rng.random(len(positions)) < np.where(copying, 0.98, 0.25)
    return replace(text, matches=matches.tolist(), copied=copied.tolist(), _rounds={})


def with_kinds(text: Trace, *kinds: TextKind, segment: int = 50) -> Trace:
    """The same, with its kind known: they go round ``kinds``, as the mean acceptances of `trace` do."""
    count = len(text.confidences)
    return replace(text, kinds=[kinds[(i // segment) % len(kinds)] for i in range(count)], _rounds={})


TRACES: dict[str, tuple[float, ...]] = {
    "0.3": (0.3,),
    "0.5": (0.5,),
    "0.7": (0.7,),
    "0.9": (0.9,),
    "0.95": (0.95,),
    "code/prose": (0.92, 0.35),
    "worthless": (0.02,),
    "perfect": (1.0,),
}
"""Mean acceptances of each kind of text; the switching one starts with code."""


@dataclass
class Run:
    """What a run came to. Seconds are the machine's true ones, without the noise the policy sees."""

    tokens: int = 0
    seconds: float = 0.0
    accepted: int = 0
    judged: int = 0
    """Tokens of tested drafts up to and including the first rejected one."""
    rounds: int = 0
    drafted: int = 0
    by_ngram: int = 0
    """Rounds whose draft came from n-grams."""
    by_head: int = 0
    """Rounds whose draft came from an MTP head."""
    tried: int = 0
    """Rounds in which another drafter was tried besides."""
    continued: int = 0
    """Tested tokens with which n-grams continued a draft."""
    paused: list[tuple[int, Pause]] = field(default_factory=list)
    """Position and reason of every round that was paused."""
    timed: int = 0
    """Plain rounds that were no pause: only to time them."""
    longest: int = 0
    """Most tokens tested at once."""
    caught_up: int = 0
    """Tokens the draft model processed in portions."""
    longest_gap: float = 0.0
    """Seconds that one portion took at most."""

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    def count(self, decision: Decision, at: int, drafted: int, tested: int, accepted: int) -> None:
        """Add a round that came to position ``at``."""
        self.accepted += accepted
        self.judged += accepted + (accepted < tested)
        self.rounds += 1
        self.drafted += drafted
        self.by_ngram += decision.drafter == "ngram"
        self.by_head += decision.drafter == "mtp"
        self.longest = max(self.longest, tested)
        self.caught_up += decision.catch_up
        self.timed += decision == Decision(method=decision.method)
        if decision.paused:
            self.paused.append((at, decision.paused))


@dataclass(frozen=True)
class Surroundings:
    """What a text is decoded in besides the costs of passes."""

    catch_up: float | None = None
    """Cost of a token the draft model has not seen, in tokens it drafts; ``None``: as the curve suggests."""
    missing: int = 0
    """Tokens of the prompt that the draft model has not seen."""
    length: int = 0
    """Tokens of the context in which the text begins."""
    rows: float = 0.0
    """What each tested row costs besides, in plain passes."""
    samples: bool = False
    """Whether drafts are sampled, so that what was drafted has to be tested."""
    change: tuple[int, float, float] | None = None
    """From a position on, target and draft model take so many times as long."""


USUAL = Surroundings()


class Machine:
    """Costs a round's parts, and tells them with noise."""

    def __init__(self, costs: Costs, around: Surroundings, seed: int = 0) -> None:
        """A GPU takes a batch nearly at once."""
        self._model = CostModel(costs, LIMIT + 1)
        self._around = around
        self._grows = bool(costs.growth or any(each.growth for each in costs.drafts.values()))
        self.verify = self._model.table()
        self.drafts = {name: each.token for name, each in costs.drafts.items()}
        gpu = self.verify[16] < 2 * self.verify[1]
        share = around.catch_up if around.catch_up is not None else 0.01 if gpu else 0.1
        self.catch_ups = {name: share * token for name, token in self.drafts.items()}
        self._overhead = 0.02 * self.verify[1]
        self._row = around.rows * self.verify[1]
        rng = np.random.default_rng(seed)
        noise = np.exp(rng.normal(0.0, 0.04, 4096))
        noise[rng.random(4096) < 0.01] *= 3.0
        self._noise: list[float] = noise.tolist()
        self._at = 0

    def move_to(self, position: int) -> None:
        """The text has come to ``position``."""
        change = self._around.change
        if not self._grows and not change:
            return
        target, draft = change[1:] if change and position >= change[0] else (1.0, 1.0)
        self._model.length = self._around.length + position
        self.verify = [target * seconds for seconds in self._model.table()]
        self.drafts = {name: draft * each.token for name, each in self._model.drafts.items()}

    def other(self, width: int) -> float:
        """Seconds of a round besides drafting and the pass."""
        return self._overhead + self._row * width

    def noisy(self, seconds: float) -> float:
        self._at = (self._at + 1) % len(self._noise)
        return seconds * self._noise[self._at]


def run_fixed(costs: Costs, text: Trace, length: int, method: ProposalMethod = "coupled") -> float:
    """Tokens per second with always ``length`` tokens from the draft model."""
    machine = Machine(costs, USUAL)
    seconds = length * machine.drafts.get("model", 0.0) + machine.verify[length + 1] + machine.other(length + 1)
    tokens, rounds = text.fixed_rounds(method)[length]
    return tokens / (rounds * seconds)


def best_fixed(costs: Costs, text: Trace, method: ProposalMethod = "coupled") -> tuple[int, float]:
    """The best fixed draft length in hindsight, and its tokens per second."""
    speeds = [run_fixed(costs, text, length, method) for length in range(LIMIT + 1)]
    best = max(range(LIMIT + 1), key=speeds.__getitem__)
    return best, speeds[best]


def measured_at(costs: Costs, *widths: int) -> Costs:
    """What a measurement of only these ``widths`` would say of a machine with ``costs``."""
    table = CostModel(costs, LIMIT + 1).table()
    return replace(costs, verify={width: table[width] for width in widths})


def at_length(costs: Costs, length: int) -> Costs:
    """What a machine with ``costs`` takes behind a context of ``length`` tokens, whatever is added to it."""
    model = CostModel(costs, LIMIT + 1)
    model.length = length
    table = model.table()
    drafts = {name: DraftCosts(each.token) for name, each in model.drafts.items()}
    return replace(costs, verify=dict(enumerate(table[1:], 1)), drafts=drafts, growth={})


def run_policy(
    policy: Policy,
    costs: Costs,
    text: Trace,
    seed: int = 0,
    around: Surroundings = USUAL,
    drafters: Sequence[DrafterName] = ("model", "ngram"),
    others: Mapping[DrafterName, Trace] | None = None,
    continues: bool = False,
) -> Run:
    """Let ``policy`` decode ``text`` on a `Machine`.

    ``others`` say where further drafters are right; where none is given, ``text`` does. ``continues``: n-grams continue
    drafts.
    """
    machine = Machine(costs, around, seed)
    run = Run()
    at, missing = 0, {name: around.missing for name in costs.drafts if name in drafters}
    while at < text.length:
        machine.move_to(at)
        situation = Situation(
            length=around.length + at,
            most=text.length - at + LIMIT,
            missing=dict(missing),
            free={"ngram": found} if "ngram" in drafters and (found := _found(text, at)).tokens else {},
            kind=text.kinds[at] if text.kinds else "prose",
        )
        decision = policy.decide(situation)
        proposal, caught_up = Proposal(), 0.0
        if decision.catches_up:
            caught_up = machine.catch_ups[decision.catches_up] * decision.catch_up
            missing[decision.catches_up] -= decision.catch_up
        draft_seconds = caught_up
        if (name := decision.drafter) and name in situation.free:
            proposal = situation.free[name].first(decision.length)
        elif name:
            proposal = _propose(decision, (others or {}).get(name, text), at, around.samples)
            draft_seconds += machine.drafts[name] * len(proposal.tokens) + machine.catch_ups[name] * missing[name]
            if continues and decision.stopping:
                proposal = _continued(proposal, decision, text, at)
        tried = Proposal()
        if name := decision.tries:
            tried = _propose(replace(decision, length=1), (others or {}).get(name, text), at, around.samples)
            draft_seconds += machine.drafts[name] + machine.catch_ups[name] * missing[name]
        tested = len(proposal.tokens) if proposal.continued else decision.tested(proposal)
        accepted = 0
        while accepted < tested and proposal.tokens[accepted] == at + accepted:
            accepted += 1
        verify_seconds, other_seconds = machine.verify[tested + 1], machine.other(tested + 1)
        noisy = [machine.noisy(seconds) for seconds in (draft_seconds, verify_seconds, other_seconds)]
        told = Outcome(
            situation, decision, proposal, tested, accepted, at + accepted, noisy[0], noisy[1], noisy[2], tried
        )
        policy.learn(told)
        at += accepted + 1
        behind = max(accepted - (len(proposal.tokens) - proposal.continued), 0)
        missing = {name: each + accepted + 1 for name, each in missing.items()}
        missing |= {
            name: each for name, each in ((decision.drafter, behind), (decision.tries, accepted)) if name in missing
        }
        run.count(decision, at, len(proposal.tokens), tested, accepted)
        run.continued += proposal.continued
        run.tried += bool(tried.tokens)
        run.longest_gap = max(run.longest_gap, caught_up)
        run.seconds += draft_seconds + verify_seconds + other_seconds
    run.tokens = at
    return run


def _propose(decision: Decision, text: Trace, at: int, samples: bool) -> Proposal:
    """The right token of a position is its number; wrong ones are negative."""
    hits, worth = text.hits[decision.method], decision.worth()
    tokens, confidences = [], []
    for i in range(at, at + decision.length):
        tokens.append(i if hits[i] else -1)
        confidences.append(text.confidences[i])
        if len(tokens) == decision.length or not worth(text.confidences[i]):
            break
    if samples:
        return Proposal(tokens, _ROWS[len(tokens)], confidences)
    others = text.hits["greedy" if decision.method == "coupled" else "coupled"]
    return Proposal(tokens, None, confidences, [i if others[i] else -1 for i in range(at, at + len(tokens))])


def _continued(proposal: Proposal, decision: Decision, text: Trace, at: int) -> Proposal:
    """As `app.engine.decoding.drafting` does it; behind a wrong token nothing matches."""
    own = len(proposal.tokens)
    more = _found(text, at + own).first(LIMIT - own) if proposal.tokens[-1:] == [at + own - 1] else Proposal()
    if not more.tokens or -1 in proposal.tokens:
        return proposal
    confidences = proposal.confidences + more.confidences
    whole = Proposal(proposal.tokens + more.tokens, None, confidences, proposal.others, None, len(more.tokens))
    return whole.first(max(decision.tested(whole), own))


def _found(text: Trace, at: int) -> Proposal:
    if not text.matches or not text.matches[at]:
        return Proposal()
    positions = range(at, at + LIMIT)
    match = text.matches[at]
    return Proposal([i if text.copied[i] else -1 for i in positions], None, [float(match)] * LIMIT)
