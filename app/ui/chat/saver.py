"""Writes what happens in a chat to the store, in order. What the store refuses is kept and tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

from app.chats.store import ChatStore
from app.errors import KnownError
from app.ui.chat.stored_chats import StoredChats

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class _Write:
    operation: Callable[[ChatStore], object]
    replaces: str
    """Takes the place of the write before it with the same name, if that has not begun; empty for none."""


class ChatSaver(QObject):
    """One for each open chat.

    Signals:
        changed: Everything is written now, or the store refused something; see `is_idle` and `failure`.
    """

    changed = Signal()

    def __init__(self, chat_store: StoredChats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chat_store = chat_store
        self._lock = threading.Lock()
        self._writes: list[_Write] = []
        """The first may be running, in the thread of the store."""
        self._is_running = False
        self._is_refused = False
        """Whether the last write that was tried failed."""
        self._open = 0
        """Answers of the store that are still to come."""
        self.failure: KnownError | None = None
        """Why the last try to write failed; ``None`` where it did not."""

    def is_idle(self) -> bool:
        """Whether everything was written, or refused, and nothing is being read."""
        return self._open == 0

    def is_saved(self) -> bool:
        """Whether the store has everything."""
        return self._open == 0 and not self._writes

    def write(
        self,
        operation: Callable[[ChatStore], object],
        done: Callable[[], None] | None = None,
        *,
        replaces: str = "",
    ) -> None:
        """Have the store do this after everything before; ``done`` is called when that was tried, well or badly."""
        with self._lock:
            begun = 1 if self._is_running else 0
            if replaces and len(self._writes) > begun and self._writes[-1].replaces == replaces:
                self._writes.pop()
            self._writes.append(_Write(operation, replaces))
        self._ask(self._flush, lambda _: self._told(done), lambda _error: self._told(done))

    def read(
        self, read: Callable[[ChatStore], T], done: Callable[[T], None], failed: Callable[[KnownError], None]
    ) -> None:
        """Ask the store, which is given first what it does not have yet."""

        def flush_and_read(store: ChatStore) -> T:
            self._flush(store)
            return read(store)

        self._ask(flush_and_read, done, failed)

    def save_again(self) -> None:
        """Try to write what was refused."""
        if self._writes:
            self._ask(self._flush, lambda _: None, lambda _error: None)

    def _ask(
        self, ask: Callable[[ChatStore], T], done: Callable[[T], None], failed: Callable[[KnownError], None]
    ) -> None:
        self._open += 1

        def answered(result: T) -> None:
            self._open -= 1
            self.failure = None
            done(result)
            self.changed.emit()

        def refused(error: KnownError) -> None:
            self._open -= 1
            self.failure = error if self._is_refused else None  # else it was read, and could not be
            failed(error)
            self.changed.emit()

        self._chat_store.ask(ask, answered, refused)

    @staticmethod
    def _told(done: Callable[[], None] | None) -> None:
        if done is not None:
            done()

    def _flush(self, store: ChatStore) -> None:
        """In the thread of the store: write what there is, up to the first that is refused."""
        while (write := self._next()) is not None:
            try:
                write.operation(store)
            except BaseException:
                with self._lock:
                    self._is_running, self._is_refused = False, True
                raise
            with self._lock:
                self._is_running = False
                self._writes.pop(0)

    def _next(self) -> _Write | None:
        with self._lock:
            self._is_running = bool(self._writes)
            self._is_refused = self._is_refused and self._is_running
            return self._writes[0] if self._writes else None
