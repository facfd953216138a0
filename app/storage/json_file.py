"""One JSON file of our own: atomic, locked, versioned."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from app import decoders
from app.errors import KnownError
from app.storage.files import broken_name, remove_strays, strays, write_whole
from app.storage.lock import Lock

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
        return decoders.decode(data, kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\ud" not in data.lower():
            raise
    return decoders.convert(json.loads(data), kind, str_keys=True)  # half a surrogate pair


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
