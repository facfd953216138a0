"""Freezes the app into one folder with PyInstaller, and puts into it what PyInstaller does not know of."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from installer import licences, native, places, sbom
from installer.bundle import Bundle
from installer.inventory import take
from installer.places import say


def freeze() -> Path:
    """Make `places.BUNDLE` and return it."""
    say("freezing")
    shutil.rmtree(places.BUNDLE, ignore_errors=True)
    folders = [f"--distpath={places.DIST}", f"--workpath={places.WORK / 'pyinstaller'}"]
    specification = str(places.PACKAGING / "slipstream.spec")
    places.run(
        [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level=WARN", *folders, specification],
        PYTHONHASHSEED="1",  # or sets are written in another order each time
        SOURCE_DATE_EPOCH=str(places.commit_time()),
    )
    # Once more as they were: PyInstaller keeps no links, and two copies of libggml in one process do not work.
    inside = Path("llama_cpp", "lib")
    native.install(places.site_packages() / inside, places.BUNDLE / "_internal" / inside)
    _strip()
    _drop_dangling_links()
    _write_documents()
    return places.BUNDLE


def _strip() -> None:
    """Drop the debugging symbols of a Python built by hand, two thirds of its library; Debian's has none."""
    if sys.platform == "linux":
        for library in (places.BUNDLE / "_internal").glob("libpython*.so.*"):
            places.run(["strip", "--strip-unneeded", str(library)])


def _drop_dangling_links() -> None:
    """PyInstaller links to Qt's libraries also where `contents` left the library out."""
    for file in places.BUNDLE.rglob("*"):
        if file.is_symlink() and not file.exists():
            file.unlink()


def _write_documents() -> None:
    """Licences and SBOM of what is inside; raises `Unclear` for what nobody knows."""
    bundle = Bundle(
        folder=places.BUNDLE,
        site_packages=places.site_packages(),
        work=places.WORK / "pyinstaller" / "slipstream",
        llama_source=native.source(),
        version=places.version(),
        commit_time=places.commit_time(),
    )
    inventory = take(bundle)
    licences.write(bundle, inventory)
    sbom.write(bundle, bundle.sbom, inventory)
