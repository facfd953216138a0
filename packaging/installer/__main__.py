"""``make package``: everything for the system this runs on, into ``dist/``.

Starts with any Python from 3.11 on, and goes on with that of the packaging environment, which it makes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

from installer import environment, places
from installer.places import say


def main() -> int:
    """Make the packages; returns the exit status."""
    begun = time.monotonic()
    try:
        if Path(sys.prefix) != places.VENV:
            environment.prepare()
            return subprocess.call([places.venv_python(), "-m", "installer", *sys.argv[1:]], cwd=places.ROOT)
        for package in _make():
            say(f"{package.relative_to(places.ROOT)} ({package.stat().st_size / 1e6:.0f} MB)")
    except subprocess.CalledProcessError as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    say(f"done after {time.monotonic() - begun:.0f} s")
    return 0


def _make() -> list[Path]:
    """Freeze, then make the system's packages; runs in the packaging environment, which has what these imports need."""
    from installer import freeze
    from installer.bundle import Unclear

    try:
        bundle = freeze.freeze()
    except Unclear as unclear:
        raise SystemExit(f"package: {unclear}") from unclear
    sbom = _sbom(bundle)  # before the starter model's is beside it
    return _with_checksums([*_packages(bundle), sbom])


def _packages(bundle: Path) -> list[Path]:
    from installer import appimage, linux, macos, starter, windows

    if sys.platform == "darwin":
        return macos.make(bundle, places.DIST)
    model = starter.model()
    if sys.platform == "win32":
        return windows.make(bundle, places.DIST, model)
    return [*linux.make(bundle, places.DIST, model), *appimage.make(bundle, places.DIST, model)]


def _sbom(bundle: Path) -> Path:
    """The SBOM beside the packages, for those who want to read it before they install."""
    system = {"linux": "linux", "darwin": "macos", "win32": "windows"}[sys.platform]
    name = f"slipstream-{places.version()}-{system}-{places.machine()}{places.suffix()}.cdx.json"
    return Path(shutil.copy2(next(bundle.rglob("sbom.cdx.json")), places.DIST / name))


def _with_checksums(packages: list[Path]) -> list[Path]:
    lines = [f"{hashlib.sha256(package.read_bytes()).hexdigest()}  {package.name}\n" for package in packages]
    file = places.DIST / "SHA256SUMS"
    file.write_text("".join(lines), "utf-8", newline="\n")  # sha256sum reads it, on any system
    return [*packages, file]


if __name__ == "__main__":
    sys.exit(main())
