"""Moves the models folder, so that an interruption loses nothing and the same move can be repeated.

On one file system the folder is renamed. Otherwise every file is copied, read back and compared before the first one is
deleted; what an earlier attempt has copied isn't copied again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from app.errors import Canceled, KnownError
from app.models.text import printable, size_text
from app.storage.hashing import CHUNK, Progress, sha256_of

_COPYING = ".moving"
"""Extension of an incomplete copy."""
_CLOCK_STEP = 2.0
"""Seconds, because FAT stores times with this precision."""


def move_folder(
    old: Path,
    new: Path,
    switch: Callable[[], None] = lambda: None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    is_canceled: Callable[[], bool] = lambda: False,
) -> list[Path]:
    """Move all files of the folder ``old`` into ``new``; returns those that were copied but couldn't be deleted.

    ``switch`` is called when ``new`` has everything and, after copying, ``old`` still does, too: it makes ``new`` the
    one in use (settings, `Library.moved`). ``progress`` gets the bytes that are done, and the total. Raises
    `KnownError` if it isn't possible, `Canceled`, and what ``switch`` raises: ``old`` still has everything then.
    """
    _check(old, new)
    try:
        if _renamed(old, new):
            _switch_or_undo(switch, old, new)
            return []
        files = _files(old)
        _check_free(files, old, new)
        told = Progress(2 * sum(map(_size, files)), progress)
        for file in files:
            there = new / file.relative_to(old)
            if file.is_symlink():
                _link(file, there, old, new)
            else:
                _copy(file, there, told, is_canceled)
    except OSError as error:
        raise KnownError(
            f"The models couldn't be moved: {error.strerror or error}. They are still in {printable(str(old), 200)}."
        ) from error
    switch()
    return _delete(files, old)


def _switch_or_undo(switch: Callable[[], None], old: Path, new: Path) -> None:
    try:
        switch()
    except BaseException:
        new.rename(old)
        raise


def _check(old: Path, new: Path) -> None:
    one, other = old.resolve(), new.resolve()
    if not one.is_dir():
        raise KnownError(f"The folder {printable(str(old), 200)} doesn't exist, so nothing can be moved out of it.")
    if one == other or one.is_relative_to(other) or other.is_relative_to(one):
        raise KnownError(
            "The models folder can't be moved into itself or into a folder it contains. Choose another one."
        )


def _renamed(old: Path, new: Path) -> bool:
    """Whether renaming was enough."""
    new.parent.mkdir(parents=True, exist_ok=True)
    if old.is_symlink() or new.is_symlink() or (new.is_dir() and any(new.iterdir())):
        return False
    try:
        if new.is_dir():
            new.rmdir()
        old.rename(new)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EACCES, errno.EPERM, errno.EBUSY):  # a drive's own folder; an open file
            return False
        raise
    return True


def _files(folder: Path) -> list[Path]:
    """Everything below ``folder`` except folders; links aren't followed."""
    found = [Path(top) / name for top, _, names in os.walk(folder, onerror=_raise) for name in names]
    links = [Path(top) / name for top, names, _ in os.walk(folder) for name in names if (Path(top) / name).is_symlink()]
    return sorted(path for path in [*found, *links] if not path.name.endswith(_COPYING))


def _raise(error: OSError) -> None:
    raise error


def _check_free(files: list[Path], old: Path, new: Path) -> None:
    """Check, before anything is copied, that there is enough space and nothing else is in the way."""
    new.mkdir(parents=True, exist_ok=True)
    missing = [file for file in files if not _is_copied(file, new / file.relative_to(old))]
    for file in missing:
        there = new / file.relative_to(old)
        if os.path.lexists(there):
            raise KnownError(
                f"{printable(str(there), 200)} already exists and is a different file. Move it away first."
            )
    needed, free = sum(map(_size, missing)), shutil.disk_usage(new).free
    if needed > free:
        raise KnownError(
            f"There isn't enough space in {printable(str(new), 200)}: the models need {size_text(needed)}, but only "
            f"{size_text(free)} is free."
        )


def _is_copied(file: Path, there: Path) -> bool:
    """Whether an earlier attempt has copied it: it gets its time and its name only after it was compared."""
    try:
        one, other = file.lstat(), there.lstat()
    except OSError:
        return False
    if stat.S_IFMT(one.st_mode) != stat.S_IFMT(other.st_mode):
        return False
    same_time = abs(one.st_mtime - other.st_mtime) <= _CLOCK_STEP
    return file.is_symlink() or (one.st_size == other.st_size and same_time)


def _copy(file: Path, there: Path, progress: Progress, is_canceled: Callable[[], bool]) -> None:
    if is_canceled():
        raise Canceled
    if _is_copied(file, there):
        progress.add(2 * _size(file))
        return
    there.parent.mkdir(parents=True, exist_ok=True)
    part = there.with_name(there.name + _COPYING)
    part.unlink(missing_ok=True)
    try:
        if _copied_digest(file, part, progress, is_canceled) != sha256_of(part, is_canceled, progress):
            raise KnownError(f"The copy of {printable(file.name)} is damaged. Check the disk it was written to.")
        shutil.copystat(file, part)
        part.replace(there)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _link(link: Path, there: Path, old: Path, new: Path) -> None:
    """Create a link ``there`` to the target of ``link`` that still works after its folder has moved."""
    goal = link.resolve()
    inside = goal.relative_to(old.resolve()) if goal.is_relative_to(old.resolve()) else None
    there.parent.mkdir(parents=True, exist_ok=True)
    there.unlink(missing_ok=True)
    there.symlink_to(goal if inside is None else new.absolute() / inside, target_is_directory=goal.is_dir())


def _copied_digest(file: Path, part: Path, progress: Progress, is_canceled: Callable[[], bool]) -> str:
    digest = hashlib.sha256()
    with file.open("rb", buffering=0) as source, part.open("xb", buffering=0) as target:
        while chunk := source.read(CHUNK):
            if is_canceled():
                raise Canceled
            target.write(chunk)
            digest.update(chunk)
            progress.add(len(chunk))
        os.fsync(target.fileno())
    return digest.hexdigest()


def _delete(files: list[Path], old: Path) -> list[Path]:
    left = []
    for file in files:
        try:
            file.unlink()
        except OSError:
            left.append(file)
    for top, _, _ in os.walk(old, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(top)  # noqa: PTH106 - never anything that is not empty
    return left


def _size(file: Path) -> int:
    status = file.lstat()
    return 0 if file.is_symlink() else status.st_size
