"""Where packages are made, from what, and for which version."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
WORK = ROOT / "build" / "package"
DIST = ROOT / "dist"
VENV = WORK / "venv"
BUNDLE = DIST / "slipstream"
"""The onedir folder that PyInstaller leaves."""
APP = DIST / "Slipstream.app"
"""The same for macOS, which PyInstaller makes beside it."""
CONSTRAINTS = ROOT / "constraints.txt"
REQUIREMENTS = PACKAGING / "requirements.txt"

_NO_COMMIT = 315532800
"""1980, the first date a zip can hold."""

BACKENDS = ("cpu", "cuda", "metal", "vulkan")


def version() -> str:
    """The version, from the one place that has it."""
    return _constant("__version__")


def application_id() -> str:
    """The name of the app in desktop entries, of its windows and of the bundle on macOS."""
    return _constant("APPLICATION_ID")


def _constant(name: str) -> str:
    """Read, not imported: the app's dependencies need not be there."""
    text = (ROOT / "app" / "__init__.py").read_text("utf-8")
    found = re.search(f'^{name} = "([^"]+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def backend() -> str:
    """What llama.cpp is built for beside the processor; ``SLIPSTREAM_BACKEND`` as in ``scripts/setup``."""
    chosen = os.environ.get("SLIPSTREAM_BACKEND") or ("metal" if sys.platform == "darwin" else "cpu")
    if chosen not in BACKENDS:
        raise SystemExit(f"SLIPSTREAM_BACKEND is '{chosen}'; it can be {', '.join(BACKENDS)}.")
    return chosen


def suffix() -> str:
    """What a file's name says of the backend: only what a GPU's driver has to be there for."""
    return f"-{backend()}" if backend() in ("cuda", "vulkan") else ""


def machine() -> str:
    """The processor's architecture, as file names say it: ``x86_64`` or ``arm64``."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "aarch64": "arm64"}.get(name, name)


def venv_python() -> Path:
    return VENV / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def site_packages() -> Path:
    """Of the packaging environment."""
    if sys.platform == "win32":
        return VENV / "Lib" / "site-packages"
    return VENV / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def cache() -> Path:
    """Kept between clones: llama.cpp's source and what was built of it."""
    return user_cache("slipstream-package")


def user_cache(name: str) -> Path:
    """A folder with this name among the user's caches."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / name


def commit_time() -> int:
    """Seconds since 1970 that everything made is dated with: ``SOURCE_DATE_EPOCH``, else those of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    if shutil.which("git") is None:
        return _NO_COMMIT
    shown = subprocess.run(
        ["git", "-c", "safe.directory=*", "log", "-1", "--format=%ct"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(shown.stdout) if shown.returncode == 0 else _NO_COMMIT


def run(command: list[str], **environment: str) -> None:
    """Run ``command`` in the project's folder with ``environment`` added; raises `CalledProcessError`."""
    subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=True)


def say(text: str) -> None:
    print(f"package: {text}", flush=True)
