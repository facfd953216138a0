"""How models write a call's arguments if they aren't one JSON object: one by one, each in some notation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from app.protocol.tool_schemas import Schema, branches, parameters_of, text_value, types

KEY, VALUE = "\ue003", "\ue004"
"""Placeholders for an argument's name and value."""
Around = tuple[str, str, str]
"""What comes before, between and after the entries of an object or array."""
_decode = json.JSONDecoder().raw_decode
_WORD = re.compile(r"([\w.+-]+)(?=[^\w.+-])")
"""A number or a word such as ``true``, once it is complete."""
_ESCAPED = re.compile(r"((?:[^'\\]|\\.)*+)'", re.DOTALL)
_LETTERS = {"\n": "n", "\r": "r", "\t": "t"}


@dataclass(frozen=True)
class Notation:
    """How values are written. By default, strings are as they are, up to what follows, and other values are JSON."""

    quotes: str = ""
    """The marks around strings."""
    escapes: bool = False
    """Whether quotes, backslashes and line breaks in strings get a backslash, as in Python."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Other words for JSON's ``null``, ``true`` and ``false``, by these names."""
    object: Around | None = None
    """``None`` if objects are written as JSON; the same for `array`."""
    member: str = ""
    array: Around | None = None
    item: str = VALUE
    within: Notation | None = None
    """The notation of an array's items, if it is a different one."""
    sorts: bool = False
    """Whether arguments are sorted by name."""

    def write(self, value: Any) -> str:
        """``value``, a JSON value, in this notation."""
        match value:
            case str():
                return f"{self.quotes}{escaped(value) if self.escapes else value}{self.quotes}"
            case dict() if self.object:
                return self.entries(value, self.object, (self.member,))
            case list() if self.array:
                begins, between, ends = self.array
                return begins + between.join(self.item.replace(VALUE, self.inner.write(one)) for one in value) + ends
        text = json.dumps(value, ensure_ascii=False)
        return self.words.get(text, text)

    def entries(self, values: Mapping[str, Any], around: Around, members: Sequence[str]) -> str:
        """``values`` with their names. ``members``: how to write one; of two ways, the first is for strings."""
        begins, between, ends = around
        texts = (
            members[0 if isinstance(value, str) else -1].replace(KEY, key).replace(VALUE, self.write(value))
            for key, value in (sorted(values.items(), key=in_order) if self.sorts else values.items())
        )
        return begins + between.join(texts) + ends

    @property
    def inner(self) -> Notation:
        """The notation of an array's items."""
        return self.within or self

    # ------------------------------------------------------------ reading; `ValueError` means incomplete

    def read(self, text: str, at: int, schema: Any, whole: Schema, behind: str) -> tuple[Any, int]:
        """The value ``at`` a place of ``text``, and where it ends: before ``behind``. ``schema``: part of ``whole``."""
        if not self.quotes:
            return self._read_unquoted(text, at, schema, whole, behind)
        if text.startswith(self.quotes, at):
            at += len(self.quotes)
            if self.escapes:
                found = _found(_ESCAPED.match(text, at))
                return re.sub(r"\\(.)", _unescaped, found[1], flags=re.DOTALL), found.end()
            end = text.index(self.quotes, at)
            return text[at:end], end + len(self.quotes)
        if text.startswith(('{"', "{}"), at):
            return _decode(text, at)
        if self.object and text.startswith(self.object[0], at):
            return self.read_entries(text, at, self.object, (self.member,), {})
        if self.array and text.startswith(self.array[0], at):
            return self._read_items(text, at, {}, {})
        word = _found(_WORD.match(text, at))
        return json.loads(_PYTHON_WORDS.get(word[1], word[1])), word.end()

    def _read_unquoted(self, text: str, at: int, schema: Any, whole: Schema, behind: str) -> tuple[Any, int]:
        if self.object and self.array and not text.startswith(behind, at):
            if text.startswith(self.item.partition(VALUE)[0], at):
                items = (one["items"] for one in branches(schema, whole) if "items" in one)
                return self._read_items(text, at, next(items, {}), whole)
            if text.startswith(self.member.partition(KEY)[0], at):
                return self.read_entries(text, at, self.object, (self.member,), schema, whole)
        if (known := text_value(schema, whole)) is not None:
            end = text.index(behind, at)
            return known.value(text[at:end]), end
        kinds = frozenset(kind for one in branches(schema, whole) for kind in types(one))
        if self.object and kinds & {"array", "object"} and text.startswith(behind, at):  # an empty one
            return list[Any]() if "array" in kinds else dict[str, Any](), at
        return _decode(text, at)

    def _read_items(self, text: str, at: int, schema: Any, whole: Schema) -> tuple[list[Any], int]:
        assert self.array
        found, values = _Entries(text, at, self.array), list[Any]()
        while found.goes_on(self.item):
            value, found.at = self.inner.read(text, found.at, schema, whole, found.behind)
            values.append(value)
        return values, found.end()

    def read_entries(
        self, text: str, at: int, around: Around, members: Sequence[str], schema: Schema, whole: Schema | None = None
    ) -> tuple[dict[str, Any], int]:
        """The reverse of `entries`: the values, and where they end."""
        found, values = _Entries(text, at, around), dict[str, Any]()
        schemas = parameters_of(schema, whole).schemas
        while found.goes_on(*members):
            one = schemas.get(found.key, {}) if len(members) == 1 else {"type": "object" if found.way else "string"}
            values[found.key], found.at = self.read(text, found.at, one, whole or schema, found.behind)
        return values, found.end()


MINIMAX = "]<]minimax[>["
PLAIN = Notation()
GEMMA = Notation('<|"|>', object=("{", ",", "}"), member=f"{KEY}:{VALUE}", array=("[", ",", "]"), sorts=True)
_WORDS = {"null": "None", "true": "True", "false": "False"}
_PYTHON_WORDS = {own: shared for shared, own in _WORDS.items()}
_PYTHON = Notation(
    "'", escapes=True, words=_WORDS, object=("{", ", ", "}"), member=f"'{KEY}': {VALUE}", array=("[", ", ", "]")
)
PYTHON_ARGUMENTS = Notation("'", escapes=True, words=_WORDS, array=_PYTHON.array, within=_PYTHON)
ELEMENTS = Notation(
    object=("", "", ""),
    member=f"{MINIMAX}<{KEY}>{VALUE}{MINIMAX}</{KEY}>",
    array=("", "", ""),
    item=f"{MINIMAX}<item>{VALUE}{MINIMAX}</item>",
)
"""MiniMax M3's notation."""


class _Entries:
    """Goes through the entries of an object or array that begins at place ``at`` of ``text``."""

    def __init__(self, text: str, at: int, around: Around) -> None:
        begins, self._between, self._ends = around
        self._text, self.at = text, at + len(begins)
        self.key = self.behind = ""
        """The name of the entry whose value is next, and what follows the value."""
        self.way = 0
        self._count = 0

    def goes_on(self, *ways: str) -> bool:
        """Whether another entry follows, written in one of ``ways``; if so, `at` is where its value begins."""
        if self._count:
            self.at = _behind(self._text, self.at, self.behind)
        if self._ends and self._text.startswith(self._ends, self.at):
            return False
        between = self._between if self._count else ""
        if not self._text.startswith(between, self.at):
            return False
        start = self.at + len(between)
        for self.way, entry in enumerate(ways):
            begins, _, self.behind = entry.partition(VALUE)
            if found := _pattern(begins).match(self._text, start):
                self.at, self.key = found.end(), found.groupdict().get("key", "")
                self.behind = self.behind.replace(KEY, self.key)
                self._count += 1
                return True
        return False

    def end(self) -> int:
        return _behind(self._text, self.at, self._ends)


def escaped(text: str) -> str:
    """``text`` escaped for single quotes."""
    return re.sub(r"[\\'\n\r\t]", lambda found: "\\" + _LETTERS.get(found[0], found[0]), text)


def _unescaped(found: re.Match[str]) -> str:
    return next((character for character, letter in _LETTERS.items() if letter == found[1]), found[1])


def in_order(pair: tuple[str, Any]) -> str:
    """The sort key of an argument, the same as in Jinja's ``dictsort``."""
    return pair[0].lower()


@cache
def _pattern(begins: str) -> re.Pattern[str]:
    return re.compile(re.escape(begins).replace(KEY, r'(?P<key>(?!/)[^<>"\n]+?)'))


def _behind(text: str, at: int, expected: str) -> int:
    if not text.startswith(expected, at):
        raise ValueError(f"{expected!r} is missing")
    return at + len(expected)


def _found(match: re.Match[str] | None) -> re.Match[str]:
    if not match:
        raise ValueError("incomplete")
    return match
