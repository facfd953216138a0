"""Finding chats by words in their titles and messages.

Words of three characters and more are looked up in the index. Shorter ones, as most Chinese words are, and words in
messages that the index does not have yet, are looked for in the texts, newest first and as far as `MOST_READ` goes.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

from app.chats.model import Chat, Found, Snippet
from app.chats.rows import CHAT
from app.chats.search_index import LEAST, MOST, Row, SearchIndex, SearchIndexError, remove
from app.chats.search_text import fold, snippet, words_of

log = logging.getLogger(__name__)

MOST_SNIPPETS = 3
MOST_READ = 1_500_000
"""Characters of messages that are read for short words."""
_LONGEST_SEARCH = 500
_STEP_CHARACTERS = 50_000
"""About 30 ms."""
_BATCH = 50
_NUMBER = (1 << 32) - 1
_ROW = "SELECT c.number << 32 | m.seq, m.text FROM messages m JOIN chats c ON c.id = m.chat_id"
Places: TypeAlias = "dict[int, list[int]]"
"""The numbers of chats, and of messages in them, newest first."""


class Search:
    """Searches the open chat file, and keeps its index."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        """``path`` of the chat file; ``None`` where it is in memory, which has no index."""
        self._connection = connection
        self._path = path.with_name(path.name + ".search") if path is not None else None
        self._index: SearchIndex | None = None
        self._tries = 2 if path is not None else 0

    def close(self) -> None:
        if self._index is not None:
            self._index.close()

    # ------------------------------------------------------------ the index

    def step(self) -> bool:
        """Bring the index a little nearer to the chats; for a thread with nothing else to do. Whether there is more."""
        try:
            return (index := self._opened()) is not None and (
                self._add_new(index) or self._add_old(index) or index.optimize()
            )
        except SearchIndexError as failure:
            self._start_anew(failure)
            return self._tries > 0

    @contextlib.contextmanager
    def removing(self, column: str, ids: Iterable[str]) -> Iterator[None]:
        """While the messages with these ids (``m.id``), or of these chats (``m.chat_id``), are removed or change."""
        rows: list[Row] = []
        try:
            if (index := self._opened()) is not None and (rows := self._indexed(index, column, ids)):
                index.begin_removing()
        except SearchIndexError as failure:
            self._start_anew(failure)
            index = None
        try:
            yield
        except BaseException:
            if index is not None and rows:
                with contextlib.suppress(SearchIndexError):
                    index.keep()
            raise
        try:
            if index is not None and rows:
                index.remove(rows)
        except SearchIndexError as failure:
            self._start_anew(failure)

    def _indexed(self, index: SearchIndex, column: str, ids: Iterable[str]) -> list[Row]:
        """What the index has of them."""
        query = f"""
            {_ROW} WHERE {column} = ? AND m.seq >= ? AND m.status != 'streaming'
            AND m.seq NOT IN (SELECT seq FROM unindexed)
        """
        return [
            (row, indexable(text)) for one in ids for row, text in self._connection.execute(query, (one, index.low))
        ]

    def _opened(self) -> SearchIndex | None:
        """The index of just these chats, made where there is none."""
        if self._index is None and self._path is not None and self._tries > 0:
            row = self._connection.execute("SELECT key FROM search_index").fetchone()
            self._index = SearchIndex(self._path)
            if not self._index.is_of(row[0] if row else None):
                self._make(self._path)
        return self._index

    def _make(self, path: Path) -> None:
        self.close()
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

    def _start_anew(self, failure: SearchIndexError) -> None:
        """A damaged index is made once more. Where that fails too, this session searches without one."""
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
        """Messages that came or changed since the index was made."""
        new = [one for (one,) in self._connection.execute("SELECT seq FROM unindexed ORDER BY seq LIMIT ?", (_BATCH,))]
        if not new:
            return False
        some = f"({', '.join(str(one) for one in new)})"
        found = self._connection.execute(f"{_ROW} WHERE m.seq IN {some} AND m.status != 'streaming'")
        index.add([(row, indexable(text)) for row, text in found], index.low)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(f"DELETE FROM unindexed WHERE seq IN {some}")
        return True

    def _add_old(self, index: SearchIndex) -> bool:
        """Messages from before the index was made, newest first."""
        if index.low == 0:
            return False
        query = f"{_ROW} WHERE m.seq < ? AND m.status != 'streaming' ORDER BY m.seq DESC"
        rows: list[Row] = []
        size = 0
        for row, text in self._connection.execute(query, (index.low,)):
            rows.append((row, indexable(text)))
            size += len(text)
            if size > _STEP_CHARACTERS:
                break
        index.add(rows, rows[-1][0] & _NUMBER if rows else 0)
        return True

    # ------------------------------------------------------------ searching

    def find(self, text: str, limit: int) -> list[Found]:
        """Chats with all the words, newest first."""
        words = words_of(text[:_LONGEST_SEARCH])
        if not words:
            return []
        try:
            return self._find(words, limit, self._opened())
        except SearchIndexError as failure:
            self._start_anew(failure)
            return self._find(words, limit, None)

    def _find(self, words: Sequence[str], limit: int, index: SearchIndex | None) -> list[Found]:
        known, common = self._look_up(words, index)
        walk = _Walk(self._connection, index, words, self._titles(), known, common)
        found: list[Found] = []
        for number in walk.candidates():
            if len(found) == limit:
                break
            if (snippets := walk.look(number)) is not None:
                chat = self._connection.execute(f"SELECT {CHAT} FROM chats WHERE number = ?", (number,)).fetchone()
                found.append(Found(Chat(*chat), tuple(snippets)))
        return found

    def _look_up(self, words: Sequence[str], index: SearchIndex | None) -> tuple[dict[str, Places], set[str]]:
        """All places of words where they can be told, and words that are in too many messages to list them."""
        long = [word for word in words if len(word) >= LEAST]
        if index is None or not long:
            return self._scan(words, "1"), set()
        known, common = dict[str, Places](), set[str]()
        for word in long:
            if len(rows := index.newest(word)) < MOST:
                known[word] = _places(rows)
            else:
                common.add(word)
        if known and self._is_behind(index):
            lacking = f"(m.seq < {index.low} OR m.seq IN (SELECT seq FROM unindexed))"
            for word, places in self._scan(list(known), lacking).items():
                for number, messages in places.items():
                    known[word].setdefault(number, []).extend(messages)
        return known, common

    def _titles(self) -> dict[int, str]:
        """Number and folded title of the chats, newest first."""
        query = "SELECT number, title FROM chats WHERE deleted_at IS NULL ORDER BY updated_at DESC, rowid DESC"
        rows = self._connection.execute(query).fetchall()
        folded = fold("\0".join(title.replace("\0", " ") for _, title in rows)).split("\0")
        return {number: title for (number, _), title in zip(rows, folded, strict=True)} if rows else {}

    def _is_behind(self, index: SearchIndex) -> bool:
        return index.low > 0 or self._connection.execute("SELECT 1 FROM unindexed LIMIT 1").fetchone() is not None

    def _scan(self, words: Sequence[str], which: str) -> dict[str, Places]:
        """Where the words are in the newest messages, as far as is read."""
        query = f"{_ROW} WHERE m.status != 'streaming' AND c.deleted_at IS NULL AND {which} ORDER BY m.seq DESC"
        found: dict[str, Places] = {word: {} for word in words}
        read = 0
        for row, text in self._connection.execute(query):
            folded = fold(text)
            for word in words:
                if word in folded:
                    found[word].setdefault(row >> 32, []).append(row & _NUMBER)
            read += len(text)
            if read > MOST_READ:
                break
        return found


class _Walk:
    """Goes from chat to chat, newest first, and looks whether it has all words."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        index: SearchIndex | None,
        words: Sequence[str],
        titles: dict[int, str],
        known: dict[str, Places],
        common: set[str],
    ) -> None:
        """``known``: all places of some words; ``common``: words that are looked up chat by chat."""
        self._connection = connection
        self._index = index
        self._words = words
        self._titles = titles
        self._known = known
        self._common = common
        self._left = MOST_READ

    def candidates(self) -> Iterator[int]:
        """The numbers of chats that have all words whose places are known."""
        for number, title in self._titles.items():
            if all(number in places or word in title for word, places in self._known.items()):
                yield number

    def look(self, number: int) -> list[Snippet] | None:
        """At most `MOST_SNIPPETS` snippets of a chat, or ``None`` where a word is missing."""
        title = self._titles[number]
        places: list[list[int]] = []
        for word in self._words:
            messages = self._messages(word, number)
            if not messages and word not in title:
                return None
            places.append(messages)
        missing = {word for word in self._words if word not in title}
        found: dict[int, Snippet] = {}
        # Of each word the newest message, then the others.
        for message in dict.fromkeys(one for some in zip_longest(*places) for one in some if one is not None):
            if len(found) >= MOST_SNIPPETS and not missing:
                break
            query = "SELECT id, text FROM messages WHERE seq = ? AND status != 'streaming'"
            row = self._connection.execute(query, (message,)).fetchone()
            if row is not None and (one := snippet(row[0], row[1], self._words)) is not None:
                found[message] = one
                if missing:
                    folded = fold(row[1])
                    missing = {word for word in missing if word not in folded}
        return [found[one] for one in sorted(list(found)[:MOST_SNIPPETS])] if not missing else None

    def _messages(self, word: str, number: int) -> list[int]:
        if word in self._known:
            return self._known[word].get(number, [])[:MOST_SNIPPETS]
        if word in self._common and self._index is not None:
            return [row & _NUMBER for row in self._index.in_chat(word, number, MOST_SNIPPETS)]
        return self._read(word, number)

    def _read(self, word: str, number: int) -> list[int]:
        """A short word's messages in a chat, as far as is read."""
        found: list[int] = []
        if self._left > 0:
            query = f"{_ROW} WHERE c.number = ? AND m.status != 'streaming' ORDER BY m.seq DESC"
            for row, text in self._connection.execute(query, (number,)):
                self._left -= len(text)
                if word in fold(text):
                    found.append(row & _NUMBER)
                if len(found) == MOST_SNIPPETS or self._left <= 0:
                    break
        return found


def indexable(text: str) -> str:
    """As texts are added to the index and removed from it."""
    return fold(text.replace("\0", " "))


def _places(rows: Iterable[int]) -> Places:
    places: Places = {}
    for row in rows:
        places.setdefault(row >> 32, []).append(row & _NUMBER)
    return places
