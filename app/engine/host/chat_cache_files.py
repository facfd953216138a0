"""Saved KV caches on disk: one folder with a limit, written by a separate thread while nothing computes."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from app import paths
from app.engine.decoding.kv_cache import State, covers
from app.engine.host import state_file
from app.engine.host.state_file import BadFileError, StateFile
from app.errors import Canceled, KnownError
from app.storage.chat_caches import ENDING, PART_ENDING, erase_chat_caches, is_of, new_name

log = logging.getLogger("slipstream.chat_cache")

LIMIT = 4 * 1024**3
_SHARE_OF_FREE = 10
_DAYS = 30
"""A file that nobody used for this long is deleted: its model may be gone, and chats shouldn't be left on disk."""
_PART_SECONDS = 600.0
"""An unfinished file older than this was left behind by an engine that was killed."""
_LAST_CHUNK_SECONDS = 0.3


@dataclass(eq=False)
class _Job:
    owner: str
    chat: str
    state: State
    is_canceled: bool = False


class ChatCacheFiles:
    """The files in one folder. Several engines may use the same one: names are unique, and any file may disappear.

    All methods but `flush` return quickly. If the disk fails, only the time a file would have saved is lost.
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        """``limit`` in bytes, but never more than a tenth of what would be free without these files."""
        self._folder = folder
        self._limit = limit
        self._changed = threading.Condition()
        """Guards everything below."""
        self._known: dict[str, list[StateFile]] = {}
        self._jobs: list[_Job] = []
        """What has not been written yet, in order; the first may be half-written."""
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
            state = state_file.read(file, is_canceled)
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
                found.append(state_file.look(path, owner))
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
            return list(self._folder.glob(pattern))
        except OSError:
            return []

    # ------------------------------------------------------------ writing

    def put(self, owner: str, state: State, chat: str = "") -> None:
        """Write ``state`` soon, unless a file of ``owner``, or one still to be written, contains it already."""
        with self._changed:
            others: list[State | StateFile] = list(self.of(owner))
            others += [job.state for job in self._jobs if job.owner == owner and not job.is_canceled]
            if any(covers(other.tokens, other.least, state.tokens) for other in others):
                return
            self._jobs.append(_Job(owner, chat, state))
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
            self._changed.wait_for(
                lambda: not self._jobs, _LAST_CHUNK_SECONDS
            )  # otherwise, its unfinished file would stay

    def forget(self, chats: Collection[str] = ()) -> None:
        """Delete the files of these chats and of unknown ones, of every owner, and what is still to be written of them;
        without ``chats`` all.
        """
        with self._changed:
            self._cancel(chats)
            for files in self._known.values():
                files[:] = [file for file in files if not is_of(file.chat, chats)]
            erase_chat_caches(self._folder, chats)

    def _cancel(self, chats: Collection[str] = ()) -> None:
        for job in self._jobs:
            job.is_canceled = job.is_canceled or is_of(job.chat, chats)
        self._changed.notify_all()

    # ------------------------------------------------------------ the writing thread

    def _write_all(self) -> None:
        while self._write_next():
            pass

    def _write_next(self) -> bool:
        """Write one state; returns False if there is none. In a separate function, so that nothing refers to the state
        later.
        """
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
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(job.state.data) > self._allowed_bytes():
            log.info("a cache of %d MiB is not saved: the disk is nearly full", len(job.state.data) >> 20)
            return
        part = state_file.write(self._folder, job.owner, job.chat, job.state, lambda: self._is_canceled(job))
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
        """Register a new file, and delete those it makes redundant and those there is no space for."""
        for other in self.of(new.owner):
            if covers(new.tokens, new.least, other.tokens):
                self.delete(other)
        self._known[new.owner].append(new)
        sizes = self._sizes()
        excess = sum(size for _, size, _ in sizes) - self._allowed_bytes()
        for _, size, oldest in sorted(sizes):
            if excess <= 0 or oldest == new.path:
                break
            excess -= size
            self._drop(oldest)
            _unlink(oldest)

    def _allowed_bytes(self) -> int:
        """The maximum size of all files together."""
        held = sum(size for _, size, _ in self._sizes())
        return min(self._limit, (shutil.disk_usage(self._folder).free + held) // _SHARE_OF_FREE)

    def _sizes(self) -> list[tuple[float, int, Path]]:
        """Time of the last use, bytes and path of each file."""
        sizes = []
        for path in self._paths(f"*{ENDING}"):
            with contextlib.suppress(OSError):
                status = path.stat()
                sizes.append((status.st_mtime, status.st_size, path))
        return sizes


def of_this_user() -> ChatCacheFiles | None:
    """Where engine processes save KV caches; ``None`` if there is no place for them."""
    try:
        return ChatCacheFiles(paths.chat_caches_dir())
    except KnownError as error:
        log.info("no caches are saved to disk: %s", error)
        return None


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
