"""Values by key in one JSON file: what was measured and learned on this machine, and can be again."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from app import decoders, paths
from app.errors import KnownError
from app.storage.json_file import NOT_UNDERSTOOD, PATIENCE_SECONDS, JsonFile, NotSavedError, Versioned

log = logging.getLogger("slipstream.store")

_MOST_ENTRIES = 64
T = TypeVar("T")


class _File(Versioned):
    entries: dict[str, msgspec.Raw]


class KeyedFile(Generic[T]):
    """If the file can't be read or written, or an entry isn't valid, only its content is lost."""

    def __init__(self, path: Path | None, kind: type[T], *, version: int = 1) -> None:
        """``kind`` is the type that msgspec reads an entry as. Without a ``path`` nothing is stored."""
        self._kind = kind
        self._version = version
        self._file: JsonFile[_File] | None = None
        if path is not None:
            self._file = JsonFile(
                path,
                _File(version=version, entries={}),
                version=version,
                what=path.name,
                patience=PATIENCE_SECONDS,
                is_cache=True,
                log_level=logging.INFO,
            )

    def get(self, key: str) -> T | None:
        """The value stored for ``key``."""
        entry = self._file.read().entries.get(key) if self._file else None
        if self._file is None or entry is None:
            return None
        try:
            return decoders.decode(entry, self._kind)
        except NOT_UNDERSTOOD as error:
            log.info("an entry of %s is not used: %s", self._file.path.name, error)
            return None

    def put(self, key: str, value: T) -> None:
        """Store ``value``; only the newest entries are kept."""
        if self._file is None:
            return
        entry = msgspec.Raw(msgspec.json.encode(value))

        def added(file: _File) -> _File:
            others = [(other, one) for other, one in file.entries.items() if other != key]
            return _File(version=self._version, entries=dict([*others, (key, entry)][-_MOST_ENTRIES:]))

        try:
            self._file.update(added)
        except NotSavedError as error:
            log.info("%s", error)


def cache_file(name: str) -> Path | None:
    """``None`` if there is no place for it, as in a container without a writable folder."""
    try:
        return paths.cache_dir() / name
    except KnownError as error:
        log.info("%s is not saved: %s", name, error)
        return None


def key_of(facts: Mapping[str, object]) -> str:
    """A short name for what an entry depends on: files, settings, threads, machine."""
    return hashlib.sha256(msgspec.json.encode(dict(facts), order="sorted")).hexdigest()[:24]
