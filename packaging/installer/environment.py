"""The environment that is frozen: pinned, and with nothing in it that the app does not need."""

from __future__ import annotations

import hashlib
import sys
import tomllib
import venv
from pathlib import Path

from installer import native, places
from installer.places import say

_STAMP = places.VENV / ".slipstream"


def prepare() -> None:
    """Make the environment unless it is there already, with llama.cpp as `native` built it."""
    libraries = native.build()
    wanted = _fingerprint(libraries)
    if not _STAMP.is_file() or _STAMP.read_text("utf-8") != wanted:
        say("installing Python packages")
        _make(native.source())
        native.install(libraries, places.site_packages() / "llama_cpp" / "lib")
        _STAMP.write_text(wanted, "utf-8")


def _make(source: Path) -> None:
    venv.create(places.VENV, clear=True, with_pip=True)
    pinned = {"PIP_CONSTRAINT": str(places.CONSTRAINTS), "PIP_BUILD_CONSTRAINT": str(places.CONSTRAINTS)}
    pip = [str(places.venv_python()), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    places.run([*pip, "--upgrade", "pip"], **pinned)
    places.run([*pip, "-r", str(places.REQUIREMENTS), *_runtime_dependencies()], **pinned)
    # Only its Python part. Not from pip's cache, and not into it: there its name is the same as that of a whole build.
    whole_build_off = ["-C", "cmake.define.LLAMA_BUILD=OFF", "--no-cache-dir"]
    places.run([*pip, *whole_build_off, str(source)], **pinned)


def _runtime_dependencies() -> list[str]:
    project = tomllib.loads((places.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [wanted for wanted in project["dependencies"] if not wanted.startswith("llama-cpp-python")]


def _fingerprint(libraries: Path) -> str:
    """Of all that decides what is in the environment."""
    parts = [sys.version, sys.executable, libraries.name]
    for file in (places.CONSTRAINTS, places.REQUIREMENTS, places.ROOT / "pyproject.toml", Path(__file__)):
        parts.append(file.read_text("utf-8"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
