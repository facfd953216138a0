"""What belongs to a model's file: its stamp, its head, what it recommends."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from app import system
from app.engine.llama.context import Context
from app.engine.llama.eagle3 import Eagle3Head
from app.engine.llama.head import Head, HeadChain, SharedHead
from app.engine.llama.model import Model
from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.heads import (
    DRAFT_INSTEAD,
    has_head,
    head_kind,
    head_problem,
    is_assistant,
    is_head_only,
    is_wanted,
    mismatch,
    why_unwanted,
)
from app.protocol.commands import Load
from app.protocol.events import ModelInfo
from app.protocol.options import DEFAULT_DRAFT_LENGTH, MAX_CONTEXT_LENGTH, MAX_DRAFT_LENGTH, DrafterName, Sampling
from app.system import KnownError
from app.words import printable

_FINGERPRINT_BYTES, _LEAST_FINGERPRINT_BYTES = 1024 * 1024, 16 * 1024
"""How many bytes are read at each of three places of a model, shared among its parts; and the least for each part."""

Stamp = tuple[int, ...]
"""Size in bytes and modification time in nanoseconds of each file of a model."""


@dataclass(frozen=True)
class ModelFiles:
    """The file of a model, or all its parts, in the state in which the header was read."""

    header: GgufHeader
    paths: tuple[Path, ...]
    stamp: Stamp

    @classmethod
    def checked(cls, path: Path) -> ModelFiles:
        """Read the header. Raises `KnownError` for files that llama.cpp can't load, or that change in the meantime."""
        header = read_header(path)
        check_loadable(header)
        paths = header.split.files if header.split else (path,)
        files = cls(header, paths, stamp_of(paths))
        if sum(files.stamp[::2]) != header.file_size:
            raise _changed(path)
        return files

    @classmethod
    def of_projector(cls, path: Path) -> ModelFiles:
        """The same for what a model sees images with. Raises `KnownError` for a file that isn't that."""
        header = read_header(path)
        if not header.is_projector:
            raise KnownError(f"{printable(path.name)} is a model, not a projector for images (mmproj).")
        return cls(header, (path,), stamp_of((path,)))

    def check_unchanged(self) -> None:
        """Raise `KnownError` if a file was replaced or written to since `checked`."""
        if stamp_of(self.paths) != self.stamp:
            raise _changed(self.header.path)

    def fingerprint(self) -> str:
        """A digest of header, middle and end of each file. Modification times can't always be trusted, and a state of
        another model of the same shape would be accepted."""
        digest = hashlib.sha256()
        length = max(_FINGERPRINT_BYTES // len(self.paths), _LEAST_FINGERPRINT_BYTES)
        for path in self.paths:
            with _reading(path), path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                for place in (0, size // 2, max(size - length, 0)):
                    file.seek(place)
                    digest.update(file.read(length))
        return digest.hexdigest()


def stamp_of(paths: tuple[Path, ...]) -> Stamp:
    """Raises `KnownError` for files that can't be read."""
    stamp: list[int] = []
    for path in paths:
        with _reading(path):
            status = path.stat()
        stamp += (status.st_size, status.st_mtime_ns)
    return tuple(stamp)


def _changed(path: Path) -> KnownError:
    return KnownError(f"{printable(path.name)} changed while it was being loaded, so it wasn't used. Load it again.")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "it no longer exists" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise KnownError(
            f"{printable(path.name)} couldn't be read while it was being loaded: {reason}. Load it again."
        ) from None


log = logging.getLogger("slipstream.engine")


@dataclass
class TargetHead:
    """The head of a target in memory."""

    cache: Head
    model: Model | None
    """The model it is in, if it is in a file of its own."""
    file: ModelInfo | None = None
    """What the window shows about that file."""

    @property
    def drafter(self) -> DrafterName:
        return self.cache.drafter

    def close(self) -> None:
        """Free it, before its target."""
        self.cache.close()
        if self.model:
            self.model.close()


def header_of_head(command: Load, target: GgufHeader) -> GgufHeader | None:
    """The header of the file whose head ``command`` wants: the target's, or that of a file named as the draft; ``None``
    for none. Beside a draft model, the target's head is only used if it is asked for."""
    if command.draft:
        with contextlib.suppress(KnownError):  # the reason is given where it is loaded as a draft model
            header = read_header(Path(command.draft))
            if is_head_only(header):
                return header
        if command.head != "on":
            return None
    if not is_wanted(command.head, target, command.settings.target_gpu_layers):
        return None
    return target if command.head == "on" or has_head(target) else None


def why_unused(command: Load, target: GgufHeader) -> str | None:
    """Why ``command`` doesn't want the head inside ``target``, for the user; ``None`` if there is no usable one."""
    if head_problem(target) is not None:
        return None
    return DRAFT_INSTEAD if command.draft else why_unwanted(command.head, target, command.settings.target_gpu_layers)


def load_head(
    target: Context, files: tuple[GgufHeader, GgufHeader], command: Load, load_model: Callable[[Path], Model]
) -> TargetHead:
    """Load the head for ``target``, whose cache it then follows. ``files``: the headers of the target and of the file
    with the head, for which ``load_model`` is called if it is another one. Raises `KnownError` if it can't be used."""
    own, header = files
    if problem := head_problem(header) if header is own else mismatch(own, header):
        raise KnownError(problem)
    with contextlib.ExitStack() as undo:
        model = None
        if header is not own:
            check_loadable(header, as_head=True)
            _check_tokens(header)
            model = load_model(header.path)
            undo.callback(model.close)
        head = _class_of(header)(target, model or target.model, command.settings)
        undo.callback(head.close)
        head.decode_largest([0, 0], 1, 1)  # allocates the compute buffers, for each head of a chain
        head.clear()
        target.head = head
        undo.callback(setattr, target, "head", None)
        target.decode([0], 0)  # whether it gives hidden states
        target.clear()
        if head.failure:
            raise KnownError(head.failure)
        undo.pop_all()
    return TargetHead(head, model)


def _check_tokens(head: GgufHeader) -> None:
    """Raise `KnownError` for a head whose list of tokens has others than the vocabulary: llama.cpp would end the
    process when it first computes."""
    listed = next((tensor for tensor in head.tensors if tensor.name == "d2t"), None)
    if listed is None:
        return
    with _reading(head.path), head.path.open("rb") as file:
        file.seek(listed.offset)
        tokens = np.frombuffer(file.read(listed.size), np.int64)
    size = head.tokenizer.size if head.tokenizer else 0
    if head.split or len(tokens) < listed.elements or not all((tokens >= 0) & (tokens < size)):
        raise KnownError(
            f"{printable(head.path.name)} is damaged: its draft vocabulary (d2t) has tokens that its vocabulary lacks."
        )


def _class_of(head: GgufHeader) -> type[Head]:
    if head_kind(head) == "eagle3":
        return Eagle3Head
    return SharedHead if is_assistant(head) else HeadChain if head.mtp_layers > 1 else Head


_SAMPLING_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
    "penalty_window": "penalty_last_n",
}
"""Fields of `Sampling` and their names in a GGUF file, after ``general.sampling.``."""
_ALL = {"top_k": 0, "penalty_window": MAX_CONTEXT_LENGTH}
"""The meaning of llama.cpp's -1: every token of the vocabulary, the whole context."""
_MOST_RECOMMENDED = 2**31 - 1
"""llama.cpp and the window's fields use 32 bits."""


def recommended_sampling(model: Model) -> tuple[Sampling, list[str]]:
    """The sampling that the file of ``model`` recommends, and the names of the fields it specifies validly."""
    sampling, fields = Sampling(), list[str]()
    for name, key in _SAMPLING_KEYS.items():
        text = model.metadata(f"general.sampling.{key}")
        if not text:
            continue
        value: object = _ALL[name] if name in _ALL and text == "-1" else text
        try:
            changed = system.convert({**msgspec.to_builtins(sampling), name: value}, Sampling, strict=False)
        except msgspec.ValidationError as error:
            log.info("%s that %s recommends is not used: %s", name, model.path.name, error)
            continue
        if math.isfinite(number := getattr(changed, name)) and number <= _MOST_RECOMMENDED:
            sampling = changed
            fields.append(name)
    return sampling, fields


def default_draft_length(model: Model) -> int:
    """The fixed draft length that the file of ``model`` recommends."""
    value = model.metadata("slipstream.draft_length")
    if value is None or not (value.isascii() and value.isdigit()):
        return DEFAULT_DRAFT_LENGTH
    return min(max(int(value), 1), MAX_DRAFT_LENGTH)
