"""Erases deleted chats, so that a kill between any two steps leaves nothing behind.

1. Two notes (files beside the chat file) record that deleted text may remain: one in the chat file, the other in the
   engine's copies;
2. the rows are removed;
3. the search index drops the words and is optimized, as FTS5 only marks what is deleted;
4. the chat file is rewritten and its log emptied, because SQLite's ``secure_delete`` can miss copies of rows that it
   moved within the file; then the first note is removed;
5. the owner of the engine has it erase its KV caches in memory and on disk; then the second note is removed.

Every step may be repeated. A start that finds the first note begins again at step 1; with only the second, at step 5.

Moving a chat to the trash erases the engine's copies of it at once (step 5 with its note). A deleted message, which can
be undone, is overwritten by ``secure_delete``; what remains of it goes with the next erased chat (all copies go then)
or when its note is due.
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
    """A note file beside a chat file; chats in memory have none."""

    def __init__(self, path: Path | None, ending: str) -> None:
        """``ending`` is appended to the name of the chat file ``path``."""
        self._path = path.with_name(path.name + ending) if path is not None else None

    def exists(self) -> bool:
        """Whether the note exists, due or not."""
        return self._path is not None and self._path.exists()

    def is_due(self, now: float) -> bool:
        """Whether the note exists and is due; ``now`` in seconds since 1970. Raises nothing."""
        if self._path is None:
            return False
        try:
            return float(self._path.read_bytes() or b"0") <= now
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return True

    def write(self, due: float = 0.0) -> None:
        """Write the note to the disk, before anything is removed; of two due times, the earlier counts.

        ``due`` in seconds since 1970; 0 means at once. Raises `OSError`.
        """
        if self._path is None or self.is_due(due):
            return
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, str(int(due)).encode() if due else b"")  # if truncated, an earlier time
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self._path.parent)

    def remove(self) -> None:
        """Remove the note. If that fails, the next start erases again."""
        try:
            if self._path is not None:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.info("deleted chats will be erased once more: %s", error)


def rewrite(connection: sqlite3.Connection) -> bool:
    """Rewrite the file and empty its log (about a second per 100 MB). Returns ``False`` if a reader of the log prevents
    that. Raises `sqlite3.Error`.
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
