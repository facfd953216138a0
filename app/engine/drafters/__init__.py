"""Drafters: anything that proposes tokens. One file a drafter, one small interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.engine.sampling import Distributions


@dataclass(frozen=True)
class Proposal:
    """Tokens a drafter guesses to come next, with the distributions they were drawn from where there are any."""

    tokens: list[int] = field(default_factory=list)
    distributions: Distributions | None = None


class Drafter(Protocol):
    """Proposes tokens; knows the context only through these three calls."""

    name: str

    def begin(self, tokens: Sequence[int]) -> None:
        """A generation starts behind the prompt ``tokens``, which are processed now.

        Raises `Cancelled` when told to stop meanwhile.
        """

    def propose(self, count: int) -> Proposal:
        """Guess at most ``count`` next tokens. Fewer, or none, is always allowed."""

    def accepted(self, count: int, token: int) -> None:
        """The first ``count`` tokens of the last proposal stand, and ``token``, the target's own, comes after them."""

    def close(self) -> None:
        """Free what it holds."""
