"""Word documents (DOCX, DOCM, DOTX) as Markdown; the format is ECMA-376, part 1, 17."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from app.helper.files.equations import dollars, tex_of
from app.helper.files.found import FileText, counted, raised, table
from app.helper.files.packages import local_name, main_part, relations, unpacked, xml_part

# Styles and lists: which paragraphs are headings, and the marks before list items (ECMA-376, 17.9).

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HEADING = re.compile(r"heading ([1-6])")
_LEVELS = 9
_LARGE = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"))
_ROMAN = (*_LARGE, (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))


def value(element: Element | None) -> str:
    """The attribute ``w:val``."""
    return element.get(WORD + "val", "") if element is not None else ""


class Styles:
    """Styles of paragraphs, by their ids, which depend on Word's language."""

    def __init__(self, part: Element | None) -> None:
        self._styles = {} if part is None else {one.get(WORD + "styleId", ""): one for one in part.iter(WORD + "style")}

    def heading(self, style_id: str) -> int:
        """A heading style's level; 0 for any other style."""
        for style in self._chain(style_id):
            name = value(style.find(WORD + "name")).lower()
            if name == "title":
                return 1
            if (heading := _HEADING.fullmatch(name)) is not None:
                return int(heading[1])
        return 0

    def list_settings(self, style_id: str) -> tuple[Element | None, str]:
        """The list settings of a style or of one it is based on, and the id of the style that has them."""
        for style in self._chain(style_id):
            settings = style.find(f"{WORD}pPr/{WORD}numPr")
            if settings is not None and settings.find(WORD + "numId") is not None:
                return settings, style.get(WORD + "styleId", "")
        return None, ""

    def _chain(self, style_id: str) -> list[Element]:
        chain: list[Element] = []
        while (style := self._styles.get(style_id)) is not None and style not in chain and len(chain) < _LEVELS:
            chain.append(style)
            style_id = value(style.find(WORD + "basedOn"))
        return chain


class Lists:
    """Counts the items of all lists."""

    def __init__(self, part: Element | None, styles: Styles) -> None:
        self._styles = styles
        self._shapes: dict[str, Element] = {}
        self._lists: dict[str, Element] = {}
        self._counts: dict[str, list[int]] = {}
        for shape in part.iter(WORD + "abstractNum") if part is not None else ():
            self._shapes[shape.get(WORD + "abstractNumId", "")] = shape
        for one in part.iter(WORD + "num") if part is not None else ():
            self._lists[one.get(WORD + "numId", "")] = one

    def mark(self, paragraph: Element, style: str) -> tuple[str, int]:
        """The mark before a list item with these settings, and its depth; empty if it isn't an item."""
        by_style, owner = self._styles.list_settings(style)
        settings = [one for one in (paragraph.find(WORD + "numPr"), by_style) if one is not None]
        list_id = next((value(one) for of in settings for one in of.iterfind(WORD + "numId")), "")
        if list_id in ("", "0"):
            return "", 0
        levels, key = self._levels(list_id)
        level = next((value(one) for of in settings for one in of.iterfind(WORD + "ilvl")), "")
        if not level and by_style is not None:
            level = next((place for place, one in levels.items() if value(one.find(WORD + "pStyle")) == owner), "")
        depth = min(int(level), _LEVELS - 1) if level.isascii() and level.isdecimal() else 0
        return self._counted(levels, key, depth), depth

    def _levels(self, list_id: str) -> tuple[dict[str, Element], str]:
        """The levels of a list, and the key of the counts that it continues."""
        one = self._lists.get(list_id)
        shape_id = value(one.find(WORD + "abstractNumId")) if one is not None else ""
        shape = self._shapes.get(shape_id)
        if shape is not None and (link := value(shape.find(WORD + "numStyleLink"))):
            shapes = self._shapes.values()
            shape = next((other for other in shapes if value(other.find(WORD + "styleLink")) == link), shape)
        levels = {} if shape is None else {level.get(WORD + "ilvl", ""): level for level in shape.iter(WORD + "lvl")}
        key = f"shape {shape_id}"
        for changed in one.iter(WORD + "lvlOverride") if one is not None else ():
            key = list_id
            if (level := changed.find(WORD + "lvl")) is not None:
                levels[changed.get(WORD + "ilvl", "")] = level
        return levels, key

    def _counted(self, levels: dict[str, Element], key: str, depth: int) -> str:
        counts = self._counts.setdefault(key, [0] * _LEVELS)
        starts = [_start(levels.get(str(place))) for place in range(_LEVELS)]
        counts[depth] = counts[depth] + 1 if counts[depth] else starts[depth]
        counts[depth + 1 :] = [0] * (_LEVELS - depth - 1)
        level = levels.get(str(depth))
        form = value(level.find(WORD + "numFmt")) if level is not None else "bullet"
        if form in ("", "bullet", "none"):
            return "-"
        assert level is not None
        shown = value(level.find(WORD + "lvlText")) or f"%{depth + 1}."
        for place in range(depth + 1):
            above = levels.get(str(place))
            form = value(above.find(WORD + "numFmt")) if above is not None else "decimal"
            legal = level.find(WORD + "isLgl") is not None
            shown = shown.replace(f"%{place + 1}", _written(counts[place] or starts[place], "" if legal else form))
        return shown


def _start(level: Element | None) -> int:
    start = value(level.find(WORD + "start")) if level is not None else ""
    return int(start[:6]) if start.isascii() and start.isdecimal() else 1


def _written(number: int, form: str) -> str:
    if form in ("lowerLetter", "upperLetter") and number > 0:
        text = chr(ord("a") + (number - 1) % 26) * min((number - 1) // 26 + 1, 10)
    elif form in ("lowerRoman", "upperRoman") and number < 4000:
        text = ""
        for size, sign in _ROMAN:
            text += sign * (number // size)
            number %= size
    else:
        text = f"{number:02}" if form == "decimalZero" else str(number)
    return text.upper() if form.startswith("upper") else text


_MOST_TABLES = 8
"""Nested tables."""
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_DELETED = ("del", "moveFrom", "instrText", "delText", "pPr", "rPr", "sectPr", "tblPr", "trPr", "tcPr", "sdtPr")
_SKIPPED = frozenset(
    (
        *(WORD + name for name in _DELETED),
        "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",  # a copy for older apps
    )
)
_SIGNS = {"br": "\n", "cr": "\n", "tab": "\t", "ptab": "\t", "noBreakHyphen": "-"}
_SYMBOLS = {0xFC: "✓", 0xFB: "✗", 0xFE: "☑", 0xFD: "☒", 0xA8: "☐", 0x6F: "☐", 0xA7: "▪", 0xD8: "➢", 0xE0: "→"}
"""Wingdings characters."""
_GREEK = dict(zip("abgdezhqiklmnxoprstufcywDFGLPQSWXY", "αβγδεζηθικλμνξοπρστυφχψωΔΦΓΛΠΘΣΩΞΨ", strict=True))
"""Characters of the font Symbol."""
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
        """The notes' marks by kind and id, in the order of their references."""

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
        """Headers or footers, without repetitions."""
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
        """Paragraphs and tables, and whether each is a list item."""
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
                waiting += reversed(one)  # containers such as content controls

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
        """A table as Markdown; one with a single cell as its content, a nested one as a line of text."""
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
        """The cells of a row; a cell over several columns is in the first, one continued from above is empty."""
        texts = [""] * _number(row.find(f"{WORD}trPr/{WORD}gridBefore"), 0)
        for cell in cells:
            joined = " ".join(text for text, _ in self._blocks(cell, tables + 1))
            above = cell.find(f"{WORD}tcPr/{WORD}vMerge")
            goes_on = above is not None and value(above) != "restart"
            texts.append("" if goes_on else joined)
            texts += [""] * (_number(cell.find(f"{WORD}tcPr/{WORD}gridSpan"), 1) - 1)
        return texts

    def _words(self, paragraph: Element) -> str:
        """A paragraph's text, including links and tracked insertions."""
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
        """The text before and after an element's content, for links and phonetic guides."""
        kind, target = self._relations.get(element.get(_ID, ""), ("", ""))
        if element.tag == WORD + "hyperlink" and kind == "hyperlink":
            shown = "".join(one.text or "" for one in element.iter(WORD + "t")).strip()
            return ("", "") if shown in (target, target.removeprefix("mailto:")) else ("[", f"]({target})")
        return ("(", ")") if element.tag == WORD + "rt" else ("", "")

    def _sign(self, element: Element) -> str:
        """The text for an element that has none itself, such as a symbol or a note's reference."""
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
    """Rows or cells, including those in content controls."""
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
