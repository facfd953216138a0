"""The results of trying out a pair on this machine: acceptance and speed-up, in one small JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from app.models.gguf import ModelFileError
from app.storage.json_file import KeyedFile

Speed = Annotated[float, msgspec.Meta(gt=0)]
"""Tokens per second while decoding."""


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
        return FileKey(path.name, status.st_size, status.st_mtime_ns)


class Trial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trial of a pair."""

    acceptance_rate: Annotated[float, msgspec.Meta(ge=0, le=1)] | None
    """Accepted ÷ tested; ``None`` if nothing was tested."""
    plain_speed: Speed
    drafted_speed: Speed
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


class StoredTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The latest trial of these two files; an MTP head inside a target is tried as a pair of the target with itself."""

    target: FileKey
    draft: FileKey
    trial: Trial

    @property
    def pair(self) -> tuple[FileKey, FileKey]:
        return self.target, self.draft


Trials: TypeAlias = KeyedFile[StoredTrial]
"""By `StoredTrial.pair`."""


def trials_file(folder: Path) -> Trials:
    return KeyedFile(
        folder / "trials.json",
        StoredTrial,
        inside="trials",
        key=lambda row: row.pair,
        most=500,
        what="The trial of the pair",
    )
