"""Headers of model files, remembered as long as the files do not change."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from app.models.gguf import GgufHeader, check_loadable, read_header

AT_ONCE = 4
"""How many tasks read at the same time, so that one on a drive that does not answer doesn't hold up the others."""
_MOST = 4
"""How many headers are remembered: the pair, and the one before it. A vocabulary takes tens of megabytes."""


class Headers:
    """Reads files and remembers what was in the last few as long as they do not change. For any thread."""

    def __init__(self) -> None:
        self._header = lru_cache(_MOST)(_loadable_header)

    def read(self, path: str) -> GgufHeader:
        """The header of a model that can be loaded. Raises `KnownError`."""
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            return _loadable_header(path)  # says what is wrong with it
        return self._header(path, status.st_mtime_ns, status.st_size)


def _loadable_header(path: str, *_state: int) -> GgufHeader:
    """``_state``: of the file, only for the cache, which keeps a header for each."""
    header = read_header(path)
    check_loadable(header)
    return header
