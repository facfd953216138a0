"""The top-level blocks of Markdown: list items count as blocks of their own.

Each is parsed again when it is drawn, on its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate, zip_longest

from markdown_it.common.utils import unescapeAll
from markdown_it.token import Token

from app.markdown import formulas
from app.markdown.dialect import parser

MAX_DEPTH = 8
"""Deeper lists and quotes are shown as they were written."""
MAX_TABLE_COLUMNS = 40


class Kind(Enum):
    """What a block is, as far as it decides how the block is drawn."""

    PARAGRAPH = "paragraph_open"
    HEADING = "heading_open"
    RULE = "hr"
    ITEM = "list_item_open"
    QUOTE = "blockquote_open"
    NOTE = "footnote_reference_open"
    TABLE = "table_open"
    INDENTED = "code_block"
    CODE = "fence"
    FORMULA = formulas.BLOCK
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block. ``start`` is where ``text`` begins in the source."""

    kind: Kind
    start: int
    text: str
    closed: bool = False
    continued: bool = False
    """Goes on with the block before it: no gap between the two."""
    joined: bool = False
    """Goes on with the very line of the block before it."""
    number: int | None = None
    """Of an ordered list's item, counted on from the item before."""
    ends_in_code: bool = False
    fence: str = ""
    """The fence that code stands in."""
    indent: int = 0
    """Spaces before that fence; as many may go from the lines of the code."""
    language: str = ""
    prefix: str = ""
    """Lines to parse before ``text``: the head of a table that is continued."""


# ---------------------------------------------------------------- characters that must not reach the document

# Direction overrides make text read differently from what it says; the others are characters Qt gives a meaning.
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SPECIAL = (*range(0xD800, 0xE000), *range(0xFDD0, 0xFDF0), 0xFFFC, 0xFFFE, 0xFFFF)
_REPLACED: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), *_DIRECTIONS, *_SPECIAL), 0xFFFD),
    **dict.fromkeys(map(ord, "\v\f\r\x85\u2028\u2029"), " "),
}
_UNWANTED = re.compile(f"[{re.escape(''.join(map(chr, _REPLACED)))}]")


def visible(text: str) -> str:
    """The text with control characters and direction overrides made visible; every character keeps its place."""
    return text.translate(_REPLACED) if _UNWANTED.search(text) else text


# ---------------------------------------------------------------- the blocks of some lines

_KINDS = {**{kind.value: kind for kind in Kind}, "alert_open": Kind.QUOTE}
_MARKERS = re.compile(r"(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t])))+")
_MARKER = re.compile(r">|[-*+]|\d+[.)]")


def blocks_of(
    lines: Sequence[str], start: int = 0, number: int | None = None, *, is_final: bool = False
) -> list[Block]:
    """The top-level blocks of these lines, list items on their own. The last one is closed if no further line can
    belong to it.

    ``start``: where the lines begin in the source. ``number``: of the item they begin with, if it is not what it says.
    ``is_final``: no more lines will come.
    """
    units: list[_Unit] = []
    for token in parser().parse("".join(lines), {formulas.GROWING: not is_final}):
        if token.type == "ordered_list_open" and token.level == 0 and (number is None or units):
            number = int(token.attrs.get("start", 1))
        elif token.type == "bullet_list_open" and token.level == 0:
            number = None
        kind = _KINDS.get(token.type)
        if kind is not None and token.level == (kind is Kind.ITEM):
            units.append(_Unit(kind, token, number if kind is Kind.ITEM else None))
            number = number + 1 if kind is Kind.ITEM and number is not None else number
        if token.type in ("inline", "fence", "code_block", "hr", formulas.BLOCK):
            units[-1].last = token.type
    places = list(accumulate(map(len, lines), initial=start))
    following = [unit.first for unit in units[1:]]
    return [unit.block(lines, places[unit.first], end) for unit, end in zip_longest(units, following)]


@dataclass(slots=True)
class _Unit:
    """A block as the parser found it."""

    kind: Kind
    token: Token
    number: int | None
    last: str = ""
    """What text it ends with, as far as it has any."""

    @property
    def first(self) -> int:
        """The number of its first line."""
        return self.token.map[0] if self.token.map else 0

    def block(self, lines: Sequence[str], start: int, following: int | None) -> Block:
        """``following``: the first line of the next block."""
        end = self.token.map[1] if self.token.map else 0
        if self.kind in (Kind.ITEM, Kind.NOTE, Kind.INDENTED):  # it may go on after empty lines
            closed, end = following is not None, len(lines) if following is None else following
        elif self.kind is Kind.CODE:
            code = lines[self.first : end]
            closed = following is not None or (len(code) > 1 and closes_fence(code[-1], self.token.markup))
        else:
            is_one_line = self.kind in (Kind.HEADING, Kind.RULE)
            if self.kind is Kind.FORMULA:
                is_one_line = self.token.meta["formula"] is not None
            closed = following is not None or end < len(lines) or (is_one_line and lines[-1].endswith("\n"))
        block = Block(self.kind, start, "".join(lines[self.first : end]), closed)
        if self.kind is not Kind.CODE:
            return replace(block, number=self.number, ends_in_code=self.last in ("fence", "code_block"))
        language = language_of(self.token.info)
        return replace(block, fence=self.token.markup, indent=_indent(lines[self.first]), language=language)


def language_of(info: str) -> str:
    """The language that code is in, from what stands behind its fence."""
    words = visible(unescapeAll(info)).split()
    return words[0].strip("{}.") if words else ""


def is_deep(line: str) -> bool:
    """Whether a line stands in more lists and quotes than are shown as such."""
    markers = _MARKERS.match(line)
    return markers is not None and len(_MARKER.findall(markers.group())) > MAX_DEPTH


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip(" "))


def closes_fence(line: str, fence: str, *, least: int = 0) -> bool:
    """Whether a line ends the code in this fence.

    ``least``: so many of the fence's characters are enough, in place of all, as in a line that is still growing.
    """
    text = line.strip()
    return _indent(line) < 4 and len(text) >= (least or len(fence)) and text == fence[0] * len(text)
