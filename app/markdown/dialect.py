"""The Markdown of chats: GitHub's, with formulas, footnotes and the few tags that models write.

One parser for what is shown, printed and exported. Its tokens know where in the text they begin. Text that would take
it forever stays as it is written.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Literal

from markdown_it import MarkdownIt
from markdown_it.common.utils import isMdAsciiPunct, isPunctChar, isWhiteSpace, normalizeReference
from markdown_it.parser_block import RuleFuncBlockType
from markdown_it.parser_inline import ParserInline
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, code, fence, heading, lheading, paragraph, reference, table
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token
from mdit_py_plugins.footnote.index import footnote_def

from app.markdown import formulas
from app.markdown.formulas import PLACES

AT = "at"
"""Of a token in a line of text: where in the content of its block it begins, in its ``meta``."""
FOOTNOTE, TAG = "footnote_reference", "tag"
"""The types of the tokens; a tag's ``info`` is its name, its ``markup`` the whole."""

_MAX_STEPS = 50_000
"""Looks ahead in one block; a text that needs more was made for that."""
_MAX_DEFINITIONS = 200
_MAX_DEFINITION = 1000
_BAR = "\ufdd2"
"""Stands for a bar inside a formula or code, which ends no cell."""
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
_DELIMITERS = re.compile(r"(?=.*\|)[ \t>]*+\|?[ \t]*+:?-+:?[ \t]*+(?:\|[ \t]*+:?-+:?[ \t]*+)*+\|?[ \t]*+")
_CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")

# ---------------------------------------------------------------- lines of text

_MAIL = r"(?<![A-Za-z0-9.+_-])[A-Za-z0-9.+_-]+@[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+"
_WEB = r"(?<![A-Za-z0-9./:@-])(?:https?://|www\.)"
_STOP = re.compile(rf"[\n!$&*<\[\\\]_`~]|{_WEB}", re.IGNORECASE)
_STOP_OR_MAIL = re.compile(rf"[\n!$&*<\[\\\]_`~]|{_WEB}|{_MAIL}", re.IGNORECASE)
_CJK_SIGNS = "\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff3d\uff5b-\uff65“”‘’…"
_ADDRESS = re.compile(
    rf"(?:https?://|(?=www\.))[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]++)*+(?::\d++)?+(?![@:]\S)(?:[/?#][^\s<{_CJK_SIGNS}]*)?",
    re.IGNORECASE,
)
_MAIL_ADDRESS = re.compile(_MAIL)
_BEHIND_ADDRESS = re.compile(r"(?:&[A-Za-z0-9]+;|[?!.,:*_~'\"]+)\Z")
_TAGS = re.compile(r"<(?:/?br ?/?|/?(?:sub|sup|kbd|summary)|/?details(?:\s[^<>]*)?)>", re.IGNORECASE)
_FOOTNOTE = re.compile(r"\[\^([^\]\[\s]{1,40})\](?![(:])")


class _TooLongError(Exception):
    """A text takes more than `_MAX_STEPS`."""


class _State(StateInline):
    """Notes where each token begins, and knows that Chinese, Japanese and Korean have no spaces between words."""

    def __init__(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> None:
        super().__init__(src, md, env, tokens)
        self.open_tags: list[str] = []
        self._pending_at = 0

    def append_pending(self, text: str) -> None:
        if not self._pending_buffer and not self._pending:
            self._pending_at = self.pos
        super().append_pending(text)

    def pushPending(self) -> Token:  # noqa: N802
        token = super().pushPending()
        token.meta[AT] = self._pending_at
        return token

    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        token = super().push(ttype, tag, nesting)
        before = self.tokens[-2] if len(self.tokens) > 1 else None
        end = before.meta[AT] + len(before.content) if before is not None and before.type == "text" else 0
        is_address = before is not None and (before.type, before.markup) == ("link_open", "autolink")
        token.meta[AT] = max(self.pos + is_address, end)  # of a run of marks, each is a token
        return token

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803
        """Whether the marks at ``start`` can open and close emphasis."""
        end, mark = start, self.src[start]
        while end < self.posMax and self.src[end] == mark:
            end += 1
        before = self.src[start - 1] if start else " "
        after = self.src[end] if end < self.posMax else " "
        is_space_before, is_space_after = isWhiteSpace(ord(before)), isWhiteSpace(ord(after))
        is_sign_before, is_sign_after = _is_sign(before), _is_sign(after)
        is_either_cjk = _is_cjk(before) or _is_cjk(after)
        opens = not is_space_after and (not is_sign_after or is_space_before or is_sign_before or is_either_cjk)
        closes = not is_space_before and (not is_sign_before or is_space_after or is_sign_after or is_either_cjk)
        can_open = opens and (canSplitWord or not closes or is_sign_before)
        can_close = closes and (canSplitWord or not opens or is_sign_after)
        return Scanned(can_open, can_close, end - start)


@lru_cache(maxsize=512)
def _is_sign(character: str) -> bool:
    return isMdAsciiPunct(ord(character)) or isPunctChar(character)


@lru_cache(maxsize=512)
def _is_cjk(character: str) -> bool:
    if character < "\u1100":
        return False
    return unicodedata.east_asian_width(character) in "WFH" and unicodedata.category(character) != "So"


class _Inline(ParserInline):
    """Gives up on a text that takes too long: it stays as it is written."""

    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token]:
        state = _State(src, md, env, tokens)
        try:
            self.tokenize(state)
        except _TooLongError:
            state = _State(src, md, env, tokens)
            tokens.clear()
            state.append_pending(src)
            state.pushPending()
        for rule in self.ruler2.getRules(""):
            rule(state)
        return tokens

    def skipToken(self, state: StateInline) -> None:  # noqa: N802
        state.env["steps"] = left = state.env.get("steps", _MAX_STEPS) - 1
        if left < 0:
            raise _TooLongError
        super().skipToken(state)


def _text(state: StateInline, silent: bool) -> bool:
    """Text in which no other rule can begin."""
    is_mail = "@" in state.src
    found = (_STOP_OR_MAIL if is_mail else _STOP).search(state.src, state.pos, state.posMax)
    end = found.start() if found is not None else state.posMax
    if end == state.pos:
        return False
    if not silent:
        state.append_pending(state.src[state.pos : end])
    state.pos = end
    return True


def _address(state: StateInline, silent: bool) -> bool:
    """An address that stands in the text as it is."""
    if state.linkLevel or state.src[state.pos] in "\n!$&*<[\\]`~":
        return False
    web = _ADDRESS.match(state.src, state.pos, state.posMax)
    mail = _MAIL_ADDRESS.match(state.src, state.pos, state.posMax) if web is None and "@" in state.src else None
    shown = _without_signs_behind(web[0]) if web is not None else mail[0].rstrip(".") if mail is not None else ""
    if not shown or shown[-1] in "-_" or (web is None and shown.startswith("_")):
        return False
    if "." not in shown and "://" not in shown:
        return False
    if not silent:
        scheme = "mailto:" if web is None else "" if "://" in shown[:8] else "http://"
        token = state.push("link_open", "a", 1)
        token.attrs = {"href": state.md.normalizeLink(scheme + shown)}
        state.push("text", "", 0).content = shown
        state.push("link_close", "a", -1)
    state.pos += len(shown)
    return True


def _without_signs_behind(address: str) -> str:
    while True:
        shorter = _BEHIND_ADDRESS.sub("", address)
        if shorter.endswith(")") and shorter.count(")") > shorter.count("("):
            shorter = shorter[:-1]
        if shorter == address:
            return address
        address = shorter


def _tildes(state: StateInline, silent: bool) -> bool:
    """Only two of them strike something out. (One does so for GitHub, but models mean "about" by it.)"""
    end = state.pos
    while end < state.posMax and state.src[end] == "~":
        end += 1
    if end - state.pos in (0, 2):
        return False
    if not silent:
        state.append_pending(state.src[state.pos : end])
    state.pos = end
    return True


def _tag(state: StateInline, silent: bool) -> bool:
    """One of the few tags that are known here; one that is not closed stays text."""
    found = _TAGS.match(state.src, state.pos, state.posMax) if state.src[state.pos] == "<" else None
    if found is None:
        return False
    tag, name = found[0], found[0].strip("</> ").split()[0].lower()
    assert isinstance(state, _State)
    if not silent and name not in ("br", "details"):
        if not tag.startswith("</"):
            if state.html_terminator_last(f"</{tag[1:]}") < state.pos:
                return False
            state.open_tags.append(name)
        elif name not in state.open_tags:
            return False
        else:
            state.open_tags.remove(name)
    if not silent:
        token = state.push("hardbreak" if name == "br" else TAG, "br" if name == "br" else "", 0)
        token.info, token.markup = name, tag
    state.pos = found.end()
    if tag.lower() == "</summary>" and state.src[state.pos :].strip():  # what follows is no part of the title
        if not silent:
            state.push("hardbreak", "br", 0)
        state.pos += len(state.src[state.pos :]) - len(state.src[state.pos :].lstrip())
    return True


def _footnote(state: StateInline, silent: bool) -> bool:
    found = _FOOTNOTE.match(state.src, state.pos, state.posMax) if state.src[state.pos] == "[" else None
    if found is None or normalizeReference(found[1]) not in state.env.get("notes", ()):
        return False
    if not silent:
        token = state.push(FOOTNOTE, "sup", 0)
        token.content = found[1]
    state.pos = found.end()
    return True


# ---------------------------------------------------------------- blocks


def _placed(rule: RuleFuncBlockType) -> RuleFuncBlockType:
    """The rule, noting where in the text the contents of its tokens stand."""

    def placed(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        count = len(state.tokens)
        if not rule(state, start, end, silent):
            return False
        cells: Iterator[tuple[int, str]] = iter(())
        for token in state.tokens[count:] if not silent else ():
            if token.type == "tr_open" and token.map:
                cells = _cells(state, token.map[0])
            elif token.type == "inline" and token.map:
                if rule is _table:
                    at, raw = next(cells, (0, ""))
                    token.meta[PLACES] = _cell_places(at, raw)
                else:
                    _place_lines(state, token, token.map)
            elif token.type in ("fence", "code_block") and token.map:
                _place_code(state, token, token.map[0] + (token.type == "fence"))
        return True

    return placed


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A table, which may also stand right below the text of an item without being indented as it is."""
    indent = state.blkIndent
    if silent:
        state.blkIndent = min(indent, state.sCount[start])
    try:
        return table(state, start, end, silent)
    finally:
        state.blkIndent = indent


def _place_lines(state: StateBlock, token: Token, lines: list[int]) -> None:
    """Those of a paragraph or a heading, without what stands before their text."""
    at, places, number = 0, [], lines[0]
    parts = token.content.split("\n")
    for index, part in enumerate(parts):
        number = lines[0] + index
        begin = state.bMarks[number] + state.tShift[number]
        text = parts[index] = part.lstrip(" \t")
        # A heading has its marks before the text.
        places.append((at, max(begin, state.src.find(text, begin)) if text else begin))
        at += len(text) + 1
    token.content = "\n".join(parts)
    token.meta[PLACES] = places


def _place_code(state: StateBlock, token: Token, first: int) -> None:
    at, places = 0, []
    for number, line in enumerate(token.content.splitlines(keepends=True), start=first):
        places.append((at, max(state.bMarks[number], state.eMarks[number] - len(line.rstrip("\n")))))
        at += len(line)
    token.meta[PLACES] = places


def _cells(state: StateBlock, line: int) -> Iterator[tuple[int, str]]:
    """Where the cells of a row begin, and what is written there."""
    start, end = state.bMarks[line] + state.tShift[line], state.eMarks[line]
    text = state.src[start:end].rstrip()
    if text.startswith("|"):
        start, text = start + 1, text[1:]
    for cell in _BETWEEN_CELLS.split(text):
        yield start + len(cell) - len(cell.lstrip()), cell.strip()
        start += len(cell) + 1


def _cell_places(start: int, raw: str) -> list[tuple[int, int]]:
    """A cell without the backslashes before its bars."""
    bars = [found.start() for found in re.finditer(r"\\\|", raw)]
    return [(0, start), *((bar - removed, start + bar + 1) for removed, bar in enumerate(bars))]


def located(token: Token, at: int, length: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a token's content from ``at`` on, ``length`` characters long, that stand together in the text: where
    each begins in the content, its length, and where it begins in the text."""
    places: Sequence[tuple[int, int]] = token.meta.get(PLACES, ())
    end = at + length
    index = bisect_right(places, (at, 1 << 62)) - 1
    while places and at < end:
        following = places[index + 1][0] if index + 1 < len(places) else end
        size = min(end, following) - at
        if size > 0:
            yield at, size, places[index][1] + at - places[index][0]
        at, index = max(at, following), index + 1


def _wanted_reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A definition that is asked for somewhere; any other is shown."""
    found = _LABEL.match(state.src, state.bMarks[start] + state.tShift[start])
    if found is None or normalizeReference(found[1]) not in state.env.get("wanted", ()):
        return False
    return reference(state, start, end, silent)


def _mask_bars(state: StateCore) -> None:
    text = state.src
    if "|" in text and ("$" in text or "\\" in text):
        for formula in formulas.formulas_in(text):
            if "|" in formula.source and not formula.source.startswith("\\b"):
                masked = text[formula.start : formula.end].replace("|", _BAR)
                text = text[: formula.start] + masked + text[formula.end :]
    state.src = _with_code_whole(text) if "|" in text and "`" in text else text


def _with_code_whole(text: str) -> str:
    """With the bars in code masked in rows of tables that would have too many cells."""
    lines, columns = text.split("\n"), 0
    for number, line in enumerate(lines):
        if not line.strip(" \t>"):
            columns = 0
        elif not columns and _DELIMITERS.fullmatch(line):
            columns = _cell_count(line)
            lines[number - 1] = _with_cells(lines[number - 1], columns) if number else line
        elif columns:
            lines[number] = _with_cells(line, columns)
    return "\n".join(lines)


def _cell_count(row: str) -> int:
    return len(_BETWEEN_CELLS.split(row.strip(" \t>").removeprefix("|").removesuffix("|")))


def _with_cells(row: str, most: int) -> str:
    if _cell_count(row) <= most:
        return row
    return _CODE.sub(lambda code: code[0].replace("|", _BAR), row)


def _unmask_bars(state: StateCore) -> None:
    if _BAR not in state.src:
        return
    state.src = state.src.replace(_BAR, "|")
    for token in state.tokens:
        token.content = token.content.replace(_BAR, "|")
        if token.type == formulas.BLOCK and token.meta["formula"] is not None:
            formula = token.meta["formula"]
            source, tex = formula.source.replace(_BAR, "|"), formula.tex.replace(_BAR, "|")
            token.meta["formula"] = replace(formula, source=source, tex=tex)


# ---------------------------------------------------------------- the parser

_PLACED: tuple[tuple[str, RuleFuncBlockType, list[str]], ...] = (
    ("table", _table, ["paragraph", "reference"]),
    ("code", code, []),
    ("fence", fence, ["paragraph", "reference", "blockquote", "list"]),
    ("heading", heading, ["paragraph", "reference", "blockquote"]),
    ("lheading", lheading, []),
    ("paragraph", paragraph, []),
)
"""Rules, and what they can end, as markdown-it-py has them."""


class _Shown(MarkdownIt):
    """Takes any link: whoever shows it decides whether it can be followed."""

    def validateLink(self, _url: str) -> bool:  # noqa: N802
        return True

    def normalizeLinkText(self, link: str) -> str:  # noqa: N802
        return link


def new_parser(kind: type[MarkdownIt] = MarkdownIt, renderer: type[RendererHTML] = RendererHTML) -> MarkdownIt:
    """A parser of its own; its environments are made by `environment`."""
    options = {"maxNesting": 100, "tasklists": True, "alerts": True}
    parser = kind("commonmark", options, renderer_cls=renderer)
    parser.inline = _Inline()
    parser.enable(["table", "strikethrough"]).disable(["html_block", "html_inline", "linkify"])
    for name, rule, ends in _PLACED:
        parser.block.ruler.at(name, _placed(rule), {"alt": ends})
    parser.block.ruler.at("reference", _wanted_reference)
    parser.block.ruler.before("reference", "footnote_def", footnote_def, {"alt": ["paragraph", "reference"]})
    formulas.use_formulas(parser)
    parser.inline.ruler.at("text", _text)
    parser.inline.ruler.after("text", "address", _address)
    parser.inline.ruler.before("strikethrough", "tildes", _tildes)
    parser.inline.ruler.before("link", "footnote", _footnote)
    parser.inline.ruler.before("autolink", TAG, _tag)
    parser.core.ruler.before("block", "mask_bars", _mask_bars)
    parser.core.ruler.after("block", "unmask_bars", _unmask_bars)
    return parser


@cache
def parser() -> MarkdownIt:
    """One for all that look at tokens: `parse` gives blocks, whose lines `parse_inline` takes apart."""
    result = new_parser(_Shown)
    result.core.ruler.disable(["inline", "text_join"])
    result.inline.ruler2.disable("fragments_join")
    return result


def parse_inline(token: Token, env: dict[str, Any]) -> list[Token]:
    """What the text of a block consists of."""
    return parser().inline.parse(token.content, parser(), env, [])


_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){1,999})\]:", re.DOTALL)
_DEFINITION = re.compile(r"^(?:[ >]*>)? {0,3}(?=\[(?!\^)(?:[^\]\\]|\\.){1,500}\]:)", re.MULTILINE)
_NOTE = re.compile(r"^[ >]{0,8}\[\^([^\]\[\s]+)\]:", re.MULTILINE)
_USE = re.compile(r"\[((?:[^\[\]\\]|\\.){1,999}+)\](?!:)", re.DOTALL)


def environment(text: str) -> dict[str, Any]:
    """What the parts of a text must know of the whole: its footnotes, and where links lead that are defined
    elsewhere."""
    env: dict[str, Any] = {"references": {}, "wanted": frozenset(), "notes": frozenset()}
    if "]:" not in text:
        return env
    env["notes"] = frozenset(normalizeReference(label) for label in _NOTE.findall(text))
    found = list(islice(_DEFINITION.finditer(text), _MAX_DEFINITIONS))
    if found:
        env["wanted"] = frozenset(normalizeReference(label) for label in _USE.findall(text))
    ends = [*(one.start() for one in found[1:]), len(text)][: len(found)]
    for one, end in zip(found, ends, strict=True):
        above = text[text.rfind("\n", 0, max(0, one.start() - 1)) + 1 : one.start()].strip(" >\n")
        if not above or _LABEL.match(above) or above[0] == "#":  # it can't interrupt a paragraph
            parser().parse(text[one.end() : min(end, one.end() + _MAX_DEFINITION)], env)
    return env
