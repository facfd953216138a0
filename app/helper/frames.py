"""Frames on a pipe: a 4-byte little-endian length followed by that many bytes. Reading and writing block."""

from __future__ import annotations

import struct
from typing import IO

MAX_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class FrameError(Exception):
    """A frame larger than the limit."""


def write(stream: IO[bytes], body: bytes) -> None:
    """Raises `FrameError` when ``body`` is too large, `OSError` when nobody reads."""
    if len(body) > MAX_BYTES:
        raise FrameError(f"a frame of {len(body)} bytes is larger than {MAX_BYTES}")
    stream.write(_LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """The next body; ``None`` at the end of the stream, also in the middle of a frame. Raises `FrameError`."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MAX_BYTES:
        raise FrameError(f"a frame of {length} bytes is larger than {MAX_BYTES}")
    body = stream.read(length)
    return body if len(body) == length else None
