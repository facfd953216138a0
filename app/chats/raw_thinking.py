"""Answers of versions that did not tell thinking from the answer: both are in the text, with the model's marks.

They are split as an answer is that streams now (`app.engine.decoding`), token by token, so that each token keeps its
place and an answer that was cut can go on. Only marks at the beginning of an answer count, and the end of thinking that
a chat template had opened. What a model wrote about such marks stays: later in the text, or as Markdown code.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from app.chats.model import PackedPiece, to_json
from app.chats.rows import storable
from app.engine.decoding.thinking import Marks
from app.engine.decoding.thinking_formats import FORMATS, Format, Run

_CHANNEL, _START, _MESSAGE, _END = _HARMONY = ("<|channel|>", "<|start|>", "<|message|>", "<|end|>")
_CHANNELS = ("analysis", "commentary", "final")
_OPENINGS = (_CHANNEL, _START, *(one.opening for one in FORMATS))
_TOKEN = re.compile(r"<\|[^<>]*>|<[^<>]*\|>")
"""A mark that is one token."""
_TOKENS = tuple(
    dict.fromkeys(token for one in FORMATS for mark in vars(one).values() for token in _TOKEN.findall(str(mark)))
)
_AROUND = tuple(dict.fromkeys(mark for one in FORMATS for mark in one.around))
_WORDS = tuple(one for one in FORMATS if one.opening[0].isalpha())
"""Marks that any model may write: they count where both are there."""
_CLOSINGS = tuple(dict.fromkeys(one.closing for one in FORMATS))
_NEXT = re.compile(
    rf"""
      ^[ ]{{0,3}}(?P<fence>`{{3,}}|~{{3,}}) .*? (?: ^[ ]{{0,3}}(?P=fence) | \Z)
    | (?<!`)(?P<ticks>`+)(?!`) (?:(?!\n\n).){{1,2000}}? (?<!`)(?P=ticks)(?!`)
    | (?P<mark>{"|".join(re.escape(mark) for mark in (*_CLOSINGS, *(one.opening for one in FORMATS)))})
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
"""Markdown code, or a mark outside of it."""
_AROUND_WORDS = (*" \"'“”„‘’«»()", "")
_CUT = ("length", "context", "cancelled")


@dataclass(frozen=True, slots=True)
class Split:
    """Thinking and answer, and where each token came from."""

    thinking: str
    text: str
    provenance: Sequence[PackedPiece]


def split_stored(connection: sqlite3.Connection) -> None:
    """Split all answers of a chat file; only those that have a mark are read as a whole. The search index, which has
    the marks, is to be made anew. What is damaged stays as it is, so that all else can be opened.
    """
    strict, connection.text_factory = connection.text_factory, _decoded
    try:
        _split_all(connection)
    finally:
        connection.text_factory = strict


def _decoded(data: bytes) -> str:
    """Empty where it is damaged."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _split_all(connection: sqlite3.Connection) -> None:
    answers = connection.execute("SELECT seq, text FROM messages WHERE role = 'assistant' AND typeof(text) = 'text'")
    marked = [seq for seq, text in answers if _may_think(text)]
    has_split = False
    for seq in marked:
        text, provenance, status, reason = connection.execute(
            "SELECT text, provenance, status, finish_reason FROM messages WHERE seq = ?", (seq,)
        ).fetchone()
        is_cut = status in ("stopped", "interrupted", "streaming") or reason in _CUT
        found = split(text, _entries(provenance), is_cut=is_cut)
        if found is not None:
            has_split = True
            connection.execute(
                "UPDATE messages SET thinking = ?, text = ?, provenance = ? WHERE seq = ?",
                (found.thinking, found.text, storable(to_json(found.provenance)), seq),
            )
    if has_split:
        connection.execute("DELETE FROM search_index")


def split(text: str, provenance: Sequence[PackedPiece], *, is_cut: bool = False) -> Split | None:
    """Thinking and answer; ``None`` where the text has no thinking. ``is_cut``: it could go on, so that what may be the
    beginning of a mark at its end is hidden, as in an answer that streams.
    """
    for reading in _readings(text, provenance):
        told = [mark for mark in _AROUND if mark in text[-100:]]
        told += [one.opening for one in FORMATS if one not in _WORDS or one.closing in text]
        marks, symbols = _marks(reading.vocabulary, tuple(told))
        splitter = marks.splitter(reading.vocabulary.tokens(reading.before), reading.vocabulary.piece)
        coded = [symbols.get(part, part) for part in reading.parts]
        runs = splitter.feed("".join(coded))
        runs += [] if is_cut else splitter.finish()
        pieces = _assigned(coded, runs, marks.shown, splitter.thinking)
        thinking = "".join(part for part, is_thinking in pieces if is_thinking)
        answer = "".join(part for part, is_thinking in pieces if not is_thinking)
        if thinking or answer != text:
            packed: list[PackedPiece] = []
            for (part, is_thinking), entry in zip(pieces, reading.provenance, strict=False):
                packed.append([len(part), *entry[1:4], True] if is_thinking else [len(part), *entry[1:4]])
            return Split(thinking, answer, packed)
    return None


def _assigned(
    coded: Sequence[str], runs: Sequence[Run], shown: dict[int, str], thinks_at_end: bool
) -> list[tuple[str, bool]]:
    """The decided texts as those of the tokens they come from, and which are thinking; see `TokenTexts`."""
    pieces: list[tuple[str, bool]] = []
    place = at = 0
    for part in coded:
        text, thinking, missing = "", None, len(part)
        while missing and place < len(runs):
            run = runs[place]
            taken = run.text[at : at + missing]
            if run.shown:
                text += taken if taken.isascii() else taken.translate(shown)
            if run.shown or not text:
                thinking = run.thinking
            at, missing = at + len(taken), missing - len(taken)
            if at == len(run.text):
                text += run.instead
                place, at = place + 1, 0
        pieces.append((text, thinks_at_end if thinking is None else thinking))
    following = thinks_at_end
    for number in range(len(pieces) - 1, -1, -1):
        if coded[number]:
            following = pieces[number][1]
        else:  # the beginning of a character
            pieces[number] = "", following
    return pieces


class _Vocabulary:
    """The tokens that one model has for marks. See `app.engine.decoding.thinking.Vocabulary`."""

    def __init__(self, marks: Sequence[str], *, are_hidden: bool = False) -> None:
        """``are_hidden``: they add nothing to a text."""
        self._marks = marks
        self._numbers = {mark: number for number, mark in enumerate(marks)}
        """Of the marks, and of all other parts of a text that were met."""
        self._are_hidden = are_hidden
        self._at_marks = re.compile(f"({'|'.join(map(re.escape, marks))})")

    def parts(self, text: str) -> list[str]:
        """Its marks, and all other characters one by one."""
        parts = self._at_marks.split(text)
        return [one for part in parts for one in ([part] if part in self._marks else part)]

    def tokens(self, text: str) -> list[int]:
        """The numbers of its parts."""
        return [self._numbers.setdefault(part, len(self._numbers)) for part in self.parts(text)]

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:  # noqa: ARG002
        return self.tokens(text)

    def piece(self, token: int) -> bytes:
        text = next(text for text, number in self._numbers.items() if number == token)
        return b"" if self._are_hidden and self.mark(token) else text.encode()

    def mark(self, token: int) -> str:
        return self._marks[token] if token < len(self._marks) else ""


_TAGS, _SHOWN_CHANNELS, _HIDDEN_CHANNELS = (
    _Vocabulary(_TOKENS),
    _Vocabulary(_HARMONY),
    _Vocabulary(_HARMONY, are_hidden=True),
)


@cache
def _marks(vocabulary: _Vocabulary, told: Sequence[str]) -> tuple[Marks, dict[str, str]]:
    """The marks of a model whose template has those ``told``, and what stands for those that are tokens."""
    marks = Marks(vocabulary, "".join(told))
    return marks, {vocabulary.mark(token): symbol for token, symbol in marks.symbols.items()}


class _Reading(NamedTuple):
    """How the text of an answer may be meant."""

    vocabulary: _Vocabulary
    before: str
    """The end of the prompt."""
    parts: Sequence[str]
    """The text as tokens."""
    provenance: Sequence[PackedPiece]
    """Of the first of these."""


def _readings(text: str, provenance: Sequence[PackedPiece]) -> Iterator[_Reading]:
    """First with the tokens it was written with, then, where marks are spread over several of these, character by
    character. What the provenance does not cover is read by characters, too.
    """
    texts, rest = _texts(text, provenance)
    before = f"{_START}assistant"
    if named := _named(texts):
        vocabulary = _HIDDEN_CHANNELS
        yield _Reading(vocabulary, before, [*named, *vocabulary.parts(rest)], provenance)
        return
    has_channels = text.lstrip().startswith((_CHANNEL, _START))
    opened = None if has_channels else _opened_by_template(text, texts)
    if has_channels or opened or text.lstrip().startswith(_OPENINGS):
        vocabulary = _SHOWN_CHANNELS if has_channels else _TAGS
        before = before if has_channels else opened.opening if opened else ""
        if texts:
            yield _Reading(vocabulary, before, [*texts, *vocabulary.parts(rest)], provenance)
        yield _Reading(vocabulary, before, vocabulary.parts(text), ())


def _may_think(text: str) -> bool:
    """Whether it is worth a closer look."""
    start = text[:100].lstrip()
    return start.startswith((*_OPENINGS, *_CHANNELS)) or any(mark in text for mark in _CLOSINGS)


def _entries(provenance: str) -> list[PackedPiece]:
    try:
        found = json.loads(provenance)
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _texts(text: str, provenance: Sequence[PackedPiece]) -> tuple[list[str], str]:
    """The text of each token, and what there is behind them: all of it where the provenance is damaged."""
    texts: list[str] = []
    end = 0
    for entry in provenance:
        if not (isinstance(entry, list) and len(entry) == 4 and isinstance(entry[0], int) and entry[0] >= 0):
            return [], text
        texts.append(text[end : end + entry[0]])
        end += entry[0]
    return (texts, text[end:]) if end <= len(text) else ([], text)


def _named(texts: Sequence[str]) -> list[str]:
    """The tokens of an answer in channels whose marks added nothing to its text, with the names of these; empty where
    it is none.
    """
    if len(texts) < 3 or texts[0] or texts[1] not in _CHANNELS or texts[2]:
        return []
    named = list(texts)
    named[0], named[2] = _CHANNEL, _MESSAGE
    for at in range(3, len(texts) - 5):
        end, start, role, channel, name, message = texts[at : at + 6]
        if role == "assistant" and name in _CHANNELS and not (end or start or channel or message):
            named[at : at + 6] = _END, _START, role, _CHANNEL, name, _MESSAGE
    return named


def _opened_by_template(text: str, texts: Sequence[str]) -> Format | None:
    """How thinking is marked that the text only ends: by a mark outside of Markdown code that begins a line, or has an
    empty line behind it, or was one token between others without a space. An element of XML opens with attributes.
    """
    found = next((match for match in _NEXT.finditer(text) if match["mark"]), None)
    form = next((one for one in FORMATS if found and one.closing == found["mark"]), None)
    if found is None or form is None:
        return None
    before, behind = text[: found.start()], text[found.end() :]
    stands_alone = not before.strip(" ") or before.rstrip(" ").endswith("\n") or behind.startswith("\n\n")
    is_mentioned = before[-1:] in _AROUND_WORDS or behind[:1] in _AROUND_WORDS
    is_token = not is_mentioned and _is_token(texts, found.start(), found.group())
    is_opened = form.opening.startswith("<") and f"{form.opening[:-1]} " in before
    return form if (stands_alone or is_token) and not is_opened else None


def _is_token(texts: Sequence[str], start: int, mark: str) -> bool:
    at = 0
    for text in texts:
        if at >= start and text:
            return at == start and text == mark
        at += len(text)
    return False
