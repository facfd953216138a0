"""Projectors (``mmproj``): with which file a model sees images, and what that takes in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from app.models.gguf import GgufHeader, ModelFacts, ModelFileError, read_header
from app.models.gguf_parser import text_of

_NAMED = re.compile(r"(?<![a-z0-9])mmproj(?![a-z0-9])", re.IGNORECASE)
_MOST_FILES = 10_000
"""Of a folder, no more are looked at."""
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_NO_NAME = {
    *("mmproj", "gguf", "model", "vision", "f", "bf", "q", "k", "m", "s", "l", "xl", "iq", "ud", "it", "instruct"),
    *("16", "32", "8", "4", "5", "6", "0", "1"),
}
"""Words that say nothing about which model a file belongs to."""
_FOR: dict[str, tuple[str, ...]] = {
    "gemma3": ("gemma3",),
    "gemma3nv": ("gemma3n",),
    "gemma4v": ("gemma4",),
    "gemma4uv": ("gemma4",),
    "qwen2vl_merger": ("qwen2vl",),
    "qwen2.5vl_merger": ("qwen2vl", "qwen25vl"),
    "qwen3vl_merger": ("qwen3",),
    "llama4": ("llama4",),
    "glm4v": ("glm4",),
    "cogvlm": ("cogvlm",),
    "lfm2": ("lfm2",),
}
"""How the architectures of their models begin, for kinds of projectors that are for one family alone."""
_LONGEST_KIND = 100
_FLOAT = 4
_DYNAMIC = ("_merger", "ling3vl", "gemma4v", "glm4v", "glm5v", "mimovl")
"""How the names of kinds end where an image's size decides how many patches it has: up to 16,384, which a photo has, or
10,080 (gemma4v). Qwen's are mergers.
"""
_DYNAMIC_PATCHES = 8464
"""What is counted for them: the more patches, the less each of them takes (`benchmarks/notes/images.md`)."""
_ROWS_AT_ONCE = 8
"""Rows as long as an embedding that are in memory for each patch, besides the two of the feed-forward part."""


def find_projector(target: GgufHeader) -> GgufHeader | None:
    """The projector for ``target`` in its folder; ``None`` if there is none. Reads headers of files on the disk."""
    candidates: list[GgufHeader] = []
    for path in _named(target.path.parent):
        try:
            header = read_header(path)
        except ModelFileError:
            continue
        if fits(target, header):
            candidates.append(header)
    return max(candidates, key=lambda one: _rank(target, one), default=None)


def fits(target: ModelFacts, projector: GgufHeader) -> bool:
    """Whether ``target`` can see with it: its embeddings are as long, and it is not for another family."""
    if not projector.is_projector or projector.projection != target.width:
        return False
    families = _FOR.get(_kind(projector))
    return families is None or target.architecture.startswith(families)


def projector_bytes(projector: GgufHeader) -> int:
    """What it takes in memory: its weights, and buffers for one image."""

    def of(key: str) -> int:
        value = projector.metadata.get(f"clip.vision.{key}")
        return value if isinstance(value, int) else 0

    patch = max(of("patch_size"), 1)
    patches = max((of("image_size") // patch) ** 2, _DYNAMIC_PATCHES if _kind(projector).endswith(_DYNAMIC) else 0)
    row = _ROWS_AT_ONCE * of("embedding_length") + 2 * of("feed_forward_length")
    return projector.tensor_bytes + patches * row * _FLOAT


def _kind(projector: GgufHeader) -> str:
    own = text_of(projector.metadata, "clip.vision.projector_type", _LONGEST_KIND)
    return own or text_of(projector.metadata, "clip.projector_type", _LONGEST_KIND)


def _named(folder: Path) -> Iterable[Path]:
    """Files in ``folder`` with the name of a projector."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_FILES), strict=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name.lower().endswith(".gguf") and _NAMED.search(name)]


def _rank(target: GgufHeader, projector: GgufHeader) -> tuple[int, bool, int]:
    """The words that its name shares with the target's; F16 is usual; otherwise the smallest."""
    words = _words(projector.path)
    shared = len(words & _words(target.path)) - len(words - _words(target.path))
    return shared, projector.quantization in ("F16", "BF16"), -projector.file_size


def _words(path: Path) -> set[str]:
    return set(_WORD.findall(path.stem.lower())) - _NO_NAME
