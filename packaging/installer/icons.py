"""The app's icon in the forms that systems want, drawn from `resources/icons/slipstream.svg`.

``python -m installer.icons FOLDER`` writes them all: ``slipstream.ico`` (Windows), ``slipstream.icns`` (macOS) and
``hicolor/`` (Linux). It needs PySide6 and no display.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QRectF
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from installer import places

NAME = places.application_id()
SVG = places.ROOT / "resources" / "icons" / "slipstream.svg"

HICOLOR_SIZES = (16, 24, 32, 48, 64, 128, 256, 512)
ICO_SIZES = (16, 20, 24, 32, 40, 48, 64, 128, 256)
ICNS_TYPES = {
    b"ic11": 32,
    b"ic12": 64,
    b"ic07": 128,
    b"ic13": 256,
    b"ic08": 256,
    b"ic14": 512,
    b"ic09": 512,
    b"ic10": 1024,
}
"""Apple's type of each picture, with its width in pixels. The single ones of 16 and 32 pixels are left out: not every
macOS reads them as PNG, and it draws them from the double ones, ``ic11`` and ``ic12``."""


def png(svg: Path, size: int) -> bytes:
    """A PNG of ``size`` × ``size`` pixels. Raises `ValueError` where the file cannot be drawn."""
    renderer = QSvgRenderer(str(svg))
    if not renderer.isValid():
        raise ValueError(f"{svg} is not an SVG that Qt can draw")
    picture = QImage(size, size, QImage.Format.Format_ARGB32_Premultiplied)
    picture.fill(0)
    painter = QPainter(picture)
    renderer.render(painter, QRectF(0, 0, size, size))
    painter.end()
    content = QByteArray()
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    if not picture.save(buffer, "PNG"):  # type: ignore[call-overload]  # its stub wants bytes for the format
        raise ValueError(f"Qt cannot write {svg} as PNG")
    return bytes(content.data())


def write_png(svg: Path, path: Path, size: int) -> None:
    """One PNG; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(svg, size))


def write_ico(svg: Path, path: Path) -> None:
    """A Windows icon with every size that Explorer, the task bar and the desktop ask for, each one as PNG."""
    pictures = [png(svg, size) for size in ICO_SIZES]
    offset = 6 + 16 * len(pictures)
    entries = b""
    for size, picture in zip(ICO_SIZES, pictures, strict=True):
        entries += struct.pack("<BBBBHHII", size % 256, size % 256, 0, 0, 1, 32, len(picture), offset)
        offset += len(picture)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<HHH", 0, 1, len(pictures)) + entries + b"".join(pictures))


def write_icns(svg: Path, path: Path) -> None:
    """A macOS icon. The format is a plain list of PNGs, so that no tool of Apple's is needed."""
    entries = b""
    for kind, size in ICNS_TYPES.items():
        picture = png(svg, size)
        entries += kind + struct.pack(">I", 8 + len(picture)) + picture
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"icns" + struct.pack(">I", 8 + len(entries)) + entries)


def write_hicolor(svg: Path, folder: Path) -> None:
    """The icon theme folder ``hicolor`` of a Linux desktop: PNGs and the drawing itself."""
    for size in HICOLOR_SIZES:
        write_png(svg, folder / f"{size}x{size}" / "apps" / f"{NAME}.png", size)
    scalable = folder / "scalable" / "apps" / f"{NAME}.svg"
    scalable.parent.mkdir(parents=True, exist_ok=True)
    scalable.write_bytes(svg.read_bytes())


def main(folder: Path) -> None:
    """Write every form into ``folder``."""
    write_ico(SVG, folder / "slipstream.ico")
    write_icns(SVG, folder / "slipstream.icns")
    write_hicolor(SVG, folder / "hicolor")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
