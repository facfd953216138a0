"""Erasing what was deleted, so that a kill between any two steps leaves nothing behind.

1. Two notes, files beside the chat file, say that something that was deleted may be left: one in the file, the other
   in copies that an engine keeps;
2. the rows are removed;
3. the search index loses the words and is optimized, as FTS5 only marks what is deleted;
4. the chat file is written anew and its log emptied: SQLite's ``secure_delete`` alone can leave copies of rows that
   it has moved within the file; the note about the file is removed;
5. whoever knows the engine has it erase its copies of KV caches, in memory and on disk; the other note is removed.

Every step may be repeated. A start that finds the first note begins again at step 1, one that finds the second at
step 5.

When a chat goes to the trash the engine's copies of it go at once: that is step 5 with its note. A deleted message,
which can be undone, is overwritten by ``secure_delete``; what may be left of it is erased with the next chat, for which
all copies go then, or at the time that its note has.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from pathlib import Path

from app.storage.files import sync_folder
from app.system import KnownError

log = logging.getLogger(__name__)


class Note:
    """A note beside a chat file; there is none where the chats are in memory only."""

    def __init__(self, path: Path | None, ending: str) -> None:
        """``path`` is the chat file, ``ending`` what the note's name has behind that."""
        self._path = path.with_name(path.name + ending) if path is not None else None

    def exists(self) -> bool:
        """Whether it is there, and its time may be still to come."""
        return self._path is not None and self._path.exists()

    def is_due(self, now: float) -> bool:
        """Whether it is there, and its time has come. ``now`` in seconds since 1970. Raises nothing."""
        if self._path is None:
            return False
        try:
            return float(self._path.read_bytes() or b"0") <= now
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return True

    def write(self, due: float = 0.0) -> None:
        """Write the note to the disk, before anything is removed; if there is one already, the earlier time counts.

        ``due`` in seconds since 1970; 0 means at once. Raises `OSError`.
        """
        if self._path is None or self.is_due(due):
            return
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, str(int(due)).encode() if due else b"")  # a time cut short is an earlier one
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self._path.parent)

    def remove(self) -> None:
        """Remove the note because nothing is left. If it can't be removed, the next start erases once more."""
        try:
            if self._path is not None:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.info("deleted chats will be erased once more: %s", error)


def rewrite(connection: sqlite3.Connection) -> bool:
    """Rewrite the file and empty its log; takes about a second per 100 MB. Returns whether that was possible, which it
    isn't while somebody reads the log. Raises `sqlite3.Error`.
    """
    connection.execute("VACUUM")
    (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def not_erased(error: Exception) -> KnownError:
    log.info("deleted chats are not erased yet: %s", error)
    return KnownError(
        "A deleted chat couldn't be erased from the disk yet. The disk may be full or read-only. "
        "Slipstream will try again the next time it starts."
    )
