"""What every policy does: `decide` before a round, `learn` after it; and the frozen data it uses and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.engine.drafters import Proposal, Worth, always
from app.engine.policy.acceptance import Priors
from app.engine.policy.costs import Costs
from app.protocol.events import Pause
from app.protocol.options import DrafterName, ProposalMethod, TextKind


@dataclass(frozen=True)
class Stopping:
    """Decides where one draft ends, and how many of its tokens are tested.

    Drafting goes on, and tokens are tested, while the best continuation gains more tokens than its seconds are worth at
    the rate of the whole (renewal reward; Dinkelbach, Management Science 13, 1967). Chances are those of a token to be
    accepted if those before it are.
    """

    chance: Callable[[float, int], float]
    """The chance of acceptance of a token with this confidence at this position."""
    expected: Sequence[float]
    """The expected tokens of a round whose draft has 0, 1, … tokens, before their confidences are known."""
    survivals: Sequence[float]
    """The chance that all of 0, 1, … tokens are accepted, before their confidences are known."""
    seconds: Sequence[float]
    """Seconds of a round that tests 0, 1, … tokens, without drafting them."""
    draft: float
    """Seconds per drafted token."""
    rate: float
    """Tokens per second that a round has to reach."""
    continuing: Callable[[float, int], float] | None = None
    """As ``chance``, of the tokens that n-grams continue the draft with; ``None``: nothing continues it."""

    def goes_on(self, chances: Sequence[float]) -> bool:
        """Whether one more token pays off, after tokens of these ``chances``, which are already paid for."""
        rate, seconds, expected, done = self.rate, self.seconds, self.expected, len(chances)
        survival = total = before = 1.0
        for chance in chances:
            survival *= chance
            before, total = total, total + survival
        # To stop here is to test all, to leave the last token to the target, or to process all of them one by one.
        stopped = max(total - rate * seconds[done], before - rate * seconds[done - 1], done * (1.0 - rate * seconds[0]))
        scale = survival / self.survivals[done]
        base, cost = total - scale * expected[done], rate * self.draft
        return any(
            base + scale * expected[more] - rate * seconds[more] - cost * (more - done) > stopped
            for more in range(done + 1, len(expected))
        )

    def count_worth_testing(self, confidences: Sequence[float], continued: int = 0) -> int:
        """The number of drafted tokens that is best to test; n-grams ``continued`` the draft with the last of them.

        Tokens that are left out are still to come, including the doubtful one that ended the draft: they have to be
        drafted again and processed in the next rounds, at worst by as many plain passes.
        """
        count, own = len(confidences), len(confidences) - continued
        chances = [self.chance(confidence, i) for i, confidence in enumerate(confidences[:own])]
        if self.continuing:
            chances += [self.continuing(confidence, i) for i, confidence in enumerate(confidences[own:], own)]
        prices = [self.rate * taken for taken in self.seconds[: count + 1]]
        best, _ = _best(chances, prices, 0, ())
        if best >= count - 1:
            return best  # nothing is still to come
        ahead = [0.0] * count
        for start in range(count - 1, 0, -1):
            _, value = _best(chances, prices, start, ahead)
            ahead[start] = min(value - self.rate * self.draft * max(own - start, 0), 0.0)
        return _best(chances, prices, 0, ahead)[0]


def _best(chances: Sequence[float], prices: Sequence[float], start: int, ahead: Sequence[float]) -> tuple[int, float]:
    """How many tokens from ``start`` on to test, and what that is worth, in tokens.

    ``prices``: of the seconds of a round. ``ahead``: what it is worth, against knowing nothing, that the tokens from a
    position on are those to come; the round lands there if the target's own token is the drafted one, too.
    """
    survival = total = 1.0
    best, best_value = 0, float("-inf")
    for length, position in enumerate(range(start, len(chances) + 1)):
        value = total - prices[length]
        chance = chances[position] if position < len(chances) else 0.0
        survival *= chance
        if position + 1 < len(ahead):
            value += survival * ahead[position + 1]
        if value >= best_value:
            best, best_value = length, value
        total += survival
    return best, best_value


@dataclass(frozen=True)
class Situation:
    """What is known before a round."""

    length: int
    """Tokens in the context."""
    most: int
    """The most tokens that may be drafted."""
    missing: Mapping[DrafterName, int] = field(default_factory=dict)
    """For each drafter that decodes and can draft now: the tokens in the context that it has not processed."""
    free: Mapping[DrafterName, Proposal] = field(default_factory=dict)
    """What the drafters propose whose drafts cost nothing, those that propose something."""
    kind: TextKind = "prose"
    """The kind of the text that comes next."""


@dataclass(frozen=True)
class Decision:
    """What to do in a round; by default a plain pass."""

    drafter: DrafterName | None = None
    length: int = 0
    """The most tokens to draft."""
    method: ProposalMethod = "coupled"
    """How a drafter that decodes proposes."""
    stopping: Stopping | None = None
    """When a draft ends early, and how many of its tokens are tested; ``None``: it never ends early, and all are
    tested.
    """
    catch_up: int = 0
    """How many of the missing tokens ``catches_up`` processes before the pass, to be able to draft later."""
    catches_up: DrafterName | None = None
    tries: DrafterName | None = None
    """Which other one drafts a single token besides, that isn't tested: the target's own token judges it."""
    paused: Pause | None = None
    """Set if drafting doesn't save time, even while it is being tried anyway."""

    def worth(self) -> Worth:
        """For `Drafter.propose`: gets the confidence of each token, and says whether to propose another."""
        stopping = self.stopping
        if stopping is None:
            return always
        chances: list[float] = []

        def worth(confidence: float) -> bool:
            chances.append(stopping.chance(confidence, len(chances)))
            return stopping.goes_on(chances)

        return worth

    def tested(self, proposal: Proposal) -> int:
        """How many of the proposed tokens the verify pass tests; the rest is ignored. All sampled ones are tested:
        whether one is must not depend on which token it is, as the confidence of those after it does."""
        count = min(len(proposal.tokens), self.length + proposal.continued)
        if self.stopping is None or proposal.distributions is not None:
            return count
        return self.stopping.count_worth_testing(proposal.confidences[:count], proposal.continued)


@dataclass(frozen=True)
class Outcome:
    """The result of a decision."""

    situation: Situation
    decision: Decision
    proposal: Proposal
    """The whole draft, including the tokens that were not tested."""
    tested: int
    accepted: int
    target_token: int
    """The target's own token after the accepted ones."""
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    tried: Proposal = field(default_factory=Proposal)
    """What `Decision.tries` says."""


@dataclass(frozen=True)
class Learned:
    """What was learned in an answer, for the next one and for the window."""

    costs: Costs
    priors: Priors
    curve: list[float]
    """The expected tokens per second for each draft length from 0 of the drafter that drafted most, of those that
    decode, on text like the answer's.
    """


class Policy(Protocol):
    """Decides before every round of one answer, and learns from it afterwards."""

    limit: int
    """The most tokens it ever drafts at once."""

    def decide(self, situation: Situation) -> Decision: ...

    def width(self, width: int) -> int:
        """How many tokens a pass over ``width`` of them is padded to."""

    def learn(self, outcome: Outcome) -> None: ...

    def learned(self) -> Learned: ...


@dataclass(slots=True)
class Promise:
    """What a drafter promises for the next round."""

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


def promised(chances: Sequence[float], seconds: Sequence[float], draft: float, least: int = 1) -> Promise:
    """``seconds``: for a round that tests 0, 1, … tokens; ``draft``: for a drafted token.

    Lengths below ``least`` are not considered.
    """
    survivals, expected = [1.0], [1.0]
    best, best_rate = 0, 0.0
    for length, chance in enumerate(chances, 1):
        survivals.append(survivals[-1] * chance)
        expected.append(expected[-1] + survivals[-1])
        rate = expected[-1] / (seconds[length] + length * draft)
        if rate > best_rate and length >= least:
            best, best_rate = length, rate
    return Promise(chances, survivals, expected, best, best_rate)


def speeds_by_length(
    text: Sequence[tuple[int, Sequence[float]]], seconds: Sequence[float], draft: float
) -> list[float]:
    """The speed of each fixed draft length from 0 to as many as there are chances; empty without text.

    ``text``: parts of it, each with its tokens and the chances as in `Promise`. ``seconds``: of a round that tests
    0, 1, … tokens; ``draft``: of a drafted token. A length n takes (n·draft + seconds[n]) ÷ (1 + Σ Π chances) for each
    token of a part.
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

    ``seconds`` and ``draft`` are as in `speeds_by_length`; ``late``: seconds of each token that catching up costs.
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
