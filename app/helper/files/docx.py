"""Word documents (DOCX): an archive with XML in it, read by a parser that refuses entities."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from app.helper.files.found import FileText
from app.helper.files.packages import main_part, unpacked, xml_part

_MOST_TABLES = 8
"""Tables within each other."""
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HEADING = re.compile(r"heading ([1-6])")
_SKIPPED = frozenset(
    (
        *(_WORD + name for name in ("del", "moveFrom", "instrText", "delText", "pPr", "rPr", "sectPr")),
        "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",  # the same once more, for older apps
    )
)
_BREAKS = {_WORD + "br": "\n", _WORD + "cr": "\n", _WORD + "tab": "\t", _WORD + "noBreakHyphen": "-"}


def text_of(file: BinaryIO, most: int) -> FileText:
    """The text of a document as Markdown: headings, paragraphs, lists, tables. Raises `RefusedError`."""
    with unpacked(file) as archive:
        return FileText(_Document(archive, most).text(xml_part(archive, main_part(archive))))


class _Document:
    def __init__(self, archive: zipfile.ZipFile, most: int) -> None:
        names = set(archive.namelist())
        self._headings = _headings(xml_part(archive, "word/styles.xml")) if "word/styles.xml" in names else {}
        self._numbered = _numbered(xml_part(archive, "word/numbering.xml")) if "word/numbering.xml" in names else set()
        self._counts: dict[tuple[str, int], int] = {}
        self._most = most

    def text(self, root: Element) -> str:
        body = root.find(_WORD + "body")
        found: list[str] = []
        size, was_item = 0, False
        for block, is_item in self._blocks(body if body is not None else root, 0):
            found.append("\n" if was_item and is_item else "\n\n")
            found.append(block)
            was_item = is_item
            size += len(block)
            if size > self._most:
                break
        return "".join(found).strip("\n")

    def _blocks(self, parent: Element, tables: int) -> Iterator[tuple[str, bool]]:
        """Paragraphs and tables, and whether each is an item of a list."""
        waiting = list(reversed(parent))
        while waiting:
            one = waiting.pop()
            if one.tag == _WORD + "p":
                text, is_item = self._paragraph(one)
                if text.strip():
                    yield text, is_item
            elif one.tag == _WORD + "tbl":
                if tables < _MOST_TABLES and (table := self._table(one, tables)):
                    yield table, False
            elif one.tag not in _SKIPPED:
                waiting += reversed(one)  # what is around blocks: content controls, for instance

    def _paragraph(self, paragraph: Element) -> tuple[str, bool]:
        text = _words(paragraph)
        settings = paragraph.find(_WORD + "pPr")
        if settings is None or not text.strip():
            return text, False
        style = settings.find(_WORD + "pStyle")
        level = self._headings.get(_value(style)) if style is not None else None
        if level:
            return f"{'#' * level} {text.strip()}", False
        number = settings.find(f"{_WORD}numPr/{_WORD}numId")
        if number is None or _value(number) in ("", "0"):
            return text, False
        return self._item(text, _value(number), settings.find(f"{_WORD}numPr/{_WORD}ilvl")), True

    def _item(self, text: str, list_id: str, place: Element | None) -> str:
        depth = _value(place) if place is not None else "0"
        level = min(int(depth), 8) if depth.isascii() and depth.isdecimal() else 0
        mark = "-"
        if (list_id, level) in self._numbered:
            count = self._counts[list_id, level] = self._counts.get((list_id, level), 0) + 1
            mark = f"{count}."
            for deeper in range(level + 1, 9):
                self._counts.pop((list_id, deeper), None)
        return f"{'  ' * level}{mark} {text.strip()}"

    def _table(self, table: Element, tables: int) -> str:
        rows: list[str] = []
        for row in table.iterfind(_WORD + "tr"):
            cells = [
                " ".join(" ".join(text for text, _ in self._blocks(cell, tables + 1)).split()) for cell in _cells(row)
            ]
            rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
            if len(rows) == 1:
                rows.append(f"|{' --- |' * max(1, len(cells))}")
        return "\n".join(rows)


def _cells(row: Element) -> Iterator[Element]:
    for one in row:
        if one.tag == _WORD + "tc":
            yield one
        elif one.tag == _WORD + "sdt":
            yield from one.iterfind(f"{_WORD}sdtContent/{_WORD}tc")


def _words(paragraph: Element) -> str:
    """The text of a paragraph, with that of links and of text that was inserted under review."""
    parts: list[str] = []
    waiting = list(reversed(paragraph))
    while waiting:
        one = waiting.pop()
        if one.tag == _WORD + "t":
            parts.append(one.text or "")
        elif one.tag in _BREAKS:
            parts.append(_BREAKS[one.tag])
        elif one.tag not in _SKIPPED:
            waiting += reversed(one)
    return "".join(parts)


def _headings(styles: Element) -> dict[str, int]:
    """By the id of a style, which depends on Word's language, the level of the heading that it is."""
    found: dict[str, int] = {}
    for style in styles.iterfind(_WORD + "style"):
        name = style.find(_WORD + "name")
        called = _value(name).lower() if name is not None else ""
        if called == "title":
            found[style.get(_WORD + "styleId", "")] = 1
        elif (heading := _HEADING.fullmatch(called)) is not None:
            found[style.get(_WORD + "styleId", "")] = int(heading[1])
    return found


def _numbered(numbering: Element) -> set[tuple[str, int]]:
    """The lists, and levels of them, whose items have numbers."""
    shapes: dict[str, set[int]] = {}
    for shape in numbering.iterfind(_WORD + "abstractNum"):
        levels = shapes.setdefault(shape.get(_WORD + "abstractNumId", ""), set())
        for level in shape.iterfind(_WORD + "lvl"):
            form, place = level.find(_WORD + "numFmt"), level.get(_WORD + "ilvl", "")
            if form is not None and _value(form) not in ("bullet", "none") and place.isascii() and place.isdecimal():
                levels.add(int(place))
    found: set[tuple[str, int]] = set()
    for one in numbering.iterfind(_WORD + "num"):
        shape_id = one.find(_WORD + "abstractNumId")
        levels = shapes.get(_value(shape_id), set()) if shape_id is not None else set()
        found |= {(one.get(_WORD + "numId", ""), level) for level in levels}
    return found


def _value(element: Element) -> str:
    return element.get(_WORD + "val", "")
