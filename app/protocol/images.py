"""Checks an image file by its header, before anything is decoded."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from app import words

MOST_BYTES = 64 * 1024 * 1024
MOST_PIXELS = 64_000_000
"""Once decoded, a pixel takes three bytes or more."""
HEAD_BYTES = 1024 * 1024
"""How much of a file is searched for its dimensions: a JPEG may begin with a preview."""

ImageKind = Literal["png", "jpeg", "gif", "bmp", "webp"]
READABLE: tuple[ImageKind, ...] = ("png", "jpeg", "gif", "bmp")
"""The kinds that llama.cpp decodes."""

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_PIXEL_BYTES, _PNG_ROW_BYTES = 8, 16
"""The most that a pixel takes in a PNG before compression, and the overhead of a row in an interlaced one."""
_STEP = 1024 * 1024
_JPEG_SIZES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""Markers of JPEG segments with dimensions."""
_JPEG_BARE = {0x01, *range(0xD0, 0xD9)}
"""Markers without a segment."""


@dataclass(frozen=True)
class ImageHead:
    """The format of an image, and its size in pixels."""

    kind: ImageKind
    width: int
    height: int


def read_head(data: bytes) -> ImageHead | None:
    """``data`` is the first `HEAD_BYTES` of a file; ``None`` if it isn't a known kind of image, or is damaged."""
    for kind, begins, read in _KINDS:
        if data.startswith(begins):
            try:
                width, height = read(data)
            except (struct.error, IndexError, ValueError):
                return None
            return ImageHead(kind, width, height) if width > 0 and height > 0 else None
    return None


def problem_of(head: ImageHead | None, name: str, size: int) -> str | None:
    """Why an image can't be used, for the user; ``None`` if it can. ``size`` is the file's, in bytes."""
    if size > MOST_BYTES:
        return f"{name} has {words.size(size)}; an image may have {words.size(MOST_BYTES)}. Make it smaller first."
    if head is None:
        return f"{name} is not an image that can be read: only PNG, JPEG, GIF and BMP files can."
    if head.kind not in READABLE:
        return f"{name} is a {head.kind.upper()} file, which llama.cpp can't read. Save it as PNG or JPEG."
    if head.width * head.height > MOST_PIXELS:
        return (
            f"{name} has {words.number(head.width)} × {words.number(head.height)} pixels, more than the "
            f"{MOST_PIXELS // 1_000_000} million that an image may have. Make it smaller first."
        )
    return None


def is_bomb(data: bytes, head: ImageHead) -> bool:
    """Whether a PNG decompresses to more than its pixels need, for which llama.cpp would allocate memory."""
    if head.kind != "png":
        return False
    most = head.width * head.height * _PNG_PIXEL_BYTES + head.height * _PNG_ROW_BYTES + _STEP
    inflater, place, total = zlib.decompressobj(), len(_PNG), 0
    try:
        while place + 8 <= len(data):
            length, kind = struct.unpack_from(">I4s", data, place)
            part = data[place + 8 : place + 8 + length] if kind == b"IDAT" else b""
            while part:
                total += len(inflater.decompress(part, _STEP))
                if total > most:
                    return True
                part = inflater.unconsumed_tail
            place += 12 + length
    except zlib.error:
        pass  # damaged; the decoder will report that
    return False


def _png(data: bytes) -> tuple[int, int]:
    if data[12:16] != b"IHDR":
        raise ValueError("no header chunk")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> tuple[int, int]:
    (size,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if size == 12 else "<ii", data, 18)
    return width, abs(height)


def _jpeg(data: bytes) -> tuple[int, int]:
    place = 2
    while True:
        if data[place] != 0xFF:
            raise ValueError("no marker where one has to be")
        marker = data[place + 1]
        if marker == 0xFF:  # padding
            place += 1
        elif marker in _JPEG_BARE:
            place += 2
        elif marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        else:
            (length,) = struct.unpack_from(">H", data, place + 2)
            if length < 2:
                raise ValueError("a segment that is shorter than its length")
            place += 2 + length


def _webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if data[8:12] != b"WEBP":
        raise ValueError("another kind of RIFF file")
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


_KINDS: tuple[tuple[ImageKind, bytes, Callable[[bytes], tuple[int, int]]], ...] = (
    ("png", _PNG, _png),
    ("jpeg", b"\xff\xd8", _jpeg),
    ("gif", b"GIF8", _gif),
    ("bmp", b"BM", _bmp),
    ("webp", b"RIFF", _webp),
)
