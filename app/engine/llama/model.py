"""The weights and the vocabulary of a model, in llama.cpp."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import llama_cpp

from app.engine.llama import backend
from app.engine.llama.placement import WHERE_IT_FITS, Placement
from app.errors import Canceled, KnownError
from app.models.architectures import longest_context
from app.protocol.commands import Image

if TYPE_CHECKING:
    from app.engine.llama.vision import Vision

_READ_IF_SPECIAL = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN


class Model:
    """The weights and the vocabulary of one GGUF file. Close it after its contexts."""

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

        ``repacks``: whether weights may be written anew, for kernels that round differently (`REPACKS` of
        `app.engine.llama.kernels`).

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
            count = llama_cpp.llama_tokenize(self._vocab, data, len(data), buffer, size, bos, special)
            if count >= 0:
                adds_end = bos and count and llama_cpp.llama_vocab_get_add_eos(self._vocab)
                return list(buffer[: count - 1 if adds_end else count])
            size = -count

    def image(self, image: Image) -> list[int]:
        """What stands for an image in a sequence (`app.engine.decoding.images`). Raises `KnownError`."""
        if self.vision is None:
            raise KnownError("This model can't see images. Remove them from the chat, or load it with its projector.")
        return self.vision.tokens(image)

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
        """Free the weights."""
        if self.vision:
            self.vision.close()
            self.vision = None
        if self._handle:
            llama_cpp.llama_model_free(self._handle)
            self._handle = None
