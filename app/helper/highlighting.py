"""The parts of code to color, found by Pygments. Runs in the helper process, whose limits stop what hangs."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import cache

from pygments.lexer import Lexer
from pygments.lexers import get_all_lexers, get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String, Token

from app.helper.messages import ROLES, Highlighted

MAX_LINE_CHARACTERS = 400
"""Longer lines stay plain: nobody reads them, and they are slow to lay out in many colors."""

_ROLES: tuple[tuple[Container[object], str], ...] = (
    (Comment, "comment"),
    (Keyword, "keyword"),
    (String, "string"),
    (Number, "number"),
    (Name.Function, "name"),
    (Name.Class, "name"),
    (Name.Tag, "keyword"),
    (Name.Attribute, "name"),
    (Name.Decorator, "name"),
    (Name.Builtin, "name"),
    (Name.Exception, "name"),
    (Token.Generic.Inserted, "string"),
    (Token.Generic.Deleted, "keyword"),
    (Token.Generic.Heading, "name"),
    (Token.Operator.Word, "keyword"),
)


@cache
def languages() -> frozenset[str]:
    """The names under which a language is known."""
    return frozenset(alias for _, aliases, *_ in get_all_lexers(plugins=False) for alias in aliases)


@cache
def lexer(language: str) -> Lexer | None:
    """The lexer of a language, if there is one."""
    name = language.lower()
    if name not in languages():  # Pygments would search the installed packages for it, and import what it finds
        return None
    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=True)
    except Exception:  # some want other packages
        return None


def highlight(found: Lexer | None, text: str) -> Highlighted:
    """The colored parts of each line; none where the lexer fails."""
    if found is None:
        return Highlighted([])
    lines = text.split("\n")
    parts: list[list[int]] = [[] for _ in lines]
    try:
        _fill(parts, lines, _colored(found, text))
    except MemoryError:
        raise
    except Exception:  # a lexer's own fault
        return Highlighted([])
    return Highlighted(parts)


def _colored(found: Lexer, text: str) -> Iterator[tuple[int, int, int]]:
    """Start, end and role of the colored parts, neighbors of one role joined."""
    start = end = 0
    role = -1
    for at, kind, value in found.get_tokens_unprocessed(text + "\n"):
        if not value or at < end:
            continue
        current = _role_of(kind)
        if current != role or at != end:
            if role >= 0:
                yield start, end, role
            start, role = at, current
        end = at + len(value)
    if role >= 0:
        yield start, end, role


@cache
def _role_of(kind: tuple[str, ...]) -> int:
    return next((ROLES.index(role) for parent, role in _ROLES if kind in parent), -1)


def _fill(parts: list[list[int]], lines: list[str], colored: Iterator[tuple[int, int, int]]) -> None:
    """Cut the colored parts into those of each line."""
    number = begin = 0
    for first, last, role in colored:
        start = first
        while start < last and number < len(lines):
            stop = begin + len(lines[number])
            if start > stop:
                begin, number = stop + 1, number + 1
                continue
            end = min(last, stop)
            if start < end and len(lines[number]) <= MAX_LINE_CHARACTERS:
                line = lines[number]
                at = _units(line[: start - begin])
                parts[number] += (at, _units(line[start - begin : end - begin]), role)
            start = end + 1 if end == stop else end


def _units(text: str) -> int:
    """Its length in UTF-16, as Qt counts."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)
