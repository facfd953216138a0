"""When each model was last used, by its file's path, in one small JSON file."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path

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

        def changed(file: _File) -> _File:
            others = [(path, when) for path, when in file.used.items() if path not in now]
            return _File(used=dict([*others, *now.items()][-_MAX_FILES:]))

        try:
            self._file.update(changed)
        except NotSavedError as error:
            _log.warning("%s", error)
