"""Keeps other threads and processes from using one of our files while it is changed."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import filelock

_POLL_SECONDS = 0.02

_log = logging.getLogger(__name__)


class BusyError(OSError):
    """Another process has locked the file and doesn't release it."""

    def __init__(self) -> None:
        super().__init__(errno.EBUSY, "another Slipstream window is using it")


class Lock:
    """The lock of one file: ``NAME.lock`` next to it, which stays there (on Windows it is deleted with its last
    holder).

    The system releases it when its holder ends, however that happens. If it can't be acquired at all, as on a file
    system without locks or with something else of that name in the way, this is logged, and only threads are kept
    apart: no feature should fail because of a lock file.
    """

    def __init__(self, path: Path) -> None:
        """``path`` is the file to be protected."""
        self._path = path.with_name(f"{path.name}.lock")
        self._mutex = threading.RLock()
        self._file: filelock.BaseFileLock | None = None
        self._has_told = False

    @contextlib.contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Wait for it, at most this long. The same thread may acquire it again. Raises `BusyError` and `OSError`.

        For reading and writing a small file: never around anything that waits for the network or for the user.
        """
        if not self._mutex.acquire(timeout=seconds):
            raise BusyError
        try:
            self.acquire(seconds)
            try:
                yield
            finally:
                self.release()
        finally:
            self._mutex.release()

    def acquire(self, seconds: float = 0.0) -> None:
        """Keep other processes out until `release`. Raises as `held` does."""
        import filelock  # imported here, because it takes as long as everything else in the window's start except Qt

        with self._mutex:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._file is None:
                self._file = filelock.FileLock(self._path, thread_local=False, fallback_to_soft=False)
            try:
                self._file.acquire(timeout=seconds, poll_interval=_POLL_SECONDS)
            except (filelock.Timeout, RuntimeError):
                raise BusyError from None  # RuntimeError: this thread has it already, through another `Lock`
            except (OSError, NotImplementedError) as error:
                if not self._has_told:
                    _log.warning("%s can't be locked and is used without a lock: %s", self._path.stem, error)
                self._has_told = True

    def release(self) -> None:
        """Release it, unless something else here still needs it."""
        with self._mutex:
            if self._file is not None:
                self._file.release()
