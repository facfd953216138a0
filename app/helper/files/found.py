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
    """The name of the encoding it was read in, where it had to be guessed; empty: it was said, or there was no doubt."""
