"""Colour code line by line while it arrives.

Pygments wants the whole text; lexing it anew for every token would cost more the longer the code is. Its lexers are
state machines, though, so this keeps the state at the end of each line and lexes every line once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from pygments.lexer import ExtendedRegexLexer, Lexer, RegexLexer
from pygments.lexers import get_all_lexers, get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String, Token, _TokenType
from pygments.util import ClassNotFound
from PySide6.QtGui import QColor

from app.ui.theme import MINIMUM_CONTRAST, Theme, contrast

MAX_COLOURED_CHARACTERS = 400
"""Longer lines stay plain: nobody reads them, and a regular expression may be slow on them."""
COMMON_LANGUAGES = (
    *("python", "json", "bash", "javascript", "html", "css", "sql", "yaml", "c", "cpp"),
    *("rust", "go", "java", "typescript", "toml", "ini", "diff", "xml", "kotlin", "swift"),
)

_COMMENT_PAIRS = (("/*", "*/"), ("<!--", "-->"))

_ROLES: tuple[tuple[_TokenType, str], ...] = (
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

_LIGHT = {"comment": "#5a666b", "keyword": "#8a1f6a", "string": "#1c6134", "number": "#84430a", "name": "#1c4f9c"}
_DARK = {"comment": "#a5b0b5", "keyword": "#f0a6d8", "string": "#a3d9a5", "number": "#f0b98d", "name": "#a3c7ff"}
ROLES = tuple(_LIGHT)


def colour(theme: Theme, role: str) -> QColor:
    """The colour of a part of code; the plain text colour where the other could not be read."""
    wanted = QColor((_DARK if theme.is_dark else _LIGHT)[role])
    surfaces = (theme.code_surface, theme.tint_model, theme.tint_ngram)
    return wanted if all(contrast(wanted, surface) >= MINIMUM_CONTRAST for surface in surfaces) else theme.text


@cache
def _role_of(kind: _TokenType) -> str | None:
    return next((role for parent, role in _ROLES if parent.__contains__(kind)), None)


@cache
def _known_languages() -> frozenset[str]:
    return frozenset(alias for _, aliases, *_ in get_all_lexers(plugins=False) for alias in aliases)


@cache
def _lexer(language: str) -> Lexer | None:
    if language not in _known_languages():  # Pygments would search the installed packages for it, which takes a while
        return None
    try:
        lexer: Lexer = get_lexer_by_name(language, stripnl=False, ensurenl=True)
    except (ClassNotFound, ValueError):
        return None
    return lexer


def warm_up() -> None:
    """Load the lexers of common languages in the background: the first use of each would otherwise stall the window."""

    def load() -> None:
        for language in COMMON_LANGUAGES:
            _lexer(language)

    threading.Thread(target=load, name="lexers", daemon=True).start()


@dataclass(frozen=True, slots=True)
class Coloured:
    """Characters ``start`` to ``end`` of a line are drawn in this role."""

    start: int
    end: int
    role: str


class CodeHighlighter:
    """Colours the lines of one code block, in order."""

    def __init__(self, language: str) -> None:
        self._lexer = _lexer(language.lower()) if language else None
        self._stack: list[str] = ["root"]
        self._comment_end = ""

    def line(self, text: str) -> list[Coloured]:
        """The colours of the next line."""
        return self._colours(text)

    def peek(self, text: str) -> list[Coloured]:
        """The colours of a line that is still being written."""
        stack, comment_end = list(self._stack), self._comment_end
        try:
            return self._colours(text)
        finally:
            self._stack, self._comment_end = stack, comment_end

    def _colours(self, text: str) -> list[Coloured]:
        if self._lexer is None or len(text) > MAX_COLOURED_CHARACTERS:
            return []
        if self._comment_end:
            end = text.find(self._comment_end)
            if end < 0:
                return [Coloured(0, len(text), "comment")] if text else []
            end += len(self._comment_end)
            self._comment_end = ""
            rest = self._colours(text[end:])
            return [Coloured(0, end, "comment"), *(Coloured(c.start + end, c.end + end, c.role) for c in rest)]
        try:
            colours = list(self._lexed(text))
        except Exception:
            # A lexer's own fault must not cost the answer: this block stays plain from here on.
            self._lexer = None
            return []
        return self._with_open_comment(text, colours)

    def _with_open_comment(self, text: str, colours: list[Coloured]) -> list[Coloured]:
        """Find a comment that begins here and ends on a later line, which the lexers match as a whole."""
        for begin, end in _COMMENT_PAIRS:
            start = text.rfind(begin)
            if start < 0 or end in text[start + len(begin) :]:
                continue
            if any(c.role == "string" and c.start <= start < c.end for c in colours):
                continue
            stack = list(self._stack)
            closed = list(self._lexed(text[:start] + begin + end))
            self._stack = stack
            if any(c.role == "comment" and c.start == start for c in closed):
                self._comment_end = end
                kept = [c for c in closed if c.end <= start]
                return [*kept, Coloured(start, len(text), "comment")]
        return colours

    def _lexed(self, text: str) -> Iterator[Coloured]:
        for start, kind, value in self._tokens(text + "\n"):
            role = _role_of(kind)
            end = min(start + len(value), len(text))
            if role is not None and value and start < end:
                yield Coloured(start, end, role)

    def _tokens(self, line: str) -> Iterator[tuple[int, _TokenType, str]]:
        lexer = self._lexer
        if not isinstance(lexer, RegexLexer) or isinstance(lexer, ExtendedRegexLexer):
            assert lexer is not None
            return lexer.get_tokens_unprocessed(line)
        return self._state_machine(lexer, line)

    def _state_machine(self, lexer: RegexLexer, line: str) -> Iterator[tuple[int, _TokenType, str]]:
        states: dict[str, Any] = cast(Any, lexer)._tokens
        position = 0
        while position < len(line):
            for matches, action, change in states[self._stack[-1]]:
                found = matches(line, position)
                if not found:
                    continue
                if isinstance(action, _TokenType):
                    yield position, action, found.group()
                elif action is not None:
                    yield from action(lexer, found)
                moved = found.end() > position
                position = found.end()
                if change is not None:
                    self._change_state(change)
                elif not moved:
                    continue
                break
            else:
                if line[position] == "\n":
                    # Pygments' own rule: an unmatched end of line ends whatever was open.
                    self._stack = ["root"]
                position += 1

    def _change_state(self, change: tuple[str, ...] | int | str) -> None:
        if isinstance(change, int):
            del self._stack[max(1, len(self._stack) + change) :]
        elif change == "#push":
            self._stack.append(self._stack[-1])
        else:
            for state in (change,) if isinstance(change, str) else change:
                if state == "#pop":
                    del self._stack[max(1, len(self._stack) - 1) :]
                else:
                    self._stack.append(self._stack[-1] if state == "#push" else state)
        del self._stack[64:]
