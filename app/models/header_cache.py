"""Headers of model files, cached as long as the files don't change."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.mtp import is_head_only

AT_ONCE = 4
"""How many tasks read at the same time, so that one on an unresponsive drive doesn't delay the others."""
_MOST = 4
"""How many headers are cached: the pair, and the one before it. A vocabulary takes tens of megabytes."""


class Headers:
    """Reads files and caches the content of the last few as long as they don't change. For any thread."""

    def __init__(self) -> None:
        self._header = lru_cache(_MOST)(_draft_header)

    def read_draft(self, path: str) -> GgufHeader:
        """The header of a model that can be loaded, or of a file with only an MTP head. Raises `KnownError`."""
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            return _draft_header(path)  # says what is wrong with it
        return self._header(path, status.st_mtime_ns, status.st_size)

    def read(self, path: str) -> GgufHeader:
        """The header of a model that can be loaded. Raises `KnownError`."""
        header = self.read_draft(path)
        check_loadable(header)
        return header


def _draft_header(path: str, *_state: int) -> GgufHeader:
    """``_state``: the state of the file, only used as a key of the cache."""
    header = read_header(path)
    check_loadable(header, as_head=is_head_only(header))
    return header
