"""The open chat file and what belongs to it: its log, its note, its search index, its attachments, its backups."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from app.chats import attachments, erasing
from app.chats.attachments import AttachmentFiles, Content, attachments_folder
from app.chats.backup import back_up_daily, remove_old
from app.chats.database import MEMORY, known_errors, open_database
from app.chats.model import Attachment, StoredMessage
from app.chats.search import Search
from app.chats.search_upkeep import Upkeep
from app.chats.tree import Deletion

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
        self._files = AttachmentFiles(attachments_folder(path) if on_disk is not None else None)
        self._deletions: weakref.WeakSet[Deletion] = weakref.WeakSet()
        """Those that may still be undone, for which attachments have to be there."""
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
            self._files.close()

    def remove_old_backups(self) -> None:
        """Remove the backups that are a month old. Failures are only logged."""
        try:
            if self._is_on_disk:
                remove_old(self._connection, self._path, self._now())
        except (sqlite3.Error, OSError) as error:
            log.warning("old backups of the chats are still there: %s", error)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """All changes made inside are on the disk afterwards, or none of them."""
        with self._writing():
            yield

    # ------------------------------------------------------------ attachments

    def keep(self, content: Content) -> Attachment:
        """Write what is to be attached to a message, so that `add_message` or `set_unsent_attachments` can name it."""
        return self._files.keep(content)

    def attachment_data(self, sha256: str) -> bytes | None:
        """The content of an attachment; ``None`` if it isn't there any more."""
        return self._files.read(sha256)

    def _filled(self, message: StoredMessage) -> StoredMessage:
        """The same with the texts of its attachments."""
        if not message.attachments:
            return message
        return replace(message, attachments=tuple(self._files.filled(one) for one in message.attachments))

    def _sweep(self) -> None:
        """Remove the contents of attachments that no message has any more. Raises `OSError`, `sqlite3.Error`."""
        wanted = attachments.hashes(self._connection)
        for deletion in self._deletions:
            wanted |= deletion.attached()
        self._files.sweep(wanted)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock())

    @contextlib.contextmanager
    def _writing(self, *, list_changes: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: either all of it is on the disk afterwards, or nothing. In `together` it is part of that.

        ``list_changes``: whether it may change titles of chats or their order.
        """
        if list_changes:
            self._search.forget_titles()
        if self._connection.in_transaction:
            yield self._connection
            return
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
