"""Digests of large files, with progress, and cancelable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from app.errors import Canceled

CHUNK = 4 * 1024 * 1024


class Progress:
    """Counts bytes and reports how many of how many are done."""

    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self._total = total
        self._tell = tell
        self._done = 0

    def add(self, count: int) -> None:
        """Add to the number of bytes done."""
        self._done += count
        self._tell(self._done, self._total)


def sha256_of(path: Path, is_canceled: Callable[[], bool], progress: Progress | None = None) -> str:
    """The digest of a file, in hexadecimal. Raises `OSError` and `Canceled`."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            if is_canceled():
                raise Canceled
            digest.update(chunk)
            if progress is not None:
                progress.add(len(chunk))
    return digest.hexdigest()
