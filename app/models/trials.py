"""The results of trying out a pair on this machine: acceptance and speed-up, in one small JSON file."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from app.models.gguf import ModelFileError
from app.storage.json_file import PATIENCE_SECONDS, JsonFile, Versioned

FILE_NAME = "trials.json"
_MAX_TRIALS = 500
_MAX_OF_PAIR = 20


class FileKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model's file, even after it was moved."""

    name: str
    size: int
    modified_ns: int

    @classmethod
    def of(cls, file: str | Path) -> FileKey:
        """The key of a file as it is now; raises `ModelFileError` if it is gone."""
        path = Path(file)
        try:
            status = path.stat()
        except (OSError, ValueError):
            raise ModelFileError(path, "no longer exists.") from None
        return cls(path.name, status.st_size, status.st_mtime_ns)


class Trial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trial of a pair. Speeds are decode speeds in tokens per second."""

    acceptance_rate: float | None
    """Accepted ÷ tested; ``None`` if nothing was tested."""
    plain_speed: float
    drafted_speed: float
    tokens: int
    """For the answers with a draft."""
    measured_at: int
    """Seconds since 1970, UTC."""
    engine: str = ""
    """llama.cpp's version and build, as the engine reports it; measurements of other builds don't apply."""
    settings: str = ""
    """Any text that is the same for the same context length, layers on the GPU, KV type and so on."""

    @property
    def speed_up(self) -> float:
        """Times plain."""
        return self.drafted_speed / self.plain_speed

    @property
    def is_sound(self) -> bool:
        """A well-formed file can contain anything."""
        speeds = (self.plain_speed, self.drafted_speed)
        return all(math.isfinite(speed) and speed > 0 for speed in speeds) and 0 <= (self.acceptance_rate or 0.0) <= 1


class _PairTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: FileKey
    draft: FileKey
    trial: Trial


class _File(Versioned, kw_only=True, forbid_unknown_fields=True):
    trials: list[_PairTrial]


class Trials:
    """The trials in one file. A missing file counts as empty; a damaged one is moved aside, not overwritten."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path, _File(trials=[]), what="The trial of the pair", patience=PATIENCE_SECONDS)

    def get(self, target: FileKey, draft: FileKey) -> Trial | None:
        """The latest trial of a pair."""
        return next((trial for key, trial in self.history(target) if key == draft), None)

    def history(self, target: FileKey) -> list[tuple[FileKey, Trial]]:
        """All trials of a target with their drafts, latest first."""
        entries = reversed(self._file.read().trials)
        return [(entry.draft, entry.trial) for entry in entries if entry.target == target and entry.trial.is_sound]

    def put(self, target: FileKey, draft: FileKey, trial: Trial) -> None:
        """Store a trial. Raises `KnownError` if the file can't be written; the trial then applies until the process
        ends.
        """
        if not trial.is_sound:
            raise ValueError(f"no trial: {trial}")

        def added(file: _File) -> _File:
            entries = [*(one for one in file.trials if one.trial.is_sound), _PairTrial(target, draft, trial)]
            too_old = [one for one in entries if (one.target, one.draft) == (target, draft)][:-_MAX_OF_PAIR]
            return _File(trials=[one for one in entries if one not in too_old][-_MAX_TRIALS:])

        self._file.update(added)
