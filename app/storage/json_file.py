"""Our own JSON files: atomic, locked, versioned, and read leniently."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from app import system
from app.storage.files import Lock, broken_name, remove_strays, strays, write_whole
from app.system import KnownError

_MAX_BYTES = 64 * 1024 * 1024
BACKGROUND_SECONDS = 10.0
"""How long to wait for another process in the background."""
PATIENCE_SECONDS = 1.0
"""How long to wait for another process while the user waits."""
NOT_UNDERSTOOD = (msgspec.MsgspecError, ValueError, RecursionError)

_log = logging.getLogger(__name__)


class Versioned(msgspec.Struct, kw_only=True):
    """A file's content. Treat it as immutable: replace it instead."""

    version: int = 1


class NotSavedError(KnownError):
    """A change couldn't be written; it stays in effect until the process ends."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} couldn't be saved: {reason}.")
        self.reason = reason


class OtherVersionError(OSError):
    """The file has another version's format and is left alone."""

    def __init__(self, path: Path, *, is_newer: bool) -> None:
        which = "a newer version of Slipstream" if is_newer else "a version of Slipstream from before its first release"
        super().__init__(None, f"{path.name} was written by {which} and is left as it is")
        self.is_newer = is_newer


class _Head(msgspec.Struct):
    version: int = 0


T = TypeVar("T")


class _State(NamedTuple, Generic[T]):
    """What is known about a file. Immutable, so threads can read it without a lock."""

    stamp: object
    """Identifies this state of the file on disk."""
    content: T
    failure: OSError | None


class JsonFile(Generic[T]):
    """A missing file counts as empty. A damaged one is moved aside; one of another version is left alone.

    Safe from any thread and alongside other processes; changes by others are noticed.
    """

    def __init__(
        self,
        path: Path,
        empty: T,
        *,
        what: str,
        version: int = 1,
        patience: float = BACKGROUND_SECONDS,
        is_cache: bool = False,
        log_level: int = logging.WARNING,
    ) -> None:
        """``what`` begins the sentence “… couldn't be saved”.

        ``patience`` is how many seconds to wait for another process. A cache that is damaged or of an older version is
        overwritten. Problems with the file are logged at ``log_level``.
        """
        if getattr(empty, "version", version) != version:
            raise ValueError(f"{path.name} is version {version}, but the new content says otherwise")
        self.path = path
        self.lock = Lock(path)
        self.aside: Path | None = None
        """Where a damaged file was moved."""
        self._empty = empty
        self._version = version
        self._what = what
        self._patience = patience
        self._is_cache = is_cache
        self._log_level = log_level
        self._told = ""
        self._is_swept = False
        self._state: _State[T] = _State(self, empty, None)

    def read(self) -> T:
        """The content, including changes that couldn't be written; empty if it can't be read (see `problem`)."""
        return self._current().content

    @property
    def problem(self) -> str:
        """Why the file couldn't be used last time; empty if it could."""
        failure = self._state.failure
        return _reason(failure) if failure else ""

    def load(self) -> T:
        """The content. Raises `OtherVersionError` and other `OSError`."""
        state = self._current()
        if state.failure is not None:
            raise state.failure
        return state.content

    def update(self, change: Callable[[T], T]) -> None:
        """Replace the content with ``change(content)``, under the lock.

        ``change`` must not modify its argument, and may be called twice. Raises `NotSavedError`.
        """
        state = self._current()
        try:
            with self.lock.held(self._patience):
                if state.failure is not None:
                    self._state = _State(self, state.content, None)  # the problem may be over
                content = self.load()
                changed = change(content)
                if changed != content:
                    write_whole(self.path, encode(changed))
                self._state = _State(_stamp(self.path), changed, None)
        except OSError as error:
            self._state = self._state._replace(content=change(self._state.content))
            raise NotSavedError(self._what, _reason(error)) from error

    def _current(self) -> _State[T]:
        """The state, after rereading the file if it has changed."""
        if not self._is_swept:
            self._sweep()
        stamp = _stamp(self.path)  # before reading, so that a change during it is noticed next time
        state = self._state
        if stamp != state.stamp:
            try:
                state = _State(stamp, self._load(), None)
            except OSError as error:
                state = _State(stamp, self._empty, error)
                self._tell(f"{self.path.name} can't be used: {_reason(error)}")
            self._state = state
        return state

    def _sweep(self) -> None:
        """Delete leftovers of killed processes; try again later if another process holds the lock."""
        self._is_swept = not strays(self.path)
        if not self._is_swept:
            with contextlib.suppress(OSError), self.lock.held(0):
                remove_strays(self.path)

    def _load(self, *, is_locked: bool = False) -> T:
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return self._empty
        try:
            return self._decoded(data)
        except NOT_UNDERSTOOD as error:
            reason = str(error)
        if self._is_cache:
            self._tell(f"{self.path.name} is not used: {reason}")
            return self._empty
        if not is_locked:
            with self.lock.held(self._patience):
                return self._load(is_locked=True)  # another process may just have replaced it
        self.aside = broken_name(self.path)
        self.path.replace(self.aside)
        self._tell(f"{self.path.name} couldn't be read ({reason}); it was saved as {self.aside.name}")
        return self._empty

    def _decoded(self, data: bytes) -> T:
        version = version_of(data)
        if version == self._version:
            return decode(data, type(self._empty))
        if version > self._version or (version > 0 and not self._is_cache):
            raise OtherVersionError(self.path, is_newer=version > self._version)
        raise ValueError(f"version {version}, not {self._version}")

    def _tell(self, text: str) -> None:
        """Log a problem, but not repeatedly."""
        if text != self._told:
            _log.log(self._log_level, "%s", text)
        self._told = text


V = TypeVar("V")


def version_of(data: bytes) -> int:
    """A file's format version; 0 if it has none. Raises one of `NOT_UNDERSTOOD`."""
    return decode(data, _Head).version


def decode(data: bytes, kind: type[V]) -> V:
    """JSON as a ``kind``. File names that aren't valid text survive. Raises one of `NOT_UNDERSTOOD`."""
    try:
        return system.decode(data, kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\ud" not in data.lower():
            raise
    return system.convert(json.loads(data), kind, str_keys=True)  # half a surrogate pair


def encode(content: Any) -> bytes:
    try:
        return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair, a number of more than 64 bits
        return f"{json.dumps(msgspec.to_builtins(content), indent=1)}\n".encode()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _stamp(path: Path) -> object:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked often
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


log = logging.getLogger("slipstream.store")

Row = TypeVar("Row")


class KeyedFile(Generic[Row]):
    """Rows by key in one JSON file. Invalid rows, such as another version's, are ignored and stay in the file.

    Without ``what`` it is a cache: problems are only logged, and a damaged file is overwritten. As safe as `JsonFile`.
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
        """``kind`` is a row's type. Without a ``path``, nothing is stored.

        The field ``inside`` has the rows: an object, or an array if rows contain their ``key``. A path as a key is made
        absolute. Only the newest ``most`` are kept. ``what`` and ``patience`` are as in `JsonFile`.
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
        return self._file.problem if self._file else ""

    def get(self, key: object) -> Row | None:
        raw = self._rows(self._file.read()).get(_absolute(key)) if self._file else None
        return None if raw is None else self._row(raw)

    def all(self) -> dict[Any, Row]:
        """The valid rows by key, the latest last."""
        rows = self._rows(self._file.read()) if self._file else {}
        return {key: row for key, raw in rows.items() if (row := self._row(raw)) is not None}

    def put(self, key: object, row: Row) -> None:
        """Raises `NotSavedError`; the row then stays in effect until the process ends."""
        self.put_all({key: row})

    def add(self, row: Row) -> None:
        """`put` for a row that contains its key."""
        assert self._key is not None
        self.put(self._key(row), row)

    def put_all(self, rows: Mapping[Any, Row], *, without: Container[object] = ()) -> None:
        """`put` for several rows; removes those with the keys ``without``."""
        new = {_absolute(key): msgspec.to_builtins(row, str_keys=True) for key, row in rows.items()}
        self._update(lambda old: {key: raw for key, raw in old.items() if key not in new and key not in without} | new)

    def remove(self, key: object) -> None:
        """Raises as `put`."""
        self.put_all({}, without=[_absolute(key)])

    def _row(self, raw: Any) -> Row | None:
        try:
            return system.convert(raw, self._kind, str_keys=True)
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
    """``None`` if there is no writable folder, as in some containers."""
    try:
        return system.cache_dir() / name
    except KnownError as error:
        log.info("%s is not saved: %s", name, error)
        return None


def key_of(facts: Mapping[str, object]) -> str:
    """A short digest of what an entry depends on: files, settings, threads, machine."""
    return hashlib.sha256(msgspec.json.encode(dict(facts), order="sorted")).hexdigest()[:24]


_Value = TypeVar("_Value", bound=msgspec.Struct)


def lenient(kind: type[_Value], content: dict[str, Any], problems: list[str], inside: str = "") -> _Value:
    """``content`` (perhaps edited by hand) as a ``kind``, with defaults for missing and invalid fields.

    Appends the names of invalid fields, prefixed with ``inside``, to ``problems``. Every field needs a default.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in content:
            continue
        raw = content[field.encode_name]
        try:
            values[field.name] = _value(field.type, raw, problems, f"{inside}{field.name}")
        except (msgspec.ValidationError, TypeError):
            problems.append(inside + field.name)
    return kind(**values)


def struct_of(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that an annotation consists of, if it does."""
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return plain if isinstance(plain, type) and issubclass(plain, msgspec.Struct) else None


def _value(kind: Any, raw: Any, problems: list[str], name: str) -> Any:
    if (struct := struct_of(kind)) is not None and isinstance(raw, dict):
        return lenient(struct, raw, problems, f"{name}.")
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(plain) is dict and isinstance(raw, dict) and (struct := struct_of(get_args(plain)[1])) is not None:
        sound = {key: one for key, one in raw.items() if isinstance(one, dict)}
        if len(sound) < len(raw):
            problems.append(name)
        return {key: lenient(struct, one, problems, f"{name}.") for key, one in sound.items()}
    return system.convert(raw, kind)
