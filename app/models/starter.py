"""The starter model: a small chat model in a separate package, for users without another model."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from app import system

STARTER_NAME = "SmolLM2-135M-Instruct"
STARTER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FILE = f"{STARTER_NAME}.Q4_1.gguf"
_INSTALLED = Path("/usr/share/slipstream-starter")
"""Where the ``.deb`` puts it."""


def starter_file() -> Path | None:
    """The path of its file; ``None`` if it isn't installed."""
    return next((file for file in _places() if file.is_file()), None)


def is_starter(path: str | Path) -> bool:
    """Whether this is the file of `starter_file`, also through links."""
    if (file := starter_file()) is None or Path(path).name != file.name:
        return False  # a file with another name may be on a sleeping drive
    return os.path.realpath(path) == os.path.realpath(file)


def _places() -> list[Path]:
    """The source tree (filled by `scripts/setup`), the frozen program's folder, and the system's package."""
    frozen = [Path(sys.executable).parent / "starter" / _FILE] if hasattr(sys, "_MEIPASS") else []
    return [system.resource("starter", _FILE), *frozen, _INSTALLED / _FILE]
