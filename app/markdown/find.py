"""Find words in Markdown as it is shown, without drawing it.

The marks of Markdown are taken out by one pass of a regular expression, which remembers where in the source each part
of the shown text stands. It is quick enough to search thousands of messages; what it takes for shown differs from what
is shown in rare cases only, such as links that are defined elsewhere. Everything that counts matches counts them here.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache

from app.markdown.formulas import Formula, formulas_in

_PREFIX = r"[ \t]*+(?:>|[-*+][ \t]|\d{1,9}[.)][ \t]|\#{1,6}[ \t]|\||`{3}|~{3})"
_URL = r"\((?:[^()\n]|\([^()\n]*\))*\)"
_TOKENS = re.compile(
    rf"""
    ^(?=[ \t>`~*_=|:\#+\d-])(?:
    (?P<fence>[ \t>]*+(?P<marks>`{{3,}}|~{{3,}})[^\n`]*(?:\n|\Z))
      (?P<code>(?:(?![ \t>]*+(?P=marks)[`~]*[ \t]*+$)[^\n]*(?:\n|\Z))*?)(?:[ \t>]*+(?P=marks)[`~]*[ \t]*+$|\Z)
    |(?P<rule>[ \t>]*+(?:(?:[-*_=][ \t]*+){{3,}}|=+[ \t]*+|-{{2,}}[ \t]*+
        |\|?[ \t]*+:?-+:?[ \t]*+(?:\|[ \t]*+:?-+:?[ \t]*+)+\|?[ \t]*+|\|[ \t]*+:?-+:?[ \t]*+\|[ \t]*+)(?:\n|\Z))
    |(?P<prefix>(?:[ \t]*+(?:>|[-*+](?=[ \t])|\d{{1,9}}[.)](?=[ \t])|\#{{1,6}}(?=[ \t])))+[ \t]*+(?:\[[ xX]\][ \t]+)?)
    )|(?=[\\`!\[\]<&*~_\n|])(?:
    (?P<emphasis>\*+|(?<!~)~~(?!~)|(?<![^\W_])_+|_+(?![^\W_]))
    |(?P<break>\n[ \t]*+\n(?:[ \t]*+\n)*+(?:(?!{_PREFIX})[ \t]*+)?|\n(?={_PREFIX}))
    |(?P<soft>\\?\n[ \t]*+)
    |(?P<escape>\\(?P<escaped>[!-/:-@\[-`{{-~]))
    |(?P<ticks>(?<!`)(?P<tick>`+)(?!`)
        (?P<span>(?:[^`\n]|\n(?![ \t]*+\n)|(?!(?<!`)(?P=tick)(?!`))`)+)(?<!`)(?P=tick)(?!`))
    |(?P<open>!?\[(?=(?:[^\[\]\n]|\[[^\[\]\n]*\](?:{_URL})?)*\]\())
    |(?P<close>\]{_URL})
    |(?P<line></?[Bb][Rr]\ ?/?>)
    |(?P<tag></?(?i:sub|sup|kbd|summary|details(?:\s[^<>]*)?)>)
    |(?P<auto><(?P<address>[A-Za-z][A-Za-z0-9+.\-]{{1,31}}:[^\s<>]*|[^\s<>@]+@[^\s<>@]+)>)
    |(?P<entity>&(?:\#\d{{1,7}}|\#[xX][0-9a-fA-F]{{1,6}}|[A-Za-z][A-Za-z0-9]{{1,31}});)
    |(?P<bar>\|[ \t]*+)
    )
    """,
    re.VERBOSE | re.MULTILINE,
)
_MARKS = re.compile(r"[*_~`\\\[\]<>&|#\n+=-]|\d[.)]")
_TABLE = re.compile(r"^[ \t>]*+\|?[ \t]*+:?-+:?[ \t]*+(?:\|[ \t]*+:?-+:?[ \t]*+)*\|?[ \t]*+$", re.MULTILINE)
_LINES = re.compile(r"(\n|[^\n]+)(?:(?<=\n)[ \t]*(?:>[ \t]?)+)?")
"""Of a formula or code, without the marks of a quote."""
_CODE_IN_CELL = re.compile(r"(?:\\(?=\|))?((?:(?!\\\|).)+)", re.DOTALL)
"""Up to a bar, which has a backslash before it."""
_SPACES = re.compile(r"\s+")
_SPECIAL = re.compile(r"&(?:#|[a-z])[a-z0-9]*;|<(?:/?br ?/?|/?su[bp]|/?kbd)>")
_TARGETS = re.compile(r"\]\([^)\n]*\)+")
_BETWEEN = "*_~`\\[]!<> \t\n"


@dataclass(slots=True)
class ShownText:
    """The text that is shown. Its character ``places[i][0]`` and those after it, up to the next place, stand in the
    source from ``places[i][1]`` on."""

    text: str
    places: list[tuple[int, int]]

    def source_place(self, index: int) -> int:
        """Where the character ``index`` of the shown text stands in the source."""
        shown, source = self.places[bisect_right(self.places, (index, 1 << 62)) - 1]
        return source + index - shown


def shown_text(markdown: str, *, plain: bool = False) -> ShownText:
    """The text a reader sees. ``plain``: it is no Markdown."""
    if plain or not _MARKS.search(markdown):
        return ShownText(markdown, [(0, 0)])
    markdown = markdown.replace("\r", " ")
    return _Reader(markdown, formulas_in(markdown)).read()


@dataclass(slots=True)
class _Reader:
    """Takes the marks out of one text."""

    source: str
    formulas: list[Formula] = field(default_factory=list)
    """They are shown, or found, as they are written."""
    has_table: bool = False
    parts: list[str] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    length: int = 0
    open: list[tuple[str, int]] = field(default_factory=list)
    """Emphasis that was begun: its marks, and which part they are until they are closed."""

    def read(self) -> ShownText:
        source, at = self.source, 0
        self.has_table = "|" in source and _TABLE.search(source) is not None
        for formula in self.formulas:
            self._read(at, formula.start)
            self._add_parts(_LINES, formula.start, formula.end)
            at = formula.end
        self._read(at, len(source))
        return ShownText("".join(self.parts), self.places or [(0, 0)])

    def _read(self, at: int, stop: int) -> None:
        """What stands between two formulas."""
        source = self.source
        for token in _TOKENS.finditer(source, at, stop):
            start, end = token.span()
            kind = token.lastgroup
            if kind == "bar" and not self.has_table:
                continue
            if start > at:
                self._add(source[at:start], at)
            self._take(token, kind, start)
            at = end
        if at < stop:
            self._add(source[at:stop], at)

    def _add(self, text: str, source: int) -> None:
        self.parts.append(text)
        self.places.append((self.length, source))
        self.length += len(text)

    def _add_parts(self, parts: re.Pattern[str], start: int, end: int) -> None:
        for part in parts.finditer(self.source, start, end):
            self._add(part[1].replace("\n", " "), part.start(1))

    def _take(self, token: re.Match[str], kind: str | None, start: int) -> None:
        if token["fence"] is not None:
            self._add("\n", start)
            self._add(token["code"], token.start("code"))
            self.open.clear()
        elif token["ticks"] is not None:
            self._add_parts(_CODE_IN_CELL if self.has_table else _LINES, *token.span("span"))
        elif kind == "escaped" or token["escape"] is not None:
            self._add(token["escaped"], start + 1)
        elif token["auto"] is not None:
            self._add(token["address"], start + 1)
        elif kind == "entity":
            self._add(html.unescape(token[0]), start)
        elif kind == "emphasis":
            self._take_emphasis(token, start)
        elif kind in ("break", "bar", "rule"):
            self._add("\n", start)
            if kind == "break":
                self.open.clear()
        elif kind in ("soft", "line"):
            self._add(" ", start)

    def _take_emphasis(self, token: re.Match[str], start: int) -> None:
        """Marks that open and close each other are not shown; others are."""
        source, marks = self.source, token[0]
        after = source[token.end() : token.end() + 1]
        before = source[start - 1 : start] if start else ""
        if before and not before.isspace():
            for index in range(len(self.open) - 1, -1, -1):
                opened, part = self.open[index]
                if opened[0] == marks[0] and (len(opened) == len(marks) or marks[0] == "*"):
                    self._hide(part)
                    del self.open[index:]
                    return
        self._add(marks, start)
        if after and not after.isspace():
            self.open.append((marks, len(self.parts) - 1))

    def _hide(self, part: int) -> None:
        """Take out a part that was added, and move what follows it."""
        size = len(self.parts[part])
        self.parts[part] = ""
        self.length -= size
        for index in range(part + 1, len(self.places)):
            shown, source = self.places[index]
            self.places[index] = (shown - size, source)


# ---------------------------------------------------------------- searching


def _folded(text: str) -> str:
    """The text in lower case, each character in its place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(small if len(small := character.lower()) == 1 else character for character in text)


def _query(text: str) -> str:
    return _folded(_SPACES.sub(" ", text).strip("\n"))


def _bare(text: str) -> str:
    """The text without what may stand between two characters that are shown beside each other."""
    if "](" in text:
        text = _TARGETS.sub("", text)
    for mark in _BETWEEN:  # quicker than one translation of the text
        text = text.replace(mark, "")
    return text


_bare_query = lru_cache(maxsize=8)(_bare)


def _may_contain(markdown: str, query: str) -> bool:
    """Quickly: whether a text can show this at all."""
    lower = _folded(markdown)
    if query in lower or _bare_query(query) in _bare(lower):
        return True
    return ("&" in lower or "<" in lower) and _SPECIAL.search(lower) is not None


def count_matches(markdown: str, query: str, *, plain: bool = False) -> int:
    """How often the text a reader sees contains ``query``, whatever the case; matches do not overlap."""
    wanted = _query(query)
    if not wanted.strip():
        return 0
    if plain:
        return _folded(markdown).count(wanted)
    if not _may_contain(markdown, wanted):
        return 0
    return _folded(shown_text(markdown).text).count(wanted)


def find_matches(markdown: str, query: str, *, plain: bool = False) -> list[tuple[int, int]]:
    """Where these matches stand in the source: the first character of each, and the place after its last."""
    wanted = _query(query)
    if not wanted.strip() or not (plain or _may_contain(markdown, wanted)):
        return []
    shown = shown_text(markdown, plain=plain)
    text, found = _folded(shown.text), []
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        found.append((shown.source_place(at), shown.source_place(end - 1) + 1))
        at = text.find(wanted, end)
    return found
