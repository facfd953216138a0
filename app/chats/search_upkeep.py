"""Updates the search index a little at a time."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from app.chats.rows import SEARCHED
from app.chats.search_index import SearchIndex, SearchIndexError, Text, failures, remove
from app.chats.search_text import indexable

log = logging.getLogger(__name__)

_STEP_CHARACTERS = 50_000
"""About 30 ms."""
_BATCH = 50
_TEXT = f"SELECT m.seq, c.number, {SEARCHED} FROM messages m JOIN chats c ON c.id = m.chat_id"


class Upkeep:
    """Keeps the index of an open chat file up to date."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        """``path`` of the chat file; ``None`` if it is in memory, which has no index."""
        self._connection = connection
        self._path = path.with_name(path.name + ".search") if path is not None else None
        self._index: SearchIndex | None = None
        self._tries = 2 if path is not None else 0

    def close(self) -> None:
        if self._index is not None:
            self._index.close()

    def step(self) -> bool:
        """Update the index a little; to be called by a thread that has nothing else to do. Returns whether there is
        more to do.
        """
        try:
            return (index := self.opened()) is not None and (
                self._add_new(index) or self._add_old(index) or index.optimize()
            )
        except SearchIndexError as failure:
            self.start_anew(failure)
            return self._tries > 0

    @contextlib.contextmanager
    def removing(self, column: str, ids: Iterable[str], *, is_erased: bool = True) -> Iterator[None]:
        """Wraps the removal of, or a change to, the messages with these ids (``m.id``), or those of these chats
        (``m.chat_id``). ``is_erased``: nothing may be left of them, nor of what was removed before.
        """
        rows: list[Text] = []
        try:
            if (index := self.opened()) is not None and (rows := self._indexed(index, column, ids)):
                index.begin_removing()
        except SearchIndexError as failure:
            self.start_anew(failure)
            index = None
        try:
            yield
        except BaseException:
            if index is not None and rows:
                with contextlib.suppress(SearchIndexError):
                    index.keep()
            raise
        try:
            if index is not None and (rows or is_erased):
                index.remove(rows, is_erased)
        except SearchIndexError as failure:
            self.start_anew(failure)

    def _indexed(self, index: SearchIndex, column: str, ids: Iterable[str]) -> list[Text]:
        """What the index contains of them."""
        query = f"""
            {_TEXT} WHERE {column} = ? AND m.seq >= ? AND m.status != 'streaming'
            AND m.seq NOT IN (SELECT seq FROM unindexed)
        """
        found = (row for one in ids for row in self._connection.execute(query, (one, index.low)))
        return [Text(seq, number, indexable(text)) for seq, number, text in found]

    def opened(self) -> SearchIndex | None:
        """The index of exactly these chats, created if there is none."""
        if self._index is None and self._path is not None and self._tries > 0:
            row = self._connection.execute("SELECT key FROM search_index").fetchone()
            self._index = SearchIndex(self._path)
            if not self._index.is_of(row[0] if row else None):
                self._make(self._path)
        return self._index

    def is_behind(self, index: SearchIndex) -> bool:
        return index.low > 0 or self._connection.execute("SELECT 1 FROM unindexed LIMIT 1").fetchone() is not None

    def _make(self, path: Path) -> None:
        self.close()
        with failures():
            remove(path)
        key = uuid.uuid4().hex
        (last,) = self._connection.execute("SELECT coalesce(max(seq), 0) FROM messages").fetchone()
        self._index = SearchIndex(path)
        self._index.fill_anew(key, last + 1)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM search_index")
            self._connection.execute("INSERT INTO search_index VALUES (?)", (key,))
            self._connection.execute("DELETE FROM unindexed")

    def start_anew(self, failure: SearchIndexError) -> None:
        """A damaged index is rebuilt once. If that fails, too, searches work without an index in this session."""
        log.info("the search index is given up: %s", failure)
        self._tries -= 1
        self.close()
        self._index = None
        try:
            if self._path is not None:
                remove(self._path)
        except OSError as error:
            log.info("and cannot be removed: %s", error)
            self._tries = 0

    def _add_new(self, index: SearchIndex) -> bool:
        """Messages that were added or changed since the index was created."""
        new = [one for (one,) in self._connection.execute("SELECT seq FROM unindexed ORDER BY seq LIMIT ?", (_BATCH,))]
        if not new:
            return False
        some = f"({', '.join(str(one) for one in new)})"
        # Those below are added with the old ones: each message is in the index once.
        query = f"{_TEXT} WHERE m.seq IN {some} AND m.seq >= ? AND m.status != 'streaming'"
        found = self._connection.execute(query, (index.low,))
        index.add([Text(seq, number, indexable(text)) for seq, number, text in found], index.low)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(f"DELETE FROM unindexed WHERE seq IN {some}")
        return True

    def _add_old(self, index: SearchIndex) -> bool:
        """Messages from before the index was created, newest first."""
        if index.low == 0:
            return False
        query = f"{_TEXT} WHERE m.seq < ? AND m.status != 'streaming' ORDER BY m.seq DESC"
        rows: list[Text] = []
        size = 0
        for seq, number, text in self._connection.execute(query, (index.low,)):
            rows.append(Text(seq, number, indexable(text)))
            size += len(text)
            if size > _STEP_CHARACTERS:
                break
        index.add(rows, rows[-1].seq if rows else 0)
        return True
