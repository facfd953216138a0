"""Kept KV caches on disk: one folder with a limit, written in a thread of its own while nothing computes."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.engine.decoding.kv_cache import State, covers
from app.engine.host import state_file
from app.engine.host.state_file import ENDING, PART_ENDING, BadFileError, StateFile
from app.storage.files import erase_files

log = logging.getLogger("slipstream.kept")

LIMIT = 4 * 1024**3
_SHARE_OF_FREE = 10
_DAYS = 30
"""After which a file nobody asked for goes: its model may be gone, and what chats said should not lie around."""
_PART_SECONDS = 600.0
"""After which an unfinished file was left behind by an engine that was killed."""
_LAST_CHUNK_SECONDS = 0.3


@dataclass(frozen=True)
class _Job:
    owner: str
    state: State
    token_seconds: float


class ChatCacheFiles:
    """The files in one folder. Several engines may use the same one: names are unique, and any file may vanish.

    All but `wait` in `flush` returns soon. Whatever the disk does costs nothing but what would have been kept.
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        """``limit`` in bytes, and never more than a tenth of what would be free without these files."""
        self._folder = folder
        self._limit = limit
        self._changed = threading.Condition()
        """Guards everything below."""
        self._known: dict[str, list[StateFile]] = {}
        self._jobs: deque[_Job] = deque()
        self._current: _Job | None = None
        self._waits = False
        self._generation = 0
        """Grows when what is not yet written must not be written any more."""
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------ reading

    def of(self, owner: str) -> list[StateFile]:
        """The files of ``owner``; those that are damaged are deleted when it is first asked for."""
        with self._changed:
            if owner not in self._known:
                self._tidy()
                self._known[owner] = self._looked_at(owner)
            return list(self._known[owner])

    def read(self, file: StateFile, owner: str, stopped: Callable[[], bool]) -> State | None:
        """The state in ``file``; ``None`` when told to stop. Raises `BadFileError`, and then it is deleted.

        Raises `OSError` and `MemoryError` too.
        """
        try:
            state = state_file.read(file.path, owner, stopped)
        except BadFileError:
            self.delete(file, owner)
            raise
        with contextlib.suppress(OSError):
            os.utime(file.path)  # the time of the last use decides who goes first
        return state

    def delete(self, file: StateFile, owner: str) -> None:
        """Delete one file."""
        self.drop(file, owner)
        _unlink(file.path)

    def drop(self, file: StateFile, owner: str) -> None:
        """Do not offer a file any more."""
        with self._changed:
            self._known[owner] = [other for other in self._known[owner] if other.path != file.path]

    def _looked_at(self, owner: str) -> list[StateFile]:
        found = []
        for path in self._paths(f"{owner}-*{ENDING}"):
            try:
                found.append(state_file.look(path, owner))
            except BadFileError as error:
                log.info("a kept cache is deleted: %s", error)
                _unlink(path)
            except (OSError, MemoryError) as error:
                log.info("a kept cache is left alone: %s", error)
        return found

    def _tidy(self) -> None:
        """Delete what was left behind."""
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

    def put(self, owner: str, state: State, token_seconds: float) -> None:
        """Write ``state`` soon, unless a file of ``owner`` or what is still to be written has it already."""
        job = _Job(owner, state, token_seconds)
        with self._changed:
            others = [(known.tokens, known.least) for known in self.of(owner)]
            others += [(j.state.tokens, j.state.least) for j in self._unwritten() if j.owner == owner]
            if any(covers(tokens, least, state.tokens) for tokens, least in others):
                return
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kept caches", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def unwritten_bytes(self) -> int:
        """Memory held by what is still to be written."""
        with self._changed:
            return sum(len(job.state.data) for job in self._unwritten())

    def wait(self, waits: bool) -> None:
        """Whether writing waits: two things that compute at the same time on few cores slow each other down."""
        with self._changed:
            self._waits = waits
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Write what is left for at most so many ``seconds``; what is not written then never will be."""
        with self._changed:
            self._waits = False
            self._changed.notify_all()
            self._changed.wait_for(self._is_idle, seconds)
            self._give_up()
            self._changed.wait_for(self._is_idle, _LAST_CHUNK_SECONDS)  # or its unfinished file stays

    def forget(self) -> None:
        """Delete all files, of whichever owner, and what is still to be written."""
        with self._changed:
            self._give_up()
            for owner in self._known:
                self._known[owner] = []
            erase_files(self._folder)

    def _unwritten(self) -> Iterator[_Job]:
        if self._current:
            yield self._current
        yield from self._jobs

    def _is_idle(self) -> bool:
        return not self._jobs and self._current is None

    def _give_up(self) -> None:
        self._generation += 1
        self._jobs.clear()
        self._changed.notify_all()

    # ------------------------------------------------------------ the writing thread

    def _run(self) -> None:
        while self._write_next():
            pass

    def _write_next(self) -> bool:
        """Write the next state; False where there is none and the thread has to end.

        A call of its own, so that nothing here holds the state it wrote while it waits for the next.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs or not self._waits)
            if not self._jobs:
                self._thread = None  # the next job starts another one: none outlives what it is for
                return False
            self._current = job = self._jobs.popleft()
            generation = self._generation
        try:
            self._write(job, generation)
        except (OSError, MemoryError) as error:
            log.info("a cache is not kept on disk: %s", error)
        except Exception:
            log.exception("a cache is not kept on disk")
        finally:
            with self._changed:
                self._current = None
                self._changed.notify_all()
        return True

    def _write(self, job: _Job, generation: int) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(job.state.data) > self._room():
            log.info("a cache of %d MiB is not kept on disk: too little room", len(job.state.data) >> 20)
            return
        part = state_file.write(
            self._folder, job.owner, job.state, job.token_seconds, lambda: self._goes_on(generation)
        )
        if part is None:
            return
        with self._changed:
            if generation != self._generation:
                _unlink(part)
                return
            path = part.with_name(f"{job.owner}-{secrets.token_hex(8)}{ENDING}")
            try:
                part.replace(path)
            except OSError:
                _unlink(part)
                raise
            self._add(job, path)

    def _goes_on(self, generation: int) -> bool:
        """Waits while something computes; False when nobody wants the file any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waits or generation != self._generation)
            return generation == self._generation

    def _add(self, job: _Job, path: Path) -> None:
        """Know a new file, and delete those it makes superfluous and those there is no room for."""
        state = job.state
        new = StateFile(path, state.tokens, len(state.data), state.least, job.token_seconds)
        known = self._known[job.owner]
        for other in [other for other in known if covers(state.tokens, state.least, other.tokens)]:
            known.remove(other)
            _unlink(other.path)
        known.append(new)
        sizes = self._sizes()
        excess = sum(size for _, size, _ in sizes) - self._room()
        for _, size, oldest in sorted(sizes):
            if excess <= 0 or oldest == path:
                break
            excess -= size
            for files in self._known.values():
                files[:] = [file for file in files if file.path != oldest]
            _unlink(oldest)

    def _room(self) -> int:
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


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
