"""JSON files of our own: atomic, locked, versioned, and read as far as they can be understood."""

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
"""How long to wait for another process where nobody waits for us."""
PATIENCE_SECONDS = 1.0
"""How long to wait for another process if someone is waiting for us, such as the window."""
NOT_UNDERSTOOD = (msgspec.MsgspecError, ValueError, RecursionError)

_log = logging.getLogger(__name__)


class Versioned(msgspec.Struct, kw_only=True):
    """The content of such a file. It is never changed, only replaced."""

    version: int = 1


class NotSavedError(KnownError):
    """A change couldn't be written; it applies until the process ends."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} couldn't be saved: {reason}.")
        self.reason = reason


class OtherVersionError(OSError):
    """A version of the app wrote the file that can't be understood here; it stays as it is."""

    def __init__(self, path: Path, *, is_newer: bool) -> None:
        which = "a newer version of Slipstream" if is_newer else "a version of Slipstream from before its first release"
        super().__init__(None, f"{path.name} was written by {which} and is left as it is")
        self.is_newer = is_newer


class _Head(msgspec.Struct):
    version: int = 0


T = TypeVar("T")


class _State(NamedTuple, Generic[T]):
    """What is known about a file; replaced as a whole, so that threads need no lock for it."""

    stamp: object
    """How an unchanged file is recognized."""
    content: T
    failure: OSError | None


class JsonFile(Generic[T]):
    """A missing file counts as empty. One that can't be understood is moved aside, one of another version left alone.

    Safe from any thread and alongside other processes. It is read again when it has changed.
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
        """``what`` begins the sentence ``… could not be kept``.

        ``patience`` is how many seconds another process is waited for. What is not understood of a cache, such as that
        of an older version, is written over. ``log_level`` is that of problems with the file.
        """
        if getattr(empty, "version", version) != version:
            raise ValueError(f"{path.name} is version {version}, but the new content says otherwise")
        self.path = path
        self.lock = Lock(path)
        self.aside: Path | None = None
        """Where a file that couldn't be read was moved."""
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
        """The content of the file, including what couldn't be written; empty if it can't be read, for the reason in
        `problem`.
        """
        return self._current().content

    @property
    def problem(self) -> str:
        """Why the file couldn't be used the last time; empty if it could."""
        failure = self._state.failure
        return _reason(failure) if failure else ""

    def load(self) -> T:
        """The content of the file. Raises `OtherVersionError` and other `OSError`."""
        state = self._current()
        if state.failure is not None:
            raise state.failure
        return state.content

    def update(self, change: Callable[[T], T]) -> None:
        """Replace the content with what ``change`` returns for it, while nobody else can.

        ``change`` returns a new content and leaves the old one unchanged; it may be called twice. Raises
        `NotSavedError`.
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
        """What is known about the file, which is read again if it has changed."""
        if not self._is_swept:
            self._sweep()
        stamp = _stamp(self.path)  # before reading, so that a change in the meantime is seen the next time
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
        """Delete what killed processes left, unless another process is busy with the file; then it is tried again."""
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
                return self._load(is_locked=True)  # another process may have replaced it with an intact one
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
    """The version of such a file's format, 0 if it has none. Raises one of `NOT_UNDERSTOOD`."""
    return decode(data, _Head).version


def decode(data: bytes, kind: type[V]) -> V:
    """JSON as a value of ``kind``; names of files that aren't valid text survive. Raises one of `NOT_UNDERSTOOD`."""
    try:
        return system.decode(data, kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\ud" not in data.lower():
            raise
    return system.convert(json.loads(data), kind, str_keys=True)  # half a surrogate pair


def encode(content: Any) -> bytes:
    """``content`` as indented JSON."""
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


# Rows by key in one JSON file: what was measured and learned on this machine, and where files came from.

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

        The rows are ``inside`` this field of the file: an object, or an array where rows contain their ``key``; a path
        as a key is made absolute. Only the newest ``most`` are kept. ``what`` begins the sentence “… couldn't be
        saved”; ``patience`` is as in `JsonFile`.
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

    def put_all(self, rows: Mapping[Any, Row], *, without: Container[object] = ()) -> None:
        """As `put`, several at once, and removes the rows with the keys ``without``."""
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
    """``None`` if there is no place for it, as in a container without a writable folder."""
    try:
        return system.cache_dir() / name
    except KnownError as error:
        log.info("%s is not saved: %s", name, error)
        return None


def key_of(facts: Mapping[str, object]) -> str:
    """A short name for what an entry depends on: files, settings, threads, machine."""
    return hashlib.sha256(msgspec.json.encode(dict(facts), order="sorted")).hexdigest()[:24]


# Reads a typed value from JSON that may be of another version or edited by hand, as far as it is valid.

_Value = TypeVar("_Value", bound=msgspec.Struct)


def lenient(kind: type[_Value], content: dict[str, Any], problems: list[str], inside: str = "") -> _Value:
    """``content`` as a value of ``kind``, with defaults for what is missing or invalid.

    The names of invalid fields are appended to ``problems``, after ``inside``. Every field needs a default.
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
    """The struct that an annotation names, if it names exactly one."""
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
