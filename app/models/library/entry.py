"""One model of the library, as it is listed, searched and sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from app.models.library.folders import FolderKind, ModelFolder
from app.models.library.index import ModelSummary, Record
from app.models.mtp import pays_off
from app.models.names import model_name, shown_ollama
from app.models.origins import Origin
from app.models.pieces import piece_of

SortKey = Literal["name", "size", "last used", "quantization", "context"]


@dataclass(frozen=True, kw_only=True)
class LibraryEntry:
    """One model, in one file or several. Bytes; seconds since 1970."""

    path: Path
    """The path of the first part, which is the one llama.cpp opens."""
    parts: tuple[Path, ...]
    """All parts that exist, including the first."""
    folder: ModelFolder
    title: str
    """What people call it."""
    file_title: str
    """The file's name without the common extensions, which says the quantization; for Ollama, its own name."""
    size: int
    """Bytes of all parts."""
    modified: float
    available: bool = True
    """False while its folder is not available."""
    summary: ModelSummary | None = field(default=None, repr=False)
    """``None`` if even the header can't be read."""
    problem: str = ""
    """Why it can't be loaded, a sentence."""
    sha256: tuple[str, ...] = ()
    """The checksum of each part; empty texts if the file's location doesn't contain it."""
    origin: Origin | None = None
    last_used: float | None = None

    @property
    def usable(self) -> bool:
        """Whether it can be loaded."""
        return self.available and not self.problem

    @property
    def in_pieces(self) -> bool:
        """Whether its files must be joined to one before it can be used."""
        return piece_of(self.path.name) is not None

    @property
    def is_head(self) -> bool:
        """Whether it has only the MTP head of a model: it can draft for that one, and can't be loaded by itself."""
        return self.summary is not None and self.summary.mtp_head == "alone"

    @property
    def drafts_itself(self) -> bool:
        """Whether it has an MTP head inside that is expected to save time."""
        found = self.summary
        return found is not None and found.mtp_head == "inside" and found.head_problem is None and pays_off(found)

    @property
    def read_only(self) -> bool:
        """Whether it is in a folder that is not ours."""
        return self.folder.read_only

    @property
    def license(self) -> str:
        """From its repository or the file; empty if neither specifies it."""
        return (self.origin.license if self.origin else "") or (self.summary.license if self.summary else "")

    @property
    def where(self) -> str:
        """Its folders inside the folder that was searched, with its file: ``owner/repository/file``."""
        if self.folder.kind is FolderKind.OLLAMA or not self.path.is_relative_to(self.folder.path):
            return self.file_title
        return (self.path.relative_to(self.folder.path).parent / self.file_title).as_posix()

    @property
    def words(self) -> str:
        """What it is found by, without case."""
        found = self.summary
        facts = (found.name, found.architecture, found.quantization) if found else ()
        return "\n".join((self.title, self.where, self.folder.kind.label, *facts)).casefold()


def entry_of(
    record: Record, origin: Origin | None = None, *, available: bool = True, last_used: float | None = None
) -> LibraryEntry:
    """The entry for what is known about a model."""
    return LibraryEntry(
        path=Path(record.path),
        parts=tuple(Path(stamp.path) for stamp in record.stamps),
        folder=ModelFolder(Path(record.folder), record.kind),
        title=_name(record, origin),
        file_title=record.title,
        size=sum(stamp.size for stamp in record.stamps),
        modified=max((stamp.modified_ns for stamp in record.stamps), default=0) / 1e9,
        available=available,
        summary=record.summary,
        problem=record.problem,
        sha256=record.sha256,
        origin=origin,
        last_used=last_used,
    )


def _name(record: Record, origin: Origin | None) -> str:
    if record.kind is FolderKind.OLLAMA:
        return shown_ollama(record.title)
    inner = record.summary.name if record.summary else ""
    return model_name(Path(record.path).with_name(record.title), inner, origin.repository if origin else "")


_KEYS: dict[SortKey, Callable[[LibraryEntry], Any]] = {
    "name": lambda entry: entry.title.casefold(),
    "size": lambda entry: -entry.size,
    "last used": lambda entry: -(entry.last_used or 0),
    "quantization": lambda entry: entry.summary.quantization if entry.summary else "~",
    "context": lambda entry: -(entry.summary.training_context if entry.summary else 0),
}


def matching(entries: Iterable[LibraryEntry], words: str) -> list[LibraryEntry]:
    """Those that have all ``words`` in their names, folders, architecture, quantization or location."""
    wanted = words.casefold().split()
    return [entry for entry in entries if all(word in entry.words for word in wanted)]


def in_order(entries: Iterable[LibraryEntry], key: SortKey) -> list[LibraryEntry]:
    """Sorted A to Z for name and quantization, otherwise largest or latest first; unusable entries come last."""
    by_name = sorted(entries, key=_KEYS["name"])
    return sorted(sorted(by_name, key=_KEYS[key]), key=lambda entry: not entry.usable)
