"""Measurements made on this machine: the plain decode speed of targets, and how often a draft left a text as it was.

A speed belongs to everything it depends on (`PlainKey`): another context length or sampler is another measurement.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from app.models.trials import FileKey
from app.protocol.events import PairLoaded
from app.storage.json_file import PATIENCE_SECONDS, JsonFile, Versioned
from app.storage.keyed_file import KeyedFile, cache_file, key_of

FILE_NAME = "measurements.json"
MAX_ENTRIES = 200


class PlainKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a plain decode speed depends on."""

    name: str
    size: int
    modified_ns: int
    context_length: int
    threads: int
    gpu_layers: int
    kv_type: str
    sampler: str
    """Any text that is the same for the same sampling settings."""
    options: str = ""
    """Any text that is the same for the same other options of loading; empty if none is set."""

    @classmethod
    def of(
        cls,
        target: str | Path,
        *,
        context_length: int,
        threads: int,
        gpu_layers: int,
        kv_type: str,
        sampler: str,
        options: str = "",
    ) -> PlainKey:
        """The key for a target file as it is now; raises `ModelFileError` if it is gone."""
        file = FileKey.of(target)
        return cls(
            file.name, file.size, file.modified_ns, context_length, threads, gpu_layers, kv_type, sampler, options
        )


class _Measurement(msgspec.Struct, forbid_unknown_fields=True):
    key: PlainKey
    tokens_per_second: float
    measured_at: int
    """Seconds since 1970, UTC."""


class _File(Versioned, kw_only=True, forbid_unknown_fields=True):
    plain: list[_Measurement]


class Measurements:
    """The speeds in one file. A missing file counts as empty; a damaged one is moved aside, not overwritten."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path, _File(plain=[]), what="The measured speed", patience=PATIENCE_SECONDS)

    def plain_speed(self, key: PlainKey) -> float | None:
        """The measured plain decode speed in tokens per second, or ``None`` if it hasn't been measured yet."""
        found = (entry.tokens_per_second for entry in self._file.read().plain if entry.key == key)
        return next(filter(_is_sound, found), None)

    def record_plain_speed(self, key: PlainKey, tokens_per_second: float) -> None:
        """Store a speed, replacing an earlier one.

        Raises `KnownError` if the file can't be written; the speed then applies until the process ends.
        """
        if not _is_sound(tokens_per_second):
            raise ValueError(f"not a speed: {tokens_per_second}")
        entry = _Measurement(key, tokens_per_second, int(time.time()))

        def recorded(file: _File) -> _File:
            others = [one for one in file.plain if one.key != key and _is_sound(one.tokens_per_second)]
            return _File(plain=[*others, entry][-MAX_ENTRIES:])

        self._file.update(recorded)


def up_to_rounding(pair: PairLoaded, new: Sequence[bool] = ()) -> str:
    """A sentence about the target's texts with a draft; empty if its logits don't depend on how many tokens are in a
    pass, or that is unknown. ``new``: whether texts that were compared now are identical.
    """
    if pair.exact_unit < 2:
        return ""
    store, target = KeyedFile(cache_file("texts.json"), tuple[int, int]), pair.target
    facts = {"file": Path(target.path).name, "size": target.size_bytes, "layers": target.gpu_layers}
    known = store.get(key := key_of({**facts, "unit": pair.exact_unit, "machine": platform.node()})) or (0, 0)
    same, compared = known[0] + sum(new), known[1] + len(new)
    if new:
        store.put(key, (same, compared))
    share = f": {same:,} of {compared:,} were identical so far" if compared else "; not measured yet"
    return f"Texts with a draft are the same up to rounding{share}."


def _is_sound(tokens_per_second: float) -> bool:
    """A well-formed file can contain anything."""
    return math.isfinite(tokens_per_second) and tokens_per_second > 0
