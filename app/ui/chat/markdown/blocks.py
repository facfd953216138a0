"""Cut Markdown that is still being written into top-level blocks, each of which can be drawn once and kept.

Only the last block of a growing text can still change, so the transcript freezes all others. List items count as
blocks of their own: a list of a thousand items costs no more than its last one. The rules are CommonMark's as far as
they decide where a block ends; what is inside a block is left to Qt's parser.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum

MAX_BLOCK_CHARACTERS = 4000
"""A longer block is continued in the next one, so that no update has to lay out more than this."""
MAX_TABLE_CHARACTERS = 2000
"""The same for tables, whose layout costs more."""
MAX_TABLE_BARS = 240
"""The same for tables of many small cells, counted by what stands between them."""
MAX_LINE_CHARACTERS = 1000
"""A longer line is drawn as several; copying joins them again."""
MAX_DEPTH = 8
"""Deeper lists and quotes are shown as they were written."""
MAX_TABLE_COLUMNS = 40


class Kind(Enum):
    """What a block is, as far as it decides where the block ends and how it is drawn."""

    PARAGRAPH = "paragraph"
    HEADING = "heading"
    RULE = "rule"
    ITEM = "item"
    QUOTE = "quote"
    TABLE = "table"
    INDENTED = "indented"
    CODE = "code"
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
    content: int = 0
    """Column at which an item's text begins."""
    blank: bool = False
    """An item or indented code that ended with an empty line: it may go on after it."""
    fence: str = ""
    """The fence that is open: of the block itself (code) or inside it (an item)."""
    language: str = ""
    prefix: str = ""
    """Lines to parse before ``text``: the head of a table that is continued."""


@dataclass(slots=True)
class CodeLine:
    """A finished line of fenced code. ``start`` is where ``text`` begins in the source."""

    start: int
    text: str
    continued: bool = False


# ---------------------------------------------------------------- characters that must not reach the document

_REPLACED: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t\r\v\f"},
    **dict.fromkeys((0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029), " "),
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0x85), 0xFFFD),
    **dict.fromkeys(range(0x86, 0xA0), 0xFFFD),
    # Direction overrides make text read differently from what it says; the rest are characters Qt gives a meaning.
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
    **dict.fromkeys((*range(0xFDD0, 0xFDF0), 0xFFFC, 0xFFFE, 0xFFFF), 0xFFFD),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),
}
_UNWANTED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffc\ufffe\uffff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with control characters and direction overrides made visible; every character keeps its place."""
    return text.translate(_REPLACED) if _UNWANTED.search(text) else text


# ---------------------------------------------------------------- the rules, one line at a time

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_ITEM = re.compile(r"( {0,3})(?:[-*+]|(\d{1,9})[.)])(?:([ \t]+)\S|[ \t]*$)")
_QUOTE = re.compile(r" {0,3}>")
_SETEXT = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_DELIMITER_ROW = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_MARKERS = re.compile(r"(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t])))+")
_MARKER = re.compile(r">|[-*+]|\d+[.)]")
_UNDECIDED = re.compile(r"\s*(?:[-*+#>`~=_]+|\d{1,9}[.)]?|\[[ xX]?\]?|[-*+] \[[ xX]?\]?)\s*$")


def _is_deep(line: str) -> bool:
    markers = _MARKERS.match(line)
    return markers is not None and len(_MARKER.findall(markers.group())) > MAX_DEPTH


def _indent(line: str) -> int:
    width = 0
    for character in line:
        if character == " ":
            width += 1
        elif character == "\t":
            width += 4 - width % 4
        else:
            break
    return width


def _closes_fence(line: str, fence: str) -> bool:
    text = line.strip()
    return _indent(line) < 4 and len(text) >= len(fence) and text == fence[0] * len(text)


def _opening_fence(line: str) -> re.Match[str] | None:
    fence = _FENCE.match(line)
    return None if fence is None or (fence[1][0] == "`" and "`" in fence[2]) else fence


def _interrupts(line: str) -> bool:
    """Whether this line ends a paragraph and begins something else."""
    if _opening_fence(line) or _HEADING.match(line) or _RULE.match(line) or _QUOTE.match(line):
        return True
    item = _ITEM.match(line)
    return item is not None and item[3] is not None and item[2] in (None, "1")


def _open_item(line: str, at: int, item: re.Match[str], after: Block | None) -> Block:
    number = int(item[2]) if item[2] else None
    if number is not None and after is not None and after.number is not None:
        number = after.number + 1
    marker_end = item.end(3) if item[3] else item.end()
    content = len(item[1]) + (len(item[2]) + 1 if item[2] else 1) + 1
    if item[3] and len(item[3]) <= 4:
        content = marker_end
    inner = _opening_fence(line[content:])
    return Block(Kind.ITEM, at, line, number=number, content=content, fence=inner[1] if inner else "")


def open_block(line: str, at: int, after: Block | None = None) -> Block:
    """The block that begins with this line (not an empty one). ``after``: the list item right before it."""
    bare = line.rstrip("\n")
    if _is_deep(bare):
        return Block(Kind.PLAIN, at, line)
    if fence := _opening_fence(bare):
        words = fence[2].split()
        return Block(
            Kind.CODE, at, line, fence=fence[1], content=_indent(bare), language=words[0].strip("{}.") if words else ""
        )
    if _HEADING.match(bare):
        return Block(Kind.HEADING, at, line, closed=line.endswith("\n"))
    if _RULE.match(bare):
        return Block(Kind.RULE, at, line, closed=line.endswith("\n"))
    if item := _ITEM.match(bare):
        return _open_item(line, at, item, after)
    if _QUOTE.match(bare):
        return Block(Kind.QUOTE, at, line)
    if _indent(bare) >= 4:
        return Block(Kind.INDENTED, at, line)
    return Block(Kind.PARAGRAPH, at, line)


def advance(block: Block | None, line: str, at: int) -> list[Block]:
    """The blocks after one more line: the given one, perhaps closed, and the one the line begins.

    ``block`` is open and not fenced code (that grows in place), or None.
    """
    if block is None:
        return [open_block(line, at)] if line.strip() else []
    if block.kind is Kind.ITEM:
        return _advance_item(block, line, at)
    if block.kind is Kind.INDENTED:
        if line.strip() and _indent(line) < 4:
            return [_close(block), open_block(line, at)]
        return [_grown(block, line)]
    if not line.strip():
        return [_close(block)]
    bare = line.rstrip("\n")
    if block.kind is Kind.PARAGRAPH and not block.prefix and _SETEXT.match(bare) and not block.continued:
        return [_close(replace(block, kind=Kind.HEADING, text=block.text + line))]
    if block.kind is Kind.QUOTE and _QUOTE.match(bare) and not _is_deep(bare):
        return [_grown(block, line)]
    if _interrupts(bare):
        return [_close(block), open_block(line, at)]
    if block.kind is Kind.PARAGRAPH and _begins_table(block, bare):
        return [_grown(replace(block, kind=Kind.TABLE), line)]
    return [_grown(block, line)]


def _begins_table(block: Block, bare: str) -> bool:
    if block.text.count("\n") != 1 or "|" not in block.text or not _DELIMITER_ROW.match(bare):
        return False
    return block.text.strip().strip("|").count("|") == bare.strip().strip("|").count("|")


def _advance_item(block: Block, line: str, at: int) -> list[Block]:
    bare = line.rstrip("\n")
    if not bare.strip():
        return [_grown(replace(block, blank=True), line)]
    if _is_deep(bare.strip()):
        return [_close(block), Block(Kind.PLAIN, at, line)]
    if _indent(bare) >= block.content:
        inner = bare[block.content :]
        fence = block.fence
        if fence:
            fence = "" if _closes_fence(inner, fence) else fence
        elif opening := _opening_fence(inner.lstrip()):
            fence = opening[1]
        return [_grown(replace(block, blank=False, fence=fence), line)]
    item = _ITEM.match(bare)
    if item and not _RULE.match(bare):
        same_list = (item[2] is None) == (block.number is None)
        return [_close(block), open_block(line, at, after=block if same_list else None)]
    if block.blank or block.fence or _interrupts(bare):
        return [_close(block), open_block(line, at)]
    return [_grown(block, line)]


def _close(block: Block) -> Block:
    return replace(block, closed=True)


def _grown(block: Block, line: str) -> Block:
    return replace(block, text=block.text + line)


# ---------------------------------------------------------------- the splitter


@dataclass(slots=True)
class OpenCode:
    """A fenced code block that is being written: its finished lines, taken off by whoever draws it."""

    block: Block
    lines: deque[CodeLine] = field(default_factory=deque)
    closed: bool = False


class BlockSplitter:
    """Takes Markdown in any portions. ``ready`` receives each finished block, in order; fenced code arrives there as
    soon as it begins and grows in place. The unfinished rest is `tail`."""

    def __init__(self, *, plain: bool = False) -> None:
        """``plain``: the text is no Markdown; each line is a block."""
        self.ready: deque[Block | OpenCode] = deque()
        self._plain = plain
        self._open: Block | None = None
        self._code: OpenCode | None = None
        self._partial = ""
        self._at = 0
        self._code_continued = False
        self._line_continued = False

    def feed(self, text: str) -> None:
        """Add text that follows what came before."""
        lines = (self._partial + text).split("\n")
        self._partial = lines.pop()
        for line in lines:
            self._cut(line, "\n")
        while len(self._partial) > MAX_LINE_CHARACTERS:
            self._partial = self._cut_once(self._partial)

    def finish(self) -> None:
        """There is no more text: whatever is open ends here."""
        if self._partial:
            self._cut(self._partial, "")
            self._partial = ""
        if self._code is not None:
            self._code.closed = True
            self._code = None
        if self._open is not None:
            self.ready.append(_close(self._open))
            self._open = None

    @property
    def partial_line(self) -> CodeLine | None:
        """The unfinished line of the fenced code that is open, if one is."""
        if self._code is None or not self._partial:
            return None
        if self._partial.strip() and _closes_fence_so_far(self._partial, self._code.block.fence):
            return None
        return self._code_line(self._partial)

    def tail(self) -> list[Block]:
        """What can still change, as blocks to draw for now (none while fenced code is open)."""
        if self._code is not None:
            return []
        partial = self._partial
        if self._is_held_back(partial):
            partial = ""
        blocks = advance(self._open, partial, self._at) if partial else [self._open] if self._open else []
        return [block for block in blocks if not _may_become_table(block)]

    def _is_held_back(self, partial: str) -> bool:
        """Whether this beginning of a line does not yet say what it will be."""
        if self._open is not None and self._open.kind is Kind.TABLE:
            return True
        return partial.lstrip().startswith("|") or _UNDECIDED.match(partial) is not None

    # -- lines

    def _cut(self, line: str, end: str) -> None:
        while len(line) > MAX_LINE_CHARACTERS:
            line = self._cut_once(line)
        self._take(line + end)
        self._code_continued = self._line_continued = False

    def _cut_once(self, line: str) -> str:
        """Take the first part of an overlong line; give back the rest."""
        cut = line.rfind(" ", MAX_LINE_CHARACTERS // 2, MAX_LINE_CHARACTERS) + 1 or MAX_LINE_CHARACTERS
        self._take(line[:cut])
        if self._code is None and self._open is not None:
            self._continue_in_new_block(self._open, joined=True)
        self._line_continued = self._plain
        self._code_continued = self._code is not None
        return line[cut:]

    def _take(self, line: str) -> None:
        """One finished line, or a part of an overlong one."""
        at, self._at = self._at, self._at + len(line)
        if self._plain:
            joined = self._line_continued
            self.ready.append(Block(Kind.PLAIN, at, line.rstrip("\n"), True, continued=True, joined=joined))
            return
        if self._code is not None:
            self._take_code(line, at)
            return
        blocks = advance(self._open, line, at)
        self.ready.extend(blocks[:-1])
        self._open = last = blocks[-1] if blocks else None
        if last is None:
            return
        if last.closed:
            self.ready.append(last)
            self._open = None
        elif last.kind is Kind.CODE:
            self._code = OpenCode(last)
            self.ready.append(self._code)
            self._open = None
        elif _is_full(last):
            self._continue_in_new_block(last)

    def _take_code(self, line: str, at: int) -> None:
        assert self._code is not None
        if _closes_fence(line, self._code.block.fence) and not self._code_continued:
            self._code.closed = True
            self._code = None
            return
        self._code.lines.append(self._code_line(line.rstrip("\n"), at))

    def _code_line(self, text: str, at: int | None = None) -> CodeLine:
        assert self._code is not None
        at = self._at if at is None else at
        if self._code_continued:
            return CodeLine(at, text, continued=True)
        indent = min(self._code.block.content, len(text) - len(text.lstrip(" ")))
        return CodeLine(at + indent, text[indent:])

    def _continue_in_new_block(self, block: Block, *, joined: bool = False) -> None:
        self.ready.append(_close(block))
        kind = Kind.TABLE if block.kind is Kind.TABLE else Kind.PLAIN if block.kind is Kind.PLAIN else Kind.PARAGRAPH
        prefix = ""
        if kind is Kind.TABLE:
            prefix = block.prefix or "".join(block.text.splitlines(keepends=True)[:2])
        self._open = Block(kind, self._at, "", continued=True, joined=joined, prefix=prefix)


def _is_full(block: Block) -> bool:
    if block.kind is Kind.TABLE:
        return len(block.text) > MAX_TABLE_CHARACTERS or block.text.count("|") > MAX_TABLE_BARS
    return len(block.text) > MAX_BLOCK_CHARACTERS


def _closes_fence_so_far(partial: str, fence: str) -> bool:
    text = partial.strip()
    return _indent(partial) < 4 and text == fence[0] * len(text)


def _may_become_table(block: Block) -> bool:
    """A first row whose second line has not come yet."""
    return (
        block.kind is Kind.PARAGRAPH
        and not block.closed
        and block.text.count("\n") <= 1
        and block.text.lstrip().startswith("|")
    )


# ---------------------------------------------------------------- an unfinished last block, made presentable

_OPEN_STRONG = re.compile(r"(?:^|[\s(\[\"'“])\*\*(?=[^\s*])")


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
