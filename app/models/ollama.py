"""Ollama's files: blobs named by their checksums, and manifests that say which blob is which model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

_MAX_MANIFEST_BYTES = 1_000_000
_MOST_MANIFESTS = 2000
_MODEL = "application/vnd.ollama.image.model"
_REGISTRY = "registry.ollama.ai"
_LIBRARY = "library"
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")


def name_of_blob(blob: Path) -> str:
    """Ollama's name for one of its blobs; empty for all other files."""
    digest = _DIGEST.fullmatch(blob.name)
    if digest is None or blob.parent.name != "blobs":
        return ""
    top = blob.parent.parent / "manifests"
    files = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)
    manifest = models_of(islice(files, _MOST_MANIFESTS)).get(digest[1])
    return manifest_name(manifest.relative_to(top)) if manifest else ""


def models_of(manifests: Iterable[Path]) -> dict[str, Path]:
    """By the SHA-256 of each model, the manifest that names it; one file often has several names, and the most
    informative one counts.
    """
    found: dict[str, Path] = {}
    for manifest in sorted(manifests, key=lambda path: (path.name == "latest", str(path))):
        for digest in _digests(manifest):
            found.setdefault(digest, manifest)
    return found


def manifest_name(manifest: Path) -> str:
    """``llama3.1:8b`` for ``registry.ollama.ai/library/llama3.1/8b``: defaults are left out, as in Ollama."""
    *places, model, tag = manifest.parts if len(manifest.parts) > 1 else ("", *manifest.parts)
    if places[:1] == [_REGISTRY]:
        del places[0]
        if places == [_LIBRARY]:
            del places[0]
    return f"{'/'.join([*places, model])}:{tag}"


def _digests(manifest: Path) -> list[str]:
    """Of the model layers; empty if it isn't a manifest."""
    try:
        with manifest.open("rb") as file:
            content: Any = json.loads(file.read(_MAX_MANIFEST_BYTES))
        layers = [layer for layer in content["layers"] if layer["mediaType"] == _MODEL]
        matches = [_DIGEST.fullmatch(layer["digest"]) for layer in layers]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []
    return [match[1] for match in matches if match]
