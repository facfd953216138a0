"""When each model was last used, by its file's path, in one small JSON file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from app.storage.files import moved_path
from app.storage.json_file import JsonFile, NotSavedError, Versioned

FILE_NAME = "usage.json"
_MAX_FILES = 2000

_log = logging.getLogger(__name__)


class _File(Versioned, kw_only=True):
    used: dict[str, int]
    """Seconds since 1970, UTC; the most recent last."""


class Usage:
    """If the file can't be read or written, only its content is lost."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path, _File(used={}), what="When models were used")

    def all(self) -> dict[str, int]:
        """Seconds since 1970, UTC, by path."""
        return dict(self._file.read().used)

    def note(self, files: Iterable[str | Path]) -> None:
        """These are being used now; called when a pair has been loaded."""
        now = dict.fromkeys(map(str, files), int(time.time()))
        self._update(lambda used: {file: when for file, when in used.items() if file not in now} | now)

    def moved(self, old: Path, new: Path) -> None:
        """The files of the folder ``old`` are in ``new`` now."""
        self._update(lambda used: {moved_path(path, old, new): when for path, when in used.items()})

    def _update(self, change: Callable[[dict[str, int]], dict[str, int]]) -> None:
        def changed(file: _File) -> _File:
            return _File(used=dict(list(change(file.used).items())[-_MAX_FILES:]))

        try:
            self._file.update(changed)
        except NotSavedError as error:
            _log.warning("%s", error)
