"""Small help with files; those of our own are written by `app.storage`."""

from __future__ import annotations

import contextlib
from pathlib import Path


def erase_files(folder: Path) -> None:
    """Delete the files in ``folder``, as far as the system lets us."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            with contextlib.suppress(OSError):
                path.unlink()


def with_suffix(path: Path, suffix: str) -> Path:
    """``path`` with this suffix behind what was typed, unless it has it."""
    return path if path.suffix.lower() == suffix else path.with_name(path.name + suffix)
