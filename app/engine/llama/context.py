"""A KV cache for one model: adds tokens, rolls back, is copied and restored."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from app import words
from app.engine.decoding.sampling import Floats, Logits, TopLogits
from app.engine.decoding.sequence import Span, State, has_images, piece_end, spans_of
from app.engine.decoding.trees import first_chain, sequences
from app.engine.llama import backend
from app.engine.llama.backend import Kernels
from app.engine.llama.checkpoints import SEQUENCE, WHOLE, Checkpoints, Memory, lengthened
from app.engine.llama.model import Model
from app.protocol.options import LEAST_PICKED_VOCABULARY, TARGET_OUTPUTS, FlashAttention, KvType, LoadSettings
from app.system import Canceled, KnownError

_PICKED = 128
"""How many are picked: enough for usual values of top-k with penalties over the usual 64 tokens. It is always the same,
because for another number llama.cpp would plan its graphs anew.
"""
_LEAST_PART = 3
"""Rows that aren't this many times as long are copied as a whole."""


def pays(model: Model) -> bool:
    """Whether picking takes less time than copying whole rows of ``model`` and searching them."""
    is_large = model.vocabulary_size >= LEAST_PICKED_VOCABULARY
    return is_large and model.has_output_on_gpu and hasattr(llama_cpp, "llama_set_sampler")


class TopK:
    """What the passes of a context return: whole rows, or the largest logits of each. Close it after the context.

    Whole rows of 200,000 and more logits take time to be copied from the device and searched here. On the CPU,
    llama.cpp's own selection is slower than ours (``benchmarks/notes/top_k.md``).

    llama.cpp applies a sampler to every output of its sequence, and then doesn't copy whole rows. A context begins with
    one: every change allocates its buffers anew, and if that failed, the process would end.
    """

    def __init__(self, params: llama_cpp.llama_context_params, vocabulary: int, outputs: int, *, is_used: bool) -> None:
        """``params`` are of the context, which must become `handle`; it has at most ``outputs`` at once."""
        self.handle = 0
        self._shape = outputs, vocabulary
        self._is_used = is_used and vocabulary >= _LEAST_PART * _PICKED
        self._chain: Any = None
        if self._is_used:
            self._chain = chain = _sampler()
            config = llama_cpp.llama_sampler_seq_config(SEQUENCE, ctypes.cast(chain, ctypes.c_void_p))
            params.samplers, params.n_samplers = ctypes.pointer(config), 1
        self._views: dict[tuple[int, object], NDArray[Any]] = {}
        """llama.cpp's output, by address and type; its places depend on the number of outputs."""

    def use(self, count: int | None) -> bool:
        """Make the next passes pick at least ``count`` logits of each row; returns False if they give whole rows. More
        are picked, so that logits equal to the last of ``count`` are known, too."""
        is_wanted = self._is_used and count is not None and count < _PICKED
        if is_wanted != (self._chain is not None):
            self._set(_sampler() if is_wanted else None)
        return self._chain is not None

    def _set(self, chain: Any) -> None:
        if not llama_cpp.llama_set_sampler(self.handle, SEQUENCE, chain):
            llama_cpp.llama_sampler_free(chain)
            self._is_used, chain = False, None
        self.close()
        self._chain = chain

    def read(self, first: int, outputs: int) -> Logits | None:
        """The logits of the last pass, whose first output was that of token number ``first``; ``None`` if llama.cpp
        refused the sampler and gives whole rows."""
        picked = llama_cpp.llama_get_sampled_candidates_count_ith(self.handle, first)
        values = llama_cpp.llama_get_sampled_logits_ith(self.handle, first)
        if not picked:  # where the device doesn't have the operation, the sampler gives whole rows
            self._is_used = False
            return self._view(values)[:outputs] if values else None
        ids = self._view(llama_cpp.llama_get_sampled_candidates_ith(self.handle, first))[:outputs, :picked]
        return TopLogits.sorted(ids, self._view(values)[:outputs, :picked])

    def _view(self, pointer: Any) -> NDArray[Any]:
        place = ctypes.addressof(pointer.contents), type(pointer)
        view = self._views.get(place)
        if view is None:
            view = self._views[place] = np.ctypeslib.as_array(pointer, shape=self._shape)
        return view

    def close(self) -> None:
        """Free the sampler that the context had."""
        if self._chain is not None:
            llama_cpp.llama_sampler_free(self._chain)
            self._chain = None


def _sampler() -> Any:
    """A new one for each use, because llama.cpp takes a chain only once."""
    params = llama_cpp.llama_sampler_chain_default_params()
    params.no_perf = True
    chain = llama_cpp.llama_sampler_chain_init(params)
    llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_top_k(_PICKED))
    return chain


_KV_TYPES: dict[KvType, int] = {
    "f16": llama_cpp.GGML_TYPE_F16,
    "q8_0": llama_cpp.GGML_TYPE_Q8_0,
    "q4_0": llama_cpp.GGML_TYPE_Q4_0,
}
_FLASH_ATTENTION: dict[FlashAttention, int] = {
    "auto": llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_ABORTED = 2
_NO_SLOT = 1
_LEAST_CONTEXT = 256
"""llama.cpp rounds the cache up to this, but splits batches at what was requested: a verify pass has to fit in one."""


class Follower(Protocol):
    """What needs the hidden states of a context; `app.engine.llama.head.Head` implements it."""

    def read(self, tokens: Sequence[int], count: int) -> None: ...
    def catch_up(self, tokens: Sequence[int]) -> None: ...
    def knows(self, length: int) -> bool: ...
    def follow(self, length: int, wanted: int) -> None: ...
    def remember_state(self, length: int) -> None: ...
    def clear(self, *, overwrite: bool = False) -> None: ...
    def copy_size(self) -> int: ...
    def copy_length(self, data: NDArray[np.uint8]) -> int: ...
    def copy_out(self, into: NDArray[np.uint8], length: int) -> bool: ...
    def copy_back(self, data: NDArray[np.uint8], tokens: Sequence[int]) -> None: ...


class Context:
    """A KV cache for one model, always containing exactly ``tokens``: those added and not rolled back."""

    _context_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
    """Of a head's."""

    def __init__(
        self,
        model: Model,
        settings: LoadSettings,
        *,
        length: int,
        threads: int,
        batch_threads: int = 0,
        outputs: int = TARGET_OUTPUTS,
        snapshots: int = 0,
        target: int = 0,
        keep_windows: bool = False,
        same_kernels: bool = False,
        branches: int = 0,
    ) -> None:
        """``length`` tokens of cache, whatever ``settings`` say; ``outputs``: the most positions whose logits are asked
        for at once; ``batch_threads`` compute passes over several tokens, 0 for as many as ``threads``.

        ``snapshots`` of a running state are kept after each pass, if the model can. With a ``target``, llama.cpp's
        handle of its context, this is the cache of the head in ``model``. ``keep_windows``: keep what has left the
        attention windows, as with a running state. ``same_kernels``: passes over up to ``outputs`` tokens give the same
        logits whatever their width and the number of threads, if possible (`Kernels`). ``branches`` of a draft take a
        sequence each, where the memory is an ordinary KV cache.
        """
        has_running_state = model.has_running_state and not target
        keep_windows = keep_windows or has_running_state
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = max(min(length, model.longest_context), _LEAST_CONTEXT)
        at_once = model.vision.longest_chunk if model.vision and model.vision.attends_to_all else 0
        params.n_batch = min(max(settings.batch_size, at_once), params.n_ctx)
        params.n_ubatch = min(max(settings.micro_batch_size, at_once), params.n_batch)
        params.n_outputs_max = params.n_outputs_max_per_seq = outputs
        params.n_threads, params.n_threads_batch = threads, batch_threads or threads
        params.flash_attn_type = _FLASH_ATTENTION[settings.flash_attention]
        params.type_k = params.type_v = _KV_TYPES[settings.kv_type]
        params.n_rs_seq = snapshots
        # WORKAROUND for llama.cpp's src/models/cogvlm.cpp, which gives the logits of the first tokens.
        self._outputs_first = model.metadata("general.architecture") == "cogvlm"
        # Without flash attention, sums depend on which cells a branch has, and so would the text.
        is_ordinary = not (has_running_state or model.window or self._outputs_first)
        self._branches = branches if is_ordinary and settings.flash_attention != "off" else 0
        params.n_seq_max, params.kv_unified = self._branches + 1, bool(self._branches)
        params.swa_full = keep_windows  # otherwise, what is outside the windows would only take up memory
        params.no_perf = True
        if target:
            params.ctx_type, params.ctx_other = self._context_type, target
        self._top_k = TopK(params, model.vocabulary_size, outputs, is_used=pays(model) and not self._branches)
        backend.errors.clear()
        self.handle = self._top_k.handle = model.new_context(params)
        if not self.handle:
            self._top_k.close()
            raise _refused(settings, length)
        self.model = model
        self._kernels = Kernels(self.handle) if same_kernels else None
        self.longest_pass = outputs
        """The most tokens of a verify pass."""
        self.threads, self.batch_threads = threads, batch_threads or threads
        self.head: Follower | None = None
        """Reads the hidden states, and has to follow wherever this goes back to."""
        self.length: int = min(llama_cpp.llama_n_ctx(self.handle), model.longest_context)
        self.chunk: int = params.n_ubatch
        self.tokens: list[int] = []
        self._images: list[Span] = []
        """Where images are in ``tokens``."""
        self._memory = Memory(self.handle, self._position)
        self.checkpoints = Checkpoints(
            self._memory,
            running_state=has_running_state,
            window=0 if keep_windows else model.window,
            snapshots=llama_cpp.llama_n_rs_seq(self.handle),
        )
        self._batch = llama_cpp.llama_batch_init(params.n_batch, 0, self._branches + 1)
        self._capacity: int = params.n_batch
        self._views = [
            np.ctypeslib.as_array(field, shape=(params.n_batch,))
            for field in (self._batch.token, self._batch.pos, self._batch.logits)
        ]
        for i in range(params.n_batch):
            self._batch.n_seq_id[i] = 1
            self._batch.seq_id[i][0] = SEQUENCE
        self._rows: Floats = np.empty((0, 0), np.float32)
        self._rows_address = 0
        self._keeps_states = False
        self._states_at: list[int] = []
        """Where llama.cpp has the states of the last pass's outputs."""

    def keep_states(self, is_wanted: bool) -> None:
        """Whether `state` is known after the next passes over at most `longest_pass` tokens."""
        self._keeps_states, self._states_at = is_wanted, []
        llama_cpp.llama_set_embeddings(self.handle, False)

    def _ask_states(self, count: int, outputs: int) -> None:
        """llama.cpp gives either the states of all tokens in a batch of ``count`` or none, and logits with them."""
        if not self._keeps_states:
            return
        is_asked = outputs > 0 and count <= self.longest_pass
        llama_cpp.llama_set_embeddings(self.handle, is_asked)
        self._states_at = list(range(count - outputs, count)) if is_asked else []
        if is_asked:
            self._views[2][:count] = 1

    def state(self, row: int) -> Floats | None:
        """The hidden state (after the final norm) of output number ``row`` of the last pass, valid until the next;
        ``None`` if that isn't known."""
        pointer = llama_cpp.llama_get_embeddings(self.handle) if row < len(self._states_at) else None
        if not pointer:
            return None
        width, place = self.model.state_width, self._states_at[row]
        state: Floats = np.ctypeslib.as_array(pointer, shape=(place + 1, width))[place]
        return state

    def use_threads(self, threads: int, batch_threads: int) -> None:
        """Compute passes over one token, and over several, with so many from now on."""
        if (threads, batch_threads) != (self.threads, self.batch_threads):
            llama_cpp.llama_set_n_threads(self.handle, threads, batch_threads)
            self.threads, self.batch_threads = threads, batch_threads

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        """Add ``tokens`` (at most a batch); the logits of the last ``outputs`` of them, shape (outputs, vocabulary), a
        view that is valid until the next call. On any error, and if `aborting` stops it (`Canceled`), the cache is
        rolled back to what it was before, as far as possible.
        """
        if outputs:
            self._top_k.use(None)
        self._add(tokens, outputs)
        return self._logits(outputs)

    def decode_largest(self, tokens: Sequence[int], outputs: int, count: int | None) -> Logits:
        if not outputs or not self._top_k.use(count):
            return self.decode(tokens, outputs)
        self._add(tokens, outputs)
        logits = self._top_k.read(self._batch.n_tokens - outputs, outputs)
        return self._logits(outputs) if logits is None else logits

    @property
    def branches(self) -> int:
        """See `Cache.branches`."""
        return 0 if self._images or not self.checkpoints.can_cut else self._branches

    def decode_tree(self, tokens: Sequence[int], draft: Sequence[int], parents: Sequence[int]) -> Floats:
        """See `Cache.decode_tree`; errors as in `decode`. The first chain is first in the batch, so that its cells are
        in the order of their positions, as without branches: attention adds up in the order of the cells."""
        chain, members = first_chain(parents), sequences(parents)
        others = range(1, 1 + max((numbers[-1] for numbers in members), default=0))
        if len(others) > self.branches:
            raise ValueError(f"{len(others)} branches, of which {self.branches} are possible")
        order = [*chain, *sorted(set(range(len(draft))) - set(chain))]
        count, depths = len(tokens) + len(draft), list[int]()
        self._check_room(count)
        for parent in parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        first = self._position(len(self.tokens))
        rows = [(token, first + i, [0, *others]) for i, token in enumerate(tokens)]
        rows += [(draft[one], first + len(tokens) + depths[one], members[one]) for one in order]
        for i, (token, position, numbers) in enumerate(rows):
            self._batch.token[i], self._batch.pos[i], self._batch.n_seq_id[i] = token, position, len(numbers)
            self._batch.logits[i] = i >= len(tokens) - 1
            for k, number in enumerate(numbers):
                self._batch.seq_id[i][k] = number
        self._top_k.use(None)
        self._compute(count, len(draft) + 1, [*tokens, *(draft[one] for one in chain)], others)
        logits = self._logits(len(draft) + 1)
        if order == sorted(order):
            return logits
        back = [0, *(np.argsort(order) + 1)]  # where the rows after the context and after each token are
        self._states_at = [self._states_at[row] for row in back] if self._states_at else []
        return logits[back]

    def _decode_shared(self, count: int, others: Sequence[int]) -> int:
        """Compute the batch while the ``others`` sequences share everything before it; afterwards they are gone."""
        try:
            for number in others:
                self._memory.share(number)
            return int(llama_cpp.llama_decode(self.handle, self._batch))
        finally:
            for i in range(count):
                self._batch.n_seq_id[i], self._batch.seq_id[i][0] = 1, SEQUENCE
            if [number for number in others if not self._memory.drop(number)]:
                self.clear()
                raise KnownError("llama.cpp couldn't remove the branches of a draft. Load the model again.")

    def _compute(self, count: int, outputs: int, kept: Sequence[int], others: Sequence[int] = ()) -> None:
        """Compute the ``count`` tokens in the batch, of which only those ``kept`` belong to the first sequence."""
        self._batch.n_tokens = count
        self._ask_states(count, outputs)
        if self._kernels:
            self._kernels.use_reference(count <= self.longest_pass)
        code = self._decode_shared(count, others) if others else llama_cpp.llama_decode(self.handle, self._batch)
        if code != 0:
            self.checkpoints.passed(0)
            self._go_back(len(self.tokens), len(self.tokens) + count)
            self._raise(code)
        self.tokens.extend(kept)
        self.checkpoints.passed(len(kept))
        if self._follower:
            self._follower.read(self.tokens, len(kept))

    def _check_room(self, count: int) -> None:
        if count > self._capacity or len(self.tokens) + count > self.length:
            raise ValueError(f"{count} tokens do not fit after {len(self.tokens)} of {self.length}")

    def _add(self, tokens: Sequence[int], outputs: int) -> None:
        """Process ``tokens``. See `decode`."""
        if self.model.vision and has_images(tokens):
            self._add_mixed(tokens, outputs)
            return
        count = len(tokens)
        self._check_room(count)
        if 0 < outputs < count and self._outputs_first:
            self._add(tokens[:-outputs], 0)
            tokens, count = tokens[-outputs:], outputs
        ids, positions, wanted = self._views
        if count == 1:  # slices would take longer
            ids[0], wanted[0] = tokens[0], outputs
            positions[0] = self._position(len(self.tokens)) if self._images else len(self.tokens)
        else:
            ids[:count] = tokens
            begin = self._position(len(self.tokens))
            positions[:count] = range(begin, begin + count)
            wanted[: count - outputs] = 0
            wanted[count - outputs : count] = 1
        self._compute(count, outputs, tokens)

    def _add_mixed(self, tokens: Sequence[int], outputs: int) -> None:
        """Process ``tokens`` with images among them, of which the last ``outputs`` are text. See `decode`."""
        begin, done = len(self.tokens), 0
        try:
            while done < len(tokens):
                end = piece_end(tokens, done, self._capacity)
                if tokens[done] < 0:
                    self._add_image(tokens[done:end])
                else:
                    self._add(tokens[done:end], outputs if end == len(tokens) else 0)
                done = end
        except BaseException:
            self.roll_back(begin)
            raise

    def _add_image(self, cells: Sequence[int]) -> None:
        """Process a whole image, or a part that stands on its own. See `decode`."""
        vision, begin, end = self.model.vision, len(self.tokens), len(self.tokens) + len(cells)
        assert vision
        if end > self.length:
            raise ValueError(f"an image of {len(cells)} cells does not fit after {begin} of {self.length}")
        backend.errors.clear()
        code = vision.decode(self.handle, cells, self._position(begin), self.chunk)
        self.checkpoints.passed(0)  # no snapshot leads back into it
        if code != 0:
            self._go_back(begin, end)
            self._raise(code)
        self.tokens.extend(cells)
        self._images += [Span(begin, end, span.positions) for span in spans_of(cells)]
        if self.head:
            self.head.clear()

    def _position(self, length: int) -> int:
        """The position that follows the first ``length`` tokens, which end with no part of an image."""
        return length - sum(image.saved for image in self._images if image.end <= length)

    @property
    def _follower(self) -> Follower | None:
        """The head, unless there are images: it can't read them, and starts again where they are gone."""
        return None if self._images else self.head

    @staticmethod
    def _raise(code: int) -> None:
        if code == _ABORTED:
            raise Canceled
        if code == _NO_SLOT:
            raise KnownError("The context is full. Choose a longer context or start a new chat.")
        reason = f": {backend.errors[-1]}" if backend.errors else ""
        raise KnownError(f"llama.cpp couldn't compute the next tokens (code {code}{reason}). Load the model again.")

    def _logits(self, outputs: int) -> Floats:
        if outputs == 0:
            return self._rows[:0]
        pointer = llama_cpp.llama_get_logits(self.handle)
        address = ctypes.addressof(pointer.contents)
        first = self._states_at[0] if self._states_at else 0
        if address != self._rows_address or first + outputs > len(self._rows):
            self._rows = np.ctypeslib.as_array(pointer, shape=(first + outputs, self.model.vocabulary_size))
            self._rows_address = address
        return self._rows[first : first + outputs]

    def roll_back(self, length: int) -> None:
        if length < len(self.tokens):
            self._go_back(length, len(self.tokens))

    def _go_back(self, length: int, held: int) -> None:
        had_images = bool(self._images)
        del self.tokens[self.checkpoints.go_back(self._continuable(length), held) :]
        self._images = [image for image in self._images if image.end <= len(self.tokens)]
        if self.head and not had_images:
            self.head.follow(len(self.tokens), length)

    def _continuable(self, length: int) -> int:
        """``length``, or less: where the image begins that would be cut there; and one less if the last token has to be
        processed again because a head needs its hidden state."""
        length = next((image.start for image in self._images if image.start < length < image.end), length)
        if not self.head or any(image.end <= length for image in self._images) or self.head.knows(length):
            return length
        return length - 1

    def hold(self, count: int) -> None:
        self.checkpoints.hold(len(self.tokens), count)

    def remember(self) -> None:
        self.checkpoints.remember(len(self.tokens))
        if self._follower and self.checkpoints.remembers(len(self.tokens)):
            self._follower.remember_state(len(self.tokens))

    def clear(self, *, overwrite: bool = False) -> None:
        """Forget everything. Without ``overwrite``, which takes longer, the content can still be found in memory."""
        self.checkpoints.forget()
        self._erase(overwrite)
        self.tokens.clear()
        self._images.clear()
        if self.head:
            self.head.clear(overwrite=overwrite)
        if overwrite:
            self._views[0][:] = 0
            if self.model.vision:
                self.model.vision.forget_embeddings()

    def _erase(self, overwrite: bool) -> None:
        self._memory.erase(overwrite)

    def reach(self, length: int) -> int:
        """How many tokens `roll_back` to ``length`` would leave, if nothing fails."""
        held = len(self.tokens)
        return self.checkpoints.reach(self._continuable(length), held) if length < held else held

    def state_size(self) -> int:
        """The size in bytes of the `State` that `save` would return."""
        return self._memory.size(WHOLE) + (self.head.copy_size() if self.head else 0)

    def save(self) -> State:
        """A copy of the content, which ends with that of the head, if there is one.

        Raises `KnownError` if llama.cpp can't copy it, `MemoryError` if there is no memory for it.
        """
        if self._follower:
            self._follower.catch_up(self.tokens)
        data = np.empty(self.state_size(), np.uint8)
        own = len(data) - (self.head.copy_size() if self.head else 0)
        is_copied = self._memory.copy_out(data[:own], WHOLE)
        if self.head:
            is_copied = is_copied and self.head.copy_out(data[own:], len(self.tokens))
        if not is_copied:
            raise KnownError("llama.cpp couldn't copy its KV cache.")
        return State(np.array(self.tokens, np.int32), data, self.checkpoints.least_of_copy(len(self.tokens)))

    def restore(self, state: State) -> bool:
        """Replace the content with ``state``. Returns False, with the cache empty, if that fails."""
        own = len(state.data) - (self.head.copy_length(state.data) if self.head else 0)
        self._images = spans_of(state.tokens)
        newest = self._position(len(state.tokens)) - 1
        if not self._memory.copy_back(state.data[:own], WHOLE) or self._memory.newest() != newest:
            self.clear()
            return False
        self.checkpoints.forget()
        self.tokens = state.tokens.tolist()
        if self.head:
            self.head.copy_back(state.data[own:], self.tokens)
        return True

    def lengthen(self, length: int) -> bool:
        """Make the memory, which has one token, look as if it had ``length`` of them, all at its position, until
        everything is rolled back. Returns False, with the cache empty, if that isn't possible."""
        state = np.empty(self._memory.size(WHOLE), np.uint8)
        if len(self.tokens) == 1 and self._memory.copy_out(state, WHOLE):
            longer = lengthened(state, length)
            if longer is not None and self._memory.copy_back(longer, WHOLE) and self._memory.newest() == 0:
                return True
        self.clear()
        return False

    @property
    def may_reuse_graphs(self) -> bool:
        return self.model.has_output_on_gpu and self.checkpoints.any_length

    def graphs_reused(self) -> int:
        return int(llama_cpp.llama_perf_context(self.handle).n_reused)

    @contextlib.contextmanager
    def aborting(self, is_canceled: Callable[[], bool]) -> Iterator[None]:
        """``with`` block in which a running `decode` ends early (CPU backend) if ``is_canceled`` returns true. For
        prompts only: the check is a call into Python for each node of the graph."""
        failure: BaseException | None = None

        def check(_data: object) -> bool:
            nonlocal failure
            try:
                return failure is not None or is_canceled()
            except BaseException as error:  # ctypes would print it and continue
                failure = error
                return True

        callback = llama_cpp.ggml_abort_callback(check)  # has to live as long as llama.cpp may call it
        llama_cpp.llama_set_abort_callback(self.handle, callback, None)
        vision = self.model.vision
        if vision:
            vision.should_stop = is_canceled
        try:
            yield
        finally:
            if vision:
                vision.should_stop = lambda: False
            llama_cpp.llama_set_abort_callback(self.handle, llama_cpp.ggml_abort_callback(), None)
            if failure is not None:
                raise failure

    def close(self) -> None:
        """Free the cache and the compute buffers."""
        if self.handle:
            self.head = None
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self.handle)
            self._top_k.close()
            self.handle = 0


def _refused(settings: LoadSettings, length: int) -> KnownError:
    """Why llama.cpp made no context of ``length`` tokens."""
    reason = f" ({backend.reason()})" if backend.errors else ""
    if any("cache type" in line or "V cache" in line for line in backend.errors):
        return KnownError(f"This model can't have a KV cache of type {settings.kv_type}{reason}. Choose f16.")
    return KnownError(
        f"There isn't enough memory for a context of {words.number(length)} tokens{reason}. Choose a shorter context."
    )
