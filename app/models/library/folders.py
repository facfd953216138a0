"""Folders with models, and finding the models in them. The folders are untrusted.

Only our own folder is ever written to.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from app.models.gguf import piece_of
from app.models.names import manifest_name, models_of
from app.models.starter import starter_file
from app.storage.files import is_sha256
from app.system import Canceled

_MAX_SETTINGS_BYTES = 1_000_000


class FolderKind(Enum):
    """The owner of a folder, which determines its layout."""

    OWN = "own"
    EXTRA = "extra"
    LM_STUDIO = "lm-studio"
    HUGGING_FACE = "hugging-face"
    OLLAMA = "ollama"
    STARTER = "starter"

    @property
    def label(self) -> str:
        """The name on screen."""
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
    """A folder to search for models. It need not exist now."""

    path: Path
    kind: FolderKind

    @property
    def read_only(self) -> bool:
        """Whether nothing may be written or deleted in it."""
        return self.kind is not FolderKind.OWN


def extra_folder(path: Path) -> ModelFolder:
    """A folder added by the user; its kind is recognized by its content or location."""
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
    """Other apps' model folders on this machine: LM Studio's, Hugging Face's and Ollama's."""
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
    """LM Studio's models: a file may name another home folder, and the settings there another models folder."""
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
    """Hugging Face's caches, by the rules of ``huggingface_hub.constants``."""
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
        yield Path("/usr/share/ollama/.ollama/models")  # the folder of its system service


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
    """Whether it is a folder; a path from another app's settings may be anything."""
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


# Finds the model files in an untrusted folder: with limits, without loops, whatever its permissions.

MAX_DEPTH = 8
MAX_FILES = 10_000
"""The most model files in a folder."""
MAX_ENTRIES = 200_000
"""The most files and folders examined in a folder."""


@dataclass(frozen=True)
class FoundFile:
    """A file that may be a model, or part of one."""

    path: Path
    title: str = ""
    """The other app's name for it; empty to use the file's own name."""
    sha256: str = ""
    """The checksum, if the file's location contains it: the app that put it there has verified it."""


@dataclass
class Walk:
    """The result of searching a folder."""

    files: list[FoundFile] = field(default_factory=list)
    unreadable: list[Path] = field(default_factory=list)
    """Folders that couldn't be opened, and broken links."""
    is_complete: bool = True
    """``False`` if there was more than the limits allow."""


def walk(folder: ModelFolder, is_canceled: Callable[[], bool] = lambda: False) -> Walk:
    """Search ``folder``. Raises `Canceled` if told to stop."""
    walker = _Walker(is_canceled)
    if folder.kind is FolderKind.OLLAMA:
        walker.look_for_manifests(folder.path)
    elif folder.kind is FolderKind.HUGGING_FACE:
        for repository in walker.entries(folder.path):
            if repository.name.startswith("models--"):
                walker.look(Path(repository.path) / "snapshots", _hugging_face_file)
    else:
        walker.look(folder.path, lambda entry: FoundFile(Path(entry.path)))
    if not walker.entries_seen:  # an empty folder may be the mount point of a missing drive
        walker.found.unreadable.append(folder.path)
    walker.found.files.sort(key=lambda file: str(file.path))
    return walker.found


@dataclass
class _Walker:
    is_canceled: Callable[[], bool]
    found: Walk = field(default_factory=Walk)
    entries_seen: int = 0
    _folders_seen: set[tuple[int, int]] = field(default_factory=set)

    def look(self, top: Path, make: Callable[[os.DirEntry[str]], FoundFile], suffix: str = ".gguf") -> None:
        """Add what ``make`` returns for the files with ``suffix`` below ``top``."""
        waiting = [(top, 0)]
        while waiting:
            folder, depth = waiting.pop()
            for entry in self.entries(folder):
                try:
                    if entry.is_dir():
                        if depth < MAX_DEPTH:
                            waiting.append((Path(entry.path), depth + 1))
                    elif entry.is_file():
                        if entry.name.lower().endswith(suffix) or piece_of(entry.name) is not None:
                            self._add(make(entry))
                    elif entry.is_symlink():  # a broken link
                        self.found.unreadable.append(Path(entry.path))
                except OSError:  # a loop of links, or missing permissions
                    self.found.unreadable.append(Path(entry.path))

    def look_for_manifests(self, top: Path) -> None:
        """Add the models in Ollama's manifests."""
        self.look(top / "manifests", lambda entry: FoundFile(Path(entry.path)), suffix="")
        manifests = [file.path for file in self.found.files]
        self.found.files = []
        for digest, manifest in models_of(manifests).items():
            blobs = (
                top / "blobs" / f"sha256-{digest}",
                top / "blobs" / f"sha256:{digest}",
            )  # the current layout, and that of early versions
            blob = next(filter(os.path.isfile, blobs), None)  # Path's method raises an error without permission
            if blob is not None:
                self._add(FoundFile(blob, manifest_name(manifest.relative_to(top / "manifests")), digest))

    def entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        """The content of ``folder``, unless it was seen before; leaves out names that begin with a dot."""
        if self.is_canceled():
            raise Canceled
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in self._folders_seen:
                return
            self._folders_seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as scanned:
                listed = list(self._bounded(scanned))
        except (OSError, ValueError):
            self.found.unreadable.append(folder)
            return
        yield from (entry for entry in listed if not entry.name.startswith("."))

    def _bounded(self, scanned: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        for entry in scanned:
            self.entries_seen += 1
            if self.entries_seen > MAX_ENTRIES:
                self.found.is_complete = False
                return
            yield entry

    def _add(self, file: FoundFile) -> None:
        if len(self.found.files) < MAX_FILES:
            self.found.files.append(file)
        else:
            self.found.is_complete = False


def _hugging_face_file(entry: os.DirEntry[str]) -> FoundFile:
    """A link into ``blobs``, where files are named by their hash, or a copy on systems without links."""
    try:
        blob = Path(os.readlink(entry.path)).name if entry.is_symlink() else ""  # noqa: PTH115 - the same
    except OSError:
        blob = ""
    return FoundFile(Path(entry.path), sha256=blob if is_sha256(blob) else "")
