"""When each model was last used, by its file's path, in one small JSON file."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path

from app.models.json_file import JsonFile, Versioned

FILE_NAME = "usage.json"
_MAX_FILES = 2000
_MAX_BYTES = 4 * 1024 * 1024
_VERSION = 1

_log = logging.getLogger(__name__)


class _File(Versioned, kw_only=True):
    used: dict[str, int]
    """Seconds since 1970, UTC; the latest last."""


class Usage:
    """A file that cannot be read or written costs what was in it, nothing else."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path, _File, version=_VERSION, max_bytes=_MAX_BYTES)

    def all(self) -> dict[str, int]:
        """Seconds since 1970, UTC, by path."""
        try:
            content = self._file.read()
        except OSError as error:
            _log.warning("When models were used cannot be read: %s", error)
            return {}
        return content.used if content else {}

    def note(self, files: Iterable[str | Path]) -> None:
        """These are being used now; to be called when a pair has been loaded."""
        used = self.all()
        now = int(time.time())
        for file in map(str, files):
            used.pop(file, None)
            used[file] = now
        self._write(used)

    def moved(self, old: Path, new: Path) -> None:
        """The files of the folder ``old`` are in ``new`` now."""
        self._write(
            {
                str(new / Path(path).relative_to(old)) if Path(path).is_relative_to(old) else path: when
                for path, when in self.all().items()
            }
        )

    def _write(self, used: dict[str, int]) -> None:
        try:
            self._file.write(_File(version=_VERSION, used=dict(list(used.items())[-_MAX_FILES:])))
        except (OSError, UnicodeEncodeError) as error:
            _log.warning("When models were used could not be kept: %s", error)
