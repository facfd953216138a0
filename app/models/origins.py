"""Where downloaded files came from, kept in one small JSON file."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import msgspec

from app.errors import KnownError
from app.files import broken_name, write_whole

FILE_NAME = "origins.json"
_VERSION = 1

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


class _File(msgspec.Struct):
    version: int
    origins: dict[str, Origin]


class Origins:
    """The origins in one file, by absolute path; safe from any thread. A broken file is moved aside."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

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
        with self._lock:
            self._write(self._read() | {_key(path): origin})

    def remove(self, path: Path) -> None:
        """Forget a file's origin. Raises as `put`."""
        with self._lock:
            origins = self._read()
            if origins.pop(_key(path), None) is not None:
                self._write(origins)

    def moved(self, old_root: Path, new_root: Path) -> None:
        """The files below ``old_root`` are now below ``new_root``. Raises as `put`."""
        old = Path(_key(old_root))
        with self._lock:
            origins = self._read()
            changed = {
                _key(new_root / Path(path).relative_to(old)) if Path(path).is_relative_to(old) else path: origin
                for path, origin in origins.items()
            }
            if changed != origins:
                self._write(changed)

    def _read(self) -> dict[str, Origin]:
        # Each time: another process may have written.
        try:
            content = msgspec.json.decode(self._file.read_bytes(), type=_File)
        except FileNotFoundError:
            return {}
        except OSError as error:
            _log.warning("The origins of files cannot be read: %s", error)
            return {}
        except (msgspec.MsgspecError, RecursionError) as error:
            aside = broken_name(self._file)
            self._file.replace(aside)
            _log.warning("%s could not be understood (%s); kept as %s", self._file.name, error, aside.name)
            return {}
        return content.origins

    def _write(self, origins: dict[str, Origin]) -> None:
        content = msgspec.json.format(msgspec.json.encode(_File(_VERSION, origins)), indent=1)
        try:
            write_whole(self._file, content)
        except OSError as error:
            raise KnownError(f"Where a file came from could not be kept: {error.strerror or error}.") from error


def _key(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - links stay as they are
