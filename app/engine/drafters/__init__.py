"""Drafters: anything that proposes tokens. Each has one file, a small interface, and a line in the table.

Must never import the loop or the policy, or call llama.cpp: a drafter is given a cache to decode with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from app.engine.decoding.sampling import Distributions
from app.engine.decoding.sequence import Task, TokenSequence
from app.protocol.options import MAX_DRAFT_LENGTH, DrafterName, ProposalMethod

Worth = Callable[[float], bool]
"""Called with the drafter's confidence in the token it just proposed (`Proposal.confidences`); says whether to propose
another."""


def always(_confidence: float) -> bool:
    """Propose as many as are allowed."""
    return True


Needs = Literal["tokens", "hidden states"]
"""What a drafter needs of the target: the tokens, or its hidden states after each of them, too."""
FREE: tuple[DrafterName, ...] = ("ngram", "grammar")
"""Drafters that decode nothing: their drafts cost no time."""


@dataclass(frozen=True)
class Proposal:
    """Tokens a drafter proposes as the next ones, with the distributions they were drawn from where there are any."""

    tokens: list[int] = field(default_factory=list)
    distributions: Distributions | None = None
    confidences: list[float] = field(default_factory=list)
    """The drafter's confidence in each token: larger means more certain, on a scale of its own (the policy calibrates
    it).

    A draft model gives the lead of the token over the runner-up in nats; n-grams give the length of their match.
    """
    others: list[int] = field(default_factory=list)
    """What the other method would have proposed at each position, if the drafter has two; otherwise empty."""

    def first(self, count: int) -> Proposal:
        """The same with only the first ``count`` tokens."""
        if count >= len(self.tokens):
            return self
        rows = self.distributions.rows(0, count) if self.distributions is not None else None
        return Proposal(self.tokens[:count], rows, self.confidences[:count], self.others[:count])


class Drafter(ABC):
    """Proposes tokens. It reads the context from a sequence that others write."""

    name: DrafterName
    needs: Needs = "tokens"
    longest: int = MAX_DRAFT_LENGTH
    """The most tokens it can propose at once."""

    @abstractmethod
    def begin(self, sequence: TokenSequence, task: Task) -> None:
        """Start answering ``task`` after ``sequence``, which has the prompt and the first token. Decodes nothing."""

    @abstractmethod
    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:
        """Propose at most ``count`` tokens to follow the sequence. Fewer, or none, is always allowed.

        After each token ``worth`` is asked whether another one is worth its time. Drafters with one method ignore
        ``method``.
        """

    @abstractmethod
    def accepted(self) -> None:
        """The sequence has become longer, whichever drafter proposed the last draft."""

    @abstractmethod
    def forget(self) -> None:
        """Forget the content of chats. A cache is cleared by its owner."""

    def is_full(self) -> bool:
        """Whether the sequence has become too long for it to propose anything."""
        return False

    def missing(self) -> int:
        """How many tokens of the sequence it has to process before it can propose. This costs time, and the policy
        decides whether and when to spend it.
        """
        return 0

    def catch_up(self, count: int) -> None:  # noqa: B027
        """Process ``count`` of the missing tokens, or as many as there are.

        Raises `Canceled` if told to stop in the meantime; what has been processed by then is kept.
        """
