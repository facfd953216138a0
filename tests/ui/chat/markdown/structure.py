"""What a document shows, and what a page of HTML would, in one form: a list of the lines of text with their place in
lists and quotes, the marks of their words, code and tables. Spaces between list items are no part of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from PySide6.QtGui import QFont, QTextBlock, QTextCharFormat, QTextCursor, QTextDocument, QTextList, QTextTable

from app.markdown.dialect import environment
from app.ui.chat.markdown import formats
from app.ui.chat.markdown.formats import Formats
from app.ui.chat.markdown.inline_writer import LINE_BREAK, NO_IMAGE
from app.ui.chat.markdown.rendering import Rendering
from app.ui.widgets import theme

Words = list[tuple[str, str]]
"""Text, and what it is marked with."""
Shape = list[tuple[Any, ...]]

_SPACE = re.compile(r"[ \t\r\n]+")
_AFTER_BREAK = re.compile(f"{LINE_BREAK} +")


def _tidy(words: Words) -> Words:
    """Neighbors of one look as one, spaces as they are shown."""
    joined: Words = []
    for text, marks in words:
        if joined and joined[-1][1] == marks:
            joined[-1] = (joined[-1][0] + text, marks)
        elif text:
            joined.append((text, marks))
    joined = [(_AFTER_BREAK.sub(LINE_BREAK, _SPACE.sub(" ", text)), marks) for text, marks in joined]
    for index in (0, -1):
        while joined:
            text, marks = joined[index]
            rest = text.lstrip(" ") if index == 0 else text.rstrip(f" {LINE_BREAK}")
            if rest:
                joined[index] = rest, marks
                break
            del joined[index]
    return joined


def shape_of(markdown: str) -> Shape:
    """What the app shows of a text."""
    document, look = QTextDocument(), Formats(theme.LIGHT, QFont())
    rendering = Rendering(document, look)
    rendering.writer.environment = environment(markdown)
    rendering.feed(markdown)
    rendering.finish()
    while rendering.draw(1.0):
        pass
    code = {run.start: run for run in rendering.code_runs}
    found: Shape = []
    block, end = document.begin(), -1
    while block.isValid():
        table: QTextTable | None = QTextCursor(block).currentTable()  # PySide's stubs deny the None
        if block.position() <= end:
            pass
        elif table is not None:
            end = table.lastPosition()
            for row in range(table.rows()):
                cells = [table.cellAt(row, column) for column in range(table.columns())]
                blocks = [cell.firstCursorPosition().block() for cell in cells]
                sides = [str(one.blockFormat().alignment().name) for one in blocks]
                found.append(("row", *zip(sides, [_words(one, look, is_bold=row == 0) for one in blocks], strict=True)))
        elif block.position() in code:
            run = code[block.position()]
            end = run.end
            text = "\n".join(document.toPlainText().split("\n")[block.blockNumber() :][: run.lines])
            found.append(("code", round(run.left), run.language, text))
        else:
            found += _line(block, look)
        block = block.next()
    return found


def _line(block: QTextBlock, look: Formats) -> Iterator[tuple[Any, ...]]:
    form = block.blockFormat()
    if form.intProperty(formats.ROLE) == formats.RULE:
        yield ("rule",)
        return
    items: QTextList | None = block.textList()  # PySide's stubs deny the None
    words = _words(block, look, is_bold=form.headingLevel() > 0)
    depth, bullet = form.indent(), ""
    if items is not None:
        is_ordered = items.format().style() is items.format().Style.ListDecimal
        depth = items.format().indent()
        bullet = f"{items.format().start() + items.itemNumber(block)}." if is_ordered else "-"
    elif form.hasProperty(formats.TASK):
        bullet = "task"
    if words or bullet:
        yield form.headingLevel(), form.intProperty(formats.DEPTH), depth, bullet, words


def _words(block: QTextBlock, look: Formats, *, is_bold: bool) -> Words:
    found: Words = []
    piece = block.begin()
    while not piece.atEnd():
        form = piece.fragment().charFormat()
        found.append((piece.fragment().text(), _marks(form, look, is_bold=is_bold)))
        piece += 1
    return _tidy(found)


def _marks(form: QTextCharFormat, look: Formats, *, is_bold: bool) -> str:
    raised = {"AlignSuperScript": "^", "AlignSubScript": "_"}.get(form.verticalAlignment().name, "")
    return "".join(
        [
            "b" if form.fontWeight() > 500 and not is_bold else "",
            "i" if form.fontItalic() else "",
            "s" if form.fontStrikeOut() else "",
            "c" if form.font().families() == look.mono.families() else "",
            raised,
            f" {form.anchorHref()}" if form.isAnchor() else "",
        ]
    )


class _Page(HTMLParser):
    def __init__(self, look: Formats) -> None:
        super().__init__(convert_charrefs=True)
        self.found: Shape = []
        self._look = look
        self._marks: list[str] = []
        self._links: list[str] = []
        self._words: Words = []
        self._row: list[tuple[str, Words]] = []
        self._side = ""
        self._lists: list[int | None] = []
        self._quotes = 0
        self._level = 0
        self._item: str | None = None
        self._code: list[str] | None = None
        self._language = ""
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("p", "li", "ul", "ol", "blockquote", "pre", "hr", "table") or tag[:1] + tag[2:] == "h":
            self._end_line()
        if tag in ("ul", "ol"):
            self._end_item()
            self._lists.append(int(given.get("start", 1)) if tag == "ol" else None)
        elif tag == "li":
            self._end_item()
            number = self._lists[-1]
            self._item = "-" if number is None else f"{number}."
            self._lists[-1] = None if number is None else number + 1
        elif tag == "blockquote":
            self._quotes += 1
        elif tag == "pre":
            self._end_item()
            self._code, self._language = [], ""
        elif tag == "code" and self._code is not None:
            self._language = given.get("class", "").removeprefix("language-")
        elif tag in ("hr", "table"):
            self._end_item()
            self.found += [("rule",)] if tag == "hr" else []
        elif tag in ("th", "td"):
            self._end_line()
            self._in_cell, self._side = True, given.get("align", "left")
        elif tag[:1] == "h" and tag[1:].isdigit():
            self._level = int(tag[1:])
        else:
            self._begin_inline(tag, given)

    def _begin_inline(self, tag: str, given: dict[str, str]) -> None:
        if tag == "br":
            self._words.append((LINE_BREAK, self._look_now()))
        elif tag == "img":
            self._marks.append("i")
            self._words.append((f"[{given.get('alt', '').strip() or NO_IMAGE}]", self._look_now()))
            self._marks.pop()
        elif tag == "input":
            self._item = "task"
            self._words.append((formats.CHECKED if "checked" in given else formats.UNCHECKED, self._look_now()))
        elif tag == "a":
            self._links.append(given.get("href", ""))
        elif tag in _MARKS:
            self._marks.append(_MARKS[tag])

    def handle_endtag(self, tag: str) -> None:
        if tag in ("p", "li", "blockquote", "ul", "ol") or (tag[:1] == "h" and tag[1:].isdigit()):
            self._end_line()
        if tag in ("ul", "ol"):
            self._lists.pop()
        elif tag == "li":
            self._end_item()
        elif tag == "blockquote":
            self._quotes -= 1
        elif tag == "pre" and self._code is not None:
            left = len(self._lists) * self._look.indent + self._quotes * formats.QUOTE_INDENT
            text = "".join(self._code).removesuffix("\n")
            self.found.append(("code", round(left), self._language, text))
            self._code = None
        elif tag in ("th", "td", "tr"):
            self._end_cell(tag)
        elif tag == "a":
            self._links.pop()
        elif tag in _MARKS and self._marks:
            self._marks.remove(_MARKS[tag])
        if tag[:1] == "h" and tag[1:].isdigit():
            self._level = 0

    def _end_cell(self, tag: str) -> None:
        if tag != "tr":
            side = {"left": "AlignLeft", "right": "AlignRight", "center": "AlignHCenter"}[self._side]
            self._row.append((side, _tidy(self._words)))
            self._words, self._in_cell = [], False
        else:
            self.found.append(("row", *self._row))
            self._row = []

    def handle_data(self, data: str) -> None:
        if self._code is not None:
            self._code.append(data)
        elif data.strip(" \n\t") or self._words:
            self._words.append((data, self._look_now()))

    def _look_now(self) -> str:
        is_bold = self._level > 0 or (self._in_cell and not any(part[0] == "row" for part in self.found[-1:]))
        marks = "".join(mark for mark in "bisc^_" if mark in self._marks and not (mark == "b" and is_bold))
        return marks + (f" {self._links[-1]}" if any(self._links) else "")

    def _end_line(self) -> None:
        words, self._words = _tidy(self._words), []
        if words and not self._in_cell:
            bullet, self._item = self._item or "", None
            self.found.append((self._level, min(self._quotes, 8), len(self._lists), bullet, words))

    def _end_item(self) -> None:
        if self._item is not None:
            bullet, self._item = self._item, None
            self.found.append((0, self._quotes, len(self._lists), bullet, []))


_MARKS = {"em": "i", "strong": "b", "del": "s", "code": "c", "sup": "^", "sub": "_"}


def shape_of_page(page: str) -> Shape:
    """What a browser would show of this HTML."""
    reader = _Page(Formats(theme.LIGHT, QFont()))
    reader.feed(page)
    reader.close()
    reader._end_line()
    return reader.found
