"""What the loop and the drafters need from a KV cache; `app.engine.llama.context.Context` implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Floats, Logits

Tokens = NDArray[np.int32]


class Cache(Protocol):
    """A KV cache that contains exactly ``tokens``, at most ``length`` of them, with at most ``chunk`` added at once.

    ``tokens`` is its content, not a copy of an answer: the last token is missing, drafts that haven't been verified are
    in it, it outlives answers and chats, and it is compared with the next prompt.
    """

    tokens: list[int]
    length: int
    chunk: int

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        """Process ``tokens``; returns the logits of the last ``outputs`` of them, shape (outputs, vocabulary)."""

    def decode_largest(self, tokens: Sequence[int], outputs: int, count: int | None) -> Logits:
        """`decode`, where of each row the ``count`` largest logits are enough; ``None``: all are needed."""

    def roll_back(self, length: int) -> None:
        """Forget all but the first ``length`` tokens, and more if the memory can only go back to checkpoints."""

    def hold(self, count: int) -> None:
        """Prepare for coming back to the current length after the next tokens, of which ``count`` are draft tokens."""

    def remember(self) -> None:
        """Prepare for coming back to the current length later, if there is memory for that."""

    def aborting(self, should_stop: Callable[[], bool]) -> AbstractContextManager[None]:
        """``with`` block in which `decode` raises `Canceled` early, if it can, when ``should_stop`` returns true."""

    def close(self) -> None:
        """Free its memory."""


class MeasurableCache(Cache, Protocol):
    """A KV cache whose passes can be timed."""

    @property
    def may_reuse_graphs(self) -> bool:
        """Whether it is worth measuring if passes of few widths are quicker: a GPU computes them, and tokens that only
        pad a pass can be taken back.
        """

    def graphs_reused(self) -> int:
        """How many passes so far have used the graph of the pass before."""


@dataclass(frozen=True, eq=False)
class State:
    """A copy of everything in a KV cache."""

    tokens: Tokens
    data: NDArray[np.uint8]
    """Only the engine that wrote it can read it, and only with the same model and settings."""
    least: int
    """The fewest tokens a cache with this content can be cut to; 0 if it can be cut anywhere."""


class SavableCache(Cache, Protocol):
    """A KV cache whose content can be copied and restored."""

    def clear(self, *, overwrite: bool = False) -> None:
        """Forget everything. Without ``overwrite``, which takes longer, the content can still be found in memory."""

    def reach(self, length: int) -> int:
        """How many tokens `roll_back` to ``length`` would leave, if nothing fails."""

    def state_size(self) -> int:
        """The size in bytes of the `State` that `save` would return."""

    def save(self) -> State:
        """A copy of the content. Raises `KnownError` if llama.cpp can't copy it, `MemoryError` if there is no memory
        for it.
        """

    def restore(self, state: State) -> bool:
        """Replace the content with ``state``. Returns False, with the cache empty, if that fails."""


def common_length(a: Tokens, b: Tokens) -> int:
    """`shared_prefix` for arrays, which are compared a thousand times faster."""
    length = min(len(a), len(b))
    different = a[:length] != b[:length]
    return int(different.argmax()) if different.any() else length


def covers(tokens: Tokens, least: int, wanted: Tokens) -> bool:
    """Whether a state of ``tokens`` that can be cut to ``least`` of them can be cut to ``wanted``."""
    return len(wanted) >= least and common_length(tokens, wanted) == len(wanted)
