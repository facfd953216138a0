"""Writing files completely or not at all, locking them, their digests, and files with KV caches of chats."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from app.system import Canceled

if TYPE_CHECKING:
    import filelock


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


# Digests of large files, with progress, and cancelable.

CHUNK = 4 * 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Progress:
    """Counts bytes and reports how many of how many are done."""

    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self._total = total
        self._tell = tell
        self._done = 0

    def add(self, count: int) -> None:
        """Add to the number of bytes done."""
        self._done += count
        self._tell(self._done, self._total)


def sha256_of(path: Path, is_canceled: Callable[[], bool], progress: Progress | None = None) -> str:
    """The digest of a file, in hexadecimal. Raises `OSError` and `Canceled`."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            if is_canceled():
                raise Canceled
            digest.update(chunk)
            if progress is not None:
                progress.add(len(chunk))
    return digest.hexdigest()


def is_sha256(text: str) -> bool:
    """Whether this can be such a digest."""
    return _SHA256.fullmatch(text) is not None


_POLL_SECONDS = 0.02

_log = logging.getLogger(__name__)


class BusyError(OSError):
    """Another process has locked the file and doesn't release it."""

    def __init__(self) -> None:
        super().__init__(errno.EBUSY, "another Slipstream window is using it")


class Lock:
    """The lock of one file: ``NAME.lock`` next to it, which stays there (on Windows it is deleted with its last
    holder).

    The system releases it when its holder ends, however that happens. If it can't be acquired at all, as on a file
    system without locks or with something else of that name in the way, this is logged, and only threads are kept
    apart: no feature should fail because of a lock file.
    """

    def __init__(self, path: Path) -> None:
        """``path`` is the file to be protected."""
        self._path = path.with_name(f"{path.name}.lock")
        self._mutex = threading.RLock()
        self._file: filelock.BaseFileLock | None = None
        self._has_told = False

    @contextlib.contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Wait for it, at most this long. The same thread may acquire it again. Raises `BusyError` and `OSError`.

        For reading and writing a small file: never around anything that waits for the network or for the user.
        """
        if not self._mutex.acquire(timeout=seconds):
            raise BusyError
        try:
            self.acquire(seconds)
            try:
                yield
            finally:
                self.release()
        finally:
            self._mutex.release()

    def acquire(self, seconds: float = 0.0) -> None:
        """Keep other processes out until `release`. Raises as `held` does."""
        import filelock  # imported here, because it takes as long as everything else in the window's start except Qt

        with self._mutex:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._file is None:
                self._file = filelock.FileLock(self._path, thread_local=False, fallback_to_soft=False)
            try:
                self._file.acquire(timeout=seconds, poll_interval=_POLL_SECONDS)
            except (filelock.Timeout, RuntimeError):
                raise BusyError from None  # RuntimeError: this thread has it already, through another `Lock`
            except (OSError, NotImplementedError) as error:
                if not self._has_told:
                    _log.warning("%s can't be locked and is used without a lock: %s", self._path.stem, error)
                self._has_told = True

    def release(self) -> None:
        """Release it, unless something else here still needs it."""
        with self._mutex:
            if self._file is not None:
                self._file.release()


# The names of files with KV caches of chats, so that those of a deleted chat can be found without reading any.

ENDING, PART_ENDING = ".kept", ".part"
_NO_CHAT = "0"


def name_begins(owner: str, chat: str) -> str:
    """``owner``: what the cache depends on but for its tokens; ``chat``: an id, empty for what is of no stored chat."""
    return f"{owner}-{chat or _NO_CHAT}-"


def new_name(owner: str, chat: str) -> str:
    import secrets  # what it imports is not for the first picture

    return f"{name_begins(owner, chat)}{secrets.token_hex(8)}{ENDING}"


def chat_of(path: Path) -> str:
    """The id of the chat; empty where that is unknown, as in names of earlier versions."""
    _owner, *parts = path.name.split("-")
    return parts[0] if len(parts) == 2 and parts[0] != _NO_CHAT else ""


def is_of(chat: str, chats: Collection[str]) -> bool:
    """Whether a copy of ``chat`` is erased along with ``chats``. It always is if either is empty: unknown, or all."""
    return not chats or not chat or chat in chats


def erase_chat_caches(folder: Path, chats: Collection[str]) -> None:
    """Delete the files of these chats, finished or not, as far as possible; without ``chats`` all files."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if is_of(chat_of(path), chats):
                with contextlib.suppress(OSError):
                    path.unlink()
