"""Finds the parts of code to color, with Pygments. Runs in the helper process."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache

from pygments.lexer import Lexer
from pygments.lexers import get_all_lexers, get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String, Token

from app.helper.messages import ROLES, Highlighted

MAX_LINE_CHARACTERS = 400
"""Longer lines aren't highlighted: nobody reads them, and they are slow to lay out in many colors."""

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
_PLAIN = 0xFF
_RUN = re.compile(rb"([^\xff])\1*", re.DOTALL)
"""Adjacent characters with the same role, if they have one."""


@cache
def languages() -> frozenset[str]:
    """All names of languages, in lower case."""
    return frozenset(alias for _, aliases, *_ in get_all_lexers(plugins=False) for alias in aliases)


@cache
def lexer(language: str) -> Lexer | None:
    name = language.lower()
    if name not in languages():  # Pygments would search installed packages for it, and import what it finds
        return None
    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=True)
    except Exception:  # some need other packages
        return None


def highlight(found: Lexer | None, text: str) -> Highlighted:
    """The colored parts of each line; nothing if the lexer fails."""
    if found is None:
        return Highlighted([])
    try:
        roles = _roles(found, text)
    except MemoryError:
        raise
    except Exception:  # the lexer's own fault
        return Highlighted([])
    lines: list[list[int]] = []
    begin = 0
    for line in text.split("\n"):
        parts: list[int] = []
        if len(line) <= MAX_LINE_CHARACTERS:
            for run in _RUN.finditer(roles, begin, begin + len(line)):
                start, end = run.start() - begin, run.end() - begin
                if not line.isascii():
                    start, end = _utf16_length(line[:start]), _utf16_length(line[:end])
                parts += (start, end - start, run[0][0])
        lines.append(parts)
        begin += len(line) + 1
    return Highlighted(lines)


def _roles(found: Lexer, text: str) -> bytearray:
    """The role of each character."""
    roles = bytearray([_PLAIN]) * (len(text) + 1)
    end = 0
    for at, kind, value in found.get_tokens_unprocessed(text + "\n"):
        if value and at >= end:
            end = at + len(value)
            if (role := _role_of(kind)) != _PLAIN:
                roles[at:end] = bytes([role]) * len(value)
    return roles


@cache
def _role_of(kind: tuple[str, ...]) -> int:
    return next((ROLES.index(role) for parent, role in _ROLES if kind in parent), _PLAIN)


def _utf16_length(text: str) -> int:
    """The length as Qt counts it."""
    return len(text) + sum(character > "\uffff" for character in text)
