"""Freezes the app into one folder with PyInstaller, and puts into it what PyInstaller does not know of."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from installer import icons, licenses, native, places, sbom, windows
from installer.bundle import Bundle
from installer.inventory import take
from installer.places import say

_WITH_SYMBOLS = (
    *("cryptography/hazmat/bindings/*.so", "pypdfium2_raw/*.so", "python_calamine/*.so", "rpds/*.so", "yaml/*.so"),
    *("PySide6/Qt/lib/libicui18n.so.*", "PySide6/Qt/lib/libicuuc.so.*"),
)


def freeze() -> Path:
    """Make the app and return its folder: `places.BUNDLE`, on macOS `places.APP`."""
    if sys.platform in ("win32", "darwin"):
        icons.main(places.WORK / "icons")
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
    on_macos = sys.platform == "darwin"
    frozen = places.APP if on_macos else places.BUNDLE
    contents = frozen / ("Contents/Frameworks" if on_macos else "_internal")
    native.install(places.site_packages() / inside, contents / inside)
    if sys.platform == "win32":
        windows.copy_runtime(contents, windows.runtime_folders())
    _strip()
    _drop_dangling_links(frozen)
    _write_documents(frozen)
    return frozen


def _strip() -> None:
    """Drop symbols that nothing needs: those of a Python built by hand are two thirds of its libraries (Debian's has
    none), those of libraries that come as wheels 8 MB."""
    if sys.platform == "linux":
        inside = places.BUNDLE / "_internal"
        libraries = [*inside.glob("libpython*.so.*"), *inside.glob("python3*/lib-dynload/*.so")]
        libraries += [one for name in _WITH_SYMBOLS for one in inside.glob(name)]
        places.run(["strip", "--strip-unneeded", *map(str, libraries)])


def _drop_dangling_links(frozen: Path) -> None:
    """PyInstaller links to Qt's libraries also where `contents` left the library out."""
    for file in frozen.rglob("*"):
        if file.is_symlink() and not file.exists():
            file.unlink()


def _write_documents(frozen: Path) -> None:
    """Write the licenses and the SBOM of what is inside; raises `Unclear` for a file without a known owner."""
    bundle = Bundle(
        folder=frozen,
        site_packages=places.site_packages(),
        work=places.WORK / "pyinstaller" / "slipstream",
        llama_source=native.source(),
        version=places.version(),
        commit_time=places.commit_time(),
    )
    inventory = take(bundle)
    licenses.write(bundle, inventory)
    sbom.write(bundle, bundle.sbom, inventory)
