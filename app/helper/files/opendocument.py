"""OpenDocument texts and presentations (.odt, .odp) as Markdown."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from app.helper.files.found import FileText, RefusedError, counted, joined, table
from app.helper.files.packages import attribute, local_name, read_part, unpacked, xml_part

_MANIFEST = "META-INF/manifest.xml"
_SKIPPED = frozenset(("forms", "settings", "note-citation", "event-listeners", "desc", "title", "sequence-decls"))
_COUNTED = {"image": "picture", "annotation": "comment", "deletion": "deletion"}
_MOST_REPEATED = 100
"""Repeated spaces, cells and rows, which are stored once with a count."""
_MOST_DEPTH = 80
"""Nested elements; real documents have fewer."""
_REFERENCE = "{http://www.w3.org/1999/xlink}href"


def refuse_encrypted(archive: zipfile.ZipFile) -> None:
    """Raises `RefusedError` if an OpenDocument file has a password."""
    if _MANIFEST in archive.namelist() and b"encryption-data" in read_part(archive, _MANIFEST):
        raise RefusedError("encrypted")


def text_of(file: BinaryIO, most: int) -> FileText:
    """A document's or presentation's text, until it exceeds ``most`` characters. Raises `RefusedError`."""
    with unpacked(file) as archive:
        refuse_encrypted(archive)
        reader = _Reader(archive)
        body = xml_part(archive, "content.xml").find("{*}body")
        text = joined(reader.blocks(body if body is not None else (), 0), most)
        return FileText(text, counted(reader.left_out))


def _number(element: Element, name: str) -> int:
    text = attribute(element, name)
    return min(int(text), _MOST_REPEATED) if text.isascii() and text.isdecimal() else 1


def _table_rows(table: Element) -> Iterator[Element]:
    for one in table:
        if local_name(one) == "table-row":
            yield one
        elif local_name(one) in ("table-header-rows", "table-rows", "table-row-group"):
            yield from one.iterfind("{*}table-row")


def _numbered(archive: zipfile.ZipFile) -> Iterator[tuple[str, int]]:
    """The list styles whose items have numbers, with the level, from 0."""
    for part in {"content.xml", "styles.xml"} & set(archive.namelist()):
        for style in xml_part(archive, part).iterfind(".//{*}list-style"):
            for level in style.iterfind("{*}list-level-style-number"):
                if attribute(level, "num-format"):
                    yield attribute(style, "name"), _number(level, "level") - 1


class _Reader:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._numbered = set(_numbered(archive))
        self.left_out = Counter[str]()

    def blocks(self, parent: Iterable[Element], depth: int) -> Iterator[str]:
        """Headings, paragraphs, lists and tables."""
        for one in parent if depth < _MOST_DEPTH else ():
            name = local_name(one)
            if name in ("p", "h"):
                level = "#" * min(_number(one, "outline-level"), 6) if name == "h" else ""
                words = self._words(one, depth + 1).strip()
                yield f"{level} {words}".lstrip() if words else ""
            elif name == "list":
                yield "\n".join(self._items(one, depth + 1, 0))
            elif name == "table":
                yield table(list(self._rows(one, depth + 1)))
            elif name == "notes":
                notes = "\n".join(filter(None, self.blocks(one, depth + 1)))
                yield f"Notes: {notes}" if notes else ""
            elif name in ("object", "object-ole"):
                yield self._object(one)
            elif name in _COUNTED:
                self.left_out[_COUNTED[name]] += 1
            elif name not in _SKIPPED:
                yield f"## {attribute(one, 'name')}" if name == "page" else ""  # a slide
                yield from self.blocks(one, depth + 1)

    def _inside(self, parent: Iterable[Element], depth: int) -> str:
        return " ".join(filter(None, self.blocks(parent, depth + 1)))

    def _items(self, parent: Element, depth: int, level: int, style: str = "") -> Iterator[str]:
        style = attribute(parent, "style-name") or style
        for number, item in enumerate(parent if depth < _MOST_DEPTH else (), 1):
            lead = f"{number}. " if (style, level) in self._numbered else "- "
            for one in item:
                if local_name(one) == "list":
                    yield from self._items(one, depth + 2, level + 1, style)
                elif text := self._inside([one], depth + 1):
                    yield "  " * min(level, 8) + lead + text
                    lead = "  "

    def _rows(self, parent: Element, depth: int) -> Iterator[list[str]]:
        for row in _table_rows(parent):
            cells: list[str] = []
            for cell in row:
                if local_name(cell) in ("table-cell", "covered-table-cell"):
                    cells += [self._inside(cell, depth)] * _number(cell, "number-columns-repeated")
            while cells and not cells[-1]:
                cells.pop()
            if cells:
                yield from [cells] * _number(row, "number-rows-repeated")

    def _words(self, parent: Element, depth: int) -> str:
        """The text of a paragraph."""
        parts = [parent.text or ""]
        for one in parent if depth < _MOST_DEPTH else ():
            name = local_name(one)
            if name == "s":
                parts.append(" " * _number(one, "c"))
            elif name in ("tab", "line-break"):
                parts.append("\t" if name == "tab" else "\n")
            elif name in ("frame", "custom-shape", "text-box", "g", "object"):
                parts.append(self._inside([one], depth))
            elif name == "note":
                parts.append(f" [Note: {self._inside(one, depth)}]")
            elif name in _COUNTED:
                self.left_out[_COUNTED[name]] += 1
            elif name not in _SKIPPED:
                parts.append(self._words(one, depth + 1))
            parts.append(one.tail or "")
        return "".join(parts)

    def _object(self, element: Element) -> str:
        """A formula's source; other objects are just counted."""
        part = f"{element.get(_REFERENCE, '').removeprefix('./')}/content.xml"
        root = xml_part(self._archive, part) if part in self._archive.namelist() else None
        formula = root.find(".//{*}annotation") if root is not None and local_name(root) == "math" else None
        if formula is None or not formula.text:
            self.left_out["chart or object"] += 1
            return ""
        return formula.text.strip()
