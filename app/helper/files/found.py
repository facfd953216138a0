"""The text found in a file, and helpers for writing it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app import words
from app.helper.messages import FileReason

_SEVERAL = {
    "byte that isn't UTF-8": "bytes that aren't UTF-8",
    "cell with an error": "cells with errors",
    "chapter that couldn't be read": "chapters that couldn't be read",
    "chart or object": "charts or objects",
    "formula without a result": "formulas without a result",
    "long output cut": "long outputs cut",
    "page that couldn't be read": "pages that couldn't be read",
    "page that is only a picture": "pages that are only pictures",
    "picture without a description": "pictures without a description",
}
_POWER = re.compile(r"[+\-−]?\d+|n")
_RAISED = str.maketrans("0123456789+-−n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿ")


@dataclass(frozen=True)
class FileText:
    """A file as text for a model."""

    text: str
    left_out: tuple[str, ...] = ()
    """What isn't in the text, in a few words each: "2 pictures", "1 page that couldn't be read"."""
    encoding: str = ""
    """The encoding's name if it was guessed; empty if it is certain."""


def how_many(number: int, what: str) -> tuple[str, ...]:
    """For `FileText.left_out`: "1 picture", "2 pictures"; empty for 0."""
    return (words.count(number, what, _SEVERAL.get(what, "")),) if number else ()


def counted(left_out: Counter[str]) -> tuple[str, ...]:
    """For `FileText.left_out`."""
    return tuple(one for what, number in left_out.items() for one in how_many(number, what))


def joined(blocks: Iterable[str], most: int) -> str:
    """Blocks separated by empty lines, until they exceed ``most`` characters."""
    texts: list[str] = []
    size = 0
    for block in filter(None, blocks):
        texts.append(block)
        size += len(block)
        if size > most:
            break
    return "\n\n".join(texts)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Cells as a Markdown table; empty without any."""
    wide = max(map(len, rows), default=0)
    if not wide:
        return ""
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] + [""] * (wide - len(row)) for row in rows]
    first, *others = (f"| {' | '.join(row)} |" for row in cells)
    return "\n".join((first, f"|{' --- |' * wide}", *others))


def raised(text: str) -> str:
    """A superscript: 10⁶ must not become 106. Words stay unchanged."""
    return text.translate(_RAISED) if _POWER.fullmatch(text.strip()) else text


class RefusedError(Exception):
    """A file that can't be read."""

    def __init__(self, reason: FileReason, detail: str = "") -> None:
        super().__init__(reason)
        self.reason: FileReason = reason
        self.detail = detail
