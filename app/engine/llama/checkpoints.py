"""The memory behind a context: takes back what it took in, as far as its kind allows, and tries out whether it does.

| memory | can go back to |
|---|---|
| ordinary KV cache | any length |
| KV cache with sliding windows | a length whose window is still there, or a checkpoint |
| running state (recurrent and hybrid models) | a checkpoint, or as far as llama.cpp keeps snapshots of the last pass |

A *checkpoint* is a copy of what can't be cut: the running state, or the windows. llama.cpp's own snapshots
(``n_rs_seq``) are written by the last pass only, one for each of its tokens: beyond them llama.cpp reports success and
leaves another state, and a second roll-back before the next pass fails. Both are prevented here.
"""

from __future__ import annotations

import ctypes
import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import llama_cpp
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Floats
from app.engine.decoding.sequence import Cache
from app.protocol.options import MAX_DRAFT_LENGTH
from app.system import KnownError

log = logging.getLogger("slipstream.checkpoints")

SEQUENCE = 0
WHOLE, CHECKPOINT = llama_cpp.LLAMA_STATE_SEQ_FLAGS_NONE, llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
"""What is copied: everything, or only what can't be cut, which is the recurrent state or the sliding windows."""
_IN_PLACE = CHECKPOINT | llama_cpp.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE
"""The same, copied to where it is, such as a GPU's memory. llama.cpp keeps only the last such copy of a sequence."""
Bytes = NDArray[np.uint8]

_MOST_BYTES = 512 * 1024 * 1024
"""What the checkpoints at the ends of prompts may take together."""
_LARGEST_ERROR = 0.03
"""For logits after a roll-back: mean squared difference to those without one ÷ their variance. In random models,
rounding causes 1e-6 (F16) to 4e-3 (4-bit KV cache), a wrong state 0.1 to 2."""


class Memory:
    """The memory of a context. Callers check what its methods return."""

    def __init__(self, context: int, position: Callable[[int], int] = int) -> None:
        """``context`` is llama.cpp's handle. ``position`` tells which position follows so many tokens: images may take
        fewer positions than cells."""
        self._context = context
        self.position = position
        self._memory = llama_cpp.llama_get_memory(context)

    def cut(self, length: int) -> bool:
        """Forget all but the first ``length`` tokens. May return True and leave another state."""
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, SEQUENCE, self.position(length), -1))

    def share(self, sequence: int) -> None:
        """Let another ``sequence`` have all cells of this one; nothing is copied."""
        llama_cpp.llama_memory_seq_cp(self._memory, SEQUENCE, sequence, -1, -1)

    def drop(self, sequence: int) -> bool:
        """Forget what only that other ``sequence`` has."""
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1))

    def oldest(self) -> int:
        """The first position that all layers have, −1 if there is none."""
        return int(llama_cpp.llama_memory_seq_pos_min(self._memory, SEQUENCE))

    def newest(self) -> int:
        """The last position that all layers have, −1 if there is none."""
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, SEQUENCE))

    def size(self, flags: int) -> int:
        """The size in system memory of a copy, in bytes."""
        return int(llama_cpp.llama_state_seq_get_size_ext(self._context, SEQUENCE, flags))

    def copy_out(self, into: Bytes, flags: int) -> bool:
        """Copy the parts that ``flags`` selects."""
        done = llama_cpp.llama_state_seq_get_data_ext(self._context, _pointer(into), len(into), SEQUENCE, flags)
        return bool(done == len(into) > 0)

    def copy_back(self, data: Bytes, flags: int) -> bool:
        """Replace the content with a copy. What comes after a `CHECKPOINT` has to be cut then."""
        done = llama_cpp.llama_state_seq_set_data_ext(self._context, _pointer(data), len(data), SEQUENCE, flags)
        return bool(done == len(data) > 0)

    def erase(self, overwrite: bool = False) -> None:
        """Forget everything, and ``overwrite`` the memory."""
        llama_cpp.llama_memory_clear(self._memory, overwrite)


def _pointer(data: Bytes) -> object:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


class RollBackSupport(msgspec.Struct, frozen=True):
    """What works with a memory, as tested. It is stored on users' disks, where two fields have older names."""

    longest_draft: int
    """How many draft tokens can be undone; 0: none."""
    snapshots: int
    can_restore: bool = msgspec.field(name="marks")
    can_cut: bool = msgspec.field(name="cuts")
    copies_in_place: bool = False


@dataclass(frozen=True)
class _Checkpoint:
    length: int
    data: Bytes
    flags: int


class Checkpoints:
    """Knows how far one memory can go back, and does it."""

    def __init__(self, memory: Memory, *, running_state: bool, window: int, snapshots: int) -> None:
        """``window``: tokens of the sliding windows, 0 without; ``snapshots``: how many llama.cpp keeps of a pass."""
        self._memory = memory
        self.running_state = running_state
        self.window = window
        self.snapshots = snapshots
        self.can_cut = self.can_restore = True
        """Whether cutting and restoring checkpoints can be trusted; without either, everything is recomputed."""
        self.copies_in_place = False
        """Whether the checkpoint before a draft stays on the GPU that has the running state. Only one can stay there:
        the others are copied to system memory."""
        self._pass_width = 0
        self._before_draft: _Checkpoint | None = None
        self._at_prompts: list[_Checkpoint] = []

    @property
    def any_length(self) -> bool:
        """Whether the memory is an ordinary KV cache."""
        return not self.running_state and not self.window

    def use(self, support: RollBackSupport) -> None:
        """Only go back in ways that work."""
        self.snapshots, self.can_restore, self.can_cut = support.snapshots, support.can_restore, support.can_cut
        self.copies_in_place = support.copies_in_place

    def passed(self, width: int) -> None:
        """A pass processed ``width`` tokens."""
        self._pass_width = width

    def go_back(self, length: int, held: int) -> int:
        """Go back from ``held`` tokens to ``length``, or to the nearest possible length before; returns that."""
        if self._before_draft and self._before_draft.length > length:
            self._before_draft = None
        self._at_prompts = [checkpoint for checkpoint in self._at_prompts if checkpoint.length <= length]
        is_cut_enough = self._is_cut_enough(length, held)
        self._pass_width = 0
        if is_cut_enough and self._memory.cut(length):
            return length
        for checkpoint in sorted(self._all(), key=lambda checkpoint: -checkpoint.length):
            if self._memory.copy_back(checkpoint.data, checkpoint.flags) and self._memory.cut(checkpoint.length):
                return checkpoint.length
        self.forget()
        self._memory.erase()
        return 0

    def reach(self, length: int, held: int) -> int:
        """What `go_back` would return, if nothing fails."""
        if self._is_cut_enough(length, held):
            return length
        return max((checkpoint.length for checkpoint in self._all() if checkpoint.length <= length), default=0)

    def least_of_copy(self, held: int) -> int:
        """The fewest tokens, other than none, that a whole copy of the memory can be cut to after it is restored."""
        return held if self.running_state or held > self.window > 0 else 0

    def _is_cut_enough(self, length: int, held: int) -> bool:
        if length == 0 or not self.can_cut:
            return length == 0
        if self.running_state:
            return held - length <= min(self.snapshots, self._pass_width - 1)
        if not self.window:
            return True
        return 0 <= self._memory.oldest() <= max(self._memory.position(length) - self.window + 1, 0)

    def size(self) -> int:
        """The size in bytes of a checkpoint of the current memory, wherever it is kept."""
        return self._memory.size(CHECKPOINT)

    def hold(self, length: int, count: int) -> None:
        """Prepare for coming back to ``length`` tokens or a few more: ``count`` draft tokens are about to follow."""
        if self.running_state and count > self.snapshots and self._is_new(length):
            flags = _IN_PLACE if self.copies_in_place else CHECKPOINT
            self._before_draft = self._made(length, flags, self._before_draft)

    def remembers(self, length: int) -> bool:
        """Whether `remember` would do anything at ``length`` tokens."""
        return self.running_state or 0 < self.window < length

    def remember(self, length: int) -> None:
        """Prepare for coming back to ``length`` tokens later, if there is memory for that."""
        if not self.remembers(length) or not self._is_new(length):
            return
        if not self.running_state and self._memory.oldest() <= 0:
            return  # nothing has been lost yet, or it isn't a window after all
        if self.size() > _MOST_BYTES:
            return
        if checkpoint := self._made(length, CHECKPOINT):
            self._at_prompts.append(checkpoint)
        while sum(checkpoint.data.nbytes for checkpoint in self._at_prompts) > _MOST_BYTES:
            del self._at_prompts[0]

    def forget(self) -> None:
        """The memory now contains something else, so no checkpoint is valid."""
        self._before_draft, self._pass_width = None, 0
        self._at_prompts.clear()

    def _all(self) -> list[_Checkpoint]:
        return [*self._at_prompts, self._before_draft] if self._before_draft else self._at_prompts

    def _is_new(self, length: int) -> bool:
        return self.can_restore and length > 0 and all(checkpoint.length != length for checkpoint in self._all())

    def _made(self, length: int, flags: int, replaced: _Checkpoint | None = None) -> _Checkpoint | None:
        """A checkpoint at ``length`` tokens, in the memory of the one it replaces if that has the same size."""
        size = self._memory.size(flags)
        if size == 0:  # llama.cpp couldn't tell; reading and writing nothing would count as success
            return None
        try:
            data = replaced.data if replaced and replaced.data.nbytes == size else np.empty(size, np.uint8)
        except MemoryError:
            return None
        return _Checkpoint(length, data, flags) if self._memory.copy_out(data, flags) else None


# ---------------------------------------------------------------- testing


def try_out(cache: Cache, back: Checkpoints, vocabulary: int) -> RollBackSupport:
    """Test, in a few passes, how the memory of ``cache`` goes ``back``.

    llama.cpp reports success for roll-backs that leave another state, so logits are compared with those of a memory
    that never processed what was undone. The cache is empty afterwards; what doesn't work is switched off.
    """
    right, wrong = ([place * step % vocabulary for place in range(1, 11)] for step in (7, 11))
    expected = [cache.decode(part, 1)[0].copy() for part in (right[:8], right[8:])]
    cache.roll_back(0)
    if back.running_state:
        longest = _try_running_state(cache, back, right, wrong, expected)
    else:
        cache.decode(right[:4], 0)
        back.can_cut = back.can_restore = _comes_back(cache, right[4:8], wrong, expected[0])
        longest = MAX_DRAFT_LENGTH if back.can_cut else 0
    cache.roll_back(0)
    return RollBackSupport(longest, back.snapshots, back.can_restore, back.can_cut, back.copies_in_place)


def _try_running_state(
    cache: Cache, back: Checkpoints, right: Sequence[int], wrong: Sequence[int], expected: Sequence[Floats]
) -> int:
    """Test llama.cpp's snapshots, then checkpoints; returns how many draft tokens can be undone."""
    known = 8
    if back.snapshots:
        cache.decode(right[:4], 0)
        if not _comes_back(cache, right[4:8], wrong, expected[0]):
            log.info("the snapshots of the running state do not work")
            back.snapshots = 0
            cache.roll_back(0)
    if len(cache.tokens) < known:
        cache.decode(right[len(cache.tokens) : known], 0)
    snapshots, back.snapshots = back.snapshots, 0
    back.can_restore = _comes_back(cache, right[known:], wrong, expected[1])
    if back.copies_in_place and not back.can_restore:
        log.info("copies of the running state that stay on the device do not work")
        back.copies_in_place, back.can_restore = False, True
        cache.roll_back(0)
        cache.decode(right[:known], 0)
        back.can_restore = _comes_back(cache, right[known:], wrong, expected[1])
    back.snapshots = snapshots
    return MAX_DRAFT_LENGTH if back.can_restore else snapshots


def _comes_back(cache: Cache, right: Sequence[int], wrong: Sequence[int], expected: Floats) -> bool:
    """Whether the last logits of ``right`` are as ``expected`` after undoing wrong tokens after its first half."""
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
    """Mean squared difference ÷ variance; infinite for logits that aren't numbers."""
    variance = float(np.var(expected, dtype=np.float64))
    error = float(np.mean(np.square(logits - expected, dtype=np.float64)))
    return error / variance if np.isfinite(error) and variance > 0.0 else float("inf")


# Rewrites a copy of llama.cpp's memory that contains one token as one of many tokens, to try which passes give the
# same logits behind a long context (`app.engine.host.pair_costs`).
#
# Decoding that many takes a minute on a CPU; restoring such a copy takes a fraction of a second. A copy with an
# unexpected layout is left alone.

_HEADER = 8
"""Bytes before the memory: a magic number and flags."""
_MATRIX = 12
"""Bytes before a layer's matrix: its type and the size of its contents."""
_EXTENSIONS = (0, 8, 12)
"""Extra bytes of a cell where positions have several dimensions."""
_MOST_LAYERS, _MOST_ROW = 4096, 1 << 24
_MOST_COPY_BYTES = 2 << 30
"""Larger copies aren't made."""


def lengthened(state: Bytes, count: int) -> Bytes | None:
    """``state``, which has one token, with ``count`` copies of it at the same position; ``None`` if the layout is
    unknown. Running states and sliding windows, which come after the ordinary memory, stay as they are.
    """
    for extension in _EXTENSIONS:
        try:
            return _lengthened(state.tobytes(), count, extension)
        except (ValueError, struct.error, MemoryError):
            continue
    return None


def _lengthened(state: bytes, count: int, extension: int) -> Bytes:
    streams, cells, place, sequences = struct.unpack_from("<IIiI", state, _HEADER)
    if (streams, cells, place, sequences) != (1, 1, 0, 1):
        raise ValueError("another layout")
    first = _HEADER + 8
    at = first + 12 + extension
    transposed, layers = struct.unpack_from("<II", state, at)
    if transposed > 1 or not 0 < layers <= _MOST_LAYERS:
        raise ValueError("another layout")
    parts = [state[: _HEADER + 4], struct.pack("<I", count), state[first:at] * count, state[at : at + 8]]
    at += 8
    for is_transposed in (False, bool(transposed)):  # the keys of all layers, then the values
        for _ in range(layers):
            row, element = _row(state, at, is_transposed)
            if row * count * layers > _MOST_COPY_BYTES:
                raise ValueError("another layout")
            each = np.frombuffer(state[at + _MATRIX : at + _MATRIX + row], np.uint8).reshape(-1, element)
            parts += [state[at : at + _MATRIX], np.repeat(each, count, axis=0).tobytes()]
            at += _MATRIX + row
    if at > len(state):
        raise ValueError("another layout")
    return np.frombuffer(b"".join([*parts, state[at:]]), np.uint8)


def _row(state: bytes, at: int, is_transposed: bool) -> tuple[int, int]:
    """Bytes per token in a layer's matrix, and how many of them stand together."""
    if is_transposed:
        _, element, width = struct.unpack_from("<iII", state, at)
        row = element * width
    else:
        _, row = struct.unpack_from("<iQ", state, at)
        element = row
    if not 0 < row <= _MOST_ROW:
        raise ValueError("another layout")
    return int(row), int(element)
