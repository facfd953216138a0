"""What was found in a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileText:
    """The text that a model reads of a file."""

    text: str
    left_out: tuple[str, ...] = ()
    """What the file has and the text lacks, each in a few words: "2 pictures", "1 page that couldn't be read"."""
    encoding: str = ""
    """The name of the encoding it was read in, where that was a guess; empty: the file says it, or it is certain."""


def how_many(number: int, what: str, several: str = "") -> tuple[str, ...]:
    """For `FileText.left_out`: "1 picture", "2 pictures", nothing for 0. ``several``: where an "s" doesn't do it."""
    if number == 0:
        return ()
    return (f"1 {what}" if number == 1 else f"{number:,} {several or what + 's'}",)
