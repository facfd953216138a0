"""What every policy does: `decide` before a round, `learn` after it; and the frozen data it uses and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from app.engine.drafters import Proposal, Worth, always
from app.engine.policy.acceptance import Priors
from app.engine.policy.costs import Costs
from app.engine.policy.stopping import Stopping
from app.protocol.events import Pause
from app.protocol.options import DrafterName, ProposalMethod, TextKind


@dataclass(frozen=True)
class Situation:
    """What is known before a round."""

    length: int
    """Tokens in the context."""
    most: int
    """The most tokens that may be drafted."""
    missing: Mapping[DrafterName, int] = field(default_factory=dict)
    """For each drafter that decodes and can draft now: the tokens in the context that it has not processed."""
    found: Proposal = field(default_factory=Proposal)
    """What n-grams propose, which costs nothing."""
    forced: Proposal = field(default_factory=Proposal)
    """What the answer's grammar forces, which costs nothing either."""
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
        """How many of the proposed tokens the verify pass tests; the rest is ignored.

        A sampled token is only correct if its test doesn't depend on what it is, but the confidence of the tokens after
        it does, so all of those are tested.
        """
        count = min(len(proposal.tokens), self.length)
        if self.stopping is None or proposal.distributions is not None:
            return count
        return self.stopping.count_worth_testing(proposal.confidences[:count])


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
