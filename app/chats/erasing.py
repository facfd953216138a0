"""Erasing deleted chats so that a kill between any two steps leaves nothing behind.

A deleted chat is hidden at first and can be brought back. When that is over, in this order:

1. a note, an empty file beside the chat file, says that something of deleted chats may be left;
2. their rows are removed;
3. the chat file is written anew and its log emptied: SQLite's ``secure_delete`` alone can leave copies of rows that
   it has moved within the file;
4. the engine erases its copies of KV caches, in memory and on disk;
5. the note is removed.

Every step may be repeated. A start that finds the note, or a chat that is still hidden, begins again at the first.
An index over the text (FTS5) would need its ``optimize`` between the second step and the third.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection
from pathlib import Path

from app.storage.files import sync_folder

_HIDDEN = "SELECT id FROM chats WHERE deleted_at IS NOT NULL"


class Erasing:
    """Steps 1, 2, 3 and 5 for one open chat file; the fourth is for whoever knows the engine."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._folder = path.parent
        self._note = path.with_name(path.name + ".erasing")
        self._is_rewritten = False

    def is_due(self) -> bool:
        """Whether there are hidden chats, or an earlier erasing was not finished."""
        return self._note.exists() or self._connection.execute(f"{_HIDDEN} LIMIT 1").fetchone() is not None

    def remove_rows(self, chat_ids: Collection[str] | None) -> None:
        """Steps 1 and 2, for those of ``chat_ids`` that are hidden, or for all that are. Raises `OSError`."""
        self._is_rewritten = False
        self._write_note()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for (chat_id,) in self._connection.execute(_HIDDEN).fetchall():
                if chat_ids is None or chat_id in chat_ids:
                    self._connection.execute("DELETE FROM chats WHERE id = ?", (chat_id,))
            self._connection.execute("DELETE FROM unsent WHERE chat_id != '' AND chat_id NOT IN (SELECT id FROM chats)")
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def rewrite(self) -> None:
        """Step 3. Takes about a second for 100 MB."""
        self._connection.execute("VACUUM")
        (busy, *_) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._is_rewritten = not busy

    def finish(self) -> None:
        """Step 5, unless an earlier one failed: then the next start tries again. Raises `OSError`."""
        if self._is_rewritten:
            self._note.unlink(missing_ok=True)

    def _write_note(self) -> None:
        os.close(os.open(self._note, os.O_CREAT | os.O_WRONLY, 0o600))
        sync_folder(self._folder)  # the note must be on the disk before anything is removed
