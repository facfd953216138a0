"""Where downloaded files came from, kept in one small JSON file."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import filelock
import msgspec

from app.errors import KnownError
from app.models.json_file import JsonFile, Versioned

FILE_NAME = "origins.json"
_VERSION = 1
_MAX_BYTES = 64 * 1024 * 1024
_LOCK_S = 10.0

_log = logging.getLogger(__name__)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of one file."""

    repository: str
    commit: str
    path: str
    """Inside the repository."""
    sha256: str
    size: int
    """Bytes."""
    licence: str = ""
    downloaded_at: int = 0
    """Seconds since 1970, UTC."""


class _File(Versioned, kw_only=True):
    origins: dict[str, Origin]


class Origins:
    """The origins in one file, by absolute path. A broken file is moved aside.

    Safe from any thread, and beside other processes. What was read is kept as long as the file does not change.
    """

    def __init__(self, file: Path) -> None:
        self._file = JsonFile(file, _File, version=_VERSION, max_bytes=_MAX_BYTES)
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        """When, how large and which file it was that held `_known`."""
        self._known: Mapping[str, Origin] = {}

    def get(self, path: Path) -> Origin | None:
        """The origin of a file, ``None`` where it is not known."""
        with self._lock:
            return self._read().get(_key(path))

    def all(self) -> dict[Path, Origin]:
        """Every origin by its file's path."""
        with self._lock:
            return {Path(path): origin for path, origin in self._read().items()}

    def put(self, path: Path, origin: Origin) -> None:
        """Keep a file's origin, in place of an earlier one. Raises `KnownError` if the disk does not let us."""
        with self._changing() as origins:
            origins[_key(path)] = origin

    def remove(self, path: Path) -> None:
        """Forget a file's origin. Raises as `put`."""
        with self._changing() as origins:
            origins.pop(_key(path), None)

    def moved(self, old_root: Path, new_root: Path) -> None:
        """The files below ``old_root`` are now below ``new_root``. Raises as `put`."""
        old = Path(_key(old_root))
        with self._changing() as origins:
            for path in [path for path in origins if Path(path).is_relative_to(old)]:
                origins[_key(new_root / Path(path).relative_to(old))] = origins.pop(path)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, Origin]]:
        """The origins to be changed; they are written if they are others afterwards."""
        try:
            with self._lock, filelock.FileLock(f"{self._file.path}.lock", timeout=_LOCK_S):
                origins = dict(self._load())
                yield origins
                if origins != self._known:
                    self._file.write(_File(version=_VERSION, origins=origins))
        except OSError as error:  # filelock.Timeout is one
            raise KnownError(f"Where a file came from could not be kept: {error.strerror or error}.") from error

    def _read(self) -> Mapping[str, Origin]:
        try:
            return self._load()
        except OSError as error:
            _log.warning("The origins of files cannot be read: %s", error)
            return {}

    def _load(self) -> Mapping[str, Origin]:
        """What the file holds now. Raises `OSError`."""
        try:
            status = self._file.path.stat()
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            if stamp != self._stamp:
                content = self._file.read()
                self._known, self._stamp = content.origins if content else {}, stamp
        except FileNotFoundError:
            self._known, self._stamp = {}, None
        return self._known


def _key(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - links stay as they are
