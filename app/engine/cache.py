"""What the loop and the drafters need of a KV cache; `app.engine.llama.Context` is the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from app.engine.sampling import Floats


class Cache(Protocol):
    """A KV cache that holds exactly ``tokens``, at most ``length`` of them, fed at most ``chunk`` at once."""

    tokens: list[int]
    length: int
    chunk: int

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        """Feed ``tokens``; the logits of the last ``outputs`` of them, shape (outputs, vocabulary)."""

    def roll_back(self, length: int) -> None:
        """Forget all but the first ``length`` tokens, and some of these where the memory goes back to marks only."""

    def hold(self, count: int) -> None:
        """``count`` guesses, and what is known already, are fed next: be ready to come back to here after them."""

    def remember(self) -> None:
        """Be ready to come back to here later, as far as there is memory for it."""

    def aborting(self, should_stop: Callable[[], bool]) -> AbstractContextManager[None]:
        """``with`` block in which `decode` raises `Cancelled` early, where it can, when ``should_stop`` says so."""

    def close(self) -> None:
        """Free it."""


def shared_prefix(cached: Sequence[int], tokens: Sequence[int]) -> int:
    """How many tokens two sequences share from their beginning."""
    for index, (a, b) in enumerate(zip(cached, tokens, strict=False)):
        if a != b:
            return index
    return min(len(cached), len(tokens))
