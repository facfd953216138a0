"""The search index: which messages have which three letters in a row, in an SQLite file of its own (FTS5, trigram).

It is a file beside the chats, and not in theirs, because it can be made anew at any time: damage to it costs no chat,
backups do without it, and a check or a rewriting of the chats does not read it. It keeps no text, only the numbers of
messages and chats.

Texts come folded (`app.chats.search_text.fold`), and are removed with the very text they were added with.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

LEAST = 3
"""Characters of a word that can be looked up."""
MOST = 1500
_FORMAT = 1
"""To be raised when texts are folded differently, or the tables change."""
_SETTINGS = (
    "busy_timeout = 1000",
    "locking_mode = EXCLUSIVE",
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
)
_PAGES = 64
"""Of the index that are merged in a step."""


class Text(NamedTuple):
    """What the index needs from a message."""

    seq: int
    """Its number; newer messages have higher ones."""
    chat: int
    """The number of its chat."""
    folded: str


class SearchIndexError(Exception):
    """The index is damaged or can't be written, or SQLite has no FTS5."""


class SearchIndex:
    """An open index. All methods raise `SearchIndexError`."""

    def __init__(self, path: Path) -> None:
        self._is_merging = False
        with failures():
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None)
        try:
            with failures():
                for setting in _SETTINGS:
                    self._connection.execute(f"PRAGMA {setting}")
                self.key, self.low, self._is_removing, self._is_marked = self._state()
        except SearchIndexError:
            self._connection.close()
            raise

    def _state(self) -> tuple[str, int, bool, bool]:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version != _FORMAT:
            return "", 0, False, False
        row = self._connection.execute("SELECT key, low, is_removing, is_marked FROM state").fetchone()
        return str(row[0]), int(row[1]), bool(row[2]), bool(row[3])

    def close(self) -> None:
        self._connection.close()

    def is_of(self, key: str | None) -> bool:
        """Whether it belongs to the chats with this key, and no removal was interrupted."""
        return bool(self.key) and self.key == key and not self._is_removing

    def fill_anew(self, key: str, low: int) -> None:
        """Make it an empty index for messages below the number ``low``, which are to be added in descending order."""
        with self._writing() as connection:
            connection.execute(
                "CREATE VIRTUAL TABLE texts USING fts5 "
                "(text, content='', columnsize=0, tokenize='trigram case_sensitive 1')"
            )
            connection.execute("INSERT INTO texts (texts, rank) VALUES ('usermerge', 2)")
            connection.execute("CREATE TABLE owners (seq INTEGER PRIMARY KEY, chat INTEGER NOT NULL)")
            connection.execute("CREATE TABLE state (key TEXT, low INTEGER, is_removing INTEGER, is_marked INTEGER)")
            connection.execute("INSERT INTO state VALUES (?, ?, 0, 0)", (key, low))
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        self.key, self.low = key, low

    def add(self, texts: Sequence[Text], low: int) -> None:
        """Add messages; the index now has those from the number ``low`` on."""
        with self._writing() as connection:
            # In the order of their ids; otherwise, FTS5 would write each to a segment of its own.
            ordered = [(one.seq, one.folded) for one in sorted(texts)]
            connection.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", ordered)
            owners = [(one.seq, one.chat) for one in texts]
            connection.executemany("INSERT OR REPLACE INTO owners (seq, chat) VALUES (?, ?)", owners)
            connection.execute("UPDATE state SET low = ?", (low,))
        self.low = low

    def begin_removing(self) -> None:
        """The chats are about to lose messages. If the process is killed before `remove` or `keep`, the index is
        rebuilt.
        """
        self._set("is_removing", True)

    def keep(self) -> None:
        """They didn't lose them after all."""
        self._set("is_removing", False)

    def remove(self, texts: Sequence[Text], is_erased: bool) -> None:
        """Remove these texts. If they need not be erased, `optimize` doesn't have to rewrite the index for them."""
        with self._writing() as connection:
            ordered = [(one.seq, one.folded) for one in sorted(texts)]
            connection.executemany("INSERT INTO texts (texts, rowid, text) VALUES ('delete', ?, ?)", ordered)
            connection.executemany("DELETE FROM owners WHERE seq = ?", [(one.seq,) for one in texts])
            connection.execute("UPDATE state SET is_removing = 0, is_marked = max(is_marked, ?)", (is_erased,))
        self._is_removing = False
        if is_erased:
            self._is_marked, self._is_merging = True, False

    def optimize(self) -> bool:
        """FTS5 only marks what is removed: merge a little, until nothing of it is left. Returns whether there is more
        to do.
        """
        if not self._is_marked:
            return False
        with failures():
            before = self._connection.total_changes
            # The first merge, with a negative number of pages, selects all segments; later ones continue it.
            pages = _PAGES if self._is_merging else -_PAGES
            self._connection.execute("INSERT INTO texts (texts, rank) VALUES ('merge', ?)", (pages,))
            self._is_merging = True
            if self._connection.total_changes - before >= 2:  # FTS5's way of reporting that it merged something
                return True
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._set("is_marked", False)
        return False

    def newest(self, word: str) -> list[tuple[int, int]]:
        """The numbers of messages that contain a word and of their chats, newest first; at most `MOST`."""
        query = """
            SELECT texts.rowid, owners.chat FROM texts CROSS JOIN owners ON owners.seq = texts.rowid
            WHERE texts MATCH ? ORDER BY texts.rowid DESC LIMIT ?
        """
        with failures():
            return self._connection.execute(query, ('"' + word.replace('"', '""') + '"', MOST)).fetchall()

    def _set(self, name: str, value: bool) -> None:
        with self._writing() as connection:
            connection.execute(f"UPDATE state SET {name} = ?", (value,))
        setattr(self, f"_{name}", value)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with failures(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection


def remove(path: Path) -> None:
    """Remove an index from the disk. Raises `OSError`."""
    for ending in ("-wal", "-shm", "-journal", ""):
        path.with_name(path.name + ending).unlink(missing_ok=True)


@contextlib.contextmanager
def failures() -> Iterator[None]:
    """Turn SQLite and file errors of an index into a `SearchIndexError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise SearchIndexError(str(error)) from error
