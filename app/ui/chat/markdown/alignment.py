"""Find for each character that Qt's Markdown parser shows the place it has in the source.

What is shown is the source without its syntax, in the same order. So walking both from the left and taking words where
they next occur finds the places, and the source need not be changed for it: tints can never alter how text is parsed.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import msgspec

_PARTS = re.compile(r"[^\W_]+|\s+|.", re.DOTALL)
_SPACES = re.compile(r"\s+")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_WORD_REACH = 2000
"""How many characters of syntax (a long link) may stand between two words."""
_SIGN_REACH = 40


class Run(msgspec.Struct, frozen=True, gc=False):
    """Shown characters ``start`` to ``end`` stand in the source from ``source`` on."""

    start: int
    end: int
    source: int


class Span(msgspec.Struct, frozen=True, gc=False):
    """Shown characters ``start`` to ``end`` came with piece number ``piece``."""

    start: int
    end: int
    piece: int


def without_entities(source: str) -> str:
    """The same text with each entity replaced by its character and filled up to the same length. Twice is as once."""
    if "&" not in source:
        return source

    def filled(entity: re.Match[str]) -> str:
        character = html.unescape(entity[0])
        return character.ljust(len(entity[0]), "\0") if len(character) < len(entity[0]) else entity[0]

    return _ENTITY.sub(filled, source)


def align(shown: str, source: str, at: int = 0) -> tuple[list[Run], int]:
    """Where the parts of ``shown`` stand in ``source`` from ``at`` on, and where the last one ended there.

    Parts that are not found (what the renderer added) are left out.
    """
    source = without_entities(source)
    whole = source.find(shown, at, at + len(shown) + _SIGN_REACH) if shown else -1
    if whole >= 0:
        return [Run(0, len(shown), whole)], whole + len(shown)
    runs: list[Run] = []
    for part in _PARTS.finditer(shown):
        text, start = part[0], part.start()
        found = _find(text, source, at)
        if found is not None:
            _append(runs, start, part.end(), found[0])
            at = found[1]
        elif len(text) > 1 and not text.isspace():
            # A word with mark-up inside it: letter by letter.
            for offset, letter in enumerate(text):
                found = _find(letter, source, at, reach=_SIGN_REACH)
                if found is not None:
                    _append(runs, start + offset, start + offset + 1, found[0])
                    at = found[1]
    return runs, at


def _find(text: str, source: str, at: int, reach: int = _WORD_REACH) -> tuple[int, int] | None:
    """Where this part stands from ``at`` on, and where it ends."""
    if text.isspace():
        spaces = _SPACES.search(source, at, at + _SIGN_REACH)
        return None if spaces is None else (spaces.start(), spaces.end())
    position = source.find(text, at, at + len(text) + (reach if text[0].isalnum() else _SIGN_REACH))
    return None if position < 0 else (position, position + len(text))


def _append(runs: list[Run], start: int, end: int, source: int) -> None:
    last = runs[-1] if runs else None
    if last is not None and last.end == start and last.source + (last.end - last.start) == source:
        runs[-1] = Run(last.start, end, last.source)
    else:
        runs.append(Run(start, end, source))


def spans(runs: Sequence[Run], starts: Sequence[int], offset: int) -> list[Span]:
    """The pieces under these runs. ``starts``: where each piece begins in the text; ``offset`` is added to a run's
    place in its source to get its place in the text."""
    result: list[Span] = []
    for run in runs:
        place, stop = run.source + offset, run.source + offset + run.end - run.start
        if stop <= 0 or not starts:
            continue
        index = max(bisect_right(starts, max(place, 0)) - 1, 0)
        while index < len(starts) and starts[index] < stop:
            piece_end = starts[index + 1] if index + 1 < len(starts) else stop
            first, last = max(starts[index], place), min(piece_end, stop)
            if first < last:
                result.append(Span(run.start + first - place, run.start + last - place, index))
            index += 1
    return result


def utf16_offsets(text: str) -> list[int] | None:
    """Qt's position of each character and of the end; ``None`` where it is the same as Python's."""
    if text.isascii() or max(text) <= "\uffff":
        return None
    return list(accumulate((2 if character > "\uffff" else 1 for character in text), initial=0))
