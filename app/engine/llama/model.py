"""The weights and the vocabulary of a model, in llama.cpp, and which GPU they go on."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import llama_cpp

from app.engine.llama import backend
from app.models.gguf import longest_context
from app.protocol.commands import Image
from app.protocol.options import LoadSettings, SplitMode
from app.system import Canceled, KnownError

if TYPE_CHECKING:
    from app.engine.llama.vision import Vision


_SPLIT_MODES: dict[SplitMode, int] = {
    "layer": llama_cpp.LLAMA_SPLIT_MODE_LAYER,
    "row": llama_cpp.LLAMA_SPLIT_MODE_ROW,
    "none": llama_cpp.LLAMA_SPLIT_MODE_NONE,
}
_EXPERTS = r"^blk\.({layers})\.ffn_(up|down|gate|gate_up)_(ch|)exps\."
"""The tensors of a layer's experts; shared experts (``shexp``), which every token uses, are not among them."""


class _Override(ctypes.Structure):
    """llama.cpp's ``llama_model_tensor_buft_override``, which llama-cpp-python doesn't declare."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p)]


@dataclass(frozen=True)
class Placement:
    """Where a model goes, besides how many of its layers are on a GPU. See the fields of `LoadSettings`."""

    only_gpu: str = ""
    split_mode: SplitMode = "layer"
    tensor_split: Sequence[float] = ()
    expert_layers_on_cpu: int = 0
    without_gpus: bool = False
    """llama.cpp doesn't even know of any. Otherwise it computes long batches on them, without a single layer there."""

    @classmethod
    def of_target(cls, settings: LoadSettings) -> Placement:
        only = settings.main_gpu if settings.split_mode == "none" else ""
        return cls(only, settings.split_mode, settings.tensor_split, max(settings.expert_layers_on_cpu, 0))

    @classmethod
    def of_draft(cls, settings: LoadSettings) -> Placement:
        """On its own GPU if it has one, otherwise like the target."""
        if settings.draft_device:
            return cls(settings.draft_device, "none")
        target = cls.of_target(settings)
        return cls(target.only_gpu, target.split_mode, target.tensor_split)

    def gpus(self) -> dict[str, int]:
        """llama.cpp's handles of the GPUs that get a part of the model, by name."""
        found = backend.offload_handles()
        if self.only_gpu:
            return {self.only_gpu: _handle(self.only_gpu)}
        if self.without_gpus:
            return {}
        if self.split_mode == "none":
            return dict(list(found.items())[:1])
        if any(self.tensor_split):
            return {name: found[name] for name, share in zip(found, self.tensor_split, strict=True) if share}
        return found

    def first_gpu(self) -> int | None:
        """llama.cpp's handle of the first of them, for what is not split; None if there are none."""
        return next(iter(self.gpus().values()), None)

    def apply(self, params: llama_cpp.llama_model_params) -> list[object]:
        """Set it in ``params``. What is returned must live until the model is loaded.

        Raises `KnownError` for GPUs that don't exist.
        """
        params.split_mode = _SPLIT_MODES[self.split_mode]
        kept: list[object] = []
        if self.without_gpus:
            kept.append(none := (ctypes.c_void_p * 1)(None))
            params.devices = ctypes.addressof(none)  # type: ignore[assignment]
        elif self.only_gpu:
            gpu = (ctypes.c_void_p * 2)(_handle(self.only_gpu), None)
            params.devices, params.main_gpu = ctypes.addressof(gpu), 0  # type: ignore[assignment]
            kept.append(gpu)
        elif self.tensor_split:
            shares = _shares(self.tensor_split)
            if used := [gpu for gpu, share in shares.items() if share]:
                # With the others, llama.cpp would prepare for passing batches from one to the next.
                kept.append(gpus := (ctypes.c_void_p * (len(used) + 1))(*used, None))
                params.devices = ctypes.addressof(gpus)  # type: ignore[assignment]
            kept.append(given := (ctypes.c_float * llama_cpp.llama_max_devices())(*filter(None, shares.values())))
            params.tensor_split = given
        if self.expert_layers_on_cpu:
            pattern = _EXPERTS.format(layers="|".join(map(str, range(self.expert_layers_on_cpu)))).encode()
            # The list ends with an empty entry.
            kept.append(overrides := (_Override * 2)(_Override(pattern, backend.cpu_buffer_type()), _Override()))
            params.tensor_buft_overrides = ctypes.addressof(overrides)  # type: ignore[assignment]
        return kept


WHERE_IT_FITS = Placement()
ON_THE_CPU = Placement(without_gpus=True)


def _handle(name: str) -> int:
    handles = backend.offload_handles()
    if name not in handles:
        there = f"The GPUs here are {', '.join(handles)}." if handles else "No GPU can be used here."
        raise KnownError(f"There is no GPU named {name}. {there} Choose another one for this model, or none.")
    return handles[name]


def _shares(split: Sequence[float]) -> dict[int, float]:
    """By llama.cpp's handles of the GPUs."""
    gpus = backend.offload_handles()
    if len(split) != len(gpus):
        count = {0: "no GPU", 1: "one GPU"}.get(len(gpus), f"{len(gpus)} GPUs")
        raise KnownError(
            f"The shares of {len(split)} GPUs are given for this model, but this computer has {count}. Give one share "
            "for each, or none."
        )
    return dict(zip(gpus.values(), split, strict=True))


_READ_IF_SPECIAL = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN


class _Reading:
    """``with`` block of a thread that reads the vocabulary, which isn't freed meanwhile. (No generator: a grammar reads
    150,000 tokens, one by one.)"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._count = 0
        self._is_over = False

    def __enter__(self) -> None:
        with self._lock:
            if self._is_over:
                raise KnownError("The model is no longer loaded.")
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            if self._is_over:
                self._changed.notify_all()

    def end(self) -> None:
        """Nobody begins to read from now on; returns when nobody reads any more."""
        with self._lock:
            self._is_over = True
            self._changed.wait_for(lambda: not self._count)


class Model:
    """The weights and the vocabulary of one GGUF file. Close it after its contexts.

    `tokenize`, `image` and `piece` may be called from any thread; after `close` they raise `KnownError`.
    """

    def __init__(
        self,
        path: Path,
        gpu_layers: int,
        on_progress: Callable[[float], bool],
        *,
        with_head: bool = False,
        placement: Placement = WHERE_IT_FITS,
        repacks: bool = True,
    ) -> None:
        """Load ``path`` with ``gpu_layers`` layers on the GPU (−1: all), and ``with_head`` its MTP head.

        ``repacks``: whether weights may be repacked for kernels that round differently.

        ``on_progress`` gets the share done, from 0 to 1; if it returns False, loading stops and `Canceled` is raised.
        Raises `KnownError` if llama.cpp can't load the file, or there are no GPUs for its ``placement``.
        """
        canceled = False
        failure: BaseException | None = None

        @llama_cpp.llama_progress_callback  # type: ignore[untyped-decorator]
        def report(share: float, _data: object) -> bool:
            nonlocal canceled, failure
            try:
                canceled = canceled or not on_progress(min(max(share, 0.0), 1.0))
            except BaseException as error:  # ctypes would print it and continue
                failure, canceled = error, True
            return not canceled

        self.vision: Vision | None = None
        """What it sees images with."""
        self._reading = _Reading()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.load_mtp = with_head
        params.use_extra_bufts = repacks
        _kept = placement.apply(params)
        params.progress_callback = report
        backend.errors.clear()
        self._handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        if failure is not None:
            self.close()
            raise failure
        if not self._handle:
            if canceled:
                raise Canceled
            raise KnownError(f"llama.cpp can't load {path.name}: {backend.reason()}")
        self.path = path
        self._vocab = llama_cpp.llama_model_get_vocab(self._handle)
        self.vocabulary_size: int = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.training_context: int = llama_cpp.llama_model_n_ctx_train(self._handle)
        self.parameters: int = llama_cpp.llama_model_n_params(self._handle)
        self.layers: int = llama_cpp.llama_model_n_layer(self._handle)
        self.mtp_layers: int = llama_cpp.llama_model_n_layer_nextn(self._handle)
        self.size_bytes: int = llama_cpp.llama_model_size(self._handle)
        self.window: int = llama_cpp.llama_model_n_swa(self._handle)
        """The sliding window, in tokens, of the layers that have one; 0 if all layers attend to everything."""
        self.state_width: int = llama_cpp.llama_model_n_embd_out(self._handle)
        """Numbers in a hidden state."""
        self.has_output_on_gpu = bool(gpu_layers and backend.offload_handles())
        """Whether logits are computed there: llama.cpp counts the output as the first of the layers on a GPU."""
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}

    @property
    def handle(self) -> int:
        """llama.cpp's, for what isn't done here."""
        return int(self._handle)

    def new_context(self, params: llama_cpp.llama_context_params) -> int:
        """A llama.cpp context handle for `Context`; 0 if there isn't enough memory."""
        return llama_cpp.llama_init_from_model(self._handle, params) or 0

    def load_projector(
        self, path: Path, *, gpu: int | None, threads: int, on_progress: Callable[[float], bool]
    ) -> None:
        """Let it see images. See `Vision`."""
        try:
            from app.engine.llama.vision import Vision
        except (OSError, RuntimeError) as error:
            raise KnownError("This copy of llama.cpp can't read images: its library libmtmd is missing.") from error
        self.vision = Vision(path, self._handle, gpu=gpu, threads=threads, on_progress=on_progress)

    @property
    def has_running_state(self) -> bool:
        """Recurrent and hybrid models have a state that can't be cut at a token."""
        recurrent = llama_cpp.llama_model_is_recurrent(self._handle)
        return bool(recurrent or llama_cpp.llama_model_is_hybrid(self._handle))

    @property
    def longest_context(self) -> int:
        """How many tokens it can compute at most."""
        return longest_context(self.metadata("general.architecture") or "", self.training_context)

    @property
    def has_decoder_only(self) -> bool:
        """Encoder and diffusion models can't write token after token."""
        encoder = llama_cpp.llama_model_has_encoder(self._handle)
        return not encoder and not llama_cpp.llama_model_is_diffusion(self._handle)

    def chat_template(self, name: str = "") -> str | None:
        """The chat template of this ``name`` in the file, Jinja source; without a name the default one."""
        source = llama_cpp.llama_model_chat_template(self._handle, name.encode() or None)
        return source.decode("utf-8", "replace") if source else None

    def metadata(self, key: str) -> str | None:
        """A metadata value as text, ``None`` if the file doesn't have it."""
        buffer = ctypes.create_string_buffer(4096)
        length = llama_cpp.llama_model_meta_val_str(self._handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if length >= 0 else None

    def special_text(self, which: str) -> str:
        """The text of ``bos``, ``eos`` or ``eot``; empty if the vocabulary doesn't have it."""
        token = getattr(llama_cpp, f"llama_vocab_{which}")(self._vocab)
        return self._token_text(token) if token >= 0 else ""

    def special_texts(self) -> tuple[list[str], list[str]]:
        """The texts of tokens that `tokenize` reads only with ``special`` (control and unknown), and those of
        user-defined tokens, which llama.cpp reads in any text."""
        special, user_defined = list[str](), list[str]()
        for token in range(self.vocabulary_size):
            attributes = llama_cpp.llama_vocab_get_attr(self._vocab, token)
            if attributes & _READ_IF_SPECIAL:
                special.append(self._token_text(token))
            elif attributes & llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED:
                user_defined.append(self._token_text(token))
        return [text for text in special if text], [text for text in user_defined if text]

    def _token_text(self, token: int) -> str:
        return (llama_cpp.llama_vocab_get_text(self._vocab, token) or b"").decode("utf-8", "replace")

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:
        """Token ids of ``text``. ``special`` reads control tokens from their text; ``bos`` adds the BOS token if the
        model wants one. (The EOS token that some want at the end would end the text before the answer.)
        """
        data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
        size = len(data) + 8
        while True:
            buffer = (llama_cpp.llama_token * size)()
            with self._reading:
                count = llama_cpp.llama_tokenize(self._vocab, data, len(data), buffer, size, bos, special)
                if count >= 0:
                    adds_end = bos and count and llama_cpp.llama_vocab_get_add_eos(self._vocab)
                    return list(buffer[: count - 1 if adds_end else count])
            size = -count

    def image(self, image: Image) -> list[int]:
        """What stands for an image in a sequence (`app.engine.decoding.sequence`). Raises `KnownError`."""
        with self._reading:
            if self.vision is None:
                raise KnownError(
                    "This model can't see images. Remove them from the chat, or load it with its projector."
                )
            return self.vision.tokens(image)

    def piece(self, token: int) -> bytes:
        """The bytes ``token`` adds to a text; nothing for control tokens."""
        piece = self._pieces.get(token)
        if piece is None:
            buffer = ctypes.create_string_buffer(256)
            with self._reading:
                length = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, False)
                if length < 0:
                    buffer = ctypes.create_string_buffer(-length)
                    length = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, False)
            piece = self._pieces[token] = buffer.raw[: max(length, 0)]
        return piece

    def mark(self, token: int) -> str:
        """The text of a control token or of one that a tokenizer's maker added to the vocabulary; empty for others."""
        kinds = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED
        return self._token_text(token) if llama_cpp.llama_vocab_get_attr(self._vocab, token) & kinds else ""

    def is_end(self, token: int) -> bool:
        """Whether ``token`` ends a turn or the text."""
        end = self._ends.get(token)
        if end is None:
            end = self._ends[token] = bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))
        return end

    def close(self) -> None:
        """Free the weights, as soon as nobody reads the vocabulary."""
        self._reading.end()
        if self.vision:
            self.vision.close()
            self.vision = None
        if self._handle:
            llama_cpp.llama_model_free(self._handle)
            self._handle = None
