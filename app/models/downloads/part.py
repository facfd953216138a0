"""Downloads on disk: where a file is stored, whether there is space for it, and its incomplete bytes.

``<file>.part`` contains the bytes, ``<file>.part.json`` identifies the content (written before the first byte), and
``<file>.part.lock`` excludes other processes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import filelock
import msgspec

from app import words
from app.models.downloads.item import Item
from app.models.hub.repository import RemoteFile, is_safe_name
from app.storage.files import remove_strays, sync_folder, write_whole
from app.storage.json_file import NOT_UNDERSTOOD, decode, encode, version_of
from app.system import KnownError
from app.words import printable

SYNC_BYTES = 64 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_PENDING = 2
_VERSION = 1
_MAX_INFO_BYTES = 1024 * 1024
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Follows no links, and doesn't wait at a pipe."""
_sync = getattr(os, "fdatasync", os.fsync)
RESERVE_BYTES = 1024**3
"""Free space that downloads leave on the disk."""


class DiskFullError(KnownError):
    """There isn't enough space; the download can continue once the user has freed some."""


def destination(models_folder: Path, file: RemoteFile) -> Path:
    """Where a downloaded file is stored: ``<models folder>/<owner>/<repository>/<path>``.

    The names come from the network: names that could lead elsewhere or are invalid on any system raise `KnownError`.
    """
    parts = [*file.repository.split("/"), *file.path.split("/")]
    for part in parts:
        if not is_safe_name(part):
            name = printable(f"{file.repository}/{file.path}", 200)
            raise KnownError(f"{name} wasn't downloaded: {printable(part) or 'an empty name'} isn't a safe file name.")
    return models_folder.joinpath(*parts)


def destinations(models_folder: Path, item: Item) -> list[Path]:
    """Where the files of an item are stored, in order. Raises as `destination`.

    ``models_folder``: for files that belong to an existing model, that model's folder.
    """
    places = [destination(models_folder, file) for file in item.files]
    if item.model:  # named after its model, because many projectors have the same name
        return [models_folder / f"{item.model.removesuffix('.gguf')}.{file.name}" for file in item.files]
    beside = places[0].parent if places else models_folder
    return [*places[: len(places) - len(item.beside)], *(beside / file.name for file in item.beside)]


def free_bytes(folder: Path) -> int:
    """Space available below ``folder``, which need not exist yet. Raises `KnownError` if the disk is gone."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        except OSError as error:
            raise KnownError(f"{printable(str(folder), 200)} can't be used: {error.strerror or error}.") from error
    raise KnownError(f"{printable(str(folder), 200)} doesn't exist.")


def check_space(folder: Path, needed: int, reserve: int) -> None:
    """Raise `DiskFullError` unless ``needed`` more bytes fit and leave ``reserve`` free."""
    free = free_bytes(folder)
    if free < needed + reserve:
        raise DiskFullError(
            f"Not enough disk space: {words.size(needed)} is still to be downloaded and {words.size(reserve)} must "
            f"stay free, but only {words.size(free)} is free. Free up some space, then press Resume."
        )


@contextmanager
def writing(path: Path, size: int) -> Iterator[None]:
    """Turn system errors while writing a file of ``size`` bytes into a `KnownError`."""
    try:
        yield
    except OSError as error:
        raise _failure(error, path, size) from error


def _failure(error: OSError, path: Path, size: int) -> KnownError:
    name = printable(path.name)
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        free = free_bytes(path.parent)
        text = f"The disk is full: {name} needs {words.size(size)}, but only {words.size(free)} is free."
        return DiskFullError(f"{text} Free up some space, then press Resume.")
    if error.errno == errno.EFBIG:
        return KnownError(
            f"{name} is {words.size(size)}, which is too large for this disk's file system (FAT allows at most 4 "
            "GB). Choose a models folder on another disk."
        )
    return KnownError(f"{name} can't be written to {path.parent}: {error.strerror or error}.")


class PartInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies the content that a part belongs to."""

    file: RemoteFile
    etag: str = ""
    """The content's ETag as sent by the server."""
    version: int = _VERSION


def part_path(destination: Path) -> Path:
    """The path of an incomplete file."""
    return destination.with_name(f"{destination.name}.part")


def bytes_on_disk(destination: Path, file: RemoteFile) -> int:
    """How much of a file is on disk, complete or not."""
    for path in (destination, part_path(destination)):
        with contextlib.suppress(OSError):
            return min(path.stat().st_size, file.size)
    return 0


def discard(destination: Path) -> None:
    """Delete an incomplete file. Raises `KnownError` if another process is using it."""
    if not destination.parent.is_dir():
        return
    lock = _locked(destination)
    try:
        for path in (part_path(destination), _info_path(destination)):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise KnownError(f"{printable(destination.name)} can't be deleted: {error.strerror or error}.") from error
    finally:
        _unlock(lock)


class Part:
    """The incomplete file at ``destination``, locked for others during the ``with`` block.

    Writing and hashing run in two threads. Disk failures are `KnownError`.
    """

    def __init__(self, destination: Path, file: RemoteFile) -> None:
        self.destination = destination
        self.file = file
        self.path = part_path(destination)
        self.size = 0
        """Bytes on disk."""
        self.etag = ""
        self._descriptor = -1
        self._hash = hashlib.sha256()
        self._hashing: deque[Future[None]] = deque()
        self._syncing: Future[None] | None = None
        self._unsynced = self._syncing_to = self._safe = 0
        """Bytes: not yet written, being written, and written."""

    def __enter__(self) -> Part:
        with writing(self.destination, self.file.size):
            self.destination.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.destination)
        try:
            self._open()
        except BaseException:
            self._close()
            _unlock(self._lock, keep=True)
            raise
        self._hasher, self._syncer = ThreadPoolExecutor(1, "hash"), ThreadPoolExecutor(1, "sync")
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.ExitStack() as ending:  # in reverse order, whatever fails
            ending.callback(lambda: _unlock(self._lock, keep=self.path.exists()))
            ending.callback(self._close)
            ending.callback(self._syncer.shutdown)
            ending.callback(self._hasher.shutdown, cancel_futures=True)

    def _open(self) -> None:
        remove_strays(_info_path(self.destination))
        info = self._read_info()
        with self._writing():
            self._descriptor = _opened(self.path)
        size = os.fstat(self._descriptor).st_size
        if info is not None and info.file.sha256 == self.file.sha256 and size <= info.file.size == self.file.size:
            self.size, self.etag = size, info.etag
            self._write_info()
        else:
            self.restart()

    def hash_existing(self, check: Callable[[], None]) -> None:
        """Add what is on disk to the checksum; ``check`` may raise to stop."""
        self._hash = hashlib.sha256()
        left = self.size
        try:
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            while left > 0 and (data := os.read(self._descriptor, min(_READ_BYTES, left))):
                check()
                self._hash.update(data)
                left -= len(data)
        except OSError as error:
            raise KnownError(f"{printable(self.path.name)} can't be read: {error.strerror or error}.") from error
        self.size -= left
        self._safe = self.size

    def restart(self) -> None:
        """Discard the existing bytes."""
        self._settle()
        self.size, self.etag, self._unsynced, self._safe = 0, "", 0, 0
        self._syncing = None
        self._hash = hashlib.sha256()
        with self._writing():
            os.ftruncate(self._descriptor, 0)
        self._write_info()

    def remember_etag(self, etag: str) -> None:
        """Store the server's ETag of the content."""
        if etag != self.etag:
            self.etag = etag
            self._write_info()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._hashing.append(self._hasher.submit(self._hash.update, data))
        with self._writing():
            os.lseek(self._descriptor, self.size, os.SEEK_SET)
            view = memoryview(data)
            while view:
                written = os.write(self._descriptor, view)
                view = view[written:]
                self.size += written
        if len(self._hashing) > _PENDING:
            self._hashing.popleft().result()
        self._unsynced += len(data)
        if self._unsynced >= SYNC_BYTES and (self._syncing is None or self._syncing.done()):
            self._check_synced()
            self._unsynced, self._syncing_to = 0, self.size
            self._syncing = self._syncer.submit(_sync, self._descriptor)

    def sha256(self) -> str:
        """The SHA-256 of all bytes so far, in hexadecimal."""
        self._settle()
        return self._hash.hexdigest()

    def complete(self) -> None:
        """Move it to its destination, safe against a power cut."""
        self._check_synced()
        with writing(self.destination, self.file.size):
            _sync(self._descriptor)
            self._close()  # Windows can't rename an open file
            self.path.replace(self.destination)
            sync_folder(self.destination.parent)
            _info_path(self.destination).unlink(missing_ok=True)

    def _writing(self) -> AbstractContextManager[None]:
        return writing(self.path, self.file.size)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _settle(self) -> None:
        while self._hashing:
            self._hashing.popleft().result()

    def _check_synced(self) -> None:
        """Wait until everything is on the disk. The system reports a failed write only once, so a later sync may
        succeed.
        """
        syncing, self._syncing = self._syncing, None
        if syncing is None:
            return
        with self._writing():
            try:
                syncing.result()
            except OSError:
                self.size = self._safe
                with contextlib.suppress(OSError):  # the checksum decides
                    os.ftruncate(self._descriptor, self.size)
                raise
            self._safe = self._syncing_to

    def _read_info(self) -> PartInfo | None:
        try:
            with open(os.open(_info_path(self.destination), os.O_RDONLY | _NO_LINK), "rb") as file:  # noqa: PTH123
                data = file.read(_MAX_INFO_BYTES)
            if version_of(data) <= _VERSION:
                return decode(data, PartInfo)
        except (OSError, *NOT_UNDERSTOOD):
            return None
        raise KnownError(
            f"A newer version of Slipstream started downloading {printable(self.destination.name)}. Continue there, "
            f"or delete {printable(_info_path(self.destination).name)} next to it to start over."
        )

    def _write_info(self) -> None:
        with self._writing():
            write_whole(_info_path(self.destination), encode(PartInfo(file=self.file, etag=self.etag)))


def _opened(path: Path) -> int:
    """Open the file at ``path``, creating it if necessary; never follows a link.

    Raises `OSError`, and `KnownError` if something else is there.
    """
    flags = os.O_RDWR | _NO_LINK | getattr(os, "O_BINARY", 0)
    try:
        if not path.is_symlink():  # Windows has no flag for that
            with contextlib.suppress(FileExistsError):
                return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            descriptor = os.open(path, flags)
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
                return descriptor
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
            raise
    raise KnownError(
        f"{printable(path.name)} in {printable(str(path.parent), 200)} is a link or not a regular file, so nothing "
        "is written to it. Delete it, then press Resume."
    )


def _info_path(destination: Path) -> Path:
    return destination.with_name(f"{destination.name}.part.json")


def _locked(destination: Path) -> filelock.BaseFileLock:
    path = destination.with_name(f"{destination.name}.part.lock")
    lock = filelock.FileLock(path, blocking=False, thread_local=False)
    with writing(path, 0):
        try:
            lock.acquire()
        except (filelock.Timeout, RuntimeError):
            text = f"{printable(destination.name)} is already being downloaded, perhaps by another Slipstream window."
            raise KnownError(text) from None
    return lock


def _unlock(lock: filelock.BaseFileLock, *, keep: bool = False) -> None:
    # On Windows an open file can't be deleted; elsewhere delete it while it is open, before anybody else can lock it.
    path = Path(lock.lock_file)
    if not keep and os.name != "nt":
        path.unlink(missing_ok=True)
    lock.release()
    if not keep and os.name == "nt":
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
