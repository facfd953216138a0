"""Models that were cut into pieces for a site that takes no larger files: ``X.gguf.part1of2``, ``X.gguf-split-a``.

Unlike the parts of a split model, a piece is no GGUF file; they have to be joined.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from app.errors import Canceled, KnownError
from app.models.gguf import check_loadable, read_header
from app.models.text import printable, size_text
from app.storage.files import write_whole
from app.storage.hashing import CHUNK, Progress

_NAME = re.compile(
    r"(?P<whole>.+\.gguf)(?:\.(?P<number>\d{2,3})|"
    r"[-._]?(?:part|split|chunk)[-._]?(?P<place>\d{1,4}|[a-z]{1,2})(?:[-._]?of[-._]?(?P<count>\d{1,4}))?)",
    re.IGNORECASE,
)


class Piece(NamedTuple):
    """What the name of a piece says."""

    whole: str
    """The name of the whole file."""
    place: int
    """Counted from 0 or from 1."""
    pieces: int
    """How many there are; 0 if the name doesn't say it."""


def piece_of(name: str) -> Piece | None:
    """``None`` for the names of other files."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    place = (found["place"] or found["number"]).lower()
    number = int(place) if place.isdecimal() else sum((ord(one) - 97) * 26**at for at, one in enumerate(place[::-1]))
    return Piece(found["whole"], number, int(found["count"] or 0))


def problem_of(paths: Sequence[Path]) -> str:
    """Why the model with these pieces, in order, can't be loaded as it is."""
    pieces = [piece for path in paths if (piece := piece_of(path.name)) is not None]
    places, count = [one.place for one in pieces], max(one.pieces for one in pieces) or len(pieces)
    name = printable(pieces[0].whole)
    if count < 2 or places[0] > 1 or places != list(range(places[0], places[0] + count)):
        return f"{name} is in pieces, and not all of them are here. Download the others, too."
    return f"{name} is in {count} pieces. They must be joined before it can be used."


def join(paths: Sequence[Path], progress: Callable[[int, int], None], is_canceled: Callable[[], bool]) -> Path:
    """Join these pieces, in order, and delete them; returns the path of the whole model.

    Raises `KnownError`, also if what comes out is no whole model, and `Canceled`; the pieces are kept then.
    """
    piece = piece_of(paths[0].name)
    assert piece is not None
    whole, new = paths[0].with_name(piece.whole), paths[0].with_name(".joining")  # names can be too long for an ending
    try:
        total, free = sum(path.stat().st_size for path in paths), shutil.disk_usage(whole.parent).free
        if whole.exists():
            raise KnownError(f"{printable(whole.name)} already exists.")
        if total > free:
            raise KnownError(f"Joining needs {size_text(total)} of disk space, but only {size_text(free)} is free.")
        told = Progress(total, progress)

        def content() -> Iterator[bytes]:
            for path in paths:
                with path.open("rb", buffering=0) as file:
                    while chunk := file.read(CHUNK):
                        if is_canceled():
                            raise Canceled
                        told.add(len(chunk))
                        yield chunk

        try:
            write_whole(new, content(), mode=0o666)
            check_loadable(read_header(new))
            new.rename(whole)
        finally:
            new.unlink(missing_ok=True)
        for path in paths:
            path.unlink()
    except OSError as error:
        raise KnownError(f"{printable(whole.name)} couldn't be joined: {error.strerror or error}.") from error
    return whole
