"""Rows by key in one JSON file: what was measured and learned on this machine, and where files came from."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from app import decoders, paths
from app.errors import KnownError
from app.storage.json_file import NOT_UNDERSTOOD, PATIENCE_SECONDS, JsonFile, NotSavedError

log = logging.getLogger("slipstream.store")

Row = TypeVar("Row")


class KeyedFile(Generic[Row]):
    """A row that isn't valid, such as one of another version, is ignored and stays in the file. Safe as `JsonFile` is.

    Without ``what`` it is a cache: problems are only logged, and a file that can't be read is written over.
    """

    def __init__(
        self,
        path: Path | None,
        kind: type[Row],
        *,
        inside: str = "entries",
        key: Callable[[Row], object] | None = None,
        most: int = 64,
        version: int = 1,
        what: str = "",
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """``kind`` is the type of a row, for msgspec. Without a ``path`` nothing is stored.

        The rows are ``inside`` this field of the file: an object, or an array where rows contain their ``key``. A path
        as a key is made absolute; links in it stay as they are. Only
        the newest ``most`` of them are kept. ``what`` begins the sentence “… couldn't be saved”; ``patience`` is as in
        `JsonFile`.
        """
        self._kind = kind
        self._inside = inside
        self._key = key
        self._most = most
        self._version = version
        self._is_cache = not what
        self._file: JsonFile[dict[str, Any]] | None = None
        if path is not None:
            self._file = JsonFile(
                path,
                {},
                version=version,
                what=what or path.name,
                patience=patience,
                is_cache=self._is_cache,
                log_level=logging.INFO if self._is_cache else logging.WARNING,
            )

    @property
    def problem(self) -> str:
        """Why the file couldn't be used the last time; empty if it could."""
        return self._file.problem if self._file else ""

    def get(self, key: object) -> Row | None:
        raw = self._rows(self._file.read()).get(_absolute(key)) if self._file else None
        return None if raw is None else self._row(raw)

    def all(self) -> dict[Any, Row]:
        """The valid rows by key; the latest last, where they are bounded."""
        rows = self._rows(self._file.read()) if self._file else {}
        return {key: row for key, raw in rows.items() if (row := self._row(raw)) is not None}

    def put(self, key: object, row: Row) -> None:
        """Store ``row``. Raises `NotSavedError`; it then applies until the process ends."""
        self.put_all({key: row})

    def add(self, row: Row) -> None:
        """`put` for a row that contains its key."""
        assert self._key is not None
        self.put(self._key(row), row)

    def put_all(self, rows: Mapping[Any, Row]) -> None:
        """As `put`, several at once."""
        new = {_absolute(key): msgspec.to_builtins(row, str_keys=True) for key, row in rows.items()}
        self._update(lambda rows: {**{key: raw for key, raw in rows.items() if key not in new}, **new})

    def remove(self, key: object) -> None:
        """Raises as `put`."""
        self._update(lambda rows: {one: raw for one, raw in rows.items() if one != _absolute(key)})

    def _row(self, raw: Any) -> Row | None:
        try:
            return decoders.convert(raw, self._kind, str_keys=True)
        except NOT_UNDERSTOOD as error:
            log.info("a row of %s is not used: %s", self._file.path.name if self._file else "", error)
            return None

    def _rows(self, content: dict[str, Any]) -> dict[Any, Any]:
        rows = content.get(self._inside, {})
        if self._key is None:
            return rows if isinstance(rows, dict) else {}
        keyed = {}
        for raw in rows if isinstance(rows, list) else ():
            row = self._row(raw)
            keyed[repr(raw) if row is None else self._key(row)] = raw
        return keyed

    def _update(self, change: Callable[[dict[Any, Any]], dict[Any, Any]]) -> None:
        if self._file is None:
            return

        def changed(content: dict[str, Any]) -> dict[str, Any]:
            rows = dict(list(change(self._rows(content)).items())[-self._most :])
            return {**content, "version": self._version, self._inside: list(rows.values()) if self._key else rows}

        try:
            self._file.update(changed)
        except NotSavedError as error:
            if not self._is_cache:
                raise
            log.info("%s", error)


def _absolute(key: object) -> object:
    return os.path.abspath(key) if isinstance(key, Path) else key  # noqa: PTH100 - `Path.resolve` follows links


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
