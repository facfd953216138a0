"""Atomic writes, locks, digests, and the names of files with chats' KV caches."""

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
"""Errors of file systems that can't sync a folder, or don't allow opening one."""


def write_whole(path: Path, data: bytes | Iterable[bytes], *, mode: int = 0o600) -> None:
    """Replace the content of ``path`` with ``data``. After a failure or a power cut, the old content is still there.

    A link is replaced, not followed; a missing folder is created. Raises `OSError`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(part, flags, mode), "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.writelines(_parts(data))
            file.flush()
            os.fsync(file.fileno())
        _replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_export(path: Path, data: bytes | Iterable[bytes]) -> None:
    """`write_whole` for a user's file in an existing folder: it follows a link and keeps the file's mode.

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
        write_whole(path, data, mode=0o666)  # the umask applies
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
    """Partial files left by processes that were killed while writing ``path``.

    Without the lock of ``path``, they may include one that another process is writing right now.
    """
    stray = re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}\.part")
    with contextlib.suppress(OSError):
        return [Path(entry.path) for entry in os.scandir(path.parent) if stray.fullmatch(entry.name)]
    return []


def remove_strays(path: Path) -> None:
    """Delete the `strays` of ``path``. The caller must hold its lock."""
    for stray in strays(path):
        with contextlib.suppress(OSError):
            stray.unlink()


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk, if the system can do that. Raises `OSError`."""
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
    """An unused path next to ``path`` to move a broken file to."""
    stamp = f"{datetime.now():%Y-%m-%d-%H%M%S}"
    name = path.with_name(f"{path.stem}.broken-{stamp}{path.suffix}")
    number = 1
    while name.exists():
        number += 1
        name = path.with_name(f"{path.stem}.broken-{stamp}-{number}{path.suffix}")
    return name


def with_suffix(path: Path, suffix: str) -> Path:
    """``path`` with ``suffix`` appended, unless it ends with it."""
    return path if path.suffix.lower() == suffix else path.with_name(path.name + suffix)


def _replace(part: Path, path: Path) -> None:
    for _ in range(_TRIES if sys.platform == "win32" else 0):
        try:
            part.replace(path)
            return
        except PermissionError:
            time.sleep(_PAUSE_SECONDS)  # on Windows, another process may have it open for a moment
    part.replace(path)


CHUNK = 4 * 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Progress:
    """Counts bytes and reports the number done and the total."""

    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self._total = total
        self._tell = tell
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        self._tell(self._done, self._total)


def sha256_of(path: Path, is_canceled: Callable[[], bool], progress: Progress | None = None) -> str:
    """In hexadecimal. Raises `OSError` and `Canceled`."""
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
    return _SHA256.fullmatch(text) is not None


_POLL_SECONDS = 0.02

_log = logging.getLogger(__name__)


class BusyError(OSError):
    """Another process holds the lock."""

    def __init__(self) -> None:
        super().__init__(errno.EBUSY, "another Slipstream window is using it")


class Lock:
    """A file's lock: ``NAME.lock`` next to it, which is never deleted (except on Windows, by its last holder).

    The system releases it when its holder ends in any way. If locking is impossible, as on a file system without locks
    or with something else at that path, this is logged and only threads exclude each other: no feature should fail
    because of a lock file.
    """

    def __init__(self, path: Path) -> None:
        """``path`` is the file to protect."""
        self._path = path.with_name(f"{path.name}.lock")
        self._mutex = threading.RLock()
        self._file: filelock.BaseFileLock | None = None
        self._has_told = False

    @contextlib.contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Hold the lock, after waiting for at most ``seconds``. Reentrant. Raises `BusyError` and `OSError`.

        For reading and writing a small file, never around anything that waits for the network or the user.
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
        import filelock  # late, because it takes as long as the rest of the window's start without Qt

        with self._mutex:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._file is None:
                self._file = filelock.FileLock(self._path, thread_local=False, fallback_to_soft=False)
            try:
                self._file.acquire(timeout=seconds, poll_interval=_POLL_SECONDS)
            except (filelock.Timeout, RuntimeError):
                raise BusyError from None  # RuntimeError: this thread holds it through another `Lock`
            except (OSError, NotImplementedError) as error:
                if not self._has_told:
                    _log.warning("%s can't be locked and is used without a lock: %s", self._path.stem, error)
                self._has_told = True

    def release(self) -> None:
        """Undo one `acquire`."""
        with self._mutex:
            if self._file is not None:
                self._file.release()


# Files with chats' KV caches are named so that those of a deleted chat can be found without opening any.

ENDING, PART_ENDING = ".kept", ".part"
_NO_CHAT = "0"


def name_begins(owner: str, chat: str) -> str:
    """``owner`` identifies what a cache depends on besides its tokens; ``chat`` is an id, empty for an unsaved chat."""
    return f"{owner}-{chat or _NO_CHAT}-"


def new_name(owner: str, chat: str) -> str:
    import secrets  # late, because its imports would delay the first picture

    return f"{name_begins(owner, chat)}{secrets.token_hex(8)}{ENDING}"


def chat_of(path: Path) -> str:
    """The chat's id; empty if unknown, as in names from earlier versions."""
    _owner, *parts = path.name.split("-")
    return parts[0] if len(parts) == 2 and parts[0] != _NO_CHAT else ""


def is_of(chat: str, chats: Collection[str]) -> bool:
    """Whether erasing ``chats`` (empty: all) erases a cache of ``chat`` (empty: unknown, so always)."""
    return not chats or not chat or chat in chats


def erase_chat_caches(folder: Path, chats: Collection[str]) -> None:
    """Delete the cache files of these chats, complete or partial, as far as possible; without ``chats`` all files."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if is_of(chat_of(path), chats):
                with contextlib.suppress(OSError):
                    path.unlink()
