"""Where downloaded files came from, in one small JSON file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from app.storage.json_file import JsonFile, Versioned

FILE_NAME = "origins.json"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of one file."""

    repository: str
    commit: str
    path: str
    """Inside the repository."""
    sha256: str
    size: int
    """Bytes."""
    license: str = msgspec.field(default="", name="licence")
    downloaded_at: int = 0
    """Seconds since 1970, UTC."""


class _File(Versioned, kw_only=True):
    origins: dict[str, Origin]


class Origins:
    """The origins in one file, by absolute path. A damaged file is moved aside.

    Safe from any thread and alongside other processes.
    """

    def __init__(self, file: Path) -> None:
        self._file = JsonFile(file, _File(origins={}), what="Where a file came from")

    @property
    def problem(self) -> str:
        """Why the file couldn't be used the last time; empty if it could."""
        return self._file.problem

    def get(self, path: Path) -> Origin | None:
        """The origin of a file, ``None`` if it is unknown."""
        return self._file.read().origins.get(_key(path))

    def all(self) -> dict[Path, Origin]:
        """Every origin by its file's path."""
        return {Path(path): origin for path, origin in self._file.read().origins.items()}

    def put(self, path: Path, origin: Origin) -> None:
        """Store a file's origin, replacing an earlier one. Raises `KnownError` if it can't be written."""
        self._update(lambda origins: {**origins, _key(path): origin})

    def remove(self, path: Path) -> None:
        """Remove a file's origin. Raises as `put`."""
        self._update(lambda origins: {key: origin for key, origin in origins.items() if key != _key(path)})

    def _update(self, change: Callable[[dict[str, Origin]], dict[str, Origin]]) -> None:
        self._file.update(lambda file: _File(origins=change(file.origins)))


def _key(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - links stay as they are
