"""Drafters: anything that proposes tokens. One file a drafter, one small interface.

Must never import the loop or the policy, or call llama.cpp: a drafter is given a cache to decode with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.engine.decoding.sampling import Distributions
from app.protocol.messages import DrafterName, Way

Worth = Callable[[float], bool]
"""Told how sure the drafter was of the token it just proposed (`Proposal.confidences`): whether to propose another."""


def always(_confidence: float) -> bool:
    """Propose as many as are allowed."""
    return True


@dataclass(frozen=True)
class Proposal:
    """Tokens a drafter guesses to come next, with the distributions they were drawn from where there are any."""

    tokens: list[int] = field(default_factory=list)
    distributions: Distributions | None = None
    confidences: list[float] = field(default_factory=list)
    """How sure the drafter is of each token: larger is surer, on a scale of its own (the controller calibrates it).

    A draft model gives the lead of the token over the next best candidate in nats; n-grams the length of their match.
    """
    others: list[int] = field(default_factory=list)
    """What the other way of proposing would have put in each place, where the drafter has two; else empty."""

    def first(self, count: int) -> Proposal:
        """The same with only the first ``count`` tokens."""
        if count >= len(self.tokens):
            return self
        rows = self.distributions.first(count) if self.distributions is not None else None
        return Proposal(self.tokens[:count], rows, self.confidences[:count], self.others[:count])


class Drafter(Protocol):
    """Proposes tokens; knows the context only through `begin` and `accepted`."""

    name: DrafterName

    def begin(self, tokens: Sequence[int]) -> None:
        """A generation starts behind the prompt ``tokens``. Nothing is decoded yet."""

    def missing(self) -> int:
        """How many tokens of the context it still has to process before it can propose; 0 where it needs none."""

    def catch_up(self, count: int) -> None:
        """Process ``count`` of the missing tokens, fewer where fewer are missing.

        Raises `Cancelled` when told to stop meanwhile; what was processed by then stays.
        """

    def propose(self, count: int, way: Way = "coupled", worth: Worth = always) -> Proposal:
        """Guess at most ``count`` next tokens. Fewer, or none, is always allowed.

        After each token ``worth`` is asked whether one more pays. Drafters with one way of proposing ignore ``way``.
        """

    def accepted(self, tokens: Sequence[int]) -> None:
        """The answer went on with ``tokens``, whether this drafter proposed the last draft or not."""

    def close(self) -> None:
        """Free what it holds."""
