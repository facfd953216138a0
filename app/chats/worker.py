"""The one thread that owns the chat store."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from app.chats.store import ChatStore
from app.system import KnownError

log = logging.getLogger(__name__)

T = TypeVar("T")
_Task: TypeAlias = "tuple[Future[Any], Callable[[ChatStore], Any]]"


@dataclass(frozen=True, slots=True)
class Opened:
    """The result of opening the store."""

    notice: str | None
    """One or two sentences for the user if a damaged file was renamed."""
    may_have_copies: bool
    """The engine may have copies of deleted text. Call `ChatStore.finish_erasing` when these are gone."""


class ChatWorker:
    """Runs functions on the store, in order, in its own thread.

    Opening the store erases what has been in the trash long enough, and marks unfinished answers as interrupted. If it
    fails, `opened` and every later future get the `KnownError`.
    """

    def __init__(self, path: Path) -> None:
        self.opened: Future[Opened] = Future()
        self._path = path
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        # A daemon thread, so that a window that crashed without `close` doesn't keep the process alive.
        self._thread = threading.Thread(target=self._run, name="chats", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[[ChatStore], T]) -> Future[T]:
        """Run ``fn`` after everything submitted before. Raises `RuntimeError` after `close`."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the chat store is closed")
            self._tasks.put((future, fn))
        return future

    def close(self, wait_seconds: float | None = None) -> None:
        """Finish all tasks, make a backup and close the file; waits at most ``wait_seconds`` seconds."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._tasks.put(None)
        self._thread.join(wait_seconds)

    def _run(self) -> None:
        store: ChatStore | None = None
        try:
            store = ChatStore(self._path)
            self.opened.set_result(_opened(store))
        except Exception as error:
            _log_bug(error)
            if store is not None:
                store.close()
                store = None
            self.opened.set_exception(error)
        while (task := self._next(store)) is not None:
            future, function = task
            if not future.set_running_or_notify_cancel():
                continue
            if store is None:
                future.set_exception(self.opened.exception())
            else:
                _carry_out(future, function, store)
        if store is not None:
            store.close()

    def _next(self, store: ChatStore | None) -> _Task | None:
        """The next task; updates the search index while waiting."""
        while store is not None and self._tasks.empty() and _has_more(store):
            pass
        return self._tasks.get()


def _opened(store: ChatStore) -> Opened:
    """Clean up a store that has just been opened."""
    notice = store.notice
    try:
        store.tidy()
    except KnownError as error:  # all other chats can be read
        notice = notice or str(error)
    store.mark_interrupted()
    return Opened(notice, store.may_have_copies())


def _has_more(store: ChatStore) -> bool:
    try:
        return store.update_index()
    except Exception as error:  # the chats aren't affected, and the next task will show the problem
        _log_bug(error)
        return False


def _carry_out(future: Future[T], function: Callable[[ChatStore], T], store: ChatStore) -> None:
    try:
        result = function(store)
    except Exception as error:
        _log_bug(error)
        future.set_exception(error)
    else:
        future.set_result(result)


def _log_bug(error: Exception) -> None:
    # Nobody may look at the future, and a bug must not go unnoticed.
    if not isinstance(error, KnownError):
        log.error("a task of the chat store failed", exc_info=error)
