"""Styles and lists of Word documents: which paragraphs are headings, and what stands before items (ECMA-376, 17.9)."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HEADING = re.compile(r"heading ([1-6])")
_LEVELS = 9
_LARGE = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"))
_ROMAN = (*_LARGE, (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))


def value(element: Element | None) -> str:
    """``w:val``."""
    return element.get(WORD + "val", "") if element is not None else ""


class Styles:
    """Those of paragraphs, by their ids, which depend on Word's language."""

    def __init__(self, part: Element | None) -> None:
        self._styles = {} if part is None else {one.get(WORD + "styleId", ""): one for one in part.iter(WORD + "style")}

    def heading(self, style_id: str) -> int:
        """The level of the heading that a style is; 0 if it is none."""
        for style in self._chain(style_id):
            called = value(style.find(WORD + "name")).lower()
            if called == "title":
                return 1
            if (heading := _HEADING.fullmatch(called)) is not None:
                return int(heading[1])
        return 0

    def list_settings(self, style_id: str) -> tuple[Element | None, str]:
        """Those that a style has or is based on, and the style that has them."""
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
        """What stands before a paragraph with these settings, and how deep it is; empty if it isn't an item."""
        by_style, owner = self._styles.list_settings(style)
        settings = [one for one in (paragraph.find(WORD + "numPr"), by_style) if one is not None]
        list_id = next((value(one) for of in settings for one in of.iterfind(WORD + "numId")), "")
        if list_id in ("", "0"):
            return "", 0
        levels, key = self._levels(list_id)
        said = next((value(one) for of in settings for one in of.iterfind(WORD + "ilvl")), "")
        if not said and by_style is not None:
            said = next((place for place, one in levels.items() if value(one.find(WORD + "pStyle")) == owner), "")
        depth = min(int(said), _LEVELS - 1) if said.isascii() and said.isdecimal() else 0
        return self._counted(levels, key, depth), depth

    def _levels(self, list_id: str) -> tuple[dict[str, Element], str]:
        """The levels of a list, and whose count they go on with."""
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
    said = value(level.find(WORD + "start")) if level is not None else ""
    return int(said[:6]) if said.isascii() and said.isdecimal() else 1


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
