"""The app's icon in each system's form, read back."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from installer import icons
from PySide6.QtGui import QImage


def _corner_and_ground(picture: QImage) -> tuple[int, str]:
    ground = picture.pixelColor(picture.width() * 3 // 8, picture.height() // 8)
    return picture.pixelColor(0, 0).alpha(), ground.name()


@pytest.mark.parametrize("size", [16, 48, 512])
def test_png_has_the_size_and_the_drawing(size: int, tmp_path: Path) -> None:
    icons.write_png(icons.SVG, tmp_path / "made" / "icon.png", size)
    picture = QImage(str(tmp_path / "made" / "icon.png"))
    assert (picture.width(), picture.height()) == (size, size)
    assert _corner_and_ground(picture) == (0, "#0a6b72")
    assert icons.png(icons.SVG, size) == (tmp_path / "made" / "icon.png").read_bytes()


def test_ico_holds_every_size(tmp_path: Path) -> None:
    icons.write_ico(icons.SVG, tmp_path / "app.ico")
    content = (tmp_path / "app.ico").read_bytes()
    assert struct.unpack_from("<HHH", content) == (0, 1, len(icons.ICO_SIZES))
    end = 6 + 16 * len(icons.ICO_SIZES)
    for number, size in enumerate(icons.ICO_SIZES):
        width, height, _, _, _, depth, length, offset = struct.unpack_from("<BBBBHHII", content, 6 + 16 * number)
        assert (width or 256, height or 256, depth, offset) == (size, size, 32, end)
        assert QImage.fromData(content[offset : offset + length]).width() == size
        end = offset + length
    assert end == len(content)


def test_icns_holds_every_type(tmp_path: Path) -> None:
    icons.write_icns(icons.SVG, tmp_path / "app.icns")
    content = (tmp_path / "app.icns").read_bytes()
    assert content[:4] == b"icns"
    assert struct.unpack_from(">I", content, 4) == (len(content),)
    found, offset = {}, 8
    while offset < len(content):
        (length,) = struct.unpack_from(">I", content, offset + 4)
        found[content[offset : offset + 4]] = QImage.fromData(content[offset + 8 : offset + length]).width()
        offset += length
    assert found == icons.ICNS_TYPES
