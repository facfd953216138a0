"""What was measured on this machine, kept in one small JSON file: so far the plain decode speed of targets.

A speed belongs to everything it depends on (`PlainKey`): another context length or sampler is another measurement.
"""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path

import msgspec

from app.errors import KnownError
from app.models.gguf import ModelFileError
from app.models.json_file import JsonFile, Versioned

FILE_NAME = "measurements.json"
MAX_ENTRIES = 200
MAX_FILE_BYTES = 4 * 1024 * 1024
_VERSION = 1

_log = logging.getLogger(__name__)


class PlainKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a plain decode speed depends on."""

    name: str
    size: int
    modified_ns: int
    context_length: int
    threads: int
    gpu_layers: int
    kv_type: str
    sampler: str
    """Any text that is equal for equal sampling settings."""

    @classmethod
    def of(
        cls, target: str | Path, *, context_length: int, threads: int, gpu_layers: int, kv_type: str, sampler: str
    ) -> PlainKey:
        """The key for a target file as it is now; raises `ModelFileError` when it is gone."""
        path = Path(target)
        try:
            status = path.stat()
        except (OSError, ValueError):
            raise ModelFileError(path, "is not there any more.") from None
        return cls(path.name, status.st_size, status.st_mtime_ns, context_length, threads, gpu_layers, kv_type, sampler)


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    key: PlainKey
    tokens_per_second: float
    measured_at: int
    """Seconds since 1970, UTC."""


class _File(Versioned, kw_only=True, forbid_unknown_fields=True):
    plain: list[_Entry]


class Measurements:
    """The speeds in one file. A missing file is an empty one; a broken one is moved aside, not overwritten."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path, _File, version=_VERSION, max_bytes=MAX_FILE_BYTES)
        self._entries: dict[PlainKey, _Entry] | None = None

    def plain_speed(self, key: PlainKey) -> float | None:
        """The measured plain decode speed in tokens per second, or ``None`` when it was not measured yet."""
        if self._entries is None:
            try:
                self._entries = self._read()
            except OSError as error:
                _log.warning("The measured speeds cannot be read: %s", error)
                self._entries = {}
        entry = self._entries.get(key)
        return entry.tokens_per_second if entry is not None else None

    def record_plain_speed(self, key: PlainKey, tokens_per_second: float) -> None:
        """Keep a speed, in place of an earlier one. Raises `KnownError` when the file cannot be written."""
        if not (math.isfinite(tokens_per_second) and tokens_per_second > 0):
            raise ValueError(f"not a speed: {tokens_per_second}")
        entry = _Entry(key, tokens_per_second, int(time.time()))
        try:
            # Read again: a command line may have measured something meanwhile.
            entries = self._read()
            entries.pop(key, None)
            entries[key] = entry
            self._file.write(_File(version=_VERSION, plain=list(entries.values())[-MAX_ENTRIES:]))
        except OSError as error:
            if self._entries is not None:
                self._entries[key] = entry
            raise KnownError(f"The measured speed could not be kept: {error.strerror or error}.") from error
        self._entries = entries

    def _read(self) -> dict[PlainKey, _Entry]:
        content = self._file.read()
        sound = (entry for entry in content.plain if math.isfinite(entry.tokens_per_second)) if content else ()
        return {entry.key: entry for entry in sound if entry.tokens_per_second > 0}
