"""Values by key in one JSON file: what was measured and learnt on this machine, and can be again."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from app import paths
from app.errors import KnownError
from app.storage.json_file import NOT_UNDERSTOOD, PATIENCE_SECONDS, JsonFile, NotSavedError, Versioned, decode

log = logging.getLogger("slipstream.store")

_MOST_ENTRIES = 64
_VERSION = 1
T = TypeVar("T")


class _File(Versioned):
    entries: dict[str, msgspec.Raw]


class KeyedFile(Generic[T]):
    """A file that cannot be read or written, or an entry that makes no sense, costs what was in it and nothing else."""

    def __init__(self, path: Path | None, kind: type[T]) -> None:
        """``kind`` is what msgspec reads an entry as. Without a ``path`` nothing is kept."""
        self._kind = kind
        self._file = _json_file(path) if path else None

    def get(self, key: str) -> T | None:
        """The value kept for ``key``."""
        entry = self._file.read().entries.get(key) if self._file else None
        if self._file is None or entry is None:
            return None
        try:
            return msgspec.json.decode(entry, type=self._kind)
        except NOT_UNDERSTOOD as error:
            log.info("an entry of %s is not used: %s", self._file.path.name, error)
            return None

    def put(self, key: str, value: T) -> None:
        """Keep ``value``; of the oldest entries only so many stay."""
        if self._file is None:
            return
        entry = msgspec.Raw(msgspec.json.encode(value))

        def added(file: _File) -> _File:
            others = [(other, one) for other, one in file.entries.items() if other != key]
            return _File(version=_VERSION, entries=dict([*others, (key, entry)][-_MOST_ENTRIES:]))

        try:
            self._file.update(added)
        except NotSavedError as error:
            log.info("%s", error)


def _json_file(path: Path) -> JsonFile[_File]:
    return JsonFile(
        path,
        _File(version=_VERSION, entries={}),
        version=_VERSION,
        what=path.name,
        upgrade=_unversioned,
        patience=PATIENCE_SECONDS,
        is_cache=True,
        log_level=logging.INFO,
    )


def _unversioned(_version: int, data: bytes) -> _File:
    """Before versions there were only the entries."""
    return _File(version=_VERSION, entries=decode(data, dict[str, msgspec.Raw]))


def cache_file(name: str) -> Path | None:
    """``None`` where there is no place for it, as in a container with nothing to write to."""
    try:
        return paths.cache_dir() / name
    except KnownError as error:
        log.info("%s is not kept: %s", name, error)
        return None


def key_of(facts: Mapping[str, object]) -> str:
    """A short name for what an entry depends on: files, settings, threads, machine."""
    return hashlib.sha256(msgspec.json.encode(dict(facts), order="sorted")).hexdigest()[:24]
