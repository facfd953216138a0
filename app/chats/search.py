"""Finds chats by words in their titles and messages.

Words of three or more characters are looked up in the index, which returns the newest messages with a word. For shorter
words (as most Chinese ones are), words in too many messages to list, and messages that aren't in the index yet,
messages are read, newest first, up to `MOST_READ` characters.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, count, islice, zip_longest
from operator import add
from typing import Any

from app.chats.model import Chat, Found, Snippet
from app.chats.rows import CHAT, SEARCHED, SHOWN_TEXT
from app.chats.search_index import LEAST, MOST, SearchIndex, SearchIndexError
from app.chats.search_text import fold, message_snippets, words_of
from app.chats.search_upkeep import Upkeep

MOST_SNIPPETS = 3
_WITH_ALL = 30
"""This many chats get several snippets; the others get one."""
MOST_READ = 600_000
"""The characters of messages that a search reads, in addition to those it shows; each message counts as `_PER_MESSAGE`
more.
"""
_PER_MESSAGE = 200
_LONGEST_SEARCH = 500
_NEWEST = f"""
    SELECT m.seq, {SEARCHED} FROM messages m WHERE m.seq IN (SELECT seq FROM messages WHERE chat_id = ?)
    AND m.status != 'streaming' ORDER BY m.seq DESC
"""
"""Of a chat. The inner query reads only an index, so that no text is read, nor sorted, before it is asked for."""


@dataclass(slots=True, eq=False)
class _Word:
    """A word, and where it is known to occur."""

    text: str
    is_complete: bool
    """Whether it occurs nowhere else."""
    titles: set[str]
    """The chats that have it in their title."""
    messages: dict[str, list[int]] = field(default_factory=dict)
    """For each chat, the numbers of messages, newest first."""

    def is_in(self, chat_id: str) -> bool:
        return chat_id in self.messages or chat_id in self.titles

    def chats(self) -> set[str]:
        return self.titles | self.messages.keys()


@dataclass(frozen=True, slots=True)
class _Titles:
    """Of the chats that are not in the trash."""

    text: str
    """All titles, folded, one after the other."""
    starts: dict[str, int]
    """By chat, newest first, where its title begins in it."""
    chats: dict[int, str]
    """By number."""

    def with_word(self, word: str) -> set[str]:
        """The chats that have it in their title."""
        chats, starts, found = list(self.starts), list(self.starts.values()), set[str]()
        at = self.text.find(word)
        while at >= 0:
            following = bisect_right(starts, at)
            found.add(chats[following - 1])
            at = self.text.find(word, starts[following]) if following < len(starts) else -1
        return found


class Search:
    """Searches an open chat file."""

    def __init__(self, connection: sqlite3.Connection, upkeep: Upkeep) -> None:
        self._connection = connection
        self._upkeep = upkeep
        self._titles: _Titles | None = None
        """Kept while they stay as they are: who searches types one letter after another, often beside an answer."""

    def find(self, text: str, limit: int) -> list[Found]:
        """The newest chats that contain all the words."""
        words = words_of(text[:_LONGEST_SEARCH])
        if not words:
            return []
        self._titles = titles = self._titles or _titles(self._connection)
        try:
            return _Run(self._connection, words, limit, titles).found(self._upkeep)
        except SearchIndexError as error:
            self._upkeep.start_anew(error)
            return _Run(self._connection, words, limit, titles).found(self._upkeep)

    def forget_titles(self) -> None:
        """The titles of the chats, or their order, are about to change."""
        self._titles = None


class _Run:
    """One search."""

    def __init__(self, connection: sqlite3.Connection, words: Sequence[str], limit: int, titles: _Titles) -> None:
        self._connection = connection
        self._texts = words
        self._limit = limit
        self._left = MOST_READ
        self._titles = titles
        self._words: list[_Word] = []

    def found(self, upkeep: Upkeep) -> list[Found]:
        index = upkeep.opened()
        self._words = [self._looked_up(word, index) for word in self._texts]
        if index is not None and upkeep.is_behind(index):
            self._read(f"(m.seq < {index.low} OR m.seq IN (SELECT seq FROM unindexed))", LEAST)
        if not any(word.is_complete or word.messages for word in self._words) and self._read("1", 1):
            for word in self._words:
                word.is_complete = True
        chosen = set(islice(self._chosen(), self._limit))
        ordered = [chat_id for chat_id in self._titles.starts if chat_id in chosen]
        rows = _by_id(self._connection, CHAT, "chats", "id", ordered)
        most = {chat_id: MOST_SNIPPETS if place < _WITH_ALL else 1 for place, chat_id in enumerate(ordered)}
        wanted = {chat_id: self._wanted(chat_id, most[chat_id]) for chat_id in ordered}
        every = list(dict.fromkeys(one for some in wanted.values() for one in some))
        texts = _by_id(self._connection, f"m.seq, m.id, {SHOWN_TEXT}, m.thinking", "messages m", "m.seq", every)
        shown = (
            self._shown(Chat(*rows[chat_id]), [texts[one] for one in wanted[chat_id] if one in texts], most[chat_id])
            for chat_id in ordered
            if chat_id in rows  # else the file is damaged, and an index has another id than the table
        )
        return [one for one in shown if one is not None]

    def _looked_up(self, text: str, index: SearchIndex | None) -> _Word:
        titles = self._titles.with_word(text)
        if index is None or len(text) < LEAST:
            return _Word(text, False, titles)
        places = index.newest(text)
        word = _Word(text, len(places) < MOST, titles)
        for message, number in places:
            if (chat_id := self._titles.chats.get(number)) is not None:
                word.messages.setdefault(chat_id, []).append(message)
        return word

    def _chosen(self) -> Iterator[str]:
        """Chats that contain all words, starting with those where nothing has to be read."""
        sure = set.intersection(*(word.chats() for word in self._words))
        yield from (chat_id for chat_id in self._titles.starts if chat_id in sure)
        complete = [word.chats() for word in self._words if word.is_complete]
        if len(complete) < len(self._words):
            possible = set.intersection(*complete) if complete else self._titles.starts.keys()
            for chat_id in self._titles.starts:
                if self._left <= 0:
                    return
                if chat_id in possible and chat_id not in sure and self._has_all(chat_id):
                    yield chat_id

    def _has_all(self, chat_id: str) -> bool:
        """Read a chat to find the words it isn't known to contain."""
        lacking = [word for word in self._words if not word.is_in(chat_id)]
        for seq, text in self._connection.execute(_NEWEST, (chat_id,)):
            self._left -= len(text) + _PER_MESSAGE
            for word in _those_in(text, lacking):
                word.messages[chat_id] = [seq]
            lacking = [word for word in lacking if chat_id not in word.messages]
            if not lacking:
                return True
        return False

    def _read(self, which: str, least: int) -> bool:
        """Read messages to find all words of this many characters, until enough chats contain one.

        Returns whether all messages were read.
        """
        words = [word for word in self._words if len(word.text) >= least]
        query = f"""
            SELECT m.seq, m.chat_id, {SEARCHED} FROM messages m WHERE m.status != 'streaming' AND {which}
            ORDER BY m.seq DESC
        """
        for seq, chat_id, text in self._connection.execute(query):
            if chat_id in self._titles.starts:
                for word in _those_in(text, words):
                    word.messages.setdefault(chat_id, []).append(seq)
            self._left -= len(text) + _PER_MESSAGE
            if self._left <= 0 or all(len(word.messages) >= self._limit for word in words):
                return False
        return True

    def _wanted(self, chat_id: str, most: int) -> list[int]:
        """The messages of a chat to be shown: the newest for each word, then others."""
        places = [word.messages.get(chat_id, [])[:MOST_SNIPPETS] for word in self._words]
        in_turn = list(dict.fromkeys(one for some in zip_longest(*places) for one in some if one is not None))
        return in_turn[: max(most, len({some[0] for some in places if some}))]

    def _shown(self, chat: Chat, messages: Sequence[tuple[Any, ...]], most: int) -> Found | None:
        """A chat with its snippets; ``None`` if its messages no longer contain a word."""
        missing = [word for word in self._words if chat.id not in word.titles]
        found: list[tuple[int, Snippet]] = []
        for seq, message_id, text, thinking in messages:
            if missing and len(self._words) > 1:
                there = {*_those_in(text, missing), *_those_in(thinking, missing)}
                missing = [word for word in missing if word not in there]
            if len(found) < most:
                some = message_snippets(message_id, text, thinking, self._texts)
                found += [(seq, one) for one in some[: most - len(found)]]
        if missing and not (found and len(self._words) == 1):
            return None
        return Found(chat, tuple(one for _, one in sorted(found, key=lambda one: one[0])))


def _titles(connection: sqlite3.Connection) -> _Titles:
    query = "SELECT id, number, title FROM chats WHERE deleted_at IS NULL ORDER BY updated_at DESC, number DESC"
    rows = connection.execute(query).fetchall()
    ids, numbers, titles = zip(*rows, strict=True) if rows else ((), (), ())
    # All at once, and without a loop in Python: several times as fast as one by one.
    text = "\0".join(titles)
    if text.count("\0") >= len(rows) > 0:
        text = "\0".join(title.replace("\0", " ") for title in titles)
    text = fold(text)
    ends = map(add, accumulate(map(len, text.split("\0"))), count(1))
    return _Titles(text, dict(zip(ids, chain([0], ends), strict=False)), dict(zip(numbers, ids, strict=True)))


def _those_in(text: str, words: Sequence[_Word]) -> Iterator[_Word]:
    """Those of the words that are in a text. Most are there as they are: folding takes longer than looking."""
    folded = ""
    for word in words:
        if word.text in text or word.text in (folded := folded or fold(text)):
            yield word


def _by_id(
    connection: sqlite3.Connection, columns: str, table: str, key: str, ids: Sequence[object]
) -> dict[object, tuple[Any, ...]]:
    """The rows with these keys, which are in the first column, in the order of ``ids``."""
    query = f"SELECT {columns} FROM {table} WHERE {key} IN ({', '.join('?' * len(ids))})"
    found = {row[0]: row for row in connection.execute(query, ids)}
    return {one: found[one] for one in ids if one in found}
