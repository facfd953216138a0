"""An AppImage: the type 2 runtime, a program without dependencies, with a SquashFS image of the app behind it.

``APPIMAGE_RUNTIME`` names the runtime's file (``runtime-x86_64`` of a release of AppImage/type2-runtime). It is in no
package registry, so that no AppImage is made without it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from installer import linux, places, starter

RUNTIME = "APPIMAGE_RUNTIME"
_MAGIC = b"AI\x02"
_MAGIC_OFFSET = 8
"""In an ELF header's padding; it tells a type 2 AppImage from any other program."""


def make(bundle: Path, dist: Path, model: Path | None = None) -> list[Path]:
    """The AppImage made of ``bundle`` and the starter ``model``; none without a runtime.

    Ends with a sentence if the runtime is something else or mksquashfs is missing.
    """
    runtime = os.environ.get(RUNTIME, "")
    if not runtime:
        places.say(f"no AppImage is made: {RUNTIME} names no runtime (packaging/README.md)")
        return []
    image = dist / f"slipstream-{places.version()}-linux-{places.machine()}{places.suffix()}.AppImage"
    places.say(f"packing {image.name}")
    with tempfile.TemporaryDirectory() as folder:
        app_dir = Path(folder) / "AppDir"
        lay_out(app_dir, bundle, model)
        squash(app_dir, Path(folder) / "image")
        join(Path(runtime), Path(folder) / "image", image)
    return [image]


def lay_out(app_dir: Path, bundle: Path, model: Path | None = None) -> None:
    """Make an AppDir: what a .deb puts under /usr, and at the top what AppImage looks for."""
    name = places.application_id()
    program_folder = app_dir / "usr" / "lib" / "slipstream"
    shutil.copytree(bundle, program_folder, symlinks=True)
    if model is not None:
        starter.lay_out(model, program_folder / starter.BESIDE_THE_PROGRAM)
    linux.write_shared(app_dir / "usr" / "share")
    commands = app_dir / "usr" / "bin"
    commands.mkdir()
    (commands / "slipstream").symlink_to("../lib/slipstream/slipstream")
    (app_dir / "AppRun").symlink_to("usr/lib/slipstream/slipstream")
    (app_dir / f"{name}.desktop").symlink_to(f"usr/share/applications/{name}.desktop")
    icons = Path("usr/share/icons/hicolor")
    (app_dir / f"{name}.svg").symlink_to(icons / "scalable" / "apps" / f"{name}.svg")
    (app_dir / ".DirIcon").symlink_to(icons / "256x256" / "apps" / f"{name}.png")
    linux.make_plain(app_dir)  # it is mounted as root's: what was the owner's alone could not be read


def squash(app_dir: Path, image: Path) -> None:
    """Pack an AppDir. The same files of the same commit give the same image."""
    if shutil.which("mksquashfs") is None:
        raise SystemExit("mksquashfs is missing. Install squashfs-tools, then try again.")
    command = ["mksquashfs", str(app_dir), str(image), "-root-owned", "-noappend", "-quiet", "-no-progress"]
    places.run([*command, *_COMPRESSION], SOURCE_DATE_EPOCH=str(places.commit_time()))


_COMPRESSION = ("-comp", "zstd", "-Xcompression-level", "19", "-b", "256K")
"""The runtime reads zlib and zstd; larger blocks than these cost time at the start."""


def join(runtime: Path, image: Path, result: Path) -> None:
    """Put the image behind the runtime. Ends with a sentence if that is no type 2 runtime."""
    try:
        content = runtime.read_bytes()
    except OSError as error:
        raise SystemExit(f"{RUNTIME} names {runtime}, which can't be read: {error.strerror}.") from error
    if not content.startswith(b"\x7fELF") or not content.startswith(_MAGIC, _MAGIC_OFFSET):
        raise SystemExit(f"{RUNTIME} names {runtime}, which isn't an AppImage type 2 runtime.")
    result.parent.mkdir(parents=True, exist_ok=True)
    with result.open("wb") as file, image.open("rb") as packed:
        file.write(content)
        shutil.copyfileobj(packed, file)
    result.chmod(0o755)
