"""Takes back what a model's memory took in, as far as its kind allows; and tries out whether that is true.

| memory | can go back to |
|---|---|
| ordinary KV cache | any length |
| KV cache with sliding windows | a length whose window is still there, or a mark |
| running state (recurrent and hybrid models) | a mark, or as far as llama.cpp keeps snapshots of the last pass |

A *mark* is a copy of what a memory cannot be cut back to: the running state, or the windows. llama.cpp's own snapshots
(``n_rs_seq``) are written by the last pass only, one for each of its tokens: behind them llama.cpp reports success and
leaves another state, and a second roll-back before the next pass fails. Both are kept from happening here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.kv_cache import Cache
from app.engine.decoding.sampling import Floats
from app.errors import KnownError
from app.protocol.limits import MAX_DRAFT_LENGTH

log = logging.getLogger("slipstream.rolling_back")

Bytes = NDArray[np.uint8]

_KEPT_BYTES = 512 * 1024 * 1024
"""What the marks at the ends of prompts may take together."""
_LARGEST_ERROR = 0.03
"""Of logits after a roll-back: mean squared difference to those without one ÷ their variance. What passes of different
widths round differently makes 1e-6 (F16) to 4e-3 (4-bit KV cache) of it in random models, a wrong state 0.1 to 2."""


class Tried(msgspec.Struct, frozen=True):
    """What works with a memory, as it was tried out."""

    longest_draft: int
    """How many guesses can be taken back; 0: none."""
    snapshots: int
    marks: bool
    cuts: bool


class Memory(Protocol):
    """What llama.cpp offers; `app.engine.llama.context.Context` has it."""

    def cut(self, length: int) -> bool:
        """Forget all but the first ``length`` tokens; False where that does not work."""

    def oldest(self) -> int:
        """The first position that is still in the sliding windows, −1 when there is none."""

    def mark_size(self) -> int:
        """Bytes of a mark."""

    def read_mark(self, into: Bytes) -> bool:
        """Copy out what a mark needs."""

    def write_mark(self, mark: Bytes) -> bool:
        """Put a mark back."""

    def erase(self) -> None:
        """Forget everything."""


@dataclass(frozen=True)
class _Mark:
    length: int
    data: Bytes


class RollBack:
    """Knows how far one memory can go back, and goes there."""

    def __init__(self, memory: Memory, *, running_state: bool, window: int, snapshots: int) -> None:
        """``window``: tokens of the sliding windows, 0 without; ``snapshots``: what llama.cpp keeps of a pass."""
        self._memory = memory
        self.running_state = running_state
        self.window = window
        self.snapshots = snapshots
        self.cuts = self.marks = True
        """Whether it is trusted to cut and to put marks back; without either it forgets everything instead."""
        self._pass_width = 0
        self._held: _Mark | None = None
        self._kept: list[_Mark] = []

    @property
    def any_length(self) -> bool:
        """Whether the memory is an ordinary KV cache."""
        return not self.running_state and not self.window

    def use(self, tried: Tried) -> None:
        """Go back only in ways that work."""
        self.snapshots, self.marks, self.cuts = tried.snapshots, tried.marks, tried.cuts

    def passed(self, width: int) -> None:
        """A pass took in ``width`` tokens."""
        self._pass_width = width

    def to(self, length: int, held: int) -> int:
        """Go back from ``held`` tokens to ``length``, or to the nearest length before that; returns which."""
        self._held = self._held if self._held and self._held.length <= length else None
        self._kept = [mark for mark in self._kept if mark.length <= length]
        can_cut = self._can_cut(length, held)
        self._pass_width = 0
        if can_cut and self._memory.cut(length):
            return length
        for mark in sorted(self._all_marks(), key=lambda mark: -mark.length):
            if self._memory.write_mark(mark.data) and self._memory.cut(mark.length):
                return mark.length
        self.forget()
        self._memory.erase()
        return 0

    def reach(self, length: int, held: int) -> int:
        """What `to` would return, if nothing fails."""
        if self._can_cut(length, held):
            return length
        return max((mark.length for mark in self._all_marks() if mark.length <= length), default=0)

    def least_of_copy(self, held: int) -> int:
        """The fewest tokens, other than none, that a whole copy of the memory can be cut to once it is put back."""
        return held if self.running_state or held > self.window > 0 else 0

    def _can_cut(self, length: int, held: int) -> bool:
        if length == 0 or not self.cuts:
            return length == 0
        if self.running_state:
            return held - length <= min(self.snapshots, self._pass_width - 1)
        if not self.window:
            return True
        return 0 <= self._memory.oldest() <= max(length - self.window + 1, 0)

    def mark_size(self) -> int:
        """Bytes of a mark as the memory is now."""
        return self._memory.mark_size()

    def hold(self, length: int, count: int) -> None:
        """Be ready to come back to ``length`` tokens, or a little more: ``count`` guesses are about to follow."""
        if not self.running_state or count <= self.snapshots or not self._is_new(length):
            return
        data = self._held.data if self._held else np.empty(0, np.uint8)
        self._held = self._mark(length, data)

    def remembers(self, length: int) -> bool:
        """Whether `remember` would do anything at ``length`` tokens."""
        return self.running_state or 0 < self.window < length

    def remember(self, length: int) -> None:
        """Be ready to come back to ``length`` tokens later, as far as there is memory for it."""
        if not self.remembers(length) or not self._is_new(length):
            return
        if not self.running_state and self._memory.oldest() <= 0:  # nothing is lost yet, or it is no window after all
            return
        if self.mark_size() > _KEPT_BYTES:
            return
        mark = self._mark(length, np.empty(0, np.uint8))
        if mark:
            self._kept.append(mark)
        while sum(mark.data.nbytes for mark in self._kept) > _KEPT_BYTES:
            del self._kept[0]

    def forget(self) -> None:
        """The memory holds something else now: no mark is of it."""
        self._held, self._pass_width = None, 0
        self._kept.clear()

    def _all_marks(self) -> list[_Mark]:
        return [*self._kept, self._held] if self._held else self._kept

    def _is_new(self, length: int) -> bool:
        return self.marks and length > 0 and all(mark.length != length for mark in self._all_marks())

    def _mark(self, length: int, data: Bytes) -> _Mark | None:
        size = self.mark_size()
        if size == 0:  # llama.cpp could not tell; reading and writing nothing would count as success
            return None
        try:
            data = data if data.nbytes == size else np.empty(size, np.uint8)
        except MemoryError:
            return None
        return _Mark(length, data) if self._memory.read_mark(data) else None


# ---------------------------------------------------------------- trying it out


class TestedCache(Cache, Protocol):
    """A cache whose ways of going back can be switched off."""

    @property
    def rolling_back(self) -> RollBack:
        """How it goes back."""


def try_out(cache: TestedCache, vocabulary: int) -> Tried:
    """How the memory behind ``cache`` can go back, tried out in a few passes.

    llama.cpp reports success for roll-backs that leave another state, so logits after them are compared with those of
    a memory that never saw what was taken back. The cache is empty afterwards; what does not work is switched off.
    """
    back = cache.rolling_back
    right, wrong = ([place * step % vocabulary for place in range(1, 11)] for step in (7, 11))
    expected = [cache.decode(part, 1)[0].copy() for part in (right[:8], right[8:])]
    cache.roll_back(0)
    if back.running_state:
        longest = _try_snapshots_and_marks(cache, right, wrong, expected)
    else:
        cache.decode(right[:4], 0)
        back.cuts = back.marks = _comes_back(cache, right[4:8], wrong, expected[0])
        longest = MAX_DRAFT_LENGTH if back.cuts else 0
    cache.roll_back(0)
    return Tried(longest, back.snapshots, back.marks, back.cuts)


def _try_snapshots_and_marks(
    cache: TestedCache, right: Sequence[int], wrong: Sequence[int], expected: Sequence[Floats]
) -> int:
    back, known = cache.rolling_back, 8
    if back.snapshots:
        cache.decode(right[:4], 0)
        if not _comes_back(cache, right[4:8], wrong, expected[0]):
            log.info("the snapshots of the running state do not work")
            back.snapshots = 0
            cache.roll_back(0)
    if len(cache.tokens) < known:
        cache.decode(right[len(cache.tokens) : known], 0)
    snapshots, back.snapshots = back.snapshots, 0
    back.marks = _comes_back(cache, right[known:], wrong, expected[1])
    back.snapshots = snapshots
    return MAX_DRAFT_LENGTH if back.marks else snapshots


def _comes_back(cache: Cache, right: Sequence[int], wrong: Sequence[int], expected: Floats) -> bool:
    """Whether the last logits of ``right`` are as ``expected`` after guesses behind its first half were taken back."""
    half, begun = len(right) // 2, len(cache.tokens)
    context = [*cache.tokens, *right]
    cache.hold(2)
    cache.decode([*right[:half], *wrong[:2]], 0)
    cache.roll_back(begun + half)
    is_near = len(cache.tokens) >= begun
    try:
        logits = cache.decode(context[len(cache.tokens) :], 1)[0]
    except KnownError as error:  # llama.cpp notices some of it by itself
        log.info("a pass after a roll-back failed: %s", error)
        return False
    return is_near and _error(logits, expected) <= _LARGEST_ERROR


def _error(logits: Floats, expected: Floats) -> float:
    """Mean squared difference ÷ variance; infinite for logits that are none."""
    variance = float(np.var(expected, dtype=np.float64))
    error = float(np.mean(np.square(logits - expected, dtype=np.float64)))
    return error / variance if np.isfinite(error) and variance > 0.0 else float("inf")
