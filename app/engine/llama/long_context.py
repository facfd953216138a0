"""Rewrites a copy of llama.cpp's memory that contains one token as one of many tokens, to try which passes give the
same logits behind a long context (`app.engine.host.exactness`).

Decoding that many takes a minute on a CPU; restoring such a copy takes a fraction of a second. A copy with an
unexpected layout is left alone.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_HEADER = 8
"""Bytes before the memory: a magic number and flags."""
_MATRIX = 12
"""Bytes before a layer's matrix: its type and the size of its contents."""
_EXTENSIONS = (0, 8, 12)
"""Extra bytes of a cell where positions have several dimensions."""
_MOST_LAYERS, _MOST_ROW = 4096, 1 << 24
_MOST_BYTES = 2 << 30
"""The status of a copy: if it is uncertain, the copy isn't used."""


class _OtherLayoutError(Exception):
    """The copy doesn't have the expected layout, or its memory has no cells for tokens, or cells that are too large."""


def lengthened(state: Bytes, count: int) -> Bytes | None:
    """``state``, which has one token, with ``count`` copies of it at the same position; ``None`` if the layout is
    unknown. Running states and sliding windows, which come after the ordinary memory, stay as they are.
    """
    for extension in _EXTENSIONS:
        try:
            return _lengthened(state.tobytes(), count, extension)
        except (_OtherLayoutError, struct.error, MemoryError):
            continue
    return None


def _lengthened(state: bytes, count: int, extension: int) -> Bytes:
    streams, cells, place, sequences = struct.unpack_from("<IIiI", state, _HEADER)
    if (streams, cells, place, sequences) != (1, 1, 0, 1):
        raise _OtherLayoutError
    first = _HEADER + 8
    at = first + 12 + extension
    transposed, layers = struct.unpack_from("<II", state, at)
    if transposed > 1 or not 0 < layers <= _MOST_LAYERS:
        raise _OtherLayoutError
    parts = [state[: _HEADER + 4], struct.pack("<I", count), state[first:at] * count, state[at : at + 8]]
    at += 8
    for is_transposed in (False, bool(transposed)):  # the keys of all layers, then the values
        for _ in range(layers):
            row, element = _row(state, at, is_transposed)
            if row * count * layers > _MOST_BYTES:
                raise _OtherLayoutError
            each = np.frombuffer(state[at + _MATRIX : at + _MATRIX + row], np.uint8).reshape(-1, element)
            parts += [state[at : at + _MATRIX], np.repeat(each, count, axis=0).tobytes()]
            at += _MATRIX + row
    if at > len(state):
        raise _OtherLayoutError
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
        raise _OtherLayoutError
    return int(row), int(element)
