"""Draws formulas with ziamath. Runs in the helper process: each level of nesting more than doubles the time it takes.

The results are outlines, in thousandths of the font size, which can be drawn sharply in any size and color.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from html import escape
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from ziafont.fonttypes import BBox
from ziamath.config import config
from ziamath.drawable import HLine, VLine
from ziamath.nodes.mtable import Mtable
from ziamath.tex import tex2mml
from ziamath.zmath import Math

from app.helper.messages import FormulaDrawn, FormulaNotDrawn, FormulaPart, RenderFormula
from app.markdown.formulas import MAX_CHARACTERS

# `mended` rewrites TeX that latex2mathml gets wrong: words (``\text``), rules in arrays, fonts. Rules become private
# characters in the cells next to them; `RuledTable` draws them.

ROW_LINE = "\ue000"
COLUMN_LINES = range(0xE010, 0xE060)
"""A rule before column 0, 1, …"""
STAND_INS = {"&": "\ue001", "{": "\ue002", "}": "\ue003", "<": "\ue004", ">": "\ue005"}
"""For characters that latex2mathml doesn't accept in a text."""
_LETTER = r"[^{}\\]|\\."
GROUP = rf"\{{((?:{_LETTER}|\{{(?:{_LETTER}|\{{(?:{_LETTER})*\}})*\}})*)\}}"
"""The content of braces, which may contain two more levels of braces."""

_WORDS = re.compile(rf"\\(text(?:bf|it|md|normal|rm|sf|tt|up)?|[mh]box|emph)(?![A-Za-z])\s*{GROUP}")
_PIECE = re.compile(
    r"(?P<escaped>\\[%#&_$ {}<>])|\$(?P<math>(?:[^$\\]|\\.)+)\$|\\\((?P<other>.+?)\\\)"
    rf"|(?P<words>{_WORDS.pattern})|(?P<sign>\\(?:ldots|dots|quad)(?![A-Za-z])\s*|\\[,;]|---?|``|''|[~&<>])|(?P<plain>[^\\{{}}$])"
    r"|(?P<brace>[{}])",
    re.DOTALL,
)
_SIGNS = {r"\ldots": "…", r"\dots": "…", r"\quad": "\u2003", "--": "–", "---": "—", "``": "“", "''": "”", "~": "\xa0"}
_FONT = re.compile(r"\\math(bb|cal|frak|scr|bf|sf|tt|it)(?:\s+([A-Za-z0-9])|([0-9]))|\\math(?:bbm|ds)(?![A-Za-z])")
_WORD_IN_FONT = re.compile(r"\\math(bb|cal|frak|scr|bf|sf|tt)\s*\{([^{}\\^_&]{2,})\}")
_LETTER_OR_DIGIT = re.compile(r"[A-Za-z0-9]")
_DOUBLE_STRUCK = re.compile(r"\\mathbb\s*\{([0-9])\}")
_OPERATOR_NAME = re.compile(rf"\\operatorname(\*?)\s*{GROUP}")
_SPACE = re.compile(r"\\[,;: ]|~")
_TABLE = re.compile(
    rf"\\begin\{{array\}}\s*(?:\[[tbc]\]\s*)?{GROUP}|\\begin\{{([pbBvV]?matrix)\}}\s*\[([lcr|\s]*\|[lcr|\s]*)\]"
)
_REPEATED = re.compile(rf"\*\s*(?:\{{(\d{{1,2}})\}}|(\d)){GROUP}")
_SPACING = re.compile(rf"[@!<>]\s*{GROUP}")
_PARAGRAPH = re.compile(rf"[pmb]\s*{GROUP}")


def mended(tex: str) -> str:
    """The formula rewritten for latex2mathml. Raises `ValueError` if that isn't possible."""
    tex = _FONT.sub(lambda font: rf"\math{font[1]}{{{font[2] or font[3]}}}" if font[1] else r"\mathbb", tex)
    tex = _WORD_IN_FONT.sub(lambda word: "{" + _LETTER_OR_DIGIT.sub(rf"\\math{word[1]}{{\g<0>}}", word[2]) + "}", tex)
    tex = _DOUBLE_STRUCK.sub(lambda digit: chr(0x1D7D8 + int(digit[1])), tex)
    tex = _OPERATOR_NAME.sub(lambda name: rf"\operatorname{name[1]}{{{_SPACE.sub(chr(0x2009), name[2])}}}", tex)
    tex = re.sub(r"\\bmod(?![A-Za-z])", r"\\;\\mathrm{mod}\\;", tex)
    tex = _WORDS.sub(lambda words: _words(words[1], words[2]), tex)
    return _TABLE.sub(_table, tex).replace(r"\hline", ROW_LINE)


def _words(command: str, content: str) -> str:
    pieces = list(_pieces(command, content))
    return pieces[0] if len(pieces) == 1 else f"{{{''.join(pieces)}}}"


def _pieces(command: str, content: str) -> Iterator[str]:
    font = {"emph": "textit", "mbox": "text", "hbox": "text"}.get(command, command)
    text, at = "", 0
    while at < len(content):
        piece = _PIECE.match(content, at)
        if piece is None:
            raise ValueError
        at = piece.end()
        formula = piece["math"] or piece["other"] or piece["words"]
        if formula is None:
            text += _plain(piece)
            continue
        if text:
            yield rf"\{font}{{{text}}}"
        text = ""
        yield f"{{{mended(formula)}}}"
    if text:
        yield rf"\{font}{{{text}}}"


def _plain(piece: re.Match[str]) -> str:
    if piece["escaped"]:
        letter = piece["escaped"][1]
        return STAND_INS.get(letter, "\xa0" if letter == " " else letter)
    if piece["sign"]:
        sign = piece["sign"].strip()
        return STAND_INS.get(sign) or _SIGNS.get(sign, "\u2009")
    return piece["plain"] or ""


def _table(begin: re.Match[str]) -> str:
    columns = _REPEATED.sub(lambda found: found[3] * int(found[1] or found[2]), begin[1] or begin[3] or "")
    columns = _PARAGRAPH.sub("l", _SPACING.sub("", columns))
    columns = "".join(columns.split())
    if not re.fullmatch(r"[lcr|]*", columns) or columns.count("|") > len(COLUMN_LINES) // 2:
        raise ValueError
    lines, before = "", 0
    for letter in columns:
        if letter == "|":
            lines += chr(COLUMN_LINES[min(before, len(COLUMN_LINES) - 1)])
        else:
            before += 1
    start = rf"\begin{{{begin[2]}}}" if begin[2] else rf"\begin{{array}}{{{columns.replace('|', '') or 'c'}}}"
    return f"{start}{lines} "


# Tables with the rules that ziamath leaves out. Defining `RuledTable` registers it with ziamath.

_COLUMNS, _ROWS = "linesbetweencolumns", "linesbetweenrows"
_PADDING = "0.3em"
_BETWEEN = 2.5
"""The distance between the lines of a double rule, in line widths."""


def mark_lines(table: Element) -> None:
    """Replace the characters for rules in an ``mtable``'s cells with attributes of the table.

    Raises `ValueError` for dashed lines.
    """
    columns: list[int] = []
    rows: list[int] = []
    if "dashed" in table.attrib.pop("rowlines", ""):
        raise ValueError
    for number, row in enumerate(list(table)):
        for cell in list(row)[:1]:
            for part in list(cell):
                letters = part.text or ""
                if letters == ROW_LINE:
                    rows.append(number)
                elif len(letters) == 1 and ord(letters) in COLUMN_LINES:
                    columns.append(ord(letters) - COLUMN_LINES.start)
                else:
                    break
                cell.remove(part)
        if number and number in rows and number == len(table) - 1 and len(row) == 1 and not len(row[0]):
            table.remove(row)  # it only had the rule below the last row
    if columns:
        table.set(_COLUMNS, " ".join(map(str, columns)))
    if rows:
        table.set(_ROWS, " ".join(map(str, rows)))


class RuledTable(Mtable, tag="mtable"):
    """A table whose attributes list the columns and rows that rules come before, once for each rule."""

    def _setup(self, **kwargs: Any) -> None:
        super()._setup(**kwargs)
        columns, rows = (list(map(int, self.element.get(name, "").split())) for name in (_COLUMNS, _ROWS))
        if not columns and not rows:
            return
        pad = self.size_px(_PADDING)
        places = [(number, column) for number, row in enumerate(self.element) for column in range(len(row))]
        cells = list(zip(places, self.nodes, self.nodexy, strict=True))
        across = _borders([(column, x, x + node.bbox.xmax) for (_, column), node, (x, _) in cells], pad)
        down = _borders([(row, y - node.bbox.ymax, y - node.bbox.ymin) for (row, _), node, (_, y) in cells], pad / 2)
        shift = -across[0]
        width = self.units_to_points(self.font.math.consts.fractionRuleThickness)
        self.nodexy = [(x + shift, y) for x, y in self.nodexy]
        for at, column in enumerate(columns):
            beside = columns[:at].count(column) * _BETWEEN * width
            self.nodes.append(VLine(down[-1] - down[0], width, style=self.style, **kwargs))
            self.nodexy.append((across[min(column, len(across) - 1)] + shift + beside, down[0]))
        for at, row in enumerate(rows):
            beside = (rows[:at].count(row) * _BETWEEN - 0.5) * width
            self.nodes.append(HLine(across[-1] + shift, width, style=self.style, **kwargs))
            self.nodexy.append((0.0, down[min(row, len(down) - 1)] + beside))
        self.bbox = BBox(0, across[-1] + shift, -down[-1], -down[0])


def _borders(cells: list[tuple[int, float, float]], pad: float) -> list[float]:
    """The positions of rules before each column (or row) and after the last; ``cells``: column, start, end."""
    count = 1 + max(number for number, _, _ in cells)
    starts = [min(start for number, start, _ in cells if number == one) for one in range(count)]
    ends = [max(end for number, _, end in cells if number == one) for one in range(count)]
    middles = [(ends[one - 1] + starts[one]) / 2 for one in range(1, count)]
    return [starts[0] - pad, *middles, ends[-1] + pad]


EM = 1000
MAX_DEPTH = 9
"""Of nested braces, environments and stretched brackets."""
_MAX_WIDTH, _MAX_HEIGHT = 120 * EM, 60 * EM
_MARGIN = 40
"""Strokes may reach this far outside the box that ziamath computes."""

_LENGTHS = ("rowspacing", "columnspacing", "width", "height", "depth", "lspace", "rspace", "voffset")
_LENGTH = re.compile(r"(-?\d*\.?\d+)(pt|px|mm|cm|in)")
_EMS = {"pt": 0.1, "px": 0.075, "mm": 0.285, "cm": 2.85, "in": 7.23}
"""With TeX's usual 10 pt font."""
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
config.precision = 1  # with 0, it strips the zeros of 1000


def answer(request: RenderFormula) -> FormulaDrawn | FormulaNotDrawn:
    try:
        return drawn(request.tex, is_display=request.is_display)
    except MemoryError:
        raise
    except Exception:  # the libraries raise anything for bad TeX
        return FormulaNotDrawn()


def drawn(tex: str, *, is_display: bool) -> FormulaDrawn:
    """Raises `ValueError` and whatever the libraries raise."""
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
    """Whether the font lacks a letter, such as a Chinese one."""
    return letter > "\u2fff" and not letter.isspace() and formula.font.glyphindex(letter) == 0


def _depth(tex: str) -> int:
    """The depth of nested groups. Raises `ValueError` if they aren't balanced."""
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
    """Raises `ValueError` for an unknown command, which would be shown as text."""
    tex = _NUMBERED.sub(r"\\\1{\2*}", _LEFT_OUT.sub("", tex))
    tex = _TAG.sub(lambda tag: rf"\qquad\text{{{tag[2] if tag[1] else f'({tag[2]})'}}}", tex)
    tex = _OPERATOR.sub(lambda found: rf"\operatorname{{{found[1]}}}" if found[1] else r"\operatorname", tex)
    tex = _BINOMIAL.sub(r"\\left({\1}\\atop{\2}\\right)", tex)
    element = ElementTree.fromstring(tex2mml(mended(tex), inline=not is_display))
    for child in element.iter():
        if child.tag.endswith("mtable"):
            mark_lines(child)
        _cross_out(child)
        _set_lengths(child)
    for child in element.iter():
        text = child.text or ""
        if "\\" in text or ROW_LINE in text or any(ord(letter) in COLUMN_LINES for letter in text):
            raise ValueError
        child.text = text.translate(_AS_MEANT) or None
    return element


def _cross_out(parent: ElementTree.Element) -> None:
    r"""Combine ``\not`` with the sign after it. Raises `ValueError` if Unicode has no such character."""
    children = list(parent)
    for stroke, sign in zip(children, [*children[1:], None], strict=False):
        if "".join(stroke.itertext()) == "⧸":
            crossed = unicodedata.normalize("NFC", f"{sign.text if sign is not None else ''}\u0338")
            if sign is None or len(crossed) != 1:
                raise ValueError
            sign.text = crossed
            parent.remove(stroke)


def _set_lengths(element: ElementTree.Element) -> None:
    """Make lengths relative to the font, and keep lines of equations from touching
    (https://github.com/cdelker/ziamath/issues/50)."""
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
    """The color; empty for the text's."""
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
    """A formula as inline SVG for HTML, with its TeX as the alternative text."""
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
