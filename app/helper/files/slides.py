"""PowerPoint presentations (.pptx): each slide as a heading with its texts, tables and notes."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from app.helper.files.found import FileText, counted, joined, raised, table
from app.helper.files.packages import attribute, local_name, main_part, relations, unpacked, xml_part

_TITLES = ("title", "ctrTitle")
_FURNITURE = ("sldNum", "dt", "ftr", "hdr")
"""Repeated on each slide: its number, the date, a footer."""


def text_of(file: BinaryIO, most: int) -> FileText:
    """The visible slides' text, until it exceeds ``most`` characters. Raises `RefusedError`."""
    left_out = Counter[str]()
    with unpacked(file) as archive:
        main = main_part(archive)
        parts = relations(archive, main)
        ids = (attribute(one, "id") for one in xml_part(archive, main).iter() if local_name(one) == "sldId")
        names = ((number, parts.get(one, ("", ""))[1]) for number, one in enumerate(ids, 1))
        there = set(archive.namelist())
        slides = (_Slide(archive, name, left_out).text(number) for number, name in names if name in there)
        text = joined(slides, most)
    return FileText(text, counted(left_out))


def _first(element: Element, *names: str) -> Element | None:
    return next((one for one in element.iter() if local_name(one) in names), None)


class _Slide:
    def __init__(self, archive: zipfile.ZipFile, part: str, left_out: Counter[str]) -> None:
        self._archive = archive
        self._root = xml_part(archive, part)
        self._parts = relations(archive, part)
        self._left_out = left_out
        self._title = ""

    def text(self, number: int) -> str:
        if self._root.get("show") in ("0", "false"):
            self._left_out["hidden slide"] += 1
            return ""
        tree = _first(self._root, "spTree")
        blocks = list(self._blocks(tree)) if tree is not None else []
        for kind, part in self._parts.values():
            if kind in ("notesSlide", "comments") and part in self._archive.namelist():
                other = xml_part(self._archive, part)
                self._left_out["comment"] += sum(local_name(one) == "cm" for one in other.iter())
                shapes = (one for one in other.iter() if kind == "notesSlide" and local_name(one) == "sp")
                notes = "\n".join(_lines(one, is_list=False) for one in shapes if _placeholder(one) == "body")
                blocks += [f"Notes: {notes}"] if notes.strip() else []
        heading = f"## Slide {number}" + (f": {self._title}" if self._title else "")
        return "\n\n".join([heading, *filter(None, blocks)])

    def _blocks(self, parent: Element) -> Iterator[str]:
        waiting = list(reversed(parent))
        while waiting:
            one = waiting.pop()
            name = local_name(one)
            if name == "sp":
                yield self._shape(one)
            elif name == "graphicFrame":
                yield self._frame(one)
            elif name == "pic":
                self._left_out["picture"] += 1
            elif name != "Fallback":  # a copy for older apps
                waiting += reversed(one)

    def _shape(self, shape: Element) -> str:
        kind = _placeholder(shape)
        if kind in _FURNITURE:
            return ""
        text = _lines(shape, is_list=kind in ("body", "obj"))
        if kind in _TITLES and not self._title:
            self._title = " ".join(text.split())
            return ""
        return text

    def _frame(self, frame: Element) -> str:
        """A table, the title of a chart, or the texts of a diagram (SmartArt)."""
        if (cells := _first(frame, "tbl")) is not None:
            rows = (row for row in cells.iter() if local_name(row) == "tr")
            return table([[_lines(cell, is_list=False) for cell in row.iterfind("{*}tc")] for row in rows])
        if (chart := _first(frame, "chart")) is not None:
            self._left_out["chart"] += 1
            part = self._related(attribute(chart, "id"))
            title = _first(part, "title") if part is not None else None
            return _lines(title, is_list=False) if title is not None else ""
        if (diagram := _first(frame, "relIds")) is not None:
            part = self._related(attribute(diagram, "dm"))
            return _lines(part, is_list=True) if part is not None else ""
        self._left_out["picture"] += 1  # another program's object
        return ""

    def _related(self, relation: str) -> Element | None:
        _, part = self._parts.get(relation, ("", ""))
        return xml_part(self._archive, part) if part in self._archive.namelist() else None


def _placeholder(shape: Element) -> str:
    """A shape's role in the layout, such as ``title``; empty for a text box."""
    found = _first(shape, "nvPr")
    place = _first(found, "ph") if found is not None else None
    return "" if place is None else place.get("type", "obj")


def _lines(parent: Element, *, is_list: bool) -> str:
    """An element's paragraphs; ``is_list``: they are list items by default."""
    paragraphs = [one for one in parent.iter() if local_name(one) == "p" and _words(one).strip()]
    lines: list[str] = []
    count = 0
    for one in paragraphs:
        settings = one.find("{*}pPr")
        marks = {local_name(mark) for mark in settings} if settings is not None else set()
        level = settings.get("lvl", "0") if settings is not None else "0"
        is_item = "buNone" not in marks and ((is_list and len(paragraphs) > 1) or marks & {"buChar", "buAutoNum"})
        count = count + 1 if "buAutoNum" in marks else 0
        mark = f"{count}. " if count else "- "
        indent = "  " * int(level) if level in set("12345678") else ""
        lines.append(f"{indent}{mark}{_words(one).strip()}" if is_item else _words(one).strip())
    return "\n".join(lines)


def _words(paragraph: Element) -> str:
    words: list[str] = []
    is_raised = False
    for one in paragraph.iter():
        name = local_name(one)
        if name == "rPr":  # comes before the run's text
            is_raised = one.get("baseline", "0")[:1] in "123456789"
        elif name in ("t", "br"):
            text = "\n" if name == "br" else one.text or ""
            words.append(raised(text) if is_raised else text)
    return "".join(words)
