"""An AppImage: the type 2 runtime, a program without dependencies, with a SquashFS image of the app behind it.

``APPIMAGE_RUNTIME`` names the runtime's file (``runtime-x86_64`` of a release of AppImage/type2-runtime). It is in no
package registry, so that no AppImage is made without it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from app.errors import KnownError
from installer import names
from installer.running import program, run

ID = "app.slipstream.Slipstream"
RUNTIME = "APPIMAGE_RUNTIME"
_MAGIC = b"AI\x02"
_MAGIC_OFFSET = 8
"""In an ELF header's padding; it tells a type 2 AppImage from any other program."""


def make(bundle: Path, share: Path, dist: Path, version: str, variant: str) -> list[Path]:
    """The AppImage made of ``bundle`` and of ``share`` (desktop entry, metainfo, icons); none without a runtime.

    Raises `KnownError` if the runtime is something else, or mksquashfs is missing or fails.
    """
    runtime = os.environ.get(RUNTIME, "")
    if not runtime:
        print(f"No AppImage is made: {RUNTIME} names no runtime (see packaging/README.md).")
        return []
    image = dist / f"slipstream-{version}-linux-{names.machine()}{names.suffix(variant)}.AppImage"
    with tempfile.TemporaryDirectory() as folder:
        app_dir = Path(folder) / "AppDir"
        lay_out(app_dir, bundle, share)
        squash(app_dir, Path(folder) / "image")
        join(Path(runtime), Path(folder) / "image", image)
    return [image]


def lay_out(app_dir: Path, bundle: Path, share: Path) -> None:
    """Make an AppDir: what a .deb puts under /usr, and at the top what AppImage looks for."""
    program_folder = app_dir / "usr" / "lib" / "slipstream"
    shutil.copytree(bundle, program_folder, symlinks=True)
    shutil.copytree(share, app_dir / "usr" / "share", symlinks=True)
    commands = app_dir / "usr" / "bin"
    commands.mkdir()
    (commands / "slipstream").symlink_to("../lib/slipstream/slipstream")
    (app_dir / "AppRun").symlink_to("usr/lib/slipstream/slipstream")
    (app_dir / f"{ID}.desktop").symlink_to(f"usr/share/applications/{ID}.desktop")
    icons = Path("usr/share/icons/hicolor")
    (app_dir / f"{ID}.svg").symlink_to(icons / "scalable" / "apps" / f"{ID}.svg")
    (app_dir / ".DirIcon").symlink_to(icons / "256x256" / "apps" / f"{ID}.png")
    for link in (path for path in app_dir.iterdir() if path.is_symlink()):
        if not link.exists():
            raise KnownError(f"The AppImage would lack {link.readlink()}; the desktop files are not complete.")


def squash(app_dir: Path, image: Path) -> None:
    """Pack an AppDir. The same files give the same image (squashfs-tools heed SOURCE_DATE_EPOCH)."""
    packer = program("mksquashfs", "Install squashfs-tools.")
    run([packer, app_dir, image, "-root-owned", "-noappend", "-quiet", "-no-progress", *_COMPRESSION])


_COMPRESSION = ("-comp", "zstd", "-Xcompression-level", "19", "-b", "256K")
"""The runtime reads zlib and zstd; larger blocks than these cost time at the start."""


def join(runtime: Path, image: Path, result: Path) -> None:
    """Put the image behind the runtime. Raises `KnownError` if that is no type 2 runtime."""
    try:
        content = runtime.read_bytes()
    except OSError as error:
        raise KnownError(f"{RUNTIME} names {runtime}, which cannot be read: {error.strerror}.") from error
    if not content.startswith(b"\x7fELF") or not content.startswith(_MAGIC, _MAGIC_OFFSET):
        raise KnownError(f"{RUNTIME} names {runtime}, which is no type 2 runtime of AppImage.")
    result.parent.mkdir(parents=True, exist_ok=True)
    with result.open("wb") as file, image.open("rb") as packed:
        file.write(content)
        shutil.copyfileobj(packed, file)
    result.chmod(0o755)
