"""Measurements on this machine: trials of pairs, plain decode speeds of targets, and how often texts with a draft were
identical.

A speed is stored with everything it depends on (`PlainKey`): another context length or sampler is another measurement.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from app import words
from app.models.gguf import ModelFileError
from app.protocol.events import PairLoaded
from app.storage.json_file import KeyedFile, cache_file, key_of

Speed = Annotated[float, msgspec.Meta(gt=0)]
"""Tokens per second while decoding."""


class FileKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Identifies a model's file, even after it was moved."""

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
    """Of the answers with a draft."""
    measured_at: int
    """Seconds since 1970, UTC."""
    engine: str = ""
    """llama.cpp's version and build, as the engine reports it; measurements of other builds don't apply."""
    settings: str = ""
    """A text that identifies the load settings: context length, layers on the GPU, KV type and so on."""

    @property
    def speed_up(self) -> float:
        """Speed with the draft ÷ plain speed."""
        return self.drafted_speed / self.plain_speed


class StoredTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The latest trial of two files; an MTP head inside a target is stored as a pair of the target with itself."""

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


class PlainKey(FileKey, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the plain decode speed of a target's file depends on."""

    context_length: int
    threads: int
    gpu_layers: int
    kv_type: str
    sampler: str
    """A text that identifies the sampling settings."""
    options: str = ""
    """A text that identifies all other load settings; empty for the defaults."""


class PlainSpeed(msgspec.Struct, forbid_unknown_fields=True):
    """The plain decode speed of a target."""

    key: PlainKey
    tokens_per_second: Speed
    measured_at: int
    """Seconds since 1970, UTC."""


PlainSpeeds: TypeAlias = KeyedFile[PlainSpeed]
"""By `PlainSpeed.key`."""


def plain_speeds(folder: Path) -> PlainSpeeds:
    return KeyedFile(
        folder / "measurements.json",
        PlainSpeed,
        inside="plain",
        key=lambda row: row.key,
        most=200,
        what="The measured speed",
    )


def up_to_rounding(pair: PairLoaded, new: Sequence[bool] = ()) -> str:
    """A sentence about the target's texts with a draft; empty if its logits don't depend on the number of tokens in a
    pass, or that is unknown. ``new``: for each text compared now, whether it was identical.
    """
    if pair.exact_unit < 2:
        return ""
    store, target = KeyedFile(cache_file("texts.json"), tuple[int, int]), pair.target
    facts = {"file": Path(target.path).name, "size": target.size_bytes, "layers": target.gpu_layers}
    known = store.get(key := key_of({**facts, "unit": pair.exact_unit, "machine": platform.node()})) or (0, 0)
    same, compared = known[0] + sum(new), known[1] + len(new)
    if new:
        store.put(key, (same, compared))
    share = (
        f": {words.number(same)} of {words.number(compared)} were identical so far"
        if compared
        else "; not measured yet"
    )
    return f"Texts with a draft are the same up to rounding{share}."
