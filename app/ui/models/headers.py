"""Headers of model files, remembered as long as the files do not change."""

from __future__ import annotations

from pathlib import Path

from app.models.gguf import GgufHeader, check_loadable, read_header


class Headers:
    """Reads files and remembers what was in them as long as they do not change. For one thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], GgufHeader] = {}

    def read(self, path: str) -> GgufHeader:
        """The header of a model that can be loaded. Raises `KnownError`."""
        try:
            state = Path(path).stat()
            key = path, state.st_mtime_ns, state.st_size
        except (OSError, ValueError):
            key = path, 0, 0  # the reader says what is wrong with it
        if key not in self._known:
            header = read_header(path)
            check_loadable(header)
            self._known[key] = header
        return self._known[key]
