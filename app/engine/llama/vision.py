"""Images for a model that can see them: a projector (an ``mmproj`` file) turns them into embeddings, by libmtmd.

An image becomes the text tokens that the model expects around images, and one or more *chunks*, each of which takes
some cells of the KV cache: how many follows from its size in pixels. Only what isn't in a KV cache is encoded, and the
embeddings of recent images are kept, by their SHA-256.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import mtmd_cpp

from app import words
from app.engine.decoding.sampling import Floats
from app.engine.decoding.sequence import cells_of
from app.engine.llama import backend
from app.engine.llama.checkpoints import SEQUENCE
from app.protocol.commands import Image
from app.protocol.images import HEAD_BYTES, MOST_BYTES, is_bomb, problem_of, read_head
from app.system import Canceled, KnownError

EMBEDDING_BYTES = 256 * 1024 * 1024
"""What the embeddings of recent images may take together."""
_MOST_KNOWN = 4096
"""Images whose cells are remembered."""
_OTHER_FILES = 8
"""Where else an image is looked for if its file is gone."""
_NODES_BETWEEN_CHECKS = 16
"""Encoding asks after so many steps whether to stop."""
_LARGE = ((4096, 4096), (8192, 1024), (1024, 8192))
"""Images of these sizes have the most tokens of all."""
_FLOATS = ctypes.POINTER(ctypes.c_float)


@dataclass(frozen=True, eq=False)
class _Chunk:
    """A part of an image that is encoded at once."""

    cells: list[int]
    handle: int
    """llama.cpp's, without pixels."""


@dataclass(eq=False)
class _Known:
    """An image, and what stands for it in a sequence."""

    image: Image
    tokens: list[int]
    chunks: list[_Chunk]
    handle: int
    """llama.cpp's list of chunks."""
    others: deque[Image] = field(default_factory=lambda: deque(maxlen=_OTHER_FILES))
    """The same image in other files, which may be gone."""
    embeddings: list[Floats] = field(default_factory=list)
    """For each chunk, shape (cells, width); empty if they aren't kept."""

    @property
    def size(self) -> int:
        return sum(rows.nbytes for rows in self.embeddings)


class Vision:
    """A projector in memory. Close it before its model.

    `tokens` may be called from any thread, until it is closed.
    """

    def __init__(
        self, path: Path, model: int, *, gpu: int | None, threads: int, on_progress: Callable[[float], bool]
    ) -> None:
        """Load the projector in ``path`` for ``model`` on ``gpu`` (both llama.cpp's handles), or on the CPU.

        ``on_progress`` gets the share done; if it returns False, loading stops. Raises `KnownError`, or `Canceled`.
        """
        self.path = path
        self._lock = threading.RLock()
        self._known: dict[str, _Known] = {}
        """By SHA-256, the most recently used last."""
        self._chunks: dict[tuple[int, ...], tuple[_Known, int]] = {}
        """By the first cells: the image and the number of its chunk."""
        self.should_stop: Callable[[], bool] = lambda: False
        """Asked while an image is encoded."""
        self._failure: BaseException | None = None
        self._width: int = llama_cpp.llama_model_n_embd_inp(model)
        self._callback = llama_cpp.ggml_backend_sched_eval_callback(self._on_node)
        self._nodes = 0
        mtmd_cpp.mtmd_helper_log_set(backend.on_log, ctypes.c_void_p(0))
        canceled = False

        @mtmd_cpp.mtmd_progress_callback  # type: ignore[untyped-decorator]
        def report(share: float, _data: object) -> bool:
            nonlocal canceled
            try:
                canceled = canceled or not on_progress(min(max(share, 0.0), 1.0))
            except BaseException as error:  # ctypes would print it and continue
                self._failure, canceled = error, True
            return not canceled

        params = mtmd_cpp.mtmd_context_params_default()
        params.use_gpu, params.device = gpu is not None, gpu
        params.n_threads, params.print_timings = threads, False
        params.cb_eval = self._callback
        params.progress_callback = report
        backend.errors.clear()
        self._handle: Any = mtmd_cpp.mtmd_init_from_file(os.fsencode(path), model, params)
        try:
            self._raise_failure()
            if canceled:
                raise Canceled
            if not self._handle:
                raise KnownError(f"llama.cpp can't use the projector {path.name}: {backend.reason()}")
            if not mtmd_cpp.mtmd_support_vision(self._handle):
                raise KnownError(f"{path.name} is not a projector for images.")
            self.attends_to_all = bool(mtmd_cpp.mtmd_decode_use_non_causal(self._handle, None))
            """Whether the cells of an image attend to each other, so that they have to be computed in one pass."""
            self.longest_chunk = max(self._longest_chunk(*size) for size in _LARGE)
            """The most cells that are computed at once."""
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------ tokens

    def tokens(self, image: Image) -> list[int]:
        """What stands for ``image`` in a sequence: tokens of text, and its cells.

        Nothing but the head of its file is read. Raises `KnownError` if it can't be used.
        """
        with self._lock:
            known = self._known.pop(image.sha256, None) or self._new(image)
            self._known[image.sha256] = known
            if image != known.image:  # a server's copies of it are erased with each request
                known.others.append(known.image)
                known.image = image
            return list(known.tokens)

    def _new(self, image: Image) -> _Known:
        path = Path(image.path)
        try:
            with path.open("rb") as file:
                head = read_head(file.read(HEAD_BYTES))
            size = path.stat().st_size
        except OSError as error:
            raise KnownError(f"The image {image.title} can't be read: {error.strerror or error}.") from error
        if problem := problem_of(head, image.title, size):
            raise KnownError(problem)
        assert head
        known = self._laid_out(image, head.width, head.height)
        while len(self._known) >= _MOST_KNOWN:
            self._drop(next(iter(self._known)))
        for number, chunk in enumerate(known.chunks):
            self._chunks[tuple(chunk.cells)] = (known, number)
        return known

    def _laid_out(self, image: Image, width: int, height: int) -> _Known:
        """What stands for an image of this size, whatever its pixels are."""
        bitmap = mtmd_cpp.mtmd_bitmap_init(width, height, None)
        try:
            chunks = self._split(bitmap, image.title)
        finally:
            mtmd_cpp.mtmd_bitmap_free(bitmap)
        known = _Known(image, [], [], chunks)
        for chunk in _parts(chunks):
            if mtmd_cpp.mtmd_input_chunk_get_type(chunk) == mtmd_cpp.MTMD_INPUT_CHUNK_TYPE_TEXT:
                count = ctypes.c_size_t()
                text = mtmd_cpp.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
                known.tokens += [int(token) for token in text[: count.value]]
                continue
            identity = f"{image.sha256} {len(known.chunks)}"
            positions = mtmd_cpp.mtmd_input_chunk_get_n_pos(chunk)
            cells = cells_of(identity, mtmd_cpp.mtmd_input_chunk_get_n_tokens(chunk), positions)
            known.chunks.append(_Chunk(cells, chunk))
            known.tokens += cells
        return known

    def _split(self, bitmap: int, name: str) -> int:
        """llama.cpp's list of the chunks of an image. Raises `KnownError`."""
        chunks = mtmd_cpp.mtmd_input_chunks_init()
        part = mtmd_cpp.mtmd_input_part(bitmap=bitmap)
        pointers = (ctypes.POINTER(mtmd_cpp.mtmd_input_part) * 1)(ctypes.pointer(part))
        if mtmd_cpp.mtmd_tokenize_from_parts(self._handle, chunks, pointers, 1, False) != 0:
            mtmd_cpp.mtmd_input_chunks_free(chunks)
            raise KnownError(f"This model can't use the image {name}. Choose an image of another size.")
        return int(chunks)

    def _longest_chunk(self, width: int, height: int) -> int:
        known = self._laid_out(Image(sha256="", path="an image"), width, height)
        mtmd_cpp.mtmd_input_chunks_free(known.handle)
        return max((len(chunk.cells) for chunk in known.chunks), default=0)

    # ------------------------------------------------------------ embeddings

    def decode(self, context: int, cells: Sequence[int], position: int, batch: int) -> int:
        """Add the chunk with these ``cells`` to the KV cache of ``context``, llama.cpp's handle, at ``position``, at
        most ``batch`` cells at once, after encoding its image if need be. Returns what llama_decode does. Raises
        `KnownError` if the file can't be read any more, and `Canceled`."""
        with self._lock:
            known, number = self._chunks[tuple(cells)]
        if self.attends_to_all and len(cells) > batch:
            raise KnownError(
                f"The image {known.image.title} takes {words.number(len(cells))} tokens, which this model has to "
                f"compute at once, but a batch has only {words.number(batch)}. Choose a larger batch."
            )
        rows = self._embeddings(known)[number]
        after = llama_cpp.llama_pos()
        return int(
            mtmd_cpp.mtmd_helper_decode_image_chunk(
                self._handle,
                context,
                known.chunks[number].handle,
                rows.ctypes.data_as(_FLOATS),
                position,
                SEQUENCE,
                batch,
                ctypes.byref(after),
                mtmd_cpp.mtmd_helper_post_decode_callback(),
                None,
            )
        )

    def _embeddings(self, known: _Known) -> list[Floats]:
        if known.embeddings:
            return known.embeddings
        encoded = self._encoded(known)
        with self._lock:
            known.embeddings = encoded
            others = [other for other in self._known.values() if other is not known]
            excess = known.size + sum(other.size for other in others) - EMBEDDING_BYTES
            for other in others:
                if excess > 0:
                    excess -= other.size
                    other.embeddings = []
        return encoded

    def _encoded(self, known: _Known) -> list[Floats]:
        """The embeddings of all chunks of an image, from its file."""
        name = known.image.title
        files = [known.image, *reversed(known.others)]
        data = _read(next((one for one in files if os.path.isfile(one.path)), known.image))  # noqa: PTH113
        if (head := read_head(data)) is None or is_bomb(data, head):
            raise _damaged(name)
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        bitmap = mtmd_cpp.mtmd_helper_bitmap_init_from_buf(self._handle, buffer, len(data), False)
        if not bitmap:
            raise _damaged(name)
        chunks = 0
        try:
            chunks = self._split(bitmap, name)
            parts = [
                part
                for part in _parts(chunks)
                if mtmd_cpp.mtmd_input_chunk_get_type(part) != mtmd_cpp.MTMD_INPUT_CHUNK_TYPE_TEXT
            ]
            lengths = [mtmd_cpp.mtmd_input_chunk_get_n_tokens(part) for part in parts]
            if lengths != [len(chunk.cells) for chunk in known.chunks]:
                raise _damaged(name)
            return [self._encoded_part(part, length) for part, length in zip(parts, lengths, strict=True)]
        finally:
            mtmd_cpp.mtmd_bitmap_free(bitmap)
            if chunks:
                mtmd_cpp.mtmd_input_chunks_free(chunks)

    def _encoded_part(self, chunk: int, cells: int) -> Floats:
        self._nodes = 0
        backend.errors.clear()
        code = mtmd_cpp.mtmd_encode_chunk(self._handle, chunk)
        self._raise_failure()
        if self.should_stop():
            raise Canceled
        if code != 0:
            raise KnownError(f"llama.cpp couldn't encode an image: {backend.reason()}")
        rows: Floats = np.ctypeslib.as_array(mtmd_cpp.mtmd_get_output_embd(self._handle), shape=(cells, self._width))
        return rows.copy()

    def _on_node(self, _node: object, is_question: bool, _data: object) -> bool:
        """Called before each step of encoding, whether to be called after it; False then stops it."""
        self._nodes += is_question
        try:
            if is_question:
                return self._nodes % _NODES_BETWEEN_CHECKS == 0
            return not self.should_stop()
        except BaseException as error:  # ctypes would print it and continue
            self._failure = error
            return False

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # ------------------------------------------------------------ the end

    def forget_embeddings(self) -> None:
        """Leave nothing of what images show in memory."""
        with self._lock:
            for known in self._known.values():
                for rows in known.embeddings:
                    rows[:] = 0.0
                known.embeddings = []

    def forget(self) -> None:
        """Forget all images. No sequence with one of them may be used any more."""
        with self._lock:
            self.forget_embeddings()
            for sha256 in list(self._known):
                self._drop(sha256)

    def _drop(self, sha256: str) -> None:
        known = self._known.pop(sha256)
        for chunk in known.chunks:
            self._chunks.pop(tuple(chunk.cells), None)
        mtmd_cpp.mtmd_input_chunks_free(known.handle)

    def close(self) -> None:
        """Free it."""
        if self._handle:
            self.forget()
            mtmd_cpp.mtmd_free(self._handle)
            self._handle = None


def _damaged(name: str) -> KnownError:
    return KnownError(f"The image {name} is damaged. Open it in another program and save it again.")


def _parts(chunks: int) -> list[int]:
    """llama.cpp's handles of the chunks in a list."""
    return [mtmd_cpp.mtmd_input_chunks_get(chunks, index) for index in range(mtmd_cpp.mtmd_input_chunks_size(chunks))]


def _read(image: Image) -> bytes:
    """The file of an image. Raises `KnownError` if it is no longer the same."""
    path = Path(image.path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise KnownError(f"The image {image.title} can't be read: {error.strerror or error}.") from error
    if hashlib.sha256(data).hexdigest() != image.sha256:
        raise KnownError(f"The image {image.title} has been changed or damaged. Attach it again.")
    return data
