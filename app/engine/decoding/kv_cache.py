"""What the loop and the drafters need of a KV cache; `app.engine.llama.context.Context` is the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Floats

Tokens = NDArray[np.int32]


class Cache(Protocol):
    """A KV cache that holds exactly ``tokens``, at most ``length`` of them, fed at most ``chunk`` at once.

    ``tokens`` are its content and no copy of an answer: it lacks the last token, holds drafts that are not judged yet,
    survives answers and chats, and is compared with the next prompt.
    """

    tokens: list[int]
    length: int
    chunk: int

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        """Feed ``tokens``; the logits of the last ``outputs`` of them, shape (outputs, vocabulary)."""

    def roll_back(self, length: int) -> None:
        """Forget all but the first ``length`` tokens, and some of these where the memory goes back to marks only."""

    def hold(self, count: int) -> None:
        """``count`` draft tokens, and what is known already, are fed next: be ready to come back to here after them."""

    def remember(self) -> None:
        """Be ready to come back to here later, as far as there is memory for it."""

    def aborting(self, should_stop: Callable[[], bool]) -> AbstractContextManager[None]:
        """``with`` block in which `decode` raises `Canceled` early, where it can, when ``should_stop`` says so."""

    def close(self) -> None:
        """Free it."""


class MeasurableCache(Cache, Protocol):
    """A KV cache whose passes can be timed as if its context were long."""

    def lengthen(self, length: int) -> bool:
        """Make passes behind the one token it holds cost what they cost behind ``length`` of them.

        It goes on as before, until all is rolled back. False, and it holds nothing, where that is not possible.
        """


@dataclass(frozen=True, eq=False)
class State:
    """A copy of all that a KV cache holds."""

    tokens: Tokens
    data: NDArray[np.uint8]
    """Only the engine that wrote it can read it, and only with the same model and settings."""
    least: int
    """The fewest tokens a cache that holds this can be cut to: 0 where any part of it can be cut off."""


class SavableCache(Cache, Protocol):
    """A KV cache whose content can be copied out and put back."""

    def clear(self, *, overwrite: bool = False) -> None:
        """Forget everything. Without ``overwrite``, which takes longer, what it held can still be read in memory."""

    def reach(self, length: int) -> int:
        """How many tokens `roll_back` to ``length`` would leave, if nothing fails."""

    def state_size(self) -> int:
        """Bytes of the `State` that `save` would return."""

    def save(self) -> State:
        """A copy of what it holds. Raises `KnownError` when llama.cpp cannot, `MemoryError` without room for it."""

    def restore(self, state: State) -> bool:
        """Hold what ``state`` has, and nothing else; False, and it holds nothing, when that does not work."""


def common_length(a: Tokens, b: Tokens) -> int:
    """`shared_prefix` for arrays, which it compares a thousand times faster."""
    length = min(len(a), len(b))
    different = a[:length] != b[:length]
    return int(different.argmax()) if different.any() else length


def covers(tokens: Tokens, least: int, wanted: Tokens) -> bool:
    """Whether a state of ``tokens`` that can be cut to ``least`` of them can be cut to ``wanted``."""
    return len(wanted) >= least and common_length(tokens, wanted) == len(wanted)
