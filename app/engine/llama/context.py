"""Calls llama.cpp: models, contexts and logits behind two small classes.

Only `memory` and `devices` do as well.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

# Before libgomp and ggml are loaded. Threads of libgomp spin while they wait for each other; on a machine that does
# something else as well they then use up the very time slices they wait for. On 2 cores, beside one busy process, a
# pass takes twice as long as on an idle machine with 3,000 spins, and 14 times as long with 100,000. Idle, fewer cost
# more: 1,000 take 2 % longer than that.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
os.environ["GGML_NO_BACKTRACE"] = "1"  # or ggml forks debuggers when it aborts, which outlive this process

import llama_cpp
import numpy as np

from app.engine.decoding.kv_cache import State
from app.engine.decoding.sampling import Floats
from app.engine.llama.devices import load_backends
from app.engine.llama.long_state import lengthened
from app.engine.llama.memory import SEQUENCE, WHOLE, Memory
from app.engine.llama.rolling_back import RollBack
from app.errors import Cancelled, KnownError
from app.protocol.limits import TARGET_OUTPUTS, KvType
from app.protocol.messages import Quantization

log = logging.getLogger("slipstream.llama")

_KV_TYPES: dict[KvType, int] = {
    "f16": llama_cpp.GGML_TYPE_F16,
    "q8_0": llama_cpp.GGML_TYPE_Q8_0,
    "q4_0": llama_cpp.GGML_TYPE_Q4_0,
}
_LOG_INFO, _LOG_WARN, _LOG_ERROR = 2, 3, 4
_ABORTED = 2
_NO_SLOT = 1
_LEAST_CONTEXT = 256
"""llama.cpp rounds the cache up to this, but cuts batches to what was asked, and a verify pass has to fit into one."""
_last_errors: list[str] = []
_WHERE_AND_WHAT = re.compile(r"^(\w+: )?(error loading model: )*")
"""What llama.cpp puts before a reason: its own function and, once or twice, what it was doing."""

_LOADED_VARIANT = re.compile(r"loaded CPU backend from .*ggml-cpu-([\w.]+)\.[a-z]+$")
_variant = ""
"""Of llama.cpp's libraries for kinds of processors the one that computes; empty where there is only one."""

_QUANTIZE_BYTES = 256 * 1024 * 1024
"""Of a tensor in memory at once while it is quantized."""


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _data: object) -> None:
    if level not in (_LOG_WARN, _LOG_ERROR):
        if level == _LOG_INFO and b"loaded CPU backend" in text:
            _note_variant(text.decode("utf-8", "replace").rstrip())
        return
    line = text.decode("utf-8", "replace").rstrip()
    if level == _LOG_ERROR:
        _last_errors[:] = [*_last_errors[-4:], line]
    log.info("%s", line)  # llama.cpp warns about things that are no news to the user


def _note_variant(line: str) -> None:
    global _variant  # noqa: PLW0603 - llama.cpp says it here and nowhere else, once a process
    found = _LOADED_VARIANT.search(line)
    _variant = found[1] if found else ""


def _reason() -> str:
    """The first error since `_last_errors` was cleared: what llama.cpp says later only follows from it."""
    return _WHERE_AND_WHAT.sub("", _last_errors[0]) if _last_errors else "no reason given"


def start() -> None:
    """Prepare llama.cpp once per process, before the first model. Raises `KnownError` if it cannot compute here."""
    llama_cpp.llama_log_set(_on_log, ctypes.c_void_p(0))
    load_backends()
    llama_cpp.llama_backend_init()


def engine_name() -> str:
    """What computes, for About and reports; with the variant for this kind of processor, where `start` chose one."""
    variant = f", {_variant} variant" if _variant else ""
    return f"llama.cpp (llama-cpp-python {llama_cpp.__version__}{variant})"


def quantize(
    source: Path,
    destination: Path,
    kind: Quantization | None,
    threads: int,
    *,
    without_layers: Sequence[int] = (),
    metadata: Mapping[str, int | str] | None = None,
) -> None:
    """Write the model ``source`` again as ``destination``, its matrices as ``kind``, or as they are for ``None``.

    Of ``without_layers`` nothing is written and the layers behind them move up; ``metadata`` changes or adds values
    (texts of at most 127 bytes). Raises `KnownError` with llama.cpp's reason, and leaves nothing behind then. A disk
    that fills up is not always noticed: check what was written.
    """
    params = llama_cpp.llama_model_quantize_default_params()
    params.only_copy = kind is None
    if kind is not None:
        params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind.upper()}")
    params.nthread = threads
    params.max_buf_size = _QUANTIZE_BYTES
    if without_layers:
        params.prune_layers = (ctypes.c_int32 * (len(without_layers) + 1))(*without_layers, -1)
    if metadata:
        params.kv_overrides = _overrides(metadata)
    part = destination.with_name(f"{destination.name}.part")
    _last_errors.clear()
    try:
        if llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(part), ctypes.byref(params)) != 0:
            reason = "the disk may be full" if "iostream error" in _reason() else _reason()
            raise KnownError(f"llama.cpp could not write {source.name} again: {reason}")
        part.replace(destination)
    finally:
        part.unlink(missing_ok=True)


def _overrides(metadata: Mapping[str, int | str]) -> ctypes.Array[llama_cpp.llama_model_kv_override]:
    """``metadata`` as llama.cpp takes it: ended by an entry without a key."""
    overrides = (llama_cpp.llama_model_kv_override * (len(metadata) + 1))()
    for override, (key, value) in zip(overrides, metadata.items(), strict=False):
        override.key = key.encode()
        if isinstance(value, int):
            override.tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT
            override.value.val_i64 = value
        else:
            override.tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_STR
            override.value.val_str = value.encode()
    return overrides


class Model:
    """The weights and the vocabulary of one GGUF file. Close it after its contexts."""

    def __init__(self, path: Path, gpu_layers: int, on_progress: Callable[[float], bool]) -> None:
        """Load ``path`` with ``gpu_layers`` layers on the GPU (−1: all).

        ``on_progress`` gets the share done, 0 to 1; when it returns False the load is given up and `Cancelled` raised.
        Raises `KnownError` when llama.cpp cannot load the file.
        """
        cancelled = False
        failure: BaseException | None = None

        @llama_cpp.llama_progress_callback  # type: ignore[untyped-decorator]
        def report(share: float, _data: object) -> bool:
            nonlocal cancelled, failure
            try:
                cancelled = cancelled or not on_progress(min(max(share, 0.0), 1.0))
            except BaseException as error:  # ctypes would print it and go on
                failure, cancelled = error, True
            return not cancelled

        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.progress_callback = report
        _last_errors.clear()
        self._handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        if failure is not None:
            self.close()
            raise failure
        if not self._handle:
            if cancelled:
                raise Cancelled
            raise KnownError(f"llama.cpp cannot load {path.name}: {_reason()}")
        self.path = path
        self._vocab = llama_cpp.llama_model_get_vocab(self._handle)
        self.vocabulary_size: int = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.training_context: int = llama_cpp.llama_model_n_ctx_train(self._handle)
        self.parameters: int = llama_cpp.llama_model_n_params(self._handle)
        self.layers: int = llama_cpp.llama_model_n_layer(self._handle)
        self.size_bytes: int = llama_cpp.llama_model_size(self._handle)
        self.window: int = llama_cpp.llama_model_n_swa(self._handle)
        """Tokens of the sliding window of those layers that attend to no more; 0 where all attend to everything."""
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}

    def new_context(self, params: llama_cpp.llama_context_params) -> int:
        """A llama.cpp context handle for `Context`; 0 when there is not enough memory."""
        return llama_cpp.llama_init_from_model(self._handle, params) or 0

    @property
    def has_running_state(self) -> bool:
        """Recurrent and hybrid models keep a state that cannot be cut at a token."""
        recurrent = llama_cpp.llama_model_is_recurrent(self._handle)
        return bool(recurrent or llama_cpp.llama_model_is_hybrid(self._handle))

    @property
    def has_decoder_only(self) -> bool:
        """Encoder and diffusion models cannot write token after token."""
        encoder = llama_cpp.llama_model_has_encoder(self._handle)
        return not encoder and not llama_cpp.llama_model_is_diffusion(self._handle)

    def chat_template(self) -> str | None:
        """The default chat template of the file, Jinja source."""
        source = llama_cpp.llama_model_chat_template(self._handle, None)
        return source.decode("utf-8", "replace") if source else None

    def metadata(self, key: str) -> str | None:
        """A metadata value as text, ``None`` when the file has none."""
        buffer = ctypes.create_string_buffer(4096)
        length = llama_cpp.llama_model_meta_val_str(self._handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if length >= 0 else None

    def special_text(self, which: str) -> str:
        """The text of ``bos``, ``eos`` or ``eot``; empty when the vocabulary has none."""
        token = getattr(llama_cpp, f"llama_vocab_{which}")(self._vocab)
        return self._token_text(token) if token >= 0 else ""

    def control_texts(self) -> list[str]:
        """The texts of all control tokens, which must not be read as such inside a message."""
        ids = range(self.vocabulary_size)
        texts = (self._token_text(i) for i in ids if llama_cpp.llama_vocab_is_control(self._vocab, i))
        return [text for text in texts if text]

    def _token_text(self, token: int) -> str:
        return (llama_cpp.llama_vocab_get_text(self._vocab, token) or b"").decode("utf-8", "replace")

    @property
    def adds_bos(self) -> bool:
        """Whether texts of this model begin with its BOS token."""
        return bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:
        """Token ids of ``text``. ``special`` reads control tokens from their text; ``bos`` puts the BOS token in front
        where the model wants one. (The EOS token that some want behind it would end the text before the answer.)"""
        data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
        size = len(data) + 8
        while True:
            buffer = (llama_cpp.llama_token * size)()
            count = llama_cpp.llama_tokenize(self._vocab, data, len(data), buffer, size, bos, special)
            if count >= 0:
                adds_end = bos and count and llama_cpp.llama_vocab_get_add_eos(self._vocab)
                return list(buffer[: count - 1 if adds_end else count])
            size = -count

    def piece(self, token: int) -> bytes:
        """The bytes ``token`` adds to a text; nothing for control tokens."""
        piece = self._pieces.get(token)
        if piece is None:
            buffer = ctypes.create_string_buffer(256)
            length = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, False)
            if length < 0:
                buffer = ctypes.create_string_buffer(-length)
                length = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, False)
            piece = self._pieces[token] = buffer.raw[: max(length, 0)]
        return piece

    def is_end(self, token: int) -> bool:
        """Whether ``token`` ends a turn or the text."""
        end = self._ends.get(token)
        if end is None:
            end = self._ends[token] = bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))
        return end

    def close(self) -> None:
        """Free the weights."""
        if self._handle:
            llama_cpp.llama_model_free(self._handle)
            self._handle = None


class Context:
    """A KV cache over one model, always holding exactly ``tokens``: what is fed, less what is rolled back."""

    def __init__(
        self,
        model: Model,
        *,
        length: int,
        batch_size: int,
        micro_batch_size: int,
        threads: int,
        kv_type: KvType,
        outputs: int = TARGET_OUTPUTS,
        snapshots: int = 0,
    ) -> None:
        """``length`` tokens of cache; ``outputs`` is the largest number of positions whose logits are asked at once.

        ``snapshots`` of a running state are asked for after each pass; where the model cannot, there are none.
        """
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = max(length, _LEAST_CONTEXT)
        params.n_batch = min(batch_size, params.n_ctx)
        params.n_ubatch = min(micro_batch_size, params.n_batch)
        params.n_outputs_max = outputs
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO
        params.type_k = params.type_v = _KV_TYPES[kv_type]
        params.n_rs_seq = snapshots
        params.swa_full = model.has_running_state  # else keys and values behind the windows would be kept for nothing
        params.no_perf = True
        _last_errors.clear()
        self._handle = model.new_context(params)
        if not self._handle:
            reason = f" ({_reason()})" if _last_errors else ""
            raise KnownError(
                f"There is not enough memory for a context of {length:,} tokens{reason}. Choose a shorter context."
            )
        self.model = model
        self.length: int = llama_cpp.llama_n_ctx(self._handle)
        self.chunk: int = params.n_ubatch
        self.tokens: list[int] = []
        self._memory = Memory(self._handle)
        self.rolling_back = RollBack(
            self._memory,
            running_state=model.has_running_state,
            window=0 if model.has_running_state else model.window,
            snapshots=llama_cpp.llama_n_rs_seq(self._handle),
        )
        self._batch = llama_cpp.llama_batch_init(params.n_batch, 0, 1)
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
        self._abort: object = None

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        """Feed ``tokens`` (at most a batch) after the cached ones.

        Returns the logits of the last ``outputs`` of them, shape (outputs, vocabulary), a view that is valid until the
        next call. On any error, and when the abort check of `aborting` says stop (`Cancelled`), the cache is rolled
        back to what it was before, as far as it can be.
        """
        count = len(tokens)
        if count > self._capacity or len(self.tokens) + count > self.length:
            raise ValueError(f"{count} tokens do not fit behind {len(self.tokens)} of {self.length}")
        if count == 1:  # a draft's token, where arrays would take longer
            self._batch.token[0], self._batch.pos[0], self._batch.logits[0] = tokens[0], len(self.tokens), outputs
        else:
            ids, positions, wanted = self._views
            ids[:count] = tokens
            positions[:count] = range(len(self.tokens), len(self.tokens) + count)
            wanted[: count - outputs] = 0
            wanted[count - outputs : count] = 1
        self._batch.n_tokens = count
        code = llama_cpp.llama_decode(self._handle, self._batch)
        if code != 0:
            self.rolling_back.passed(0)
            self._go_back(len(self.tokens), len(self.tokens) + count)
            self._raise(code)
        self.tokens.extend(tokens)
        self.rolling_back.passed(count)
        return self._logits(outputs)

    @staticmethod
    def _raise(code: int) -> None:
        if code == _ABORTED:
            raise Cancelled
        if code == _NO_SLOT:
            raise KnownError("The context is full. Choose a longer context or start a new chat.")
        reason = f": {_last_errors[-1]}" if _last_errors else ""
        raise KnownError(f"llama.cpp could not compute the next tokens (code {code}{reason}). Load the model again.")

    def _logits(self, outputs: int) -> Floats:
        if outputs == 0:
            return self._rows[:0]
        pointer = llama_cpp.llama_get_logits(self._handle)
        address = ctypes.addressof(pointer.contents)
        if address != self._rows_address or outputs > len(self._rows):
            self._rows = np.ctypeslib.as_array(pointer, shape=(outputs, self.model.vocabulary_size))
            self._rows_address = address
        return self._rows[:outputs]

    def roll_back(self, length: int) -> None:
        """See `Cache.roll_back`."""
        if length < len(self.tokens):
            self._go_back(length, len(self.tokens))

    def _go_back(self, length: int, held: int) -> None:
        del self.tokens[self.rolling_back.to(length, held) :]

    def hold(self, count: int) -> None:
        """See `Cache.hold`."""
        self.rolling_back.hold(len(self.tokens), count)

    def remember(self) -> None:
        """See `Cache.remember`."""
        self.rolling_back.remember(len(self.tokens))

    def clear(self, *, overwrite: bool = False) -> None:
        """Forget everything. Without ``overwrite``, which takes longer, what it held can still be read in memory."""
        self.rolling_back.forget()
        self._memory.erase(overwrite)
        self.tokens.clear()
        if overwrite:
            self._views[0][:] = 0

    def reach(self, length: int) -> int:
        """See `SavableCache.reach`."""
        return self.rolling_back.reach(length, len(self.tokens)) if length < len(self.tokens) else len(self.tokens)

    def state_size(self) -> int:
        """See `SavableCache.state_size`."""
        return self._memory.size(WHOLE)

    def save(self) -> State:
        """See `SavableCache.save`."""
        data = np.empty(self.state_size(), np.uint8)
        if not len(data) or not self._memory.copy_out(data, WHOLE):
            raise KnownError("llama.cpp could not copy its KV cache.")
        return State(np.array(self.tokens, np.int32), data, self.rolling_back.least_of_copy(len(self.tokens)))

    def restore(self, state: State) -> bool:
        """See `SavableCache.restore`."""
        if not self._memory.copy_back(state.data, WHOLE) or self._memory.newest() != len(state.tokens) - 1:
            self.clear()
            return False
        self.rolling_back.forget()
        self.tokens = state.tokens.tolist()
        return True

    def lengthen(self, length: int) -> bool:
        """See `MeasurableCache.lengthen`. What a pass costs depends on the cells that are used and seen, not on what
        is in them: each gets the place of the one token, and zeros."""
        state = np.empty(self.state_size(), np.uint8)
        if len(self.tokens) == 1 and self._memory.copy_out(state, WHOLE):
            longer = lengthened(state, length)
            if longer is not None and self._memory.copy_back(longer, WHOLE) and self._memory.newest() == 0:
                return True
        self.clear()
        return False

    def aborting(self, should_stop: Callable[[], bool]) -> _Aborting:
        """``with`` block in which a running `decode` stops early (CPU backend) when ``should_stop`` says so.

        Only for prompt processing: the check costs a call into Python for each node of the graph.
        """
        return _Aborting(self, should_stop)

    def set_abort(self, callback: object) -> None:
        """Hand an abort callback to llama.cpp and keep it alive."""
        llama_cpp.llama_set_abort_callback(self._handle, callback, None)
        self._abort = callback

    def close(self) -> None:
        """Free the cache and the compute buffers."""
        if self._handle:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._handle)
            self._handle = 0


class _Aborting:
    def __init__(self, context: Context, should_stop: Callable[[], bool]) -> None:
        self._context = context
        self._should_stop = should_stop
        self._callback = llama_cpp.ggml_abort_callback(self._stops)
        self._failure: BaseException | None = None

    def _stops(self, _data: object) -> bool:
        try:
            return self._failure is not None or self._should_stop()
        except BaseException as error:  # ctypes would print it and go on
            self._failure = error
            return True

    def __enter__(self) -> None:
        self._context.set_abort(self._callback)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.set_abort(llama_cpp.ggml_abort_callback())
        if self._failure is not None:
            raise self._failure
