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
from app.files import write_whole

log = logging.getLogger("slipstream.store")

_KEPT = 64
T = TypeVar("T")


class KeyedFile(Generic[T]):
    """A file that cannot be read or written, or an entry that makes no sense, costs what was in it and nothing else."""

    def __init__(self, path: Path | None, kind: type[T]) -> None:
        """``kind`` is what msgspec reads an entry as. Without a ``path`` nothing is kept."""
        self._path = path
        self._kind = kind

    def get(self, key: str) -> T | None:
        """The value kept for ``key``."""
        entry = self._read().get(key)
        if entry is None:
            return None
        try:
            return msgspec.json.decode(entry, type=self._kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            log.info("an entry of %s is not used: %s", self._path and self._path.name, error)
            return None

    def put(self, key: str, value: T) -> None:
        """Keep ``value``; of the oldest entries only so many stay."""
        if self._path is None:
            return
        entries = self._read()
        entries.pop(key, None)
        entries[key] = msgspec.Raw(msgspec.json.encode(value))
        latest = dict(list(entries.items())[-_KEPT:])
        try:
            write_whole(self._path, msgspec.json.encode(latest))
        except OSError as error:
            log.info("%s cannot be kept: %s", self._path.name, error)

    def _read(self) -> dict[str, msgspec.Raw]:
        if self._path is None:
            return {}
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, msgspec.Raw])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            log.info("%s is not used: %s", self._path.name, error)
            return {}


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
