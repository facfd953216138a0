"""Folders with models: our own, those the user adds, and those of other apps, which are offered if they exist.

Only our own folder is ever written to.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from app.models.starter import starter_file

_MAX_SETTINGS_BYTES = 1_000_000


class FolderKind(Enum):
    """Whose folder it is, which determines its layout."""

    OWN = "own"
    EXTRA = "extra"
    LM_STUDIO = "lm-studio"
    HUGGING_FACE = "hugging-face"
    OLLAMA = "ollama"
    STARTER = "starter"

    @property
    def label(self) -> str:
        """For display."""
        return _LABELS[self]


_LABELS = {
    FolderKind.OWN: "models folder",
    FolderKind.EXTRA: "extra folder",
    FolderKind.LM_STUDIO: "LM Studio",
    FolderKind.HUGGING_FACE: "Hugging Face cache",
    FolderKind.OLLAMA: "Ollama",
    FolderKind.STARTER: "starter model",
}


@dataclass(frozen=True)
class ModelFolder:
    """A folder that is searched for models. It need not exist now."""

    path: Path
    kind: FolderKind

    @property
    def read_only(self) -> bool:
        """Whether nothing may be written or deleted in it."""
        return self.kind is not FolderKind.OWN


def extra_folder(path: Path) -> ModelFolder:
    """A folder the user added; its kind is recognized by its content or its location."""
    if (starter := starter_file()) is not None and path == starter.parent:
        return ModelFolder(path, FolderKind.STARTER)
    if _is_folder(path / "manifests") and _is_folder(path / "blobs"):
        return ModelFolder(path, FolderKind.OLLAMA)
    if _is_hugging_face_cache(path):
        return ModelFolder(path, FolderKind.HUGGING_FACE)
    if path.name == "models" and path.parent.name in (".lmstudio", "lm-studio"):
        return ModelFolder(path, FolderKind.LM_STUDIO)
    return ModelFolder(path, FolderKind.EXTRA)


def found_folders(environment: Mapping[str, str] | None = None, home: Path | None = None) -> list[ModelFolder]:
    """The model folders of other apps on this machine: LM Studio's, Hugging Face's and Ollama's."""
    environment = os.environ if environment is None else environment
    home = Path.home() if home is None else home
    candidates = [
        *(ModelFolder(path, FolderKind.LM_STUDIO) for path in _lm_studio(home)),
        ModelFolder(_hugging_face(environment, home), FolderKind.HUGGING_FACE),
        *(ModelFolder(path, FolderKind.OLLAMA) for path in _ollama(environment, home)),
    ]
    found: dict[Path, ModelFolder] = {}
    for folder in candidates:
        if _is_folder(folder.path):
            found.setdefault(folder.path.resolve(), folder)
    return list(found.values())


def _lm_studio(home: Path) -> Iterator[Path]:
    """Its home folder may be elsewhere, which a file says, and its models elsewhere again, which its settings say."""
    homes = [home / ".lmstudio", home / ".cache" / "lm-studio"]
    pointer = _text(home / ".lmstudio-home-pointer").strip()
    if pointer:
        homes.insert(0, Path(pointer))
    for folder in homes:
        try:
            chosen = json.loads(_text(folder / "settings.json") or "{}").get("downloadsFolder")
        except (ValueError, AttributeError, RecursionError):
            chosen = None
        if isinstance(chosen, str) and chosen:
            yield Path(chosen)
        yield folder / "models"


def _hugging_face(environment: Mapping[str, str], home: Path) -> Path:
    """By the rules of ``huggingface_hub.constants``."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return _expanded(environment[name], home)
    if environment.get("HF_HOME"):
        return _expanded(environment["HF_HOME"], home) / "hub"
    cache = environment.get("XDG_CACHE_HOME")
    return (_expanded(cache, home) if cache else home / ".cache") / "huggingface" / "hub"


def _ollama(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    if environment.get("OLLAMA_MODELS"):
        yield _expanded(environment["OLLAMA_MODELS"], home)
    yield home / ".ollama" / "models"
    if sys.platform == "linux":
        yield Path("/usr/share/ollama/.ollama/models")  # where its service stores them


def _expanded(text: str, home: Path) -> Path:
    if text == "~" or text.startswith(("~/", "~\\")):
        return home / text[2:]
    return Path(text)


def _is_hugging_face_cache(path: Path) -> bool:
    try:
        return any(child.name.startswith("models--") and (child / "snapshots").is_dir() for child in path.iterdir())
    except OSError:
        return False


def _is_folder(path: Path) -> bool:
    """A path from another app's settings may be anything."""
    try:
        return path.is_absolute() and path.is_dir() and os.access(path, os.R_OK | os.X_OK)
    except (OSError, ValueError):
        return False


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SETTINGS_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
