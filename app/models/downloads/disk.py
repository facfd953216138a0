"""Where a file is stored, whether that is allowed, and whether there is enough space."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import KnownError
from app.models.downloads.item import Item
from app.models.hub.names import is_safe_name
from app.models.hub.repository import RemoteFile
from app.models.text import printable, size_text

RESERVE_BYTES = 1024**3
"""Free space that downloads leave on the disk."""


class DiskFullError(KnownError):
    """There isn't enough space; the download can continue when the user has freed some."""


def destination(models_folder: Path, file: RemoteFile) -> Path:
    """Where a downloaded file is stored: ``<models folder>/<owner>/<repository>/<path>``.

    The names come from the network: those that could lead elsewhere, or that some system doesn't allow, raise
    `KnownError` on every system.
    """
    parts = [*file.repository.split("/"), *file.path.split("/")]
    for part in parts:
        if not is_safe_name(part):
            name = printable(f"{file.repository}/{file.path}", 200)
            raise KnownError(f"{name} wasn't downloaded: {printable(part) or 'an empty name'} isn't a safe file name.")
    return models_folder.joinpath(*parts)


def destinations(models_folder: Path, item: Item) -> list[Path]:
    """Where the files of an item are stored, in its order. Raises as `destination`.

    ``models_folder``: for files that belong to a model on this computer, the folder of that.
    """
    places = [destination(models_folder, file) for file in item.files]
    if item.model:  # named after its model, because projectors of many models have the same name
        return [models_folder / f"{item.model.removesuffix('.gguf')}.{file.name}" for file in item.files]
    beside = places[0].parent if places else models_folder
    return [*places[: len(places) - len(item.beside)], *(beside / file.name for file in item.beside)]


def free_bytes(folder: Path) -> int:
    """How much can be written below ``folder``, which need not exist yet. Raises `KnownError` if the disk is gone."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        except OSError as error:
            raise KnownError(f"{printable(str(folder), 200)} can't be used: {error.strerror or error}.") from error
    raise KnownError(f"{printable(str(folder), 200)} isn't there.")


def check_space(folder: Path, needed: int, reserve: int) -> None:
    """Raise `DiskFullError` unless ``needed`` more bytes can be written and ``reserve`` is left."""
    free = free_bytes(folder)
    if free < needed + reserve:
        raise DiskFullError(
            f"Not enough disk space: {size_text(needed)} is still to be downloaded and {size_text(reserve)} must "
            f"stay free, but only {size_text(free)} is free. Free up some space, then press Resume."
        )


@contextmanager
def writing(path: Path, size: int) -> Iterator[None]:
    """For writing a file of ``size`` bytes: failures of the system become a `KnownError`."""
    try:
        yield
    except OSError as error:
        raise _failure(error, path, size) from error


def _failure(error: OSError, path: Path, size: int) -> KnownError:
    name = printable(path.name)
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        free = free_bytes(path.parent)
        text = f"The disk is full: {name} needs {size_text(size)}, but only {size_text(free)} is free."
        return DiskFullError(f"{text} Free up some space, then press Resume.")
    if error.errno == errno.EFBIG:
        return KnownError(
            f"{name} is {size_text(size)}, which is too large for this disk's file system (FAT allows at most 4 "
            "GB). Choose a models folder on another disk."
        )
    return KnownError(f"{name} can't be written to {path.parent}: {error.strerror or error}.")
