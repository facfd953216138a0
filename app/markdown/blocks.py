"""The top-level blocks of Markdown, also while it is still being written.

Each is parsed again when it is drawn, on its own.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    """Whether a line ends the code in this fence; ``least``: with so many of its characters, as in a growing line."""
    text = line.strip()
    return _indent(line) < 4 and len(text) >= (least or len(fence)) and text == fence[0] * len(text)


# Cut Markdown that is still being written into top-level blocks, each of which can be drawn once and kept.
#
# Only the last block of a growing text can still change, so the transcript freezes all others. List items count as
# blocks of their own: a list of a thousand items costs no more than its last one.

MAX_BLOCK_CHARACTERS = 4000
"""A longer block is continued in the next one, so that no update has to lay out more than this."""
MAX_BLOCK_LINES = 400
"""The same for blocks of short lines, which take long to parse."""
MAX_TABLE_CHARACTERS = 2000
"""The same for tables, whose layout costs more."""
MAX_TABLE_BARS = 240
"""The same for tables of many small cells, counted by what stands between them."""
MAX_LINE_CHARACTERS = 1000
"""A longer line is drawn as several; copying joins them again."""
_NO_FENCE = "\0\0\0"
"""Nothing that is shown ends code in this one."""
_LINES_AT_ONCE = 100
"""So many lines are parsed together with what is open."""
_CONTINUED = "x\n"
"""Parsed before the rest of a block that was cut: what can follow a paragraph can follow that."""
_UNDECIDED = re.compile(r"\s*(?:[-*+#>`~=_]+|\d{1,9}[.)]?|\[[ xX]?\]?|[-*+] \[[ xX]?\]?)\s*$")


@dataclass(slots=True)
class CodeLine:
    """A finished line of fenced code. ``start`` is where ``text`` begins in the source."""

    start: int
    text: str
    continued: bool = False


@dataclass(slots=True)
class OpenCode:
    """A fenced code block that is being written: its finished lines, taken off by whoever draws it."""

    block: Block
    lines: deque[CodeLine] = field(default_factory=deque)
    closed: bool = False


class BlockSplitter:
    """Takes Markdown in any portions. ``ready`` receives each finished block, in order; fenced code arrives there as
    soon as it begins and grows in place. The unfinished rest is `tail`."""

    def __init__(self, *, plain: bool = False, language: str = "") -> None:
        """``plain``: the text is no Markdown; each line is a block. ``language``: all of it is code in this one."""
        self.ready: deque[Block | OpenCode] = deque()
        self._plain = plain
        self._language = language
        self._at = 0
        """Where what is in no block yet begins in the source."""
        self._lines: list[str] = []
        """The finished lines from there on: those of the last block, as long as it can grow."""
        self._open: Block | None = None
        """That block, as it was when the lines were last parsed."""
        self._unparsed = 0
        """How many lines came since."""
        self._cut: Block | None = None
        """The block that these lines go on with, where that was cut."""
        self._code: OpenCode | None = None
        self._partial = ""
        self._is_in_line = False
        """Whether an overlong line goes on."""
        self._is_final = False
        """Whether no more text will come."""

    def feed(self, text: str) -> None:
        """Add text that follows what came before."""
        if self._language and self._code is None and text:
            self._code = OpenCode(Block(Kind.CODE, 0, "", fence=_NO_FENCE, language=self._language))
            self.ready.append(self._code)
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._take_line(line, "\n")
        while len(self._partial) > MAX_LINE_CHARACTERS:
            self._partial = self._take_part(self._partial)
        self._parse()

    def finish(self) -> None:
        """There is no more text: whatever is open ends here."""
        if self._partial:
            self._take_line(self._partial, "")
            self._partial = ""
        self._is_final = True
        if self._open is not None and self._open.kind is Kind.FORMULA:
            self._unparsed = len(self._lines)  # without its end it is none
        self._parse()
        if self._code is not None:
            self._code.closed = True
            self._code = None
        if self._open is not None:
            self._close(self._open)

    @property
    def partial_line(self) -> CodeLine | None:
        """The unfinished line of the fenced code that is open, if one is."""
        if self._code is None or not self._partial or closes_fence(self._partial, self._code.block.fence, least=1):
            return None
        return self._code_line(self._partial, self._code.block, self._at)

    def tail(self) -> list[Block]:
        """The part that can still change, as blocks to draw for now; none while fenced code is open."""
        if self._code is not None:
            return []
        partial = "" if self._is_held_back(self._partial) else self._partial
        blocks = self._blocks([*self._lines, partial] if partial else self._lines)
        return [shown for block in blocks if (shown := _without_row(block)) is not None]

    def _is_held_back(self, partial: str) -> bool:
        """Whether this beginning of a line doesn't tell yet what it will be."""
        if self._open is not None and self._open.kind is Kind.TABLE:
            return True
        return partial.lstrip().startswith("|") or _UNDECIDED.match(partial) is not None

    # -- lines

    def _take_line(self, line: str, end: str) -> None:
        while len(line) > MAX_LINE_CHARACTERS:
            line = self._take_part(line)
        self._take(line + end)
        self._is_in_line = False

    def _take_part(self, line: str) -> str:
        """Take the first part of an overlong line, and return the rest."""
        cut = line.rfind(" ", MAX_LINE_CHARACTERS // 2, MAX_LINE_CHARACTERS) + 1 or MAX_LINE_CHARACTERS
        self._take(line[:cut])
        self._parse()
        if self._open is not None:
            self._cut = self._close(self._open)
        if self._cut is not None:
            self._cut = replace(self._cut, joined=True)
        self._is_in_line = True
        return line[cut:]

    def _take(self, line: str) -> None:
        """One finished line, or a part of an overlong one."""
        if self._code is None and not self._plain and not is_deep(line):
            self._lines.append(line)
            self._unparsed += 1
            if self._unparsed >= _LINES_AT_ONCE:
                self._parse()
            return
        self._parse()
        if self._code is not None:
            self._take_code(line, self._code)
        else:
            if self._open is not None:
                self._close(self._open)
            shown = line.rstrip("\n")
            self.ready.append(Block(Kind.PLAIN, self._at, shown, True, continued=self._plain, joined=self._is_in_line))
            self._cut = None
        self._at += len(line)

    def _take_code(self, line: str, code: OpenCode) -> None:
        if closes_fence(line, code.block.fence) and not self._is_in_line:
            code.closed = True
            self._code = None
        else:
            code.lines.append(self._code_line(line.rstrip("\n"), code.block, self._at))

    def _code_line(self, text: str, block: Block, at: int) -> CodeLine:
        indent = 0 if self._is_in_line else min(block.indent, len(text) - len(text.lstrip(" ")))
        return CodeLine(at + indent, text[indent:], continued=self._is_in_line)

    # -- blocks

    def _parse(self) -> None:
        """Move the blocks that are finished to ``ready``."""
        while self._unparsed:
            self._unparsed = 0
            blocks = deque(self._blocks(self._lines))
            self._open = None
            while blocks:
                block = blocks.popleft()
                if block.kind is Kind.CODE:
                    self._begin_code(block)
                elif (size := _size_to_cut(block)) is not None:
                    self._cut = self._close(replace(block, text=block.text[:size]))
                    if block.kind is not Kind.TABLE:  # what follows the cut may be something else
                        self._unparsed = len(self._lines)
                        break
                    if size < len(block.text):
                        blocks.appendleft(_rest_of(self._cut, block.start + size, block.text[size:], block.closed))
                elif block.closed:
                    self._close(block)
                else:
                    self._drop(block.start)
                    self._open = block
            else:
                if self._open is None:
                    self._drop(self._at + sum(map(len, self._lines)))

    def _blocks(self, lines: Sequence[str]) -> list[Block]:
        """The blocks of the lines that are in none yet."""
        if self._cut is None:
            number = self._open.number if self._open is not None else None
            return blocks_of(lines, self._at, number, is_final=self._is_final)
        head = self._cut.prefix or _CONTINUED
        first, *others = blocks_of(
            [*head.splitlines(keepends=True), *lines], self._at - len(head), is_final=self._is_final
        )
        text = first.text[len(head) :]
        return [_rest_of(self._cut, self._at, text, first.closed), *others] if text.strip() else others

    def _close(self, block: Block) -> Block:
        """The block ends or is cut here; returns what continues it."""
        self.ready.append(replace(block, closed=True))
        self._drop(block.start + len(block.text))
        self._open = None
        if block.kind is not Kind.TABLE:
            return replace(block, kind=Kind.PARAGRAPH, joined=False)
        head = "".join(block.text.splitlines(keepends=True)[:2])
        return replace(block, joined=False, prefix=block.prefix or head)

    def _drop(self, place: int) -> None:
        """Forget the lines before this place of the source."""
        count = 0
        while self._at < place:
            self._at += len(self._lines[count])
            count += 1
        if count:
            del self._lines[:count]
            self._cut = None

    def _begin_code(self, block: Block) -> None:
        opening, *lines = block.text.removesuffix("\n").split("\n")
        code = OpenCode(replace(block, text=opening), closed=block.closed)
        at = block.start + len(opening) + 1
        for line in lines[:-1] if block.closed else lines:
            code.lines.append(self._code_line(line, block, at))
            at += len(line) + 1
        self.ready.append(code)
        self._drop(block.start + len(block.text))
        self._code = None if block.closed else code


def _rest_of(cut: Block, start: int, text: str, closed: bool) -> Block:
    """The block that continues one that was cut."""
    return Block(cut.kind, start, text, closed, continued=True, joined=cut.joined, prefix=cut.prefix)


def _size_to_cut(block: Block) -> int | None:
    """Where to cut a block that is too long, in characters; ``None`` if it isn't."""
    is_table = block.kind is Kind.TABLE
    limit = MAX_TABLE_CHARACTERS if is_table else MAX_BLOCK_CHARACTERS
    if len(block.text) <= limit and block.text.count("|" if is_table else "\n") <= MAX_TABLE_BARS:
        return None
    size = bars = 0
    for number, line in enumerate(block.text.splitlines(keepends=True), start=1):
        size += len(line)
        bars += line.count("|")
        if size > limit or (bars > MAX_TABLE_BARS if is_table else number > MAX_BLOCK_LINES):
            return size
    return None


def _without_row(block: Block) -> Block | None:
    """The block without a last line that may begin a table, as long as the next one has not come."""
    head, _, last = block.text.rstrip("\n").rpartition("\n")
    is_row = block.kind in (Kind.PARAGRAPH, Kind.ITEM, Kind.QUOTE) and last.lstrip(" >").startswith("|")
    if block.closed or not is_row:
        return block
    return replace(block, text=head) if head.strip() else None


# ---------------------------------------------------------------- an unfinished last block, made presentable

_OPEN_STRONG = re.compile(r"(?:^|[\s(\[\"'“\u2e80-\uffdc])\*\*(?=[^\s*])")
"""Also behind Chinese, Japanese and Korean letters and signs, which have no spaces between words."""


def close_inline(text: str) -> str:
    """Text of an unfinished block with its open code span or bold closed, so that it does not flicker."""
    if text.count("`") % 2:
        return text + "`"
    if text.count("**") % 2 == 0:
        return text
    if text.endswith("*") and not text.endswith("**"):
        return text + "*"
    last = text.rfind("**")
    return text.rstrip() + "**" if _OPEN_STRONG.match(text, max(last - 1, 0)) else text
