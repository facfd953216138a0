r"""Draws formulas with ziamath. Runs in the helper process: each level of nesting more than doubles the time it takes.

What is given back are outlines, in thousandths of the font size, which can be drawn sharply in any size and color.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from html import escape
from xml.etree import ElementTree

from ziamath.config import config
from ziamath.tex import tex2mml
from ziamath.zmath import Math

from app.helper import formula_tables
from app.helper.formula_text import COLUMN_LINES, GROUP, ROW_LINE, STAND_INS, mended
from app.helper.messages import FormulaDrawn, FormulaNotDrawn, FormulaPart, RenderFormula
from app.markdown.formulas import MAX_CHARACTERS

EM = 1000
MAX_DEPTH = 9
"""So many braces, environments and stretched brackets may stand in each other."""
_MAX_WIDTH, _MAX_HEIGHT = 120 * EM, 60 * EM
_MARGIN = 40
"""What strokes may reach beyond the box that ziamath works out."""

_LENGTHS = ("rowspacing", "columnspacing", "width", "height", "depth", "lspace", "rspace", "voffset")
_LENGTH = re.compile(r"(-?\d*\.?\d+)(pt|px|mm|cm|in)")
_EMS = {"pt": 0.1, "px": 0.075, "mm": 0.285, "cm": 2.85, "in": 7.23}
"""For a font of 10 pt, as it is usual in TeX."""
_ROW_SPACING = "0.5em"
_NUMBERED = re.compile(r"\\(begin|end)\{(equation|align|gather|multline|eqnarray|alignat)\}")
_LEFT_OUT = re.compile(r"\\(?:nonumber|notag)(?![A-Za-z])|\\label\s*\{[^{}]*\}|\\\\\s*(?=\\end\s*\{)")
_TAG = re.compile(r"\\tag(\*?)\s*\{([^{}]*)\}")
_OPERATOR = re.compile(r"\\(argmin|argmax)(?![A-Za-z])|\\operatorname\*(?=\{)")
_BINOMIAL = re.compile(rf"\\[dt]?binom\s*{GROUP}\s*{GROUP}")
_NESTING = re.compile(
    r"\\[{}\\]|(\{|\\left(?![A-Za-z])|\\begin(?![A-Za-z]))|(\}|\\right(?![A-Za-z])|\\end(?![A-Za-z]))"
)
_NUMBER = re.compile(r"[MLQCZ]|-?\d*\.?\d+(?:e-?\d+)?")
_COORDINATES = {"M": 2, "L": 2, "Q": 4, "C": 6, "Z": 0}

_AS_MEANT = str.maketrans({stand_in: letter for letter, stand_in in STAND_INS.items()})

config.svg2 = False
config.precision = 1  # with 0 it takes the zeros off 1000


def answer(request: RenderFormula) -> FormulaDrawn | FormulaNotDrawn:
    """The outlines of a formula, or that it can't be drawn."""
    try:
        return drawn(request.tex, is_display=request.is_display)
    except MemoryError:
        raise
    except Exception:  # whatever the libraries say about other people's TeX
        return FormulaNotDrawn()


def drawn(tex: str, *, is_display: bool) -> FormulaDrawn:
    """The outlines of a formula. Raises whatever the libraries raise, and `ValueError`."""
    if len(tex) > MAX_CHARACTERS or _depth(tex) > MAX_DEPTH:
        raise ValueError
    formula = Math(_mathml(tex, is_display=is_display), size=EM)
    if any(_is_missing(formula, letter) for letter in "".join(formula.mathml.itertext())):
        raise ValueError
    box = formula.node.bbox
    width, height = box.xmax - box.xmin, box.ymax - box.ymin
    if not (0 < width <= _MAX_WIDTH and 0 < height <= _MAX_HEIGHT):
        raise ValueError
    left = box.xmin - _MARGIN
    return FormulaDrawn(
        width=round(width + 2 * _MARGIN),
        ascent=round(max(box.ymax, 0)) + _MARGIN,
        descent=round(max(-box.ymin, 0)) + _MARGIN,
        parts=list(_parts(formula.svgxml(), left)),
    )


def _is_missing(formula: Math, letter: str) -> bool:
    """Whether the font lacks a letter, as it does Chinese ones."""
    return letter > "\u2fff" and not letter.isspace() and formula.font.glyphindex(letter) == 0


def _depth(tex: str) -> int:
    """How many of what is closed again stand in each other. Raises `ValueError` where one is not closed."""
    depth = most = 0
    for found in _NESTING.finditer(tex):
        depth += (found[1] is not None) - (found[2] is not None)
        most = max(most, depth)
        if depth < 0:
            raise ValueError
    if depth:
        raise ValueError
    return most


def _mathml(tex: str, *, is_display: bool) -> ElementTree.Element:
    """Raises `ValueError` if there is a command that isn't known: it would be shown as text."""
    tex = _NUMBERED.sub(r"\\\1{\2*}", _LEFT_OUT.sub("", tex))
    tex = _TAG.sub(lambda tag: rf"\qquad\text{{{tag[2] if tag[1] else f'({tag[2]})'}}}", tex)
    tex = _OPERATOR.sub(lambda found: rf"\operatorname{{{found[1]}}}" if found[1] else r"\operatorname", tex)
    tex = _BINOMIAL.sub(r"\\left({\1}\\atop{\2}\\right)", tex)
    element = ElementTree.fromstring(tex2mml(mended(tex), inline=not is_display))
    for child in element.iter():
        if child.tag.endswith("mtable"):
            formula_tables.mark_lines(child)
        _cross_out(child)
        _set_lengths(child)
    for child in element.iter():
        text = child.text or ""
        if "\\" in text or ROW_LINE in text or any(ord(letter) in COLUMN_LINES for letter in text):
            raise ValueError
        child.text = text.translate(_AS_MEANT) or None
    return element


def _cross_out(parent: ElementTree.Element) -> None:
    r"""Put the stroke of ``\not`` through what follows it; raises `ValueError` where there is no such sign."""
    children = list(parent)
    for stroke, sign in zip(children, [*children[1:], None], strict=False):
        if "".join(stroke.itertext()) == "⧸":
            crossed = unicodedata.normalize("NFC", f"{sign.text if sign is not None else ''}\u0338")
            if sign is None or len(crossed) != 1:
                raise ValueError
            sign.text = crossed
            parent.remove(stroke)


def _set_lengths(element: ElementTree.Element) -> None:
    """Make lengths relative to the font. Lines of equations would touch each other, see
    https://github.com/cdelker/ziamath/issues/50."""
    for name in _LENGTHS:
        if name in element.attrib:
            length = _LENGTH.sub(lambda found: f"{float(found[1]) * _EMS[found[2]]:.4g}em", element.attrib[name])
            element.set(name, length)
    if element.get("displaystyle") == "true" and "rowspacing" in element.attrib:
        element.set("rowspacing", _ROW_SPACING)


# ---------------------------------------------------------------- outlines


def _parts(svg: ElementTree.Element, left: float) -> Iterator[FormulaPart]:
    for element in svg.iter():
        color = element.get("fill") or ""
        stroke = round(float(element.get("stroke-width") or 0))
        if stroke:
            color = element.get("stroke") or ""
        if element.tag == "rect":
            x, y, width, height = (float(element.get(name) or 0) for name in ("x", "y", "width", "height"))
            corners = [x - left, y, x + width - left, y, x + width - left, y + height, x - left, y + height]
            yield FormulaPart(_own(color), stroke, "MLLLZ", [round(number) for number in corners])
        elif element.tag == "path":
            commands, numbers = _outline(element.get("d") or "", left)
            yield FormulaPart(_own(color), stroke, commands, numbers)
        elif element.tag not in ("svg", "g", "title"):
            raise ValueError


def _own(color: str) -> str:
    """The color, unless it is that of the text."""
    return "" if color in ("black", "none", "currentColor") else color


def _outline(path: str, left: float) -> tuple[str, list[int]]:
    """The commands of an SVG path, and their coordinates."""
    commands: list[str] = []
    numbers: list[float] = []
    due = 0
    for part in _NUMBER.findall(path):
        if part in _COORDINATES:
            if due:
                raise ValueError
            commands.append(part)
            due = _COORDINATES[part]
        else:
            if not due:
                raise ValueError
            numbers.append(float(part) - (left if due % 2 == 0 else 0))
            due -= 1
    if due:
        raise ValueError
    return "".join(commands), [round(number) for number in numbers]


# ---------------------------------------------------------------- for pages


def svg(formula: FormulaDrawn, source: str) -> str:
    """A formula as a picture inside HTML, with its TeX as the alternative text."""
    top, height = -formula.ascent, formula.ascent + formula.descent
    size = f"width:{formula.width / EM}em;height:{height / EM}em;vertical-align:{-formula.descent / EM}em"
    parts = "".join(_path(part) for part in formula.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(source)}" style="{size}"'
        f' viewBox="0 {top} {formula.width} {height}">{parts}</svg>'
    )


def _path(part: FormulaPart) -> str:
    numbers = iter(part.numbers)
    steps = [step + " ".join(str(next(numbers)) for _ in range(_COORDINATES[step])) for step in part.commands]
    color = escape(part.color) or "currentColor"
    look = f'fill="none" stroke="{color}" stroke-width="{part.stroke}"' if part.stroke else f'fill="{color}"'
    return f'<path {look} d="{"".join(steps)}"/>'
