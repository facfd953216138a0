"""Word documents (DOCX, DOCM, DOTX) as Markdown; the format is ECMA-376 part 1, 17."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from app.helper.files.docx_lists import WORD, Lists, Styles, value
from app.helper.files.equations import dollars, tex_of
from app.helper.files.found import FileText, counted, raised, table
from app.helper.files.packages import local_name, main_part, relations, unpacked, xml_part

_MOST_TABLES = 8
"""Tables within each other."""
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_DELETED = ("del", "moveFrom", "instrText", "delText", "pPr", "rPr", "sectPr", "tblPr", "trPr", "tcPr", "sdtPr")
_SKIPPED = frozenset(
    (
        *(WORD + name for name in _DELETED),
        "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",  # the same once more, for older apps
    )
)
_SIGNS = {"br": "\n", "cr": "\n", "tab": "\t", "ptab": "\t", "noBreakHyphen": "-"}
_SYMBOLS = {0xFC: "✓", 0xFB: "✗", 0xFE: "☑", 0xFD: "☒", 0xA8: "☐", 0x6F: "☐", 0xA7: "▪", 0xD8: "➢", 0xE0: "→"}
"""Of the font Wingdings."""
_GREEK = dict(zip("abgdezhqiklmnxoprstufcywDFGLPQSWXY", "αβγδεζηθικλμνξοπρστυφχψωΔΦΓΛΠΘΣΩΞΨ", strict=True))
"""Of the font Symbol."""
_NOT_READ = {
    "blip": "picture",
    "imagedata": "picture",
    "chart": "chart",
    "relIds": "diagram",
    "OLEObject": "embedded object",
}
_NOT_READ |= {"altChunk": "embedded document", "commentReference": "comment"}
_NOT_SHOWN = {WORD + "del": "deletion", WORD + "r": "hidden part"}
_NOTES = {"footnoteReference": ("footnotes", "footnote", ""), "endnoteReference": ("endnotes", "endnote", "e")}
_USUAL = {name: f"word/{name}.xml" for name in ("styles", "numbering", "footnotes", "endnotes")}


def text_of(file: BinaryIO, most: int) -> FileText:
    """Headings, paragraphs, lists, tables, equations, notes, headers and footers. Raises `RefusedError`."""
    with unpacked(file) as archive:
        document = _Document(archive, most)
        text = document.text()
        del document.not_read[""]
        return FileText(text, counted(document.not_read))


class _Document:
    def __init__(self, archive: zipfile.ZipFile, most: int) -> None:
        self.not_read: Counter[str] = Counter()
        self._archive, self._most = archive, most
        self._main = main_part(archive)
        self._relations = relations(archive, self._main)
        self._styles = Styles(self._part("styles"))
        self._lists = Lists(self._part("numbering"), self._styles)
        self._boxes: list[Element] = []
        self._notes: dict[tuple[str, str], str] = {}
        """Their marks, by kind and id, in the order in which they are referred to."""

    def text(self) -> str:
        found = self._around("header")
        root = xml_part(self._archive, self._main)
        body = root.find(WORD + "body")
        found.append(self._joined(self._blocks(body if body is not None else root, 0)))
        found += self._written_notes()
        found += self._around("footer")
        return "\n\n".join(filter(None, found))

    def _part(self, kind: str) -> Element | None:
        name = next((target for one, target in self._relations.values() if one == kind), _USUAL.get(kind, ""))
        return xml_part(self._archive, name) if name in self._archive.namelist() else None

    def _around(self, kind: str) -> list[str]:
        """Headers or footers, each once."""
        names = [target for one, target in self._relations.values() if one == kind]
        there = [name for name in names if name in self._archive.namelist()]
        texts = [self._joined(self._blocks(xml_part(self._archive, name), 0)) for name in there]
        return list(dict.fromkeys(text for text in texts if any(map(str.isalpha, text))))

    def _written_notes(self) -> list[str]:
        written: list[str] = []
        parts = {kind: self._part(kind) for kind, _ in self._notes}
        for (kind, note_id), mark in list(self._notes.items()):
            part = parts[kind]
            notes = part if part is not None else ()
            note = next((one for one in notes if one.get(WORD + "id") == note_id), None)
            if note is not None:
                written.append(f"[^{mark}]: {' '.join(self._joined(self._blocks(note, 0)).split())}")
        return written

    def _joined(self, blocks: Iterator[tuple[str, bool]]) -> str:
        found: list[str] = []
        size, was_item = 0, False
        for block, is_item in blocks:
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
            if one.tag == WORD + "p":
                text, is_item = self._paragraph(one)
                boxes, self._boxes = self._boxes, []
                if text.strip():
                    yield text, is_item
                waiting += (paragraph for box in reversed(boxes) for paragraph in reversed(box))
            elif one.tag == WORD + "tbl":
                if tables < _MOST_TABLES:
                    yield from self._table(one, tables)
            elif one.tag not in _SKIPPED:
                self.not_read[_NOT_READ.get(local_name(one), "")] += 1
                waiting += reversed(one)  # what is around blocks: content controls, for instance

    def _paragraph(self, paragraph: Element) -> tuple[str, bool]:
        text = self._words(paragraph)
        settings = paragraph.find(WORD + "pPr")
        if settings is None or not text.strip():
            return text, False
        style = value(settings.find(WORD + "pStyle"))
        mark, depth = self._lists.mark(settings, style)
        if level := self._styles.heading(style):
            return f"{'#' * level} {mark + ' ' if mark not in ('', '-') else ''}{text.strip()}", False
        return (f"{'  ' * depth}{mark} {text.strip()}", True) if mark else (text, False)

    def _table(self, element: Element, tables: int) -> Iterator[tuple[str, bool]]:
        """As Markdown; a table around everything, or within another one, as what is in it."""
        rows = [row for row in _inside(element, "tr") if row.find(f"{WORD}trPr/{WORD}del") is None]
        cells = [list(_inside(row, "tc")) for row in rows]
        if len(cells) == 1 and len(cells[0]) == 1:
            yield from self._blocks(cells[0][0], tables + 1)
            return
        texts = [self._row(row, inner, tables) for row, inner in zip(rows, cells, strict=True)]
        if tables:
            yield "; ".join(", ".join(filter(None, row)) for row in texts), False
            return
        yield table(texts), False

    def _row(self, row: Element, cells: list[Element], tables: int) -> list[str]:
        """A cell that spans several columns is in the first; one that goes on from above is empty."""
        texts = [""] * _number(row.find(f"{WORD}trPr/{WORD}gridBefore"), 0)
        for cell in cells:
            joined = " ".join(text for text, _ in self._blocks(cell, tables + 1))
            above = cell.find(f"{WORD}tcPr/{WORD}vMerge")
            goes_on = above is not None and value(above) != "restart"
            texts.append("" if goes_on else joined)
            texts += [""] * (_number(cell.find(f"{WORD}tcPr/{WORD}gridSpan"), 1) - 1)
        return texts

    def _words(self, paragraph: Element) -> str:
        """The text of a paragraph, with that of links and of text that was inserted under review."""
        parts: list[str] = []
        waiting: list[Element | str] = list(reversed(paragraph))
        while waiting:
            one = waiting.pop()
            if isinstance(one, str):
                parts.append(one)
            elif one.tag == WORD + "t":
                parts.append(one.text or "")
            elif one.tag in (_MATH + "oMath", _MATH + "oMathPara"):
                parts += (dollars(tex_of(math), is_block=math is not one) for math in _equations(one))
            elif one.tag == WORD + "txbxContent":
                self._boxes.append(one)
            elif one.tag in _SKIPPED or _is_hidden(one):
                self.not_read[_NOT_SHOWN.get(one.tag, "")] += 1
            else:
                if one.tag == WORD + "r" and value(one.find(f"{WORD}rPr/{WORD}vertAlign")) == "superscript":
                    for text in one.iter(WORD + "t"):
                        text.text = raised(text.text or "")
                parts.append(self._sign(one))
                self.not_read[_NOT_READ.get(local_name(one), "")] += 1
                before, after = self._around_inner(one)
                waiting += (after, *reversed(one), before)
        return "".join(parts)

    def _around_inner(self, element: Element) -> tuple[str, str]:
        """What stands before and behind what is in an element: of a link, and of a reading aid above signs."""
        kind, target = self._relations.get(element.get(_ID, ""), ("", ""))
        if element.tag == WORD + "hyperlink" and kind == "hyperlink":
            said = "".join(one.text or "" for one in element.iter(WORD + "t")).strip()
            return ("", "") if said in (target, target.removeprefix("mailto:")) else ("[", f"]({target})")
        return ("(", ")") if element.tag == WORD + "rt" else ("", "")

    def _sign(self, element: Element) -> str:
        """What an element without text stands for."""
        name = local_name(element)
        if not element.tag.startswith(WORD):
            return f"[picture: {element.get('descr')}]" if name == "docPr" and element.get("descr") else ""
        if name in _NOTES:
            kind, _, letter = _NOTES[name]
            number = sum(one == kind for one, _ in self._notes) + 1
            return f"[^{self._notes.setdefault((kind, element.get(WORD + 'id', '')), f'{letter}{number}')}]"
        if name == "sym":
            return _symbol(element)
        if name == "checkBox":
            checked = element.find(WORD + "checked")
            state = checked if checked is not None else element.find(WORD + "default")
            return "☒" if state is not None and value(state) not in ("0", "false") else "☐"
        return _SIGNS.get(name, "")


def _is_hidden(run: Element) -> bool:
    hidden = run.find(f"{WORD}rPr/{WORD}vanish") if run.tag == WORD + "r" else None
    return hidden is not None and value(hidden) not in ("0", "false")


def _equations(element: Element) -> Iterator[Element]:
    if element.tag == _MATH + "oMath":
        yield element
    else:
        yield from element.iter(_MATH + "oMath")


def _inside(parent: Element, name: str) -> Iterator[Element]:
    """Rows or cells, also those in content controls."""
    for one in parent:
        if one.tag == WORD + name:
            yield one
        elif one.tag in (WORD + "sdt", WORD + "sdtContent", WORD + "customXml", WORD + "ins"):
            yield from _inside(one, name)


def _number(element: Element | None, default: int) -> int:
    text = value(element)
    return min(int(text), 63) if text.isascii() and text.isdecimal() else default


def _symbol(element: Element) -> str:
    try:
        code = int(element.get(WORD + "char", ""), 16)
    except ValueError:
        return ""
    low = code & 0xFF if code >= 0xF000 else code
    font = element.get(WORD + "font", "").lower()
    if font == "symbol":
        return _GREEK.get(chr(low), chr(low))
    return _SYMBOLS.get(low, "•") if "wingdings" in font else chr(code) if 0x20 <= code < 0xD800 else "•"
