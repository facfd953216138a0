"""Saved KV caches on disk: the format of a file, and one folder with a limit."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from app import system
from app.engine.decoding.sequence import State, Tokens, covers
from app.storage.files import ENDING, PART_ENDING, chat_of, erase_chat_caches, is_of, name_begins, new_name
from app.storage.json_file import NOT_UNDERSTOOD
from app.system import Canceled, KnownError

# The format of a file that holds a copy of a KV cache: header, tokens, the engine's own bytes, a SHA-256 of it all.
#
#     8 bytes magic · 4 bytes length of the header · header (JSON) · tokens (int32) · state · 32 bytes digest
#
# The digest is checked before anything of the file reaches the engine, which trusts what it reads back.

_MAGIC = b"SLIPKV\x00\x01"
_LENGTH = struct.Struct("<I")
_LONGEST_HEADER = 4096
_CHUNK = 4 * 1024 * 1024
_DIGEST_BYTES = hashlib.sha256().digest_size
_TOKEN = np.dtype("<i4")

_Count = Annotated[int, msgspec.Meta(ge=0)]


class BadFileError(Exception):
    """The file is damaged, cut off, or not one of ours."""


class Header(msgspec.Struct, frozen=True):
    """What a file says about the state in it; see `StateFile`."""

    owner: str
    tokens: _Count
    size: _Count
    least: _Count


@dataclass(frozen=True, eq=False)
class StateFile:
    """What a file says about itself; only `read` checks everything."""

    path: Path
    owner: str
    tokens: Tokens
    size: int
    """The size of the state in bytes."""
    least: int
    """See `State.least`."""

    @property
    def chat(self) -> str:
        """The id of the chat; empty if that is unknown."""
        return chat_of(self.path)


def write(folder: Path, owner: str, chat: str, state: State, is_canceled: Callable[[], bool]) -> Path:
    """Write a file that only the user can read under a temporary name, and return its path.

    ``is_canceled`` is called every few MiB. Raises `Canceled` and `OSError`; nothing is left then. There is no
    ``fsync``: a file damaged by a power cut is noticed when it is read, and only saved time is lost.
    """
    descriptor, name = tempfile.mkstemp(prefix=name_begins(owner, chat), suffix=PART_ENDING, dir=folder)
    part = Path(name)
    header = Header(owner, len(state.tokens), len(state.data), state.least)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - the descriptor is open already
            digest = hashlib.sha256()
            for chunk in chunks(header, state):
                if is_canceled():
                    raise Canceled
                file.write(chunk)
                digest.update(chunk)
            file.write(digest.digest())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part


def look(path: Path, owner: str) -> StateFile:
    """What ``path`` says about itself. Raises `BadFileError` if it can't be ``owner``'s, and `OSError`."""
    with path.open("rb") as file:
        _, header, tokens = _read_front(file, owner)
    return StateFile(path, owner, tokens, header.size, header.least)


def read(known: StateFile, is_canceled: Callable[[], bool]) -> State:
    """The state in a file, checked; ``is_canceled`` is called every few MiB. Raises `Canceled`, `BadFileError`,
    `OSError`, and `MemoryError` if there isn't enough memory for it."""
    with known.path.open("rb") as file:
        front, header, tokens = _read_front(file, known.owner)
        digest = hashlib.sha256(front)
        data = np.empty(header.size, np.uint8)
        for begin in range(0, header.size, _CHUNK):
            if is_canceled():
                raise Canceled
            chunk = data.data[begin : begin + _CHUNK]
            if file.readinto(chunk) != len(chunk):
                raise BadFileError("cut short")
            digest.update(chunk)
        if file.read() != digest.digest():
            raise BadFileError("the digest does not match")
    return State(tokens, data, header.least)


def chunks(header: Header, state: State) -> Iterator[memoryview | bytes]:
    """The content of a file, without the digest."""
    encoded = msgspec.json.encode(header)
    yield _MAGIC + _LENGTH.pack(len(encoded)) + encoded + state.tokens.astype(_TOKEN).tobytes()
    for begin in range(0, len(state.data), _CHUNK):
        yield state.data.data[begin : begin + _CHUNK]


def _read_front(file: BufferedReader, owner: str) -> tuple[bytes, Header, Tokens]:
    """Everything before the state: its bytes, and their meaning."""
    front = file.read(len(_MAGIC) + _LENGTH.size)
    if len(front) != len(_MAGIC) + _LENGTH.size or not front.startswith(_MAGIC):
        raise BadFileError("not a saved cache")
    (length,) = _LENGTH.unpack_from(front, len(_MAGIC))
    if length > _LONGEST_HEADER:
        raise BadFileError("not a saved cache")
    encoded = file.read(length)
    try:
        header = system.decode(encoded, Header)
    except NOT_UNDERSTOOD as error:
        raise BadFileError(str(error)) from error
    size = len(front) + length + header.tokens * _TOKEN.itemsize + header.size + _DIGEST_BYTES
    if header.owner != owner or header.least > header.tokens or os.fstat(file.fileno()).st_size != size:
        raise BadFileError("another owner or another size")
    text = file.read(header.tokens * _TOKEN.itemsize)
    if len(text) != header.tokens * _TOKEN.itemsize:
        raise BadFileError("cut short")
    return front + encoded + text, header, np.frombuffer(text, _TOKEN).astype(np.int32)


log = logging.getLogger("slipstream.chat_cache")

LIMIT = 4 * 1024**3
_SHARE_OF_FREE = 10
_DAYS = 30
"""Files that weren't used for this long are deleted: the model may be gone, and chats shouldn't be left on disk."""
_PART_SECONDS = 600.0
"""An unfinished file older than this was left behind by an engine that was killed."""
_LAST_CHUNK_SECONDS = 0.3


@dataclass(eq=False)
class _Job:
    folder: Path
    owner: str
    chat: str
    state: State
    is_canceled: bool = False


class ChatCacheFiles:
    """The files in one folder. Several engines may use the same one: names are unique, and any file may disappear.

    All methods but `flush` return quickly. If the disk fails, only the time a file would have saved is lost.
    """

    def __init__(self, folder: Path | None, limit: int = LIMIT) -> None:
        """Without a ``folder`` nothing is written. ``limit`` in bytes, but never more than a tenth of what would be
        free without these files.
        """
        self.folder = folder
        self._limit = limit
        self._changed = threading.Condition()
        """Guards everything below."""
        self._known: dict[str, list[StateFile]] = {}
        self._jobs: list[_Job] = []
        """What is still to be written, in order; the first may be half-written."""
        self._is_waiting = False
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------ reading

    def of(self, owner: str) -> list[StateFile]:
        """The files of ``owner``; damaged ones are deleted when this is first called."""
        with self._changed:
            if owner not in self._known:
                self._delete_old()
                self._known[owner] = self._found(owner)
            return list(self._known[owner])

    def read(self, file: StateFile, is_canceled: Callable[[], bool]) -> State | None:
        """The state in ``file``; ``None`` if reading is canceled or fails. A damaged file is deleted."""
        try:
            state = read(file, is_canceled)
        except Canceled:
            return None
        except BadFileError as error:
            log.info("a saved cache is deleted: %s", error)
            self.delete(file)
            return None
        except (OSError, MemoryError) as error:
            log.info("a saved cache could not be read: %s", error)
            with self._changed:
                self._drop(file.path)
            return None
        with contextlib.suppress(OSError):
            os.utime(file.path)  # the time of the last use decides which is deleted first
        return state

    def delete(self, file: StateFile) -> None:
        """Delete one file."""
        with self._changed:
            self._drop(file.path)
        _unlink(file.path)

    def _drop(self, path: Path) -> None:
        for files in self._known.values():
            files[:] = [file for file in files if file.path != path]

    def _found(self, owner: str) -> list[StateFile]:
        found = []
        for path in self._paths(f"{owner}-*{ENDING}"):
            try:
                found.append(look(path, owner))
            except BadFileError as error:
                log.info("a saved cache is deleted: %s", error)
                _unlink(path)
            except (OSError, MemoryError) as error:
                log.info("a saved cache is left alone: %s", error)
        return found

    def _delete_old(self) -> None:
        now = time.time()
        for pattern, seconds in ((f"*{ENDING}", _DAYS * 86400.0), (f"*{PART_ENDING}", _PART_SECONDS)):
            for path in self._paths(pattern):
                with contextlib.suppress(OSError):
                    if now - path.stat().st_mtime > seconds:
                        path.unlink()

    def _paths(self, pattern: str) -> list[Path]:
        try:
            return list(self.folder.glob(pattern)) if self.folder else []
        except OSError:
            return []

    # ------------------------------------------------------------ writing

    def put(self, owner: str, state: State, chat: str = "") -> None:
        """Write ``state`` soon, unless a file of ``owner``, or one still to be written, contains it."""
        if self.folder is None:
            return
        with self._changed:
            others: list[State | StateFile] = list(self.of(owner))
            others += [job.state for job in self._jobs if job.owner == owner and not job.is_canceled]
            if any(covers(other.tokens, other.least, state.tokens) for other in others):
                return
            self._jobs.append(_Job(self.folder, owner, chat, state))
            if self._thread is None:  # no file outlives its purpose
                self._thread = threading.Thread(target=self._write_all, name="saved caches", daemon=True)
                self._thread.start()

    def unwritten_bytes(self) -> int:
        """Memory used by what is still to be written."""
        with self._changed:
            return sum(len(job.state.data) for job in self._jobs)

    def wait(self, waits: bool) -> None:
        """Whether to delay writing, because two computations at once on few cores slow each other down."""
        with self._changed:
            self._is_waiting = waits
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Write the rest for at most ``seconds``; whatever isn't written by then never will be."""
        with self._changed:
            self._is_waiting = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._jobs, seconds)
            self._cancel()
            self._changed.wait_for(lambda: not self._jobs, _LAST_CHUNK_SECONDS)  # or its unfinished file would stay

    def forget(self, chats: Collection[str] = ()) -> None:
        """Delete the files of these chats and of unknown ones, and what is still to be written; without ``chats``
        all."""
        with self._changed:
            self._cancel(chats)
            for files in self._known.values():
                files[:] = [file for file in files if not is_of(file.chat, chats)]
            if self.folder:
                erase_chat_caches(self.folder, chats)

    def _cancel(self, chats: Collection[str] = ()) -> None:
        for job in self._jobs:
            job.is_canceled = job.is_canceled or is_of(job.chat, chats)
        self._changed.notify_all()

    # ------------------------------------------------------------ the writing thread

    def _write_all(self) -> None:
        while self._write_next():
            pass

    def _write_next(self) -> bool:
        """Write one state; returns False if there is none. In a function of its own, so that no variable keeps the
        state in memory."""
        with self._changed:
            if not self._jobs:
                self._thread = None
                return False
            job = self._jobs[0]
        try:
            self._write(job)
        except Canceled:
            pass
        except (OSError, MemoryError) as error:
            log.info("a cache is not saved to disk: %s", error)
        except Exception:
            log.exception("a cache is not saved to disk")
        finally:
            with self._changed:
                self._jobs.remove(job)
                self._changed.notify_all()
        return True

    def _write(self, job: _Job) -> None:
        if self._is_canceled(job):
            return
        job.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(job.state.data) > self._allowed_bytes(job.folder):
            log.info("a cache of %d MiB is not saved: the disk is nearly full", len(job.state.data) >> 20)
            return
        part = write(job.folder, job.owner, job.chat, job.state, lambda: self._is_canceled(job))
        with self._changed:
            try:
                if job.is_canceled:
                    return
                path = part.with_name(new_name(job.owner, job.chat))
                part.replace(path)
            finally:
                _unlink(part)
            self._add(StateFile(path, job.owner, job.state.tokens, len(job.state.data), job.state.least))

    def _is_canceled(self, job: _Job) -> bool:
        """Waits while something computes."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_waiting or job.is_canceled)
            return job.is_canceled

    def _add(self, new: StateFile) -> None:
        """Register a new file; delete those it makes redundant, and those for which there is no space."""
        for other in self.of(new.owner):
            if covers(new.tokens, new.least, other.tokens):
                self.delete(other)
        self._known[new.owner].append(new)
        sizes = self._sizes()
        excess = sum(size for _, size, _ in sizes) - self._allowed_bytes(new.path.parent)
        for _, size, oldest in sorted(sizes):
            if excess <= 0 or oldest == new.path:
                break
            excess -= size
            self._drop(oldest)
            _unlink(oldest)

    def _allowed_bytes(self, folder: Path) -> int:
        """The maximum size of all files together."""
        held = sum(size for _, size, _ in self._sizes())
        return min(self._limit, (shutil.disk_usage(folder).free + held) // _SHARE_OF_FREE)

    def _sizes(self) -> list[tuple[float, int, Path]]:
        """Time of the last use, bytes and path of each file."""
        sizes = []
        for path in self._paths(f"*{ENDING}"):
            with contextlib.suppress(OSError):
                status = path.stat()
                sizes.append((status.st_mtime, status.st_size, path))
        return sizes


def of_this_user() -> ChatCacheFiles:
    """Where engine processes save KV caches, if there is a place for them."""
    try:
        return ChatCacheFiles(system.chat_caches_dir())
    except KnownError as error:
        log.info("no caches are saved to disk: %s", error)
        return ChatCacheFiles(None)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
