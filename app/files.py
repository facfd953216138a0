"""Files of our own: written whole or not at all, and put aside when they cannot be used."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from datetime import datetime
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Put ``data`` in the place of what ``path`` held; after a failure or a power cut it still holds that.

    Makes the folder. Raises `OSError`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - the descriptor is open already
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if sys.platform != "win32":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name is only safe with its folder
        finally:
            os.close(folder)


def erase_files(folder: Path) -> None:
    """Delete the files in ``folder``, as far as the system lets us."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            with contextlib.suppress(OSError):
                path.unlink()


def broken_name(path: Path) -> Path:
    """A free name beside ``path`` for a file that cannot be used but must be kept."""
    stamp = f"{datetime.now():%Y-%m-%d-%H%M%S}"
    name = path.with_name(f"{path.stem}.broken-{stamp}{path.suffix}")
    number = 1
    while name.exists():
        number += 1
        name = path.with_name(f"{path.stem}.broken-{stamp}-{number}{path.suffix}")
    return name


def with_suffix(path: Path, suffix: str) -> Path:
    """``path`` with this suffix behind what was typed, unless it has it."""
    return path if path.suffix.lower() == suffix else path.with_name(path.name + suffix)
