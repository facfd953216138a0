"""Web pages: the text that one sees, without scripts and styles."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from xml.etree.ElementTree import Element

from app.helper.files.equations import dollars, mathml_tex
from app.helper.files.found import FileText, how_many, raised
from app.helper.files.plain import codec_of, with_fewer_blank_lines

_ENCODING = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_LOOKED_AT = 8192
_HIDDEN = frozenset(("script", "style", "template", "noscript", "svg", "iframe", "object", "title", "mjx-math"))
_CLOSED = frozenset(
    ("article", "aside", "div", "footer", "form", "header", "nav", "ol", "section", "span", "table", "ul")
)
"""Elements whose end tag is required, so that we know where they end."""
_DRAWN = frozenset(("katex-html", "MathJax", "MathJax_Preview", "MathJax_SVG", "mwe-math-fallback-image-inline"))
_DRAWN |= {"mwe-math-fallback-image-display"}
"""Classes of rendered formulas; the formula's source is next to them."""
_NOT_SHOWN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_MOST_OF_A_ROW = 2000
_MOST_COLUMNS = 200
_SMALL = 50_000
"""Characters of a page; pages saved from the web are nearly always larger."""
_MOST_OPEN = 50
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "dd", "details", "dialog", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre"),
        *("section", "select", "summary", "table", "tbody", "tfoot", "thead", "ul"),
    )
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACE = re.compile(r"[ \t\n\r\f]+")


def declared_encoding(data: bytes) -> str:
    """The encoding that a page declares; empty if it declares none or an unknown one."""
    found = _ENCODING.search(data[:_LOOKED_AT])
    return codec_of(found[1].decode("ascii")) if found else ""


def text_of(page: str) -> str:
    """A page's text without its title; headings, lists and tables as Markdown."""
    return _parsed(page).text()


def page_of(page: str) -> FileText:
    """A page's title and text, and what was left out."""
    parser = _parsed(page)
    text = parser.text()
    has_title = bool(parser.title) and f"# {parser.title}\n" not in f"{text}\n"
    left_out = (
        *how_many(parser.pictures, "picture without a description"),
        *how_many(parser.frames, "frame"),
        *how_many(parser.not_shown, "hidden part"),
    )
    return FileText(f"{parser.title}\n\n{text}" if has_title and text else text or parser.title, left_out)


def is_code(page: str) -> bool:
    """Whether the source is of more interest than the text: a small page with more code than text."""
    if len(page) > _SMALL:
        return False
    parser = _parsed(page)
    return parser.code > len(parser.text())


def _parsed(page: str) -> _Parser:
    parser = _Parser()
    parser.feed(page)
    parser.close()
    return parser


class _Parser(HTMLParser):
    """Collects text as it comes. There is no recursion, so no page is too deep."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.code = 0
        """Characters of scripts and styles."""
        self.pictures = self.frames = self.not_shown = 0
        self._parts: list[str] = []
        self._hidden = ""
        """The element that hides its content."""
        self._hidden_depth = 0
        self._math: list[Element] = []
        """The open elements of the current formula, outermost first."""
        self._tex = ""
        """The dollar signs for a formula in a script element."""
        self._preformatted = 0
        self._is_raised = False
        """Inside a superscript."""
        self._lists: list[int] = []
        """The last item's number for each open list; −1 for lists without numbers."""
        self._behind_mark = -1
        """The position after an item's mark, where a paragraph doesn't begin a new line."""
        self._tables: list[_Table] = []
        self._begins: dict[str, Callable[[dict[str, str]], None]] = {
            "br": lambda _attributes: self._parts.append("\n"),
            "img": self._add_picture,
            "li": self._begin_item,
            "ol": lambda attributes: self._begin_list(_number(attributes, "start") - 1),
            "option": lambda _attributes: self._break(1),
            "pre": lambda _attributes: self._begin_preformatted(),
            "table": lambda _attributes: self._begin_table(),
            "sup": self._raise,
            "td": self._begin_cell,
            "th": self._begin_cell,
            "tr": lambda _attributes: self._begin_row(),
            "ul": lambda _attributes: self._begin_list(-1),
        }

    def text(self) -> str:
        self._end_math()
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return with_fewer_blank_lines("\n".join(lines)).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        name = tag.rpartition(":")[2]
        if self._math and tag in _BLOCKS:
            self._end_math()  # like browsers do
        if self._math or (name == "math" and self._hidden not in _HIDDEN):
            self._begin_in_math(name, attributes)
        elif self._hidden:
            self._hidden_depth += tag == self._hidden
        elif tag in _HIDDEN:
            self._hide(tag, attributes)
        elif tag in (*_CLOSED, "img") and _DRAWN.intersection(attributes.get("class", "").split()):
            self._hidden, self._hidden_depth = ("", 0) if tag == "img" else (tag, 1)
        elif tag in _CLOSED and ("hidden" in attributes or _NOT_SHOWN.search(attributes.get("style", ""))):
            self._hidden, self._hidden_depth = tag, 1
            self.not_shown += 1
        elif tag in _HEADINGS:
            self._break(2)
            self._parts.append(f"{_HEADINGS[tag]} ")
        elif tag in self._begins:
            self._begins[tag](attributes)
        elif tag in _BLOCKS:
            self._break(2)

    def _hide(self, tag: str, attributes: dict[str, str]) -> None:
        self._hidden, self._hidden_depth = tag, 1
        self.frames += tag == "iframe"
        kind = attributes.get("type", "").lower()
        if tag == "script" and kind.startswith("math/tex"):
            self._tex = "$$" if "display" in kind else "$"

    def _add_picture(self, attributes: dict[str, str]) -> None:
        self._parts.append(attributes.get("alt", ""))
        self.pictures += "alt" not in attributes

    def _begin_in_math(self, tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes)
        if self._math:
            self._math[-1].append(element)
        self._math.append(element)

    def _end_in_math(self, tag: str) -> None:
        if tag == "math":
            self._end_math()
        elif any(one.tag == tag for one in self._math[-_MOST_OPEN:]):
            while self._math.pop().tag != tag:
                pass

    def _end_math(self) -> None:
        if self._math:
            formula = dollars(mathml_tex(self._math[0]), is_block=self._math[0].get("display") == "block")
            self._parts.append(formula)
            self._math = []

    def _begin_item(self, attributes: dict[str, str]) -> None:
        self._behind_mark = -1
        self._break(1)
        if self._lists and self._lists[-1] >= 0:
            self._lists[-1] = _number(attributes, "value", self._lists[-1] + 1)
        number = self._lists[-1] if self._lists else -1
        self._parts.append("  " * min(len(self._lists) - 1, 8) + (f"{number}. " if number > 0 else "- "))
        self._behind_mark = len(self._parts)

    def _begin_list(self, number: int) -> None:
        self._break(1 if self._lists else 2)
        self._lists.append(number)

    def _begin_table(self) -> None:
        self._break(2)
        self._tables.append(_Table())

    def _begin_row(self) -> None:
        self._end_row()
        self._break(1)
        if self._tables:
            self._tables[-1].begin_row(len(self._parts))

    def _begin_cell(self, attributes: dict[str, str]) -> None:
        if not self._tables:
            self._tables.append(_Table())
        before = self._tables[-1].begin_cell(_span(attributes, "colspan"), _span(attributes, "rowspan"))
        self._parts.append(" | " * before)

    def _end_row(self) -> None:
        """Join a row into one line, unless the table is just layout for long texts."""
        if self._tables and (begin := self._tables[-1].row) >= 0:
            self._tables[-1].row = -1
            texts = self._parts[begin:]
            if sum(map(len, texts)) < _MOST_OF_A_ROW:
                self._parts[begin:] = [_SPACE.sub(" ", "".join(texts)).rstrip(" ")]

    def _raise(self, _attributes: dict[str, str]) -> None:
        self._is_raised = True

    def _begin_preformatted(self) -> None:
        self._break(2)
        self._preformatted += 1

    def handle_endtag(self, tag: str) -> None:
        self._is_raised &= tag != "sup"
        if self._math:
            self._end_in_math(tag.rpartition(":")[2])
        elif self._hidden:
            self._hidden_depth -= tag == self._hidden
            if self._hidden_depth <= 0 or tag == "html":
                self._hidden = self._tex = ""
        elif tag in ("ul", "ol"):
            self._behind_mark = -1
            if self._lists:
                self._lists.pop()
            self._break(1 if self._lists else 2)
        elif tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)
            self._break(2)
        elif tag in ("tr", "table"):
            self._end_row()
            self._break(1 if tag == "tr" else 2)
            if tag == "table" and self._tables:
                self._tables.pop()
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._break(2)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _HIDDEN:
            self.handle_starttag(tag, attrs)
            if self._math:
                self._end_in_math(tag.rpartition(":")[2])

    def handle_data(self, data: str) -> None:
        if self._math:
            self._math[-1].text = (self._math[-1].text or "") + data
            return
        if self._hidden:
            self._keep_hidden(data)
            return
        if self._preformatted:
            self._parts.append(data)
            return
        words = _SPACE.sub(" ", raised(data) if self._is_raised else data)
        if not self._parts or self._parts[-1].endswith(("\n", " ")):
            words = words.lstrip(" ")
        if words:
            self._parts.append(words)

    def _keep_hidden(self, data: str) -> None:
        if self._tex:
            self._parts.append(f"{self._tex}{data.strip()}{self._tex}")
        elif self._hidden == "title" and not self.title:
            self.title = " ".join(data.split())
        self.code += len(data) if self._hidden in ("script", "style") else 0

    def _break(self, lines: int) -> None:
        """Make sure that the text ends with at least this many line ends."""
        if len(self._parts) in (0, self._behind_mark):
            return
        ends = 0
        for part in reversed(self._parts[-3:]):
            ends += len(part) - len(part.rstrip("\n"))
            if part.rstrip("\n"):
                break
        if ends < lines:
            self._parts.append("\n" * (lines - ends))


class _Table:
    """The position in a table."""

    def __init__(self) -> None:
        self.row = -1
        """The part that the row begins with; −1 outside of rows."""
        self._column = self._last = 0
        """The columns of the next and the last cell."""
        self._from_above: dict[int, int] = {}
        """How many more rows a cell from above covers, by column."""

    def begin_row(self, part: int) -> None:
        self.row, self._column, self._last = part, 0, 0

    def begin_cell(self, columns: int, rows: int) -> int:
        """Returns the number of columns between the last cell and this one."""
        while self._from_above.get(self._column, 0):
            self._from_above[self._column] -= 1
            self._column += 1
        between, self._last = self._column - self._last, self._column
        for column in range(self._column, min(self._column + columns, _MOST_COLUMNS)):
            self._from_above[column] = rows - 1
        self._column += columns
        return between


def _number(attributes: dict[str, str], name: str, default: int = 1) -> int:
    text = attributes.get(name, "").strip()
    return int(text[:9]) if text.isascii() and text.isdecimal() else default


def _span(attributes: dict[str, str], name: str) -> int:
    return max(1, min(_number(attributes, name), _MOST_COLUMNS))
