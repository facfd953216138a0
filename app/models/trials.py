"""What trying out a pair on this machine brought: acceptance and speed-up, kept in one small JSON file."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import msgspec

from app.errors import KnownError
from app.models.gguf import ModelFileError
from app.models.json_file import JsonFile, Versioned

FILE_NAME = "trials.json"
_MAX_TRIALS = 500
_MAX_OF_PAIR = 20
_MAX_BYTES = 4 * 1024 * 1024
_VERSION = 1

_log = logging.getLogger(__name__)


class FileKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model's file, wherever it is moved to."""

    name: str
    size: int
    modified_ns: int

    @classmethod
    def of(cls, file: str | Path) -> FileKey:
        """The key of a file as it is now; raises `ModelFileError` when it is gone."""
        path = Path(file)
        try:
            status = path.stat()
        except (OSError, ValueError):
            raise ModelFileError(path, "is not there any more.") from None
        return cls(path.name, status.st_size, status.st_mtime_ns)


class Trial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trial of a pair. Speeds are decode speeds in tokens per second."""

    acceptance_rate: float | None
    """Accepted ÷ tested; ``None`` where nothing was tested."""
    plain_speed: float
    drafted_speed: float
    tokens: int
    """Of the drafted answers."""
    measured_at: int
    """Seconds since 1970, UTC."""
    engine: str = ""
    """llama.cpp's version and build, as the engine names itself: another one is another measurement."""
    settings: str = ""
    """Any text that is equal for equal context length, layers on the GPU, KV type and so on."""

    @property
    def speed_up(self) -> float:
        """Times plain."""
        return self.drafted_speed / self.plain_speed

    @property
    def is_sound(self) -> bool:
        """A file can hold anything that is well formed."""
        speeds = (self.plain_speed, self.drafted_speed)
        return all(math.isfinite(speed) and speed > 0 for speed in speeds) and 0 <= (self.acceptance_rate or 0.0) <= 1


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: FileKey
    draft: FileKey
    trial: Trial


class _File(Versioned, kw_only=True, forbid_unknown_fields=True):
    trials: list[_Entry]


class Trials:
    """The trials in one file. A missing file is an empty one; a broken one is moved aside, not overwritten."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path, _File, version=_VERSION, max_bytes=_MAX_BYTES)
        self._entries: list[_Entry] | None = None

    def get(self, target: FileKey, draft: FileKey) -> Trial | None:
        """The latest trial of a pair."""
        return next((trial for key, trial in self.history(target) if key == draft), None)

    def history(self, target: FileKey) -> list[tuple[FileKey, Trial]]:
        """All trials of a target with the drafts they were made with, the latest first."""
        if self._entries is None:
            try:
                self._entries = self._read()
            except OSError as error:
                _log.warning("The trials of pairs cannot be read: %s", error)
                self._entries = []
        return [(entry.draft, entry.trial) for entry in reversed(self._entries) if entry.target == target]

    def put(self, target: FileKey, draft: FileKey, trial: Trial) -> None:
        """Keep a trial. Raises `KnownError` when the file cannot be written."""
        if not trial.is_sound:
            raise ValueError(f"no trial: {trial}")
        entry = _Entry(target, draft, trial)
        try:
            # Read again: a command line may have tried something meanwhile.
            entries = [*self._read(), entry]
            of_pair = [one for one in entries if (one.target, one.draft) == (target, draft)]
            too_old = of_pair[:-_MAX_OF_PAIR]
            entries = [one for one in entries if one not in too_old][-_MAX_TRIALS:]
            self._file.write(_File(version=_VERSION, trials=entries))
        except OSError as error:
            if self._entries is not None:
                self._entries.append(entry)
            raise KnownError(f"The trial of the pair could not be kept: {error.strerror or error}.") from error
        self._entries = entries

    def _read(self) -> list[_Entry]:
        content = self._file.read()
        return [entry for entry in content.trials if entry.trial.is_sound] if content else []
