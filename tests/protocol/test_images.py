"""The heads of image files: sizes as they are, and damage that is noticed."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from PySide6.QtCore import QBuffer, QIODevice
from PySide6.QtGui import QImage, QImageWriter

from app.protocol.images import MOST_BYTES, MOST_PIXELS, ImageHead, is_bomb, problem_of, read_head
from tests.support.vision_models import make_image


def encoded(kind: str, width: int = 123, height: int = 45) -> bytes:
    image = QImage(width, height, QImage.Format.Format_RGB32)
    image.fill(0x336699)
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    assert QImageWriter(buffer, kind.encode()).write(image)
    return bytes(buffer.data().data())


GIF = b"GIF89a" + struct.pack("<HH", 123, 45) + bytes(20)


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "webp", "gif"])
def test_the_size_of_each_kind(kind: str) -> None:
    data = GIF if kind == "gif" else encoded(kind)
    assert read_head(data) == ImageHead(kind, 123, 45)  # type: ignore[arg-type]


def test_a_jpeg_with_a_preview_before_its_size() -> None:
    data = encoded("jpeg")
    preview = b"\xff\xe1" + struct.pack(">H", 65535) + bytes(65533)
    assert read_head(data[:2] + 3 * preview + data[2:]) == ImageHead("jpeg", 123, 45)


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "webp"])
def test_every_beginning_of_a_file_is_harmless(kind: str) -> None:
    data = encoded(kind)
    found = {read_head(data[:length]) for length in range(len(data))}
    assert found <= {None, ImageHead(kind, 123, 45)}  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", b"text", b"%PDF-1.7", b"RIFF\0\0\0\0WAVEfmt ", b"\xff\xd8" + b"\xff" * 100])
def test_other_files(data: bytes) -> None:
    assert read_head(data) is None


@pytest.mark.parametrize(("rows", "is_too_much"), [(45, False), (400_000, True)])
def test_a_png_with_more_than_its_pixels(rows: int, is_too_much: bool) -> None:
    data = encoded("png")
    start = data.index(b"IDAT") - 4
    length = struct.unpack_from(">I", data, start)[0]
    body = zlib.compress(bytes(rows * 493), 9)
    chunk = struct.pack(">I", len(body)) + b"IDAT" + body + struct.pack(">I", zlib.crc32(b"IDAT" + body))
    changed = data[:start] + chunk + data[start + 12 + length :]
    head = read_head(changed)
    assert head is not None and is_bomb(changed, head) is is_too_much
    assert not is_bomb(data, head) and not is_bomb(data[: start + 20] + bytes(500), head)


def test_what_is_refused(tmp_path: Path) -> None:
    head = read_head(Path(make_image(tmp_path / "a.png", 160, 96).path).read_bytes())
    assert head == ImageHead("png", 160, 96) and problem_of(head, "a.png", 1000) is None
    assert "64 million" in (problem_of(ImageHead("png", MOST_PIXELS, 2), "a.png", 1000) or "")
    assert "an image may have 67" in (problem_of(head, "a.png", MOST_BYTES + 1) or "")
    assert "WEBP" in (problem_of(ImageHead("webp", 1, 1), "a.webp", 1000) or "")
    assert "is not an image" in (problem_of(None, "a.txt", 1000) or "")
