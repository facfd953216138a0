"""Drafters: anything that proposes tokens. Each has one file, a small interface, and a line in the table.

Must never import the loop or the policy, or call llama.cpp: a drafter is given a cache to decode with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from app.engine.decoding.sampling import Distributions
from app.engine.decoding.sequence import MeasurableCache, Task, TokenSequence
from app.protocol.options import MAX_DRAFT_LENGTH, DrafterName, ProposalMethod

Worth = Callable[[float], bool]
"""Called with the drafter's confidence in the token it just proposed (`Proposal.confidences`); says whether to propose
another."""


def always(_confidence: float) -> bool:
    """Propose as many as are allowed."""
    return True


Needs = Literal["tokens", "hidden states", "layer inputs", "logits"]
"""What a drafter needs of the target: the tokens; its hidden states after each of them, or the inputs of some of its
layers, too, which a head gets with its cache; or which token it finds most likely after each one (`Drafter.seen`)."""


@dataclass(frozen=True)
class Proposal:
    """Tokens a drafter proposes as the next ones, with the distributions they were drawn from where there are any."""

    tokens: list[int] = field(default_factory=list)
    distributions: Distributions | None = None
    confidences: list[float] = field(default_factory=list)
    """The drafter's confidence in each token: larger means more certain, on a scale of its own (the policy calibrates
    it).

    One that decodes gives the lead of the token over the runner-up in nats; one that is free the length of its match,
    where 3 is short and 12 as good as certain.
    """
    others: list[int] = field(default_factory=list)
    """What the other method would have proposed at each position, if the drafter has two; otherwise empty."""
    parents: list[int] | None = None
    """For a tree: the index of the token before each one, −1 for the context's last; parents come first. ``None``: a
    chain. A tree has no distributions, so every accept rule tests it by the target's own sample."""
    continued: int = 0
    """How many tokens at the end come from n-grams, which continued the draft."""

    def first(self, count: int) -> Proposal:
        """The same with only the first ``count`` tokens."""
        left_out = len(self.tokens) - count
        if left_out <= 0:
            return self
        return Proposal(
            self.tokens[:count],
            self.distributions.rows(0, count) if self.distributions is not None else None,
            self.confidences[:count],
            self.others[:count],
            self.parents and self.parents[:count],
            max(self.continued - left_out, 0),
        )

    def along(self, path: Sequence[int]) -> Proposal:
        """Of a tree, the chain that begins with the tokens at the places in ``path``, and then always takes the first
        of several."""
        chain = list(path)
        for place, parent in enumerate(self.parents or ()):
            if parent == (chain[-1] if chain else -1):
                chain.append(place)
        picked = [self.confidences[place] for place in chain if self.confidences]
        return Proposal([self.tokens[place] for place in chain], None, picked)


class Drafter(ABC):
    """Proposes tokens. It reads the context from a sequence that others write."""

    name: DrafterName
    needs: Needs = "tokens"
    longest: int = MAX_DRAFT_LENGTH
    """The most tokens it can propose at once."""
    is_free: bool = False
    """Whether its drafts cost no time, so that it is asked in every round. The policy drafts with others only where
    their cost was measured, which takes a ``cache``."""
    is_automatic: bool = True
    """Whether the policy may choose it; otherwise it drafts only in answers that name it."""
    cache: MeasurableCache | None = None
    """What it decodes with, if it does."""
    one_by_one: bool = False
    """See `DraftCosts.one_by_one`; set once that has been measured."""
    branches: int = 0
    """How many branches beside its first chain its drafts may have in this answer."""

    @abstractmethod
    def begin(self, sequence: TokenSequence, task: Task) -> None:
        """Start answering ``task`` after ``sequence``, which has the prompt and the first token. Decodes nothing."""

    @abstractmethod
    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:
        """Propose at most ``count`` tokens to follow the sequence. Fewer, or none, is always allowed.

        After each token ``worth`` is asked whether another one is worth its time. Drafters with one method ignore
        ``method``.
        """

    def continue_(self, draft: list[int], count: int) -> Proposal:  # noqa: ARG002
        """At most ``count`` tokens that follow a ``draft`` which another drafter began, as if it were accepted."""
        return Proposal()

    @abstractmethod
    def accepted(self) -> None:
        """The sequence has become longer, whichever drafter proposed the last draft."""

    @abstractmethod
    def forget(self) -> None:
        """Forget the content of chats. A cache is cleared by its owner."""

    def seen(self, tokens: list[int]) -> None:  # noqa: B027
        """After a verify pass, if it needs ``logits``: the tokens that the target finds most likely after the context
        and after each tested one."""

    def passed(self, row: int, accepted: int) -> None:  # noqa: B027
        """After each verify pass, before its ``accepted`` tokens are in the sequence: its output after the last of them
        has the number ``row``."""

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
