"""Writing a file completely or not at all, and a few other file operations."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

_TRIES = 50
_PAUSE_SECONDS = 0.01
_NO_SYNC = (errno.EINVAL, errno.EACCES, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF)
"""Errors from file systems that can't sync a folder to disk, or whose folders may not be opened."""


def write_whole(path: Path, data: bytes | Iterable[bytes], *, mode: int = 0o600) -> None:
    """Replace the content of ``path`` with ``data`` or its parts; after a failure or a power cut, it still has the old
    content.

    A link at ``path`` is replaced, not followed. Creates the folder. Raises `OSError`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(part, flags, mode), "wb") as file:  # noqa: PTH123 - the descriptor is open already
            file.writelines(_parts(data))
            file.flush()
            os.fsync(file.fileno())
        _replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_export(path: Path, data: bytes | Iterable[bytes]) -> None:
    """The same for a user's file in an existing folder: the target of a link is replaced, and its mode stays.

    Raises `OSError`.
    """
    try:
        path = path.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    try:
        before = path.stat()
    except FileNotFoundError:
        write_whole(path, data, mode=0o666)  # without what the user's umask removes
        return
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if not stat.S_ISREG(before.st_mode):
        with path.open("wb") as file:  # a device or a pipe; a folder raises an error
            file.writelines(_parts(data))
        return
    write_whole(path, data, mode=0o600)
    path.chmod(stat.S_IMODE(before.st_mode))


def _parts(data: bytes | Iterable[bytes]) -> Iterable[bytes]:
    return (data,) if isinstance(data, bytes) else data


def strays(path: Path) -> list[Path]:
    """What processes that were killed while writing ``path`` left next to it.

    Without the lock of ``path``, what another process is writing now is among them.
    """
    stray = re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}\.part")
    with contextlib.suppress(OSError):
        return [Path(entry.path) for entry in os.scandir(path.parent) if stray.fullmatch(entry.name)]
    return []


def remove_strays(path: Path) -> None:
    """Delete the `strays` of ``path``. The caller must have its lock."""
    for stray in strays(path):
        with contextlib.suppress(OSError):
            stray.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder safe against a power cut, if the system can do that. Raises `OSError`."""
    if sys.platform == "win32":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def broken_name(path: Path) -> Path:
    """A free name next to ``path`` for a file that can't be used but must not be lost."""
    stamp = f"{datetime.now():%Y-%m-%d-%H%M%S}"
    name = path.with_name(f"{path.stem}.broken-{stamp}{path.suffix}")
    number = 1
    while name.exists():
        number += 1
        name = path.with_name(f"{path.stem}.broken-{stamp}-{number}{path.suffix}")
    return name


def with_suffix(path: Path, suffix: str) -> Path:
    """``path`` with this suffix added, unless it has it."""
    return path if path.suffix.lower() == suffix else path.with_name(path.name + suffix)


def _replace(part: Path, path: Path) -> None:
    for _ in range(_TRIES if sys.platform == "win32" else 0):
        try:
            part.replace(path)
            return
        except PermissionError:
            time.sleep(_PAUSE_SECONDS)  # Windows: another process has it open for reading, for a moment
    part.replace(path)
