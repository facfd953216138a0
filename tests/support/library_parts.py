"""Folders with models, for the tests of the library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.models.gguf import GgufHeader, read_header
from app.models.library import library as library_module
from app.models.library.library import Library, LibraryEntry
from tests.support.gguf_files import make_model


def small_model(path: Path, **options: object) -> Path:
    """A model of 300 KB; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return make_model(path, layers=1, width=32, **options)  # type: ignore[arg-type]


def library(folder: Path, *extra: Path) -> Library:
    """With our own folder ``folder/models`` and its index beside it."""
    return Library(folder / "models", extra, folder)


def titles(entries: list[LibraryEntry]) -> list[str]:
    return [entry.title for entry in entries]


def ollama_manifest(top: Path, name: str, digest: str, media_type: str = "application/vnd.ollama.image.model") -> None:
    """``name`` is the manifest's path: ``registry.ollama.ai/library/llama3.1/8b``."""
    manifest = top / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{'0' * 64}", "size": 1},
        {"mediaType": media_type, "digest": f"sha256:{digest}", "size": 1},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}), encoding="utf-8")


@contextmanager
def headers_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the files whose headers are read."""
    names: list[str] = []

    def read(path: Path) -> GgufHeader:
        names.append(path.name)
        return read_header(path)

    with monkeypatch.context() as patch:
        patch.setattr(library_module, "read_header", read)
        yield names
