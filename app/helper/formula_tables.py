"""Tables of formulas with their lines, which ziamath leaves out. Importing this registers them with ziamath."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element

from ziafont.fonttypes import BBox
from ziamath.drawable import HLine, VLine
from ziamath.nodes.mtable import Mtable

from app.helper.formula_text import COLUMN_LINES, ROW_LINE

_COLUMNS, _ROWS = "linesbetweencolumns", "linesbetweenrows"
_PADDING = "0.3em"
_BETWEEN = 2.5
"""How far the lines of a double one are apart, as a multiple of their width."""


def mark_lines(table: Element) -> None:
    """Take the characters that stand for lines out of the cells of an ``mtable``, and note them as its attributes.

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
            table.remove(row)  # nothing but the line below the last row
    if columns:
        table.set(_COLUMNS, " ".join(map(str, columns)))
    if rows:
        table.set(_ROWS, " ".join(map(str, rows)))


class RuledTable(Mtable, tag="mtable"):
    """A table whose attributes say before which columns and rows there are lines, each once a line."""

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
    """Where a line before each column (or row) is, and behind the last. ``cells``: the column, from where, to where."""
    count = 1 + max(number for number, _, _ in cells)
    starts = [min(start for number, start, _ in cells if number == one) for one in range(count)]
    ends = [max(end for number, _, end in cells if number == one) for one in range(count)]
    middles = [(ends[one - 1] + starts[one]) / 2 for one in range(1, count)]
    return [starts[0] - pad, *middles, ends[-1] + pad]
