"""The open chat file and what belongs to it: its log, its note, its search index, its backups."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from app.chats import erasing
from app.chats.backup import back_up_daily, remove_old
from app.chats.database import MEMORY, known_errors, open_database
from app.chats.search import Search
from app.chats.search_upkeep import Upkeep

log = logging.getLogger(__name__)


class ChatFile:
    """Opens, writes and closes the chat file. See `app.chats.store.ChatStore`."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open or create the file; with the path `MEMORY` nothing is written. ``clock`` gives seconds since 1970."""
        self._path = path
        self._clock = clock
        self._connection, self.notice = open_database(path)
        """``notice``: what to tell the user if the file was damaged."""
        on_disk = path if path != MEMORY else None
        self._is_on_disk = on_disk is not None
        self._traces = erasing.Note(on_disk, ".erasing")
        """That the file may have something that was deleted."""
        self._copies = erasing.Note(on_disk, ".copies")
        """That an engine may have it."""
        self._upkeep = Upkeep(self._connection, on_disk)
        self._search = Search(self._connection, self._upkeep)
        log.info("chat file open, SQLite %s", sqlite3.sqlite_version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Make the day's backup if something has changed, and close the file."""
        try:
            if self._is_on_disk and self._connection.total_changes > 0:
                back_up_daily(self._connection, self._path, self._now())
        except (sqlite3.Error, OSError) as error:
            log.warning("no backup of the chats: %s", error)
        finally:
            self._upkeep.close()
            self._connection.close()

    def remove_old_backups(self) -> None:
        """Remove the backups that are a month old. Failures are only logged."""
        try:
            if self._is_on_disk:
                remove_old(self._connection, self._path, self._now())
        except (sqlite3.Error, OSError) as error:
            log.warning("old backups of the chats are still there: %s", error)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock())

    @contextlib.contextmanager
    def _writing(self, *, list_changes: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: either all of it is on the disk afterwards, or nothing.

        ``list_changes``: whether it may change titles of chats or their order.
        """
        if list_changes:
            self._search.forget_titles()
        with known_errors(self._path), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection

    def _write(self, statement: str, values: Sequence[object] = (), *, list_changes: bool = True) -> None:
        """Run one statement in a transaction."""
        with self._writing(list_changes=list_changes) as connection:
            connection.execute(statement, values)

    def _write_each(self, statement: str, value: object, chat_ids: Collection[str]) -> None:
        with self._writing() as connection:
            connection.executemany(statement, [(value, one) for one in chat_ids])

    def _row(self, query: str, key: str) -> tuple[Any, ...]:
        with known_errors(self._path):
            row: tuple[Any, ...] | None = self._connection.execute(query, (key,)).fetchone()
        if row is None:
            raise LookupError(key)
        return row
