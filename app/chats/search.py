"""Finds chats by words in their titles and messages; keeps the index for that up to date.

Words of three or more characters are looked up in the index, which returns the newest messages with a word. For shorter
words (as in Chinese), words in too many messages to list, and messages not yet in the index, messages are read, newest
first, up to `MOST_READ` characters.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import unicodedata
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, count, islice, zip_longest
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

from app.chats.formats.values import from_json
from app.chats.model import Chat, Found, Snippet, calls_of
from app.chats.tree import CALLS, CHAT, SEARCHED, SHOWN_TEXT, storable

# The search index: which messages contain which trigrams, in an SQLite file of its own (FTS5). A separate file can be
# rebuilt at any time: damage to it costs no chat, backups leave it out, and checking or rewriting the chats doesn't
# read it. It stores no text, only the numbers of messages and chats. Texts are folded first (`fold`), and have to be
# removed with exactly the text that was added.

LEAST = 3
"""The shortest word that can be looked up, in characters."""
MOST = 1500
_FORMAT = 1
"""Raise this when texts are folded differently or the tables change."""
_SETTINGS = (
    "busy_timeout = 1000",
    "locking_mode = EXCLUSIVE",
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
)
_PAGES = 64
"""Pages of the index merged in a step."""


class Text(NamedTuple):
    """What the index needs of a message."""

    seq: int
    """The message's number; newer messages have higher ones."""
    chat: int
    """The chat's number."""
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

    def reset(self, key: str, low: int) -> None:
        """Empty the index for messages below the number ``low``, to be added in descending order."""
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
        """Add messages; the index is then complete from the number ``low`` on."""
        with self._writing() as connection:
            # In the order of their ids; otherwise FTS5 would write a segment for each.
            ordered = [(one.seq, one.folded) for one in sorted(texts)]
            connection.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", ordered)
            owners = [(one.seq, one.chat) for one in texts]
            connection.executemany("INSERT OR REPLACE INTO owners (seq, chat) VALUES (?, ?)", owners)
            connection.execute("UPDATE state SET low = ?", (low,))
        self.low = low

    def begin_removing(self) -> None:
        """Messages are about to be removed. If the process dies before `remove` or `keep`, the index is rebuilt."""
        self._set("is_removing", True)

    def keep(self) -> None:
        """The messages weren't removed after all."""
        self._set("is_removing", False)

    def remove(self, texts: Sequence[Text], is_erased: bool) -> None:
        """Remove these texts. Unless they have to be erased, `optimize` needn't rewrite the index for them."""
        with self._writing() as connection:
            ordered = [(one.seq, one.folded) for one in sorted(texts)]
            connection.executemany("INSERT INTO texts (texts, rowid, text) VALUES ('delete', ?, ?)", ordered)
            connection.executemany("DELETE FROM owners WHERE seq = ?", [(one.seq,) for one in texts])
            connection.execute("UPDATE state SET is_removing = 0, is_marked = max(is_marked, ?)", (is_erased,))
        self._is_removing = False
        if is_erased:
            self._is_marked, self._is_merging = True, False

    def optimize(self) -> bool:
        """Merge a little, as FTS5 only marks what is removed. Returns whether there is more to do."""
        if not self._is_marked:
            return False
        with failures():
            before = self._connection.total_changes
            # A negative number of pages selects all segments for merging; later calls continue.
            pages = _PAGES if self._is_merging else -_PAGES
            self._connection.execute("INSERT INTO texts (texts, rank) VALUES ('merge', ?)", (pages,))
            self._is_merging = True
            if self._connection.total_changes - before >= 2:  # FTS5's way of reporting that it merged something
                return True
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._set("is_marked", False)
        return False

    def newest(self, word: str) -> list[tuple[int, int]]:
        """The newest messages that contain a word, as numbers of messages and chats; at most `MOST`."""
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
    """Remove the index file. Raises `OSError`."""
    for ending in ("-wal", "-shm", "-journal", ""):
        path.with_name(path.name + ending).unlink(missing_ok=True)


@contextlib.contextmanager
def failures() -> Iterator[None]:
    """Turn SQLite and file errors into a `SearchIndexError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise SearchIndexError(str(error)) from error


# Matching: words regardless of case, and a snippet around the first one.

_BEFORE = 40
_AFTER = 120
"""Characters of a snippet before the first match, and after its start."""


def fold(text: str) -> str:
    """Make texts equal that only differ in case or in how accents are composed.

    The four Turkish letters i count as one, so that nobody has to know in which language a text was capitalized.
    """
    if text.isascii():
        return text.lower()
    return _composed(text).replace("İ", "i").replace("ı", "i").casefold()


def indexable(text: str) -> str:
    """The form of a text in the index."""
    return fold(text.replace("\0", " "))


def words_of(search: str) -> list[str]:
    """The words that must occur, folded; no character has a special meaning."""
    return list(dict.fromkeys(fold(search.replace("\0", " ")).split()))


def message_snippets(message_id: str, text: str, thinking: str, calls: str, words: Sequence[str]) -> list[Snippet]:
    """A snippet of a message, and of its thinking and its tool calls for the words that only they contain."""
    found = [snippet(message_id, text, words)]
    for more, is_call in ((thinking, False), (calls, True)):
        if more:
            folded = fold(text)
            words = [word for word in words if word not in folded]
            found.append(snippet(message_id, more, words, is_thinking=not is_call, is_call=is_call))
            text = more
    return [one for one in found if one is not None]


def text_of_calls(stored: bytes) -> str:
    """What is searched in the tool calls of an answer: names, arguments and results, as text without JSON's escapes."""
    calls = calls_of(stored.decode("utf-8", "replace"))
    return storable("\n".join(part for one in calls for part in (one.name, *_lines(one.arguments), one.result)))


def _lines(arguments: str) -> Iterator[str]:
    waiting: list[tuple[str, object]] = [("", from_json(arguments))]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += reversed(value.items())
        elif isinstance(value, list):
            waiting += [(name, one) for one in reversed(value)]
        else:
            yield f"{name}: {value if isinstance(value, str) else json.dumps(value)}"


def snippet(
    message_id: str, text: str, words: Sequence[str], *, is_thinking: bool = False, is_call: bool = False
) -> Snippet | None:
    """A line around the first of the words; ``None`` if none occurs."""
    text = _composed(text)
    folded = fold(text)
    found = [(place, len(word)) for word in words if (place := folded.find(word)) >= 0]
    if not found:
        return None
    place, length = min(found)
    first, last = (_unfolded(text, one, len(folded) - len(text)) for one in (place, place + length - 1))
    start, end = _line(text, first, max(last + 1, first + _AFTER))
    inside = " ".join(text[start:end].split())
    line = f"{'…' if start > 0 else ''}{inside}{'…' if end < len(text) else ''}"
    return Snippet(message_id, line, matches(line, words), is_thinking, is_call)


def matches(text: str, words: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Start and length of every occurrence of the words; overlapping and adjacent ones are merged."""
    folded, places = _with_places(text)
    found: list[tuple[int, int]] = []
    for word in words:
        at = folded.find(word)
        while at >= 0:
            end = at + len(word)
            found.append((at, end) if places is None else (places[at], places[end - 1] + 1))
            at = folded.find(word, end)
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple((start, end - start) for start, end in joined)


def _line(text: str, first: int, end: int) -> tuple[int, int]:
    """The range of a snippet, moved to the nearest edges of words."""
    start = max(0, first - _BEFORE)
    if start > 0 and (space := text.find(" ", start, first)) >= 0:
        start = space + 1
    if end < len(text) and (space := text.rfind(" ", end - _AFTER // 4, end)) > first:
        end = space
    return start, min(end, len(text))


def _composed(text: str) -> str:
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", text)


def _unfolded(text: str, place: int, longer: int) -> int:
    """The original position of a place in the folded text, which is ``longer`` by so many characters."""
    start = max(0, place - longer)  # folding never shortens a character
    left = place - len(fold(text[:start]))
    for at in range(start, place):
        left -= len(fold(text[at]))
        if left < 0:
            return at
    return place


def _with_places(text: str) -> tuple[str, list[int] | None]:
    """The folded text and the original position of each character; ``None`` for the positions if they are the same."""
    folded = fold(text)
    if len(folded) == len(text):  # folding never shortens a character
        return folded, None
    pieces = [fold(one) for one in text]
    return "".join(pieces), [place for place, piece in enumerate(pieces) for _ in piece]


log = logging.getLogger(__name__)

_STEP_CHARACTERS = 50_000
"""Takes about 30 ms."""
_BATCH = 50
_TEXT = f"SELECT m.seq, c.number, {SEARCHED} FROM messages m JOIN chats c ON c.id = m.chat_id"


class Upkeep:
    """Keeps the index of an open chat file up to date."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        """``path`` of the chat file; ``None`` for chats in memory, which have no index."""
        self._connection = connection
        connection.create_function("text_of_calls", 1, text_of_calls, deterministic=True)
        self._path = path.with_name(path.name + ".search") if path is not None else None
        self._index: SearchIndex | None = None
        self._tries = 2 if path is not None else 0

    def close(self) -> None:
        if self._index is not None:
            self._index.close()

    def step(self) -> bool:
        """Update the index a little, when the thread is idle. Returns whether there is more to do."""
        try:
            return (index := self.opened()) is not None and (
                self._add_new(index) or self._add_old(index) or index.optimize()
            )
        except SearchIndexError as failure:
            self.rebuild(failure)
            return self._tries > 0

    @contextlib.contextmanager
    def removing(self, column: str, ids: Iterable[str], *, is_erased: bool = True) -> Iterator[None]:
        """Wrap the removal or change of the messages with these ids (``m.id``), or of these chats (``m.chat_id``).
        ``is_erased``: leave no trace of them, nor of what was removed before.
        """
        rows: list[Text] = []
        try:
            if (index := self.opened()) is not None and (rows := self._indexed(index, column, ids)):
                index.begin_removing()
        except SearchIndexError as failure:
            self.rebuild(failure)
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
            self.rebuild(failure)

    def _indexed(self, index: SearchIndex, column: str, ids: Iterable[str]) -> list[Text]:
        """What the index contains of these messages."""
        query = f"""
            {_TEXT} WHERE {column} = ? AND m.seq >= ? AND m.status != 'streaming'
            AND m.seq NOT IN (SELECT seq FROM unindexed)
        """
        found = (row for one in ids for row in self._connection.execute(query, (one, index.low)))
        return [Text(seq, number, indexable(text)) for seq, number, text in found]

    def opened(self) -> SearchIndex | None:
        """The index of these chats, created if there is none."""
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
        self._index.reset(key, last + 1)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM search_index")
            self._connection.execute("INSERT INTO search_index VALUES (?)", (key,))
            self._connection.execute("DELETE FROM unindexed")

    def rebuild(self, failure: SearchIndexError) -> None:
        """Rebuild a damaged index once. If that fails, too, this session searches without an index."""
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
        """Add messages that were added or changed since the index was created."""
        new = [one for (one,) in self._connection.execute("SELECT seq FROM unindexed ORDER BY seq LIMIT ?", (_BATCH,))]
        if not new:
            return False
        some = f"({', '.join(str(one) for one in new)})"
        # Older ones are left to `_add_old`: each message is in the index once.
        query = f"{_TEXT} WHERE m.seq IN {some} AND m.seq >= ? AND m.status != 'streaming' ORDER BY m.seq"
        rows, are_all = _some(self._connection.execute(query, (index.low,)))
        index.add(rows, index.low)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM unindexed WHERE seq <= ?", (new[-1] if are_all else rows[-1].seq,))
        return True

    def _add_old(self, index: SearchIndex) -> bool:
        """Add messages from before the index was created, newest first."""
        if index.low == 0:
            return False
        query = f"{_TEXT} WHERE m.seq < ? AND m.status != 'streaming' ORDER BY m.seq DESC"
        rows, _ = _some(self._connection.execute(query, (index.low,)))
        index.add(rows, rows[-1].seq if rows else 0)
        return True


def _some(found: Iterable[tuple[int, int, str]]) -> tuple[list[Text], bool]:
    """As many of these as a step takes, and whether that is all."""
    rows, size = list[Text](), 0
    for seq, number, text in found:
        rows.append(Text(seq, number, indexable(text)))
        size += len(text)
        if size > _STEP_CHARACTERS:
            return rows, False
    return rows, True


MOST_SNIPPETS = 3
_WITH_ALL = 30
"""This many chats get several snippets; the others get one."""
MOST_READ = 600_000
"""The most characters of messages that a search reads, besides those it shows; each message adds `_PER_MESSAGE`."""
_PER_MESSAGE = 200
_LONGEST_SEARCH = 500
_NEWEST = f"""
    SELECT m.seq, {SEARCHED} FROM messages m WHERE m.seq IN (SELECT seq FROM messages WHERE chat_id = ?)
    AND m.status != 'streaming' ORDER BY m.seq DESC
"""
"""Selects messages of a chat. The inner query only uses an index, so that no text is read or sorted before it is
needed.
"""


@dataclass(slots=True, eq=False)
class _Word:
    """A word, and where it is known to occur."""

    text: str
    is_complete: bool
    """Whether all occurrences are known."""
    titles: set[str]
    """The chats with the word in their title."""
    messages: dict[str, list[int]] = field(default_factory=dict)
    """For each chat, the numbers of messages, newest first."""

    def is_in(self, chat_id: str) -> bool:
        return chat_id in self.messages or chat_id in self.titles

    def chats(self) -> set[str]:
        return self.titles | self.messages.keys()


@dataclass(frozen=True, slots=True)
class _Titles:
    """The titles of all chats that aren't in the trash."""

    text: str
    """All titles, folded and concatenated."""
    starts: dict[str, int]
    """The start of each title, by chat, newest first."""
    chats: dict[int, str]
    """The chats by number."""

    def with_word(self, word: str) -> set[str]:
        """The chats with the word in their title."""
        chats, starts, found = list(self.starts), list(self.starts.values()), set[str]()
        at = self.text.find(word)
        while at >= 0:
            following = bisect_right(starts, at)
            found.add(chats[following - 1])
            at = self.text.find(word, starts[following]) if following < len(starts) else -1
        return found


class Search:
    def __init__(self, connection: sqlite3.Connection, upkeep: Upkeep) -> None:
        self._connection = connection
        self._upkeep = upkeep
        self._titles: _Titles | None = None
        """Cached until titles change: people type a search one letter at a time, often during an answer."""

    def find(self, text: str, limit: int) -> list[Found]:
        """The newest chats that contain all the words."""
        words = words_of(text[:_LONGEST_SEARCH])
        if not words:
            return []
        self._titles = titles = self._titles or _titles(self._connection)
        try:
            return _Run(self._connection, words, limit, titles).found(self._upkeep)
        except SearchIndexError as error:
            self._upkeep.rebuild(error)
            return _Run(self._connection, words, limit, titles).found(self._upkeep)

    def forget_titles(self) -> None:
        """The titles or the order of the chats are about to change."""
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
        texts = _by_id(
            self._connection, f"m.seq, m.id, {SHOWN_TEXT}, m.thinking, {CALLS}", "messages m", "m.seq", every
        )
        shown = (
            self._shown(Chat(*rows[chat_id]), [texts[one] for one in wanted[chat_id] if one in texts], most[chat_id])
            for chat_id in ordered
            if chat_id in rows  # otherwise the file is damaged, and an index differs from its table
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
        """Chats that contain all words, starting with those that need no reading."""
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
            for word in _words_in(text, lacking):
                word.messages[chat_id] = [seq]
            lacking = [word for word in lacking if chat_id not in word.messages]
            if not lacking:
                return True
        return False

    def _read(self, which: str, least: int) -> bool:
        """Read this many characters of messages to find all words, until enough chats contain one.

        Returns whether all messages were read.
        """
        words = [word for word in self._words if len(word.text) >= least]
        query = f"""
            SELECT m.seq, m.chat_id, {SEARCHED} FROM messages m WHERE m.status != 'streaming' AND {which}
            ORDER BY m.seq DESC
        """
        for seq, chat_id, text in self._connection.execute(query):
            if chat_id in self._titles.starts:
                for word in _words_in(text, words):
                    word.messages.setdefault(chat_id, []).append(seq)
            self._left -= len(text) + _PER_MESSAGE
            if self._left <= 0 or all(len(word.messages) >= self._limit for word in words):
                return False
        return True

    def _wanted(self, chat_id: str, most: int) -> list[int]:
        """The messages of a chat to show: the newest for each word, then others."""
        places = [word.messages.get(chat_id, [])[:MOST_SNIPPETS] for word in self._words]
        in_turn = list(dict.fromkeys(one for some in zip_longest(*places) for one in some if one is not None))
        return in_turn[: max(most, len({some[0] for some in places if some}))]

    def _shown(self, chat: Chat, messages: Sequence[tuple[Any, ...]], most: int) -> Found | None:
        """A chat with its snippets; ``None`` if its messages no longer contain a word."""
        missing = [word for word in self._words if chat.id not in word.titles]
        found: list[tuple[int, Snippet]] = []
        for seq, message_id, text, thinking, calls in messages:
            if missing and len(self._words) > 1:
                there = {word for part in (text, thinking, calls) for word in _words_in(part, missing)}
                missing = [word for word in missing if word not in there]
            if len(found) < most:
                some = message_snippets(message_id, text, thinking, calls, self._texts)
                found += [(seq, one) for one in some[: most - len(found)]]
        if missing and not (found and len(self._words) == 1):
            return None
        return Found(chat, tuple(one for _, one in sorted(found, key=lambda one: one[0])))


def _titles(connection: sqlite3.Connection) -> _Titles:
    query = "SELECT id, number, title FROM chats WHERE deleted_at IS NULL ORDER BY updated_at DESC, number DESC"
    rows = connection.execute(query).fetchall()
    ids, numbers, titles = zip(*rows, strict=True) if rows else ((), (), ())
    # In one statement instead of a Python loop, which would be several times slower.
    text = "\0".join(titles)
    if text.count("\0") >= len(rows) > 0:
        text = "\0".join(title.replace("\0", " ") for title in titles)
    text = fold(text)
    ends = map(add, accumulate(map(len, text.split("\0"))), count(1))
    return _Titles(text, dict(zip(ids, chain([0], ends), strict=False)), dict(zip(numbers, ids, strict=True)))


def _words_in(text: str, words: Sequence[_Word]) -> Iterator[_Word]:
    """The words that occur in a text. Most occur as typed, so this looks before it folds, which is slower."""
    folded = ""
    for word in words:
        if word.text in text or word.text in (folded := folded or fold(text)):
            yield word


def _by_id(
    connection: sqlite3.Connection, columns: str, table: str, key: str, ids: Sequence[object]
) -> dict[object, tuple[Any, ...]]:
    """The rows with these keys (the first column), in the order of ``ids``."""
    query = f"SELECT {columns} FROM {table} WHERE {key} IN ({', '.join('?' * len(ids))})"
    found = {row[0]: row for row in connection.execute(query, ids)}
    return {one: found[one] for one in ids if one in found}
