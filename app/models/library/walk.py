"""Finds the model files in a folder without trusting the folder: with limits, no loops, whatever its permissions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import Canceled
from app.models.library.folders import FolderKind, ModelFolder
from app.models.names import manifest_name, models_of
from app.models.pieces import piece_of
from app.models.text import is_sha256

MAX_DEPTH = 8
MAX_FILES = 10_000
"""The most model files in one folder."""
MAX_ENTRIES = 200_000
"""The maximum number of files and folders that are examined in one folder."""


@dataclass(frozen=True)
class FoundFile:
    """A file that may be a model, or a part of one."""

    path: Path
    title: str = ""
    """The other app's name for it; empty where the file's own name is used."""
    sha256: str = ""
    """The checksum where the file's location gives it: the app that put it there has verified it."""


@dataclass
class Walk:
    """What was found in a folder."""

    files: list[FoundFile] = field(default_factory=list)
    unreadable: list[Path] = field(default_factory=list)
    """Folders that couldn't be opened and broken links."""
    is_complete: bool = True
    """False if there was more than the limits allow."""


def walk(folder: ModelFolder, is_canceled: Callable[[], bool] = lambda: False) -> Walk:
    """Look through ``folder``. Raises `Canceled` if told to stop."""
    walker = _Walker(is_canceled)
    if folder.kind is FolderKind.OLLAMA:
        walker.look_for_manifests(folder.path)
    elif folder.kind is FolderKind.HUGGING_FACE:
        for repository in walker.entries(folder.path):
            if repository.name.startswith("models--"):
                walker.look(Path(repository.path) / "snapshots", _hugging_face_file)
    else:
        walker.look(folder.path, lambda entry: FoundFile(Path(entry.path)))
    if not walker.entries_seen:  # an empty folder may be the mount point of a drive that isn't there now
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
        """Add the models that Ollama's manifests name."""
        self.look(top / "manifests", lambda entry: FoundFile(Path(entry.path)), suffix="")
        manifests = [file.path for file in self.found.files]
        self.found.files = []
        for digest, manifest in models_of(manifests).items():
            blobs = top / "blobs" / f"sha256-{digest}", top / "blobs" / f"sha256:{digest}"  # today, in early versions
            blob = next(filter(os.path.isfile, blobs), None)  # Path's raises an error without permission
            if blob is not None:
                self._add(FoundFile(blob, manifest_name(manifest.relative_to(top / "manifests")), digest))

    def entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        """The content of ``folder``, unless it was seen before; names that begin with a dot are left out."""
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
    """A link into ``blobs``, where files are named by their hash; a copy if there are no links."""
    try:
        blob = Path(os.readlink(entry.path)).name if entry.is_symlink() else ""  # noqa: PTH115 - the same
    except OSError:
        blob = ""
    return FoundFile(Path(entry.path), sha256=blob if is_sha256(blob) else "")
