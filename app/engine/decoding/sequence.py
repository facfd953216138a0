"""The tokens of a prompt and its answer, images among them, and the KV cache that holds them.

The tokens are stored only here: everyone reads them here and keeps no copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.grammar import Grammar
from app.engine.decoding.sampling import Floats, Logits, logits_needed
from app.engine.decoding.thinking import Marks
from app.protocol.answering import AnswerSettings

Tokens = NDArray[np.int32]


class Cache(Protocol):
    """A KV cache that contains exactly ``tokens``, at most ``length`` of them, with at most ``chunk`` added at once.

    ``tokens`` isn't the answer: the last token is missing, unverified drafts are in it, and it outlives the chat.
    """

    tokens: list[int]
    length: int
    chunk: int

    @property
    def branches(self) -> int:
        """How many branches beside its first chain a draft may have now."""

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        """Process ``tokens``; returns the logits of the last ``outputs`` of them, shape (outputs, vocabulary)."""

    def decode_largest(self, tokens: Sequence[int], outputs: int, count: int | None) -> Logits:
        """`decode`, where the ``count`` largest logits of each row are enough; ``None``: all are needed."""

    def decode_tree(self, tokens: Sequence[int], draft: Sequence[int], parents: Sequence[int]) -> Floats:
        """Process ``tokens`` and after them a ``draft`` with `branches` (`app.engine.decoding.trees`). Returns the
        logits after ``tokens`` and after each token of the draft; of these, only the first chain stays."""

    def roll_back(self, length: int) -> None:
        """Forget all but the first ``length`` tokens, or more where the memory can only go back to checkpoints."""

    def hold(self, count: int) -> None:
        """Prepare for coming back to the current length or a bit more: ``count`` draft tokens follow."""

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
        """Whether padding passes to a few widths may pay: a GPU computes them, and padding can be rolled back."""

    def graphs_reused(self) -> int:
        """How many passes so far have reused the graph of the pass before."""


@dataclass(frozen=True, eq=False)
class State:
    """A copy of everything in a KV cache."""

    tokens: Tokens
    data: NDArray[np.uint8]
    """Only the engine that wrote it can read it, and only with the same model and settings."""
    least: int
    """The fewest tokens that a cache with this content can be cut to; 0 if it can be cut anywhere."""


def common_length(a: Tokens, b: Tokens) -> int:
    """`shared_prefix` for arrays, which are compared a thousand times faster."""
    length = min(len(a), len(b))
    different = a[:length] != b[:length]
    return int(different.argmax()) if different.any() else length


def covers(tokens: Tokens, least: int, wanted: Tokens) -> bool:
    """Whether a state of ``tokens`` that can be cut to ``least`` of them can be cut to ``wanted``."""
    return len(wanted) >= least and common_length(tokens, wanted) == len(wanted)


# Images in a sequence of tokens: each cell that an image takes in the KV cache is a number below zero.
#
# The numbers are made from the image's SHA-256, so that code that compares tokens needs to know nothing about images.
# The first number of an image also holds how many *positions* it takes, which may be fewer than cells (M-RoPE).

_FIRST = 1 << 30
"""Set in the first cell of an image. The lowest bits of that cell are the number of positions."""
_POSITION_BITS = 16
_HASH = (1 << 30) - 1


@dataclass(frozen=True)
class Span:
    """Where an image stands in a sequence: from the cell ``start`` up to ``end``."""

    start: int
    end: int
    positions: int

    @property
    def saved(self) -> int:
        """Cells minus positions."""
        return self.end - self.start - self.positions


def cells_of(identity: str, cells: int, positions: int) -> list[int]:
    """The numbers of an image, or a part of one, with this ``identity``, which takes so many ``cells`` and
    ``positions``."""
    if not 0 < positions < 1 << _POSITION_BITS:
        raise ValueError(f"an image with {positions} positions")
    words = np.frombuffer(hashlib.shake_128(identity.encode()).digest(4 * cells), "<u4").astype(np.int64)
    values = words & _HASH
    values[0] = _FIRST | (values[0] << _POSITION_BITS & _HASH) | positions
    numbers: list[int] = (-1 - values).tolist()
    return numbers


def spans_of(tokens: Sequence[int] | NDArray[np.int32]) -> list[Span]:
    """The images in ``tokens``, which don't begin within one."""
    array = np.asarray(tokens, np.int64)
    found: list[Span] = []
    if not len(array) or array.min() >= 0:
        return found
    values = -1 - array
    for start in np.flatnonzero((array < 0) & (values & _FIRST != 0)).tolist():
        after = np.flatnonzero((array[start + 1 :] >= 0) | (values[start + 1 :] & _FIRST != 0))
        end = start + 1 + int(after[0]) if len(after) else len(array)
        found.append(Span(start, end, int(values[start]) & ((1 << _POSITION_BITS) - 1)))
    return found


def has_images(tokens: Sequence[int]) -> bool:
    """Whether there is an image in ``tokens``."""
    return min(tokens, default=0) < 0


def text_of(tokens: Sequence[int]) -> list[int]:
    """``tokens`` without images."""
    return [token for token in tokens if token >= 0] if has_images(tokens) else list(tokens)


def piece_end(tokens: Sequence[int], start: int, most: int) -> int:
    """The end of what can be processed at once from ``start`` on: a whole image, or up to ``most`` tokens of text that
    are followed by one."""
    if tokens[start] >= 0:
        part = tokens[start : start + most]
        return start + next((place for place, token in enumerate(part) if token < 0), len(part))
    end = start + 1
    while end < len(tokens) and tokens[end] < 0 and not (-1 - tokens[end]) & _FIRST:
        end += 1
    return end


_COMPARED = 512
"""How many tokens are compared at once."""


class Task(AnswerSettings, frozen=True, kw_only=True):
    """How to choose the tokens of one answer, and where it ends."""

    seed: int
    continued: Sequence[int] = ()
    """Tokens after which it continues, which count as part of the prompt."""
    private: bool = False
    logprobs: int | None = None
    logit_bias: Mapping[int, float] = {}
    """These as in `Generate`."""
    marks: Marks | None = None
    """``None``: none of it is thinking."""
    between: str = ""
    """What the template writes between thinking and answer, if known."""
    closing: Callable[[str], Sequence[int]] = lambda _: ()
    """The tokens of a text that are forced to end the thinking."""
    grammar: Grammar | None = None
    """What the answer has to follow."""
    unit: int = 1
    """Verify passes are padded to a multiple of so many tokens, and have at most `EXACT_WIDTH`; 1: neither."""

    @property
    def needed(self) -> int | None:
        """`logits_needed`. A grammar or a bias can leave only unlikely tokens, and probabilities are shares of a sum:
        all of these need all logits."""
        needs_all = self.grammar or self.logit_bias or self.logprobs is not None
        return None if needs_all else logits_needed(self.sampling)


class TokenSequence:
    """A prompt and its answer, to which only the loop appends. A token's index is its position.

    A KV cache has a list of its own: it may contain less or more than this, and outlives the answer.
    """

    def __init__(self, prompt: Sequence[int] = (), shared: int | None = None) -> None:
        """The next turn's prompt will begin with the first ``shared`` tokens of ``prompt``, by default with all."""
        self.tokens = list(prompt)
        """To be read by index; only `append` changes it."""
        self.prompt_length = len(self.tokens)
        self.shared_length = self.prompt_length if shared is None else shared
        """Tokens of the prompt that the next turn's prompt is expected to begin with."""
        self.left_out = 0
        """In a sequence without its images: how many cells these have, all in the prompt."""
        self._text: TokenSequence | None = None
        if has_images(self.tokens):
            self._text = TokenSequence(text_of(self.tokens), len(text_of(self.tokens[: self.shared_length])))
            self._text.left_out = len(self) - len(self._text)

    @property
    def text(self) -> TokenSequence:
        """The same without images, which only the target can process: for drafters, and for penalties."""
        return self._text or self

    @property
    def has_images(self) -> bool:
        """Whether there are images in it."""
        return self._text is not None

    def __len__(self) -> int:
        return len(self.tokens)

    def append(self, token: int) -> None:
        """Add ``token`` to the answer."""
        self.tokens.append(token)
        if self._text is not None:
            self._text.append(token)


def shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences have in common at the beginning."""
    end = min(len(one), len(other))
    for start in range(0, end, _COMPARED):
        stop = min(start + _COMPARED, end)
        if one[start:stop] == other[start:stop]:  # for lists this is several times faster than token by token
            continue
        for index in range(start, stop):
            if one[index] != other[index]:
                return index
    return end
