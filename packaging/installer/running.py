"""The other programs that packaging calls."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.errors import KnownError


def run(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
    """Run a program to its end, its output into ours. Raises `KnownError` if it fails."""
    status = subprocess.run(command, env=environment, check=False).returncode
    if status:
        raise KnownError(f"{Path(command[0]).name} failed with status {status}; what it said is above.")


def program(name: str, how_to_get_it: str) -> Path:
    """Where a program is. Raises `KnownError` with ``how_to_get_it`` where it is missing."""
    found = shutil.which(name)
    if found is None:
        raise KnownError(f"{name} is missing. {how_to_get_it}")
    return Path(found)
