"""Web pages: what one reads of them, without scripts and styles."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

from app.helper.files.plain import codec_of, with_fewer_blank_lines

_ENCODING = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_LOOKED_AT = 8192
_HIDDEN = frozenset(("script", "style", "template", "noscript", "svg", "math", "head", "iframe", "object"))
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset"),
        *("figcaption", "figure", "footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre", "section"),
        *("summary", "table", "tbody", "tfoot", "thead", "ul"),
    )
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACE = re.compile(r"[ \t\n\r\f]+")


def declared_encoding(data: bytes) -> str:
    """The encoding that a page says it has; empty if it says none that is known."""
    found = _ENCODING.search(data[:_LOOKED_AT])
    return codec_of(found[1].decode("ascii")) if found else ""


def text_of(page: str) -> str:
    """Its text; headings, list items and the cells of tables as Markdown has them."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    return parser.text()


class _Parser(HTMLParser):
    """Collects text as it comes; nothing here nests, so no page is too deep."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._hidden = ""
        """The element that hides what is in it."""
        self._hidden_depth = 0
        self._preformatted = 0
        self._lists: list[int] = []
        """For each list around this place, the number of its last item; −1 for one without numbers."""
        self._has_cell = False
        """Whether the row has a cell before this one."""
        self._begins: dict[str, Callable[[], None]] = {
            "br": lambda: self._parts.append("\n"),
            "li": self._begin_item,
            "ol": lambda: self._begin_list(0),
            "pre": self._begin_preformatted,
            "td": self._begin_cell,
            "th": self._begin_cell,
            "tr": self._begin_row,
            "ul": lambda: self._begin_list(-1),
        }

    def text(self) -> str:
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return with_fewer_blank_lines("\n".join(lines)).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden == "head" and tag == "body":
            self._hidden = ""  # nothing has to close the head
        if self._hidden:
            self._hidden_depth += tag == self._hidden
        elif tag in _HIDDEN:
            self._hidden, self._hidden_depth = tag, 1
        elif tag in _HEADINGS:
            self._break(2)
            self._parts.append(f"{_HEADINGS[tag]} ")
        elif tag == "img":
            self._parts.append(next((value or "" for name, value in attrs if name == "alt"), ""))
        elif tag in self._begins:
            self._begins[tag]()
        elif tag in _BLOCKS:
            self._break(2)

    def _begin_item(self) -> None:
        self._break(1)
        if self._lists and self._lists[-1] >= 0:
            self._lists[-1] += 1
        number = self._lists[-1] if self._lists else -1
        self._parts.append("  " * min(len(self._lists) - 1, 8) + (f"{number}. " if number > 0 else "- "))

    def _begin_list(self, number: int) -> None:
        self._break(1 if self._lists else 2)
        self._lists.append(number)

    def _begin_row(self) -> None:
        self._break(1)
        self._has_cell = False

    def _begin_cell(self) -> None:
        if self._has_cell:
            self._parts.append(" | ")
        self._has_cell = True

    def _begin_preformatted(self) -> None:
        self._break(2)
        self._preformatted += 1

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            self._hidden_depth -= tag == self._hidden
            if self._hidden_depth <= 0 or tag == "html":
                self._hidden = ""
        elif tag in ("ul", "ol"):
            if self._lists:
                self._lists.pop()
            self._break(1 if self._lists else 2)
        elif tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)
            self._break(2)
        elif tag == "tr":
            self._break(1)
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._break(2)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _HIDDEN:
            self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._preformatted:
            self._parts.append(data)
            return
        words = _SPACE.sub(" ", data)
        if not self._parts or self._parts[-1].endswith(("\n", " ")):
            words = words.lstrip(" ")
        if words:
            self._parts.append(words)

    def _break(self, lines: int) -> None:
        """So many line ends before what follows, at least."""
        if not self._parts:
            return
        ends = 0
        for part in reversed(self._parts[-3:]):
            ends += len(part) - len(part.rstrip("\n"))
            if part.rstrip("\n"):
                break
        if ends < lines:
            self._parts.append("\n" * (lines - ends))
