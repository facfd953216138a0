"""GGUF headers put together byte by byte, to say what no honest writer would."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 5, 6, 7, 8, 9, 10


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def string(key: str, value: str | bytes) -> bytes:
    return pair(key, STRING, text(value))


def uint32(key: str, value: int) -> bytes:
    return pair(key, U32, struct.pack("<I", value))


def array(key: str, kind: int, count: int, payload: bytes) -> bytes:
    return pair(key, ARRAY, struct.pack("<IQ", kind, count) + payload)


def tensor(name: str, shape: Sequence[int], kind: int, offset: int) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


def header(
    pairs: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    version: int = 3,
    pair_count: int | None = None,
    tensor_count: int | None = None,
    order: str = "<",
) -> bytes:
    """A header that claims ``pair_count`` and ``tensor_count`` (honest when not given)."""
    counts = struct.pack(
        order + "IQQ",
        version,
        len(tensors) if tensor_count is None else tensor_count,
        len(pairs) if pair_count is None else pair_count,
    )
    return b"GGUF" + counts + b"".join(pairs) + b"".join(tensors)


_EXTREMES = (
    0,
    1,
    2,
    3,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def mutations(data: bytes, header_bytes: int, count: int, seed: int) -> Iterator[bytes]:
    """``count`` damaged versions of a file: flipped bytes, extreme numbers, pieces cut out, doubled or swapped."""
    rng = random.Random(seed)
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            _damage(changed, header_bytes, rng)
        yield bytes(changed)


def _damage(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    place = rng.randrange(min(header_bytes, max(1, len(data))))
    kind = rng.randrange(7)
    if kind <= 1 and place < len(data):
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 2 and place < len(data):
        data[place] = rng.randrange(256)
    elif kind == 3:
        data[place : place + 8] = struct.pack("<Q", rng.choice(_EXTREMES))
    elif kind == 4:
        data[place : place + 4] = struct.pack("<I", rng.choice(_EXTREMES) & 0xFFFFFFFF)
    elif kind == 5:
        del data[place : place + rng.choice((1, 4, 8, 100))]
    else:
        piece = data[place : place + rng.choice((1, 4, 8, 100))]
        data[place:place] = piece
