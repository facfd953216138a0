"""MTP heads in llama.cpp: of a single layer, a chain of layers, or sharing the target's KV cache.

The head has a KV cache of its own. Its cell at position p comes from token p and the target's hidden state after token
p − 1, which exists only while the target processes that token. So the target's context hands over the hidden states of
every pass (`Head.read`). They wait until the head is asked to draft, so that the first token comes earlier; where too
many of them would wait, the oldest are processed in chunks.

The functions for this are C++ functions that llama.cpp exports without promising to keep them, so they are looked up by
name (``benchmarks/notes/mtp.md``).
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Floats
from app.engine.decoding.sequence import common_length
from app.engine.llama.checkpoints import WHOLE
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.protocol.options import DRAFT_OUTPUTS, MAX_DRAFT_LENGTH, WAITING_STATES_BYTES, DrafterName, LoadSettings
from app.system import Canceled, KnownError

log = logging.getLogger("slipstream.llama")

_FLOAT_BYTES = 4
HISTORY = 64
"""Hidden states that are kept although they were processed, because a verify pass may be undone."""
_REMEMBERED = 64
"""The most checkpoints of the target whose hidden states are kept."""
_MISSING = "This copy of llama.cpp can't use heads of this kind (it has no {}), so the model's head isn't used."
_NO_STATES = "llama.cpp doesn't output the hidden states of this model, so its head can't draft."
_ENDING = np.dtype([("cells", "<i8"), ("is_known", "<i8"), ("kv_bytes", "<i8")])
"""The last bytes of a copy."""


FLOATS = ctypes.POINTER(ctypes.c_float)
_CONTEXT = llama_cpp.llama_context_p_ctypes
_library: Any = llama_cpp.llama_cpp._lib


_OF_MODEL = [llama_cpp.llama_model_p_ctypes]
_FUNCTIONS: dict[str, tuple[str, str, object, list[Any]]] = {
    "llama_set_embeddings_nextn": ("bb", "X{}_N1", None, [_CONTEXT, ctypes.c_bool, ctypes.c_bool]),
    "llama_get_embeddings_nextn": ("", "PEAM{}", FLOATS, [_CONTEXT]),
    "llama_get_embeddings_nextn_ith": ("i", "PEAM{}H", FLOATS, [_CONTEXT, ctypes.c_int32]),
    "llama_set_nextn_layer_offset": ("i", "X{}H", None, [_CONTEXT, ctypes.c_int32]),
    "llama_set_embeddings_layer_inp": ("jb", "X{}I_N", None, [_CONTEXT, ctypes.c_uint32, ctypes.c_bool]),
    "llama_get_embeddings_layer_inp": ("j", "PEAM{}I", FLOATS, [_CONTEXT, ctypes.c_uint32]),
    "llama_model_target_layer_ids": ("", "PEBH{}", ctypes.POINTER(ctypes.c_int32), _OF_MODEL),
    "llama_model_target_layer_ids_n": ("", "I{}", ctypes.c_uint32, _OF_MODEL),
}
"""llama.cpp's functions for heads: how GCC and Clang spell the types of the arguments after the first, how Microsoft's
compiler spells those of the result and of all arguments; result and arguments."""
_SPELLED_CONTEXT, _SPELLED_MODEL = ("P13llama_context", "PEAUllama_context@@"), ("PK11llama_model", "PEBUllama_model@@")


def spellings(name: str) -> tuple[str, ...]:
    """The names that one of `_FUNCTIONS` may have: in C, of GCC and Clang, of Microsoft's compiler."""
    gcc, msvc, _, arguments = _FUNCTIONS[name]
    first = _SPELLED_MODEL if arguments is _OF_MODEL else _SPELLED_CONTEXT
    return name, f"_Z{len(name)}{name}{first[0]}{gcc}", f"?{name}@@YA{msvc.format(first[1])}@Z"


def found(name: str) -> Callable[..., Any]:
    """One of `_FUNCTIONS`, under the name that it has on this system. Raises `KnownError` if it is missing."""
    for one in spellings(name):
        if function := getattr(_library, one, None):
            _, _, function.restype, function.argtypes = _FUNCTIONS[name]
            return function  # type: ignore[no-any-return]
    raise KnownError(_MISSING.format(name))


def states_switch() -> Callable[[int, bool, bool], None]:
    """Of a context: whether to output hidden states, and only those of positions whose logits are asked for."""
    return found("llama_set_embeddings_nextn")


class States:
    """Hidden states after consecutive tokens. When they are full, the older half goes at once: otherwise all of them
    would be moved for each token.
    """

    def __init__(self, capacity: int, width: int) -> None:
        self._rows = np.zeros((capacity, width), np.float32)
        self._used = 0
        """How many rows have ever been written to; the others take up no memory yet."""
        self.first = self.end = 0
        """The positions of the first of these tokens, and of the one after the last."""
        self.row_bytes = width * _FLOAT_BYTES

    def append(self, position: int, rows: Floats) -> None:
        """Add those after the tokens from ``position`` on; everything before is forgotten if there is a gap."""
        if self.first <= position <= self.end:
            self.end = position
        else:
            self.first = self.end = position
        held = kept = self.end - self.first
        if held + len(rows) > len(self._rows):
            kept = min(held, len(self._rows) // 2, len(self._rows) - len(rows))
            self._rows[:kept] = self._rows[held - kept : held].copy()
            self.first = self.end - kept
        self._rows[kept : kept + len(rows)] = rows
        self._used = max(self._used, kept + len(rows))
        self.end += len(rows)

    def cut(self, end: int) -> None:
        """Forget those after the tokens from ``end`` on."""
        self.end = max(min(self.end, end), 0)
        self.first = min(self.first, self.end)

    def between(self, first: int, end: int) -> Floats:
        """Those after the tokens from ``first`` to ``end``, which must be here."""
        rows: Floats = self._rows[first - self.first : end - self.first]
        return rows

    def overwrite(self) -> None:
        """Leave nothing of them in memory."""
        self.first = self.end = 0
        self._rows[: self._used] = 0.0


class Head(Context):
    """The KV cache of an MTP head, which follows the cache of its target. Close it before its target."""

    drafter: DrafterName = "mtp"
    """Which one drafts with it."""
    longest_draft = MAX_DRAFT_LENGTH
    """The most tokens it can draft."""
    _keeps_windows = False
    _outputs = DRAFT_OUTPUTS

    def __init__(self, target: Context, model: Model, settings: LoadSettings) -> None:
        """``model`` contains the head: the target's own, or that of a file with only the head.

        Raises `KnownError` if llama.cpp can't use it, or the head belongs to another target.
        """
        self._output_states = states_switch()
        self._all_states = found("llama_get_embeddings_nextn")
        self._state_at = found("llama_get_embeddings_nextn_ith")
        self._target = target.handle
        self.model = model
        if not self._belongs(target.model):
            raise KnownError(f"The head in {model.path.name} belongs to another model.")
        super().__init__(
            model,
            settings,
            length=target.length,
            threads=target.threads,
            batch_threads=target.batch_threads,
            outputs=self._outputs,
            target=target.handle,
            keep_windows=self._keeps_windows,
        )
        width = model.state_width
        self._inputs = np.zeros((self._capacity, width), np.float32)
        self._batch.embd = self._inputs.ctypes.data_as(FLOATS)
        row = self._width_read(target.model)
        room = WAITING_STATES_BYTES // (2 * _FLOAT_BYTES * row)  # see `States`
        self._waiting = max(min(room, self.length), target.chunk)
        """How many tokens may wait to be processed."""
        self._states = States(2 * (max(self._waiting, self._capacity) + HISTORY), row)
        self._own: Floats = np.zeros(width, np.float32)
        """The head's own hidden state after its last output, from which it drafts on."""
        self._exact = 0
        """How many of its cells come from the target's hidden states, not from its own."""
        self.failure: str | None = None
        """Why it can't draft any more, for the user."""
        self._remembered: dict[int, Floats] = {}
        """Hidden states before positions at which the target has checkpoints."""
        self._switch(True)
        self._output_states(self.handle, True, True)

    def _belongs(self, target: Model) -> bool:
        return self.model.state_width == target.state_width

    def _width_read(self, target: Model) -> int:
        """How many of the target's numbers it reads for a token."""
        return target.state_width

    def _switch(self, on: bool) -> None:
        """Whether the target outputs what the head needs."""
        self._output_states(self._target, on, False)

    # ------------------------------------------------------------ drafting

    def _add(self, tokens: Sequence[int], outputs: int) -> None:
        """Where the target hasn't computed a hidden state yet, the head's own takes its place; where it is no longer
        known, zeros do."""
        if outputs and len(tokens) > 1:  # of several tokens, many architectures output the wrong hidden state
            self._add(tokens[:-1], 0)
            tokens = tokens[-1:]
        begin, end = len(self.tokens), len(self.tokens) + len(tokens)
        self._fill(self._inputs[: end - begin], begin - 1)
        super()._add(tokens, outputs)
        self._exact = min(end, self._states.end + 1)
        if outputs:
            self._keep_own()

    def _keep_own(self) -> None:
        """Its own hidden state after the last output takes the place of the target's. Raises `KnownError`."""
        self._own[:] = self._rows_at(self._state_at(self.handle, self._batch.n_tokens - 1), 1)[0]

    def _rows_at(self, pointer: Any, count: int) -> Floats:
        """Hidden states in llama.cpp's memory, shape (count, width). Raises `KnownError` if it has none."""
        if not pointer:
            raise KnownError(_NO_STATES)
        return np.ctypeslib.as_array(pointer, shape=(count, len(self._own)))

    def _fill(self, inputs: Floats, first: int) -> None:
        """Write the hidden states after the tokens from ``first`` on (−1: before any) into ``inputs``. Raises
        `KnownError` if the target has none."""
        if self.failure:
            raise KnownError(self.failure)
        states = self._states
        begin = min(max(states.first, first), first + len(inputs))
        end = min(max(states.end, begin), first + len(inputs))
        inputs[: begin - first] = 0.0
        if begin < end:
            inputs[begin - first : end - first] = self._read(states.between(begin, end))
        inputs[end - first :] = self._own if first >= 0 else 0.0

    @property
    def may_reuse_graphs(self) -> bool:
        """It processes what was accepted once more, and never two tokens at once."""
        return False

    def _read(self, states: Floats) -> Floats:
        """What the head reads of the target's ``states``."""
        return states

    # ------------------------------------------------------------ following the target

    def read(self, tokens: Sequence[int], count: int) -> None:
        """The target has just processed the last ``count`` of ``tokens``, which are all it has."""
        states, start = self._states_of_target(count), len(tokens) - count
        if states is None:
            return
        self._states.append(start, states)
        held = min(len(self.tokens), self._exact)
        if held > start:
            shared = start + common_length(np.array(self.tokens[start:held]), np.array(tokens[start:]))
            held = held if shared == len(tokens) else shared
        self.roll_back(held)
        if len(tokens) - held >= self._waiting:
            self.catch_up(tokens, len(tokens) - self._waiting + 1)

    def _states_of_target(self, count: int) -> Floats | None:
        """Those of the last pass, over ``count`` tokens; ``None`` if llama.cpp has none: then it can't draft any
        more."""
        if self.failure:
            return None
        try:
            return self._rows_at(self._all_states(self._target), count)
        except KnownError as error:
            log.warning("the head is no longer used: %s", error)
            self.failure = str(error)
            self.clear()
            return None

    def catch_up(self, tokens: Sequence[int], least: int = sys.maxsize) -> None:
        """Process what the head hasn't yet processed of the target's ``tokens``, in whole chunks: at ``least`` so many
        of them, or all."""
        if self.failure:
            return
        self.roll_back(min(len(tokens), self._exact))
        try:
            while (held := len(self.tokens)) < min(least, len(tokens)):
                self.decode(tokens[held : held + self.chunk], 0)
        except KnownError as error:
            log.info("the head has not followed its target: %s", error)
            self.clear()

    def roll_back(self, length: int) -> None:
        super().roll_back(length)
        self._exact = min(self._exact, len(self.tokens))

    def knows(self, length: int) -> bool:
        """Whether it could follow a target that goes back to ``length`` tokens."""
        return length == 0 or self._states.first < length <= self._states.end or length in self._remembered

    def follow(self, length: int, wanted: int) -> None:
        """The target has gone back to ``length`` tokens. Those up to ``wanted`` will be the same as before."""
        if length in self._remembered and not self._states.first < length <= self._states.end:
            self._states.append(length - 1, self._remembered[length][None])
        self._states.cut(wanted)
        self._remembered = {place: state for place, state in self._remembered.items() if place <= length}
        self.roll_back(min(wanted, self._exact))

    def remember_state(self, length: int) -> None:
        """The target has a checkpoint at its ``length`` tokens."""
        if length and self.knows(length) and length not in self._remembered:
            self._remembered[length] = self._states.between(length - 1, length)[0].copy()
            if len(self._remembered) > _REMEMBERED:
                del self._remembered[next(iter(self._remembered))]

    def clear(self, *, overwrite: bool = False) -> None:
        super().clear(overwrite=overwrite)
        self._exact = 0
        self._remembered.clear()
        self._states.cut(0)
        if overwrite:
            self._states.overwrite()
            self._inputs[:] = 0.0
            self._own[:] = 0.0

    # ------------------------------------------------------------ copies

    def copy_size(self) -> int:
        """Bytes of what `copy_out` writes."""
        return self._kv_size() + self._states.row_bytes + _ENDING.itemsize

    def _kv_size(self) -> int:
        return self._memory.size(WHOLE)

    def _copy_kv_out(self, into: NDArray[np.uint8]) -> bool:
        return self._memory.copy_out(into, WHOLE)

    def copy_out(self, into: NDArray[np.uint8], length: int) -> bool:
        """Write cells and hidden state that belong to the target's ``length`` tokens."""
        kv = into[: len(into) - self._states.row_bytes - _ENDING.itemsize]
        is_known = self._states.first < length <= self._states.end
        into[len(kv) : -_ENDING.itemsize] = 0
        if is_known:
            into[len(kv) : -_ENDING.itemsize] = self._states.between(length - 1, length)[0].view(np.uint8)
        into[-_ENDING.itemsize :] = np.array([(len(self.tokens), is_known, len(kv))], _ENDING).view(np.uint8)
        return self._copy_kv_out(kv)

    def copy_length(self, data: NDArray[np.uint8]) -> int:
        """How many bytes at the end of ``data`` `copy_out` has written; 0 if it can't have been."""
        least = self._states.row_bytes + _ENDING.itemsize
        if len(data) < least:
            return 0
        length = int(data[-_ENDING.itemsize :].view(_ENDING)["kv_bytes"][0]) + least
        return length if 0 < length < len(data) else 0

    def copy_back(self, data: NDArray[np.uint8], tokens: Sequence[int]) -> None:
        """Take over what `copy_out` wrote for the target's ``tokens``; the head is empty if that fails."""
        self.clear()
        if not len(data):
            self._take_over(0, data, tokens)
            return
        ending = data[-_ENDING.itemsize :].view(_ENDING)[0]
        kv = data[: int(ending["kv_bytes"])]
        self._take_over(int(ending["cells"]), kv, tokens)
        if ending["is_known"]:
            self._states.append(len(tokens) - 1, data[len(kv) : -_ENDING.itemsize].view(np.float32)[None])

    def _take_over(self, cells: int, kv: NDArray[np.uint8], tokens: Sequence[int]) -> None:
        """Make a copy of so many ``cells``, which belong to the first ``tokens``, the content of the empty cache."""
        if not cells:
            return
        if self._memory.copy_back(kv, WHOLE) and self._ends_at(cells):
            self.tokens = list(tokens[:cells])
            self._exact = cells
        else:
            self.clear()

    def _ends_at(self, cells: int) -> bool:
        """Whether the memory has those of so many tokens."""
        return self._memory.newest() == cells - 1

    def close(self) -> None:
        """Free the cache and the compute buffers. The target no longer outputs hidden states."""
        if self.handle:
            self._switch(False)
            self._batch.embd = FLOATS()  # not llama.cpp's to free
        super().close()


class HeadChain(Head):
    """Several MTP heads of a target: the first drafts the first token, the second the second one, and so on.

    Each is a layer with keys and values of its own in one KV cache, and llama.cpp computes one at a time. All of them
    process the target's tokens and hidden states. The cells of a draft are written by one head alone, so each head
    processes the whole draft again before it adds a token.
    """

    _keeps_windows = True
    """A cell has one place for all heads, which a cache that reuses what has left a window doesn't promise."""

    def __init__(self, target: Context, model: Model, settings: LoadSettings) -> None:
        self._choose = found("llama_set_nextn_layer_offset")
        super().__init__(target, model, settings)
        self.longest_draft = model.mtp_layers
        self._draft_states = np.zeros((self.longest_draft, len(self._own)), np.float32)
        """The hidden states with which the tokens of the draft are processed."""
        self._drafted = 0
        """How many tokens at the end of the cache belong to the draft."""

    def _add(self, tokens: Sequence[int], outputs: int) -> None:
        """All heads process ``tokens``, except for the last one if it has an output. That one is
        processed by the first head if it comes after the text, and otherwise by the next one.
        """
        if outputs:
            is_draft = self._drafted and len(self.tokens) > self._states.end
            if len(tokens) > 1 or not is_draft:
                self._process(tokens[:-1])
            self._draft(tokens[-1])
        else:
            self._process(tokens)

    def _process(self, tokens: Sequence[int]) -> None:
        """Let all heads process the tokens that only one has processed so far, and ``tokens``."""
        begin = len(self.tokens) - self._drafted
        tokens = [*self.tokens[begin:], *tokens]
        for head in range(self.longest_draft if tokens else 0):
            self.roll_back(begin)
            self._choose(self.handle, head)
            super()._add(tokens, 0)

    def _draft(self, token: int) -> None:
        """Process ``token`` with the head whose turn it is. After the last one, the first begins anew, because
        time is measured over more tokens.
        """
        if self._drafted == self.longest_draft:
            self._drafted = 0
        number, begin = self._drafted, len(self.tokens) - self._drafted
        tokens, states = [*self.tokens[begin:], token], self._draft_states
        if number:
            states[number] = self._own
        else:
            self._fill(states[:1], begin - 1)
        self.roll_back(begin)
        self._choose(self.handle, number)
        try:
            if number:
                self._inputs[:number] = states[:number]
                Context._add(self, tokens[:-1], 0)
            self._inputs[0] = states[number]
            Context._add(self, tokens[-1:], 1)
        except (Canceled, KnownError):
            self.roll_back(begin)
            raise
        self._drafted = number + 1
        self._keep_own()

    def roll_back(self, length: int) -> None:
        """What is left of a draft is of no use, because only one head has processed it."""
        if length < len(self.tokens):
            super().roll_back(min(length, len(self.tokens) - self._drafted))
            self._drafted = 0

    def clear(self, *, overwrite: bool = False) -> None:
        super().clear(overwrite=overwrite)
        self._drafted = 0
        if overwrite:
            self._draft_states[:] = 0.0


class SharedHead(Head):
    """A head that reads its target's KV cache and has none of its own: the assistant of a Gemma 4 model.

    llama.cpp shows its context the cells of the target's last two layers (``ctx_other``). All tokens of a draft have
    the position after the target's last token. Nothing has to be processed before it can draft: it needs the target's
    hidden state after that token. Its ``tokens`` are the target's, and those it was given to draft from.
    """

    _is_drafting = False
    """Whether the last hidden state of its own belongs to a draft after the present tokens of the target."""

    def __init__(self, target: Context, model: Model, settings: LoadSettings) -> None:
        """It processes one token at a time, and only the last hidden states are kept."""
        super().__init__(target, model, msgspec.structs.replace(settings, batch_size=1, micro_batch_size=1))
        self.chunk = target.chunk
        self._states = States(2 * HISTORY, len(self._own))

    def _add(self, tokens: Sequence[int], outputs: int) -> None:
        """Draft from the last of ``tokens``. The others have no effect: the target has not processed them either."""
        held = self._exact
        if outputs and not self._is_drafting:
            self._fill(self._inputs[:1], held - 1)
        elif outputs:
            self._inputs[0] = self._own
        self.tokens.extend(tokens)
        if not outputs:
            return
        self._batch.token[0], self._batch.pos[0], self._batch.logits[0] = tokens[-1], held, 1
        self._batch.n_tokens = 1
        code = llama_cpp.llama_decode(self.handle, self._batch)
        if code != 0:
            del self.tokens[held:]
            self._raise(code)
        self._is_drafting = True
        self._keep_own()

    def read(self, tokens: Sequence[int], count: int) -> None:
        states = self._states_of_target(count)
        if states is not None:
            last = states[-HISTORY:]
            self._states.append(len(tokens) - len(last), last)
        self._follow(tokens, len(tokens) - count)

    def _follow(self, tokens: Sequence[int], same: int) -> None:
        """The target has ``tokens``, of which the first ``same`` are those it had."""
        same = min(same, len(self.tokens))
        del self.tokens[same:]
        self.tokens.extend(tokens[same:])
        self._exact, self._is_drafting = len(tokens), False

    def catch_up(self, tokens: Sequence[int], least: int = 0) -> None:
        """Nothing is missing."""

    def roll_back(self, length: int) -> None:
        if length < len(self.tokens):
            del self.tokens[length:]
            self._is_drafting = False

    def follow(self, length: int, wanted: int) -> None:
        super().follow(length, wanted)
        self._follow(self.tokens, length)
        self.roll_back(length)
        self._exact = length

    def clear(self, *, overwrite: bool = False) -> None:
        super().clear(overwrite=overwrite)
        self._is_drafting = False

    def _erase(self, overwrite: bool) -> None:
        """The cells are the target's, which may just have been restored."""

    # ------------------------------------------------------------ copies

    def _kv_size(self) -> int:
        return 0

    def _copy_kv_out(self, into: NDArray[np.uint8]) -> bool:
        return not len(into)

    def _take_over(self, cells: int, kv: NDArray[np.uint8], tokens: Sequence[int]) -> None:  # noqa: ARG002
        self.tokens, self._exact = list(tokens), len(tokens)
