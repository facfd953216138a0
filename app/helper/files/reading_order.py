"""The order in which the characters of a page are read."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

_LEAST_LETTERS = 12
"""Lines of columns have more in the middle; shorter ones are cells of a table, which are read row by row."""
_LEAST_CONTINUED = 0.4
"""Of the lines of columns, so many go on in the middle of a sentence, with a small letter; cells of tables don't."""
_LEAST_LINES = 6
"""Side by side, in scripts without small letters."""
_LEAST_GAP = 7.0
"""Between columns, in points."""


class Character(NamedTuple):
    """``place``: the one in the file's order; the sides are in points, from the lower left corner of the page."""

    place: int
    letter: str
    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2

    @property
    def center(self) -> float:
        return (self.left + self.right) / 2

    def is_within(self, place: tuple[float, float, float, float]) -> bool:
        return place[0] <= self.center <= place[2] and place[1] <= self.middle <= place[3]


Line = list[Character]


def in_reading_order(characters: list[Character]) -> list[Character]:
    """``characters`` as they are, unless the file goes across columns from line to line: then column by column."""
    lines: list[Line] = [[]]
    for one in characters:
        lines[-1].append(one)
        if one.letter == "\n":
            lines.append([])
    return [one for line in _by_columns(lines) for one in line]


def _by_columns(lines: list[Line]) -> list[Line]:
    gaps = {number: wide for number, line in enumerate(lines) if (wide := _gaps(line))}
    border = _border(lines, gaps)
    if border is None:
        return lines
    found: list[Line] = []
    left: list[Line] = []
    right: list[Line] = []
    for number, line in enumerate(lines):
        split = next((at for low, high, at in gaps.get(number, ()) if low <= border <= high), None)
        sides = [one for one in line if not one.letter.isspace()]
        if split is not None:
            left.append([*line[:split], _line_end(line)])
            right.append(line[split:])
        elif sides and sides[-1].right <= border + 2:
            left.append(line)
        elif sides and sides[0].left >= border - 2:
            right.append(line)
        else:  # it goes across: a heading, or an empty line
            found += [*_by_columns(left), *_by_columns(right), line]
            left, right = [], []
    return [*found, *_by_columns(left), *_by_columns(right)]


def _line_end(line: Line) -> Character:
    return line[-1]._replace(letter="\n")


def _gaps(line: Line) -> list[tuple[float, float, int]]:
    """The wide gaps of a line: from where to where, and the place in the line behind it."""
    found = []
    last: Character | None = None
    for place, one in enumerate(line):
        if one.letter.isspace():
            continue
        if last is not None and one.left - last.right >= _LEAST_GAP:
            found.append((last.right, one.left, place))
        last = one
    return found


def _border(lines: list[Line], gaps: dict[int, list[tuple[float, float, int]]]) -> float | None:
    """The place between two columns; ``None`` if the lines have none."""
    places = Counter(round(high) for found in gaps.values() for _, high, _ in found)
    for place, number in places.most_common(3):
        border = place - 2.0
        split = [
            (_text(lines[number][:at]), _text(lines[number][at:]))
            for number, found in gaps.items()
            for low, high, at in found
            if low <= border <= high
        ]
        if number > 1 and _is_prose(split):
            return border
    return None


def _text(line: Line) -> str:
    return "".join(one.letter for one in line).strip()


def _is_prose(split: list[tuple[str, str]]) -> bool:
    lefts, rights = sorted(len(left) for left, _ in split), sorted(len(right) for _, right in split)
    begins = [text[0] for pair in split[1:] for text in pair if text]
    cased = [letter for letter in begins if letter.isdecimal() or letter.lower() != letter.upper()]
    continued = sum(letter.islower() for letter in cased)
    middle = len(split) // 2
    if min(lefts[middle], rights[middle]) < _LEAST_LETTERS:
        return False
    return continued >= _LEAST_CONTINUED * len(cased) if cased else len(split) >= _LEAST_LINES
