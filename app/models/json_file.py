"""One JSON file of our own with what was found out on this machine: written whole, put aside when it is broken."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from app.files import broken_name, write_whole

_log = logging.getLogger(__name__)


class Versioned(msgspec.Struct, kw_only=True):
    """What such a file holds."""

    version: int


T = TypeVar("T", bound=Versioned)


class JsonFile(Generic[T]):
    """A missing file is an empty one; one that is not understood is moved aside, not overwritten."""

    def __init__(self, path: Path, kind: type[T], *, version: int, max_bytes: int) -> None:
        self.path = path
        self._kind = kind
        self._version = version
        self._max_bytes = max_bytes

    def read(self) -> T | None:
        """What the file holds; ``None`` when it is missing or was moved aside. Raises `OSError`."""
        try:
            with self.path.open("rb") as file:
                data = file.read(self._max_bytes + 1)
        except FileNotFoundError:
            return None
        try:
            content = msgspec.json.decode(data, type=self._kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            self._set_aside(str(error))
            return None
        if content.version != self._version:
            self._set_aside(f"version {content.version}, not {self._version}")
            return None
        return content

    def write(self, content: T) -> None:
        """Put ``content`` in the place of what the file held. Raises `OSError`."""
        write_whole(self.path, msgspec.json.format(msgspec.json.encode(content), indent=1))

    def _set_aside(self, reason: str) -> None:
        aside = broken_name(self.path)
        self.path.replace(aside)
        _log.warning("%s could not be understood (%s); kept as %s", self.path.name, reason, aside.name)
