"""Whether a model's files are still what was downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.errors import KnownError
from app.models.library.entry import LibraryEntry
from app.models.origins import Origins
from app.models.text import printable
from app.storage.hashing import Progress, sha256_of


def verify(
    entry: LibraryEntry,
    origins: Origins | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> bool | None:
    """Whether the SHA-256 of all files is what it was; ``None`` where that is not known of all of them.

    ``progress`` is told the bytes that are done, and all. Raises `KnownError` for a file that cannot be read, and
    `Cancelled`.
    """
    known = _known(entry, origins)
    try:
        told = Progress(sum(part.stat().st_size for part in known), progress)
        if any(sha256_of(part, is_cancelled, told) != digest for part, digest in known.items()):
            return False
    except OSError as error:
        raise KnownError(f"The files of {printable(entry.title)} cannot be read: {error.strerror or error}.") from error
    return True if len(known) == len(entry.parts) else None


def _known(entry: LibraryEntry, origins: Origins | None) -> dict[Path, str]:
    """What the digests must be, of the parts of which that is known."""
    known = {part: digest for part, digest in zip(entry.parts, entry.sha256, strict=False) if digest}
    for part in entry.parts:
        origin = origins.get(part) if origins else None
        if origin is not None:
            known[part] = origin.sha256
    return known
