"""Medusa heads in a safetensors file: the length of a JSON header, the header, and the values of all tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
from numpy.typing import NDArray

from app import system
from app.engine.drafters.medusa import MedusaHeads
from app.engine.llama.context import Context
from app.system import KnownError
from app.words import printable

_FILE, _TIMES = "medusa_lm_head.safetensors", 4
"""The published name, and how many times the size of a file its heads take while they are read (F16 as F32, twice)."""
_LENGTH_BYTES, _MOST_HEADER_BYTES = 8, 16 * 1024 * 1024
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
"""NumPy's names; BF16 is the upper half of F32."""


class _Tensor(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def medusa_heads(path: Path, target: Context) -> MedusaHeads:
    """The heads in a file or a published folder, for ``target``, whose cache is empty afterwards. Raises `KnownError`
    if they can't be used."""
    file = path / _FILE if path.is_dir() else path
    if file.suffix in (".pt", ".bin"):
        raise KnownError(f"{printable(file.name)} can run code when it is read. Convert the heads to safetensors.")
    try:
        size = file.stat().st_size
    except OSError as error:
        raise KnownError(f"{printable(file.name)} couldn't be read: {error.strerror}.") from None
    if _TIMES * size > psutil.virtual_memory().available:
        raise KnownError("There isn't enough memory for these Medusa heads.")
    model = target.model
    shape = model.state_width, model.vocabulary_size
    heads = MedusaHeads.read(read_tensors(file), shape, target.state)
    target.keep_states(True)
    target.clear()
    target.decode([0], 1)
    state = target.state(0)
    target.clear()
    if state is None or not np.isfinite(state).all():
        raise KnownError("llama.cpp doesn't output the hidden states of this model, which Medusa heads need.")
    return heads


def read_tensors(path: Path) -> Mapping[str, NDArray[Any]]:
    """The tensors of a file by name, BF16 as F32. Raises `KnownError` for files that can't be read."""
    try:
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise KnownError(f"{printable(path.name)} couldn't be read: {printable(str(error))}.") from None
    length = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    head, body = data[_LENGTH_BYTES:][: min(length, _MOST_HEADER_BYTES)].tobytes(), data[_LENGTH_BYTES + length :]
    try:
        header = system.decode(head, dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        return {name: _array(system.decode(raw, _Tensor), body) for name, raw in header.items()}
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        raise KnownError(f"{printable(path.name)} is not a safetensors file, or it is damaged.") from None


def _array(tensor: _Tensor, body: NDArray[np.uint8]) -> NDArray[Any]:
    """Raises `ValueError` if the file doesn't have it."""
    begin, end = tensor.data_offsets
    kind = _TYPES.get(tensor.dtype)
    if kind is None or min(tensor.shape, default=0) < 0 or not 0 <= begin <= end <= len(body):
        raise ValueError(tensor)
    found = np.frombuffer(body[begin:end].tobytes(), kind).reshape(tensor.shape)
    return (found.astype("<u4") << 16).view("<f4") if tensor.dtype == "BF16" else found
