"""Erasing what was deleted, so that a kill between any two steps leaves nothing behind.

1. A note, an empty file beside the chat file, says that something that was deleted may be left;
2. the rows are removed;
3. the search index loses the words and is optimized, as FTS5 only marks what is deleted;
4. the chat file is written anew and its log emptied: SQLite's ``secure_delete`` alone can leave copies of rows that
   it has moved within the file;
5. whoever knows the engine has it erase its copies of KV caches, in memory and on disk;
6. the note is removed.

Every step may be repeated. A start that finds the note begins again at the first.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from pathlib import Path

from app.errors import KnownError
from app.storage.files import sync_folder

log = logging.getLogger(__name__)


class Note:
    """The note beside a chat file; there is none where the chats are in memory only."""

    def __init__(self, path: Path | None) -> None:
        """``path`` is the chat file."""
        self._path = path.with_name(path.name + ".erasing") if path is not None else None
        self.may_go = False
        """Whether nothing that was deleted is left in the file."""

    def exists(self) -> bool:
        return self._path is not None and self._path.exists()

    def write(self) -> None:
        """Write the note to the disk, before anything is removed. Raises `OSError`."""
        self.may_go = False
        if self._path is not None:
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
            sync_folder(self._path.parent)

    def remove(self) -> None:
        """Remove the note, unless something may be left. If it can't be removed, the next start erases once more."""
        try:
            if self.may_go and self._path is not None:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.info("deleted chats will be erased once more: %s", error)


def rewrite(connection: sqlite3.Connection) -> bool:
    """Rewrite the file and empty its log. Returns whether that was possible; takes about a second per 100 MB."""
    connection.execute("VACUUM")
    (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def not_erased(error: Exception) -> KnownError:
    log.info("deleted chats are not erased yet: %s", error)
    return KnownError(
        "A deleted chat couldn't be erased from the disk yet. The disk may be full or read-only. "
        "Slipstream will try again the next time it starts."
    )
