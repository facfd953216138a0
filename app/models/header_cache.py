"""Caches headers of model files as long as the files don't change."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.mtp import is_head_only

AT_ONCE = 4
"""The number of concurrent reads, so that an unresponsive drive doesn't delay the others."""
_MOST = 4
"""The current pair and the previous one. A vocabulary takes tens of megabytes."""


class Headers:
    """Reads headers and caches the last few while their files are unchanged. Safe from any thread."""

    def __init__(self) -> None:
        self._header = lru_cache(_MOST)(_draft_header)

    def read_draft(self, path: str) -> GgufHeader:
        """The header of a loadable model, or of a file with only an MTP head. Raises `KnownError`."""
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            return _draft_header(path)  # raises the error
        return self._header(path, status.st_mtime_ns, status.st_size)

    def read(self, path: str) -> GgufHeader:
        """The header of a loadable model. Raises `KnownError`."""
        header = self.read_draft(path)
        check_loadable(header)
        return header


def _draft_header(path: str, *_state: int) -> GgufHeader:
    """``_state``: the file's state, only used as a cache key."""
    header = read_header(path)
    check_loadable(header, as_head=is_head_only(header))
    return header
