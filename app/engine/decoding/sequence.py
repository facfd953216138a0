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

# What the loop and the drafters need from a KV cache; `app.engine.llama.context.Context` implements it.

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


# Images in a sequence of tokens. Each cell that an image takes in the KV cache is a number below zero there.
#
# The numbers are made from the image's SHA-256, so that two sequences are only the same as far as their images are:
# what compares tokens, such as the caches of earlier chats, needs to know nothing about images. The first number of an
# image also says how many *positions* it takes, which may be fewer than cells: under M-RoPE the cells of an image
# share positions.

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
        """How many positions fewer than cells it takes."""
        return self.end - self.start - self.positions


def cells_of(identity: str, cells: int, positions: int) -> list[int]:
    """What stands in a sequence for an image, or a part of one, with this ``identity``. It takes so many ``cells`` and
    ``positions``.
    """
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
    """Where the part of ``tokens`` ends that can be processed together from ``start`` on: a whole image, or up to
    ``most`` tokens of text before the next one.
    """
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
    notes: Sequence[str] = ()
    """What isn't in the grammar."""
    is_valid: Callable[[str], bool | None] = lambda _: None
    """Checks a finished answer for that."""
    mark_texts: Mapping[int, bytes] = {}
    """What is shown of control tokens."""
    unit: int = 1
    """Verify passes are padded to a multiple of so many tokens, and have at most `EXACT_WIDTH`; 1: neither."""

    @property
    def needed(self) -> int | None:
        """`logits_needed`. A grammar or a bias can leave only unlikely tokens, and probabilities are shares of a sum:
        all of these need all logits."""
        needs_all = self.grammar or self.logit_bias or self.logprobs is not None
        return None if needs_all else logits_needed(self.sampling)


class TokenSequence:
    """A prompt and its answer. A token's index is its position.

    The loop appends to it; drafters and others read it. A KV cache has a list of its own: it may contain less than this
    or more, and outlives the answer.
    """

    def __init__(self, prompt: Sequence[int] = (), shared: int | None = None) -> None:
        """The answer begins after ``prompt``, of which the next turn's prompt will begin with ``shared`` tokens."""
        self.tokens = list(prompt)
        """Prompt and answer, to be read by index; only `append` changes it."""
        self.prompt_length = len(self.tokens)
        self.shared_length = self.prompt_length if shared is None else shared
        """Tokens of the prompt that the next turn's prompt is expected to begin with."""
        self.left_out = 0
        """In a sequence without its images: how many cells these have. All of them belong to the prompt."""
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

    def last(self, count: int) -> list[int]:
        """The last ``count`` tokens, or fewer if there aren't as many."""
        return self.tokens[-count:] if count else []

    def shared_with(self, other: TokenSequence) -> int:
        """How many tokens both have in common at the beginning."""
        return shared_prefix(self.tokens, other.tokens)


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
