"""Headers of model files, remembered as long as the files do not change."""

from __future__ import annotations

import threading
from pathlib import Path

from app.models.gguf import GgufHeader, check_loadable, read_header

AT_ONCE = 4
"""Tasks that read at the same time, so that one on a drive that does not answer holds up nobody else."""
_MOST = 4
"""Headers remembered: a vocabulary takes some tens of megabytes. A pair, and the one before it."""


class Headers:
    """Reads files and remembers what was in the last few as long as they do not change. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[int, int], GgufHeader]] = {}

    def read(self, path: str) -> GgufHeader:
        """The header of a model that can be loaded. Raises `KnownError`."""
        try:
            status = Path(path).stat()
            state = status.st_mtime_ns, status.st_size
        except (OSError, ValueError):
            state = 0, 0  # the reader says what is wrong with it
        with self._lock:
            known = self._known.pop(path, None)
        if known is None or known[0] != state:
            header = read_header(path)
            check_loadable(header)
            known = state, header
        with self._lock:
            self._known[path] = known
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return known[1]
