"""The models on this machine: in our own folder, in folders the user added, and in those of other apps.

Headers are read once and indexed, so that later scans are fast and entries survive while a folder is unavailable. Only
our own folder is ever written to.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from app import system
from app.models.gguf import (
    PART_NAME,
    ModelFileError,
    check_loadable,
    is_part_of_model,
    join,
    piece_of,
    problem_of,
    read_header,
)
from app.models.heads import head_title, pays_off
from app.models.library.folders import FolderKind, FoundFile, ModelFolder, extra_folder, walk
from app.models.library.index import FILE_NAME as INDEX_NAME
from app.models.library.index import READER, LibraryIndex, ModelSummary, Record, Stamp, summary_of
from app.models.names import model_name, ollama_title, stem_of
from app.models.origins import Origin, origins_file
from app.models.pairing import Difference
from app.storage.files import Progress, sha256_of
from app.storage.json_file import KeyedFile
from app.system import Canceled, KnownError
from app.words import printable

SortKey = Literal["name", "size", "last used", "quantization", "context"]


@dataclass(frozen=True, kw_only=True)
class LibraryEntry:
    """A model, in one file or several. Sizes in bytes; times in seconds since 1970."""

    path: Path
    """The path of the first part, which llama.cpp opens."""
    parts: tuple[Path, ...]
    """All existing parts, including the first."""
    folder: ModelFolder
    title: str
    """The name people use."""
    file_title: str
    """The file's name without common extensions, which tells the quantization; for Ollama, its own name."""
    size: int
    """Size of all parts in bytes."""
    modified: float
    available: bool = True
    """``False`` while its folder is unavailable."""
    summary: ModelSummary | None = field(default=None, repr=False)
    """``None`` if even the header can't be read."""
    problem: str = ""
    """Why it can't be loaded, in a sentence."""
    sha256: tuple[str, ...] = ()
    """The checksum of each part; empty if the file's location doesn't contain it."""
    origin: Origin | None = None
    last_used: float | None = None

    @property
    def usable(self) -> bool:
        """Whether it can be loaded."""
        return self.available and not self.problem

    @property
    def in_pieces(self) -> bool:
        """Whether its files must be joined before it can be used."""
        return piece_of(self.path.name) is not None

    @property
    def is_head(self) -> bool:
        """Whether it is only the head of a model: it can draft for that model, but not be loaded by itself."""
        return self.summary is not None and self.summary.head == "alone"

    @property
    def head_title(self) -> str:
        """What to call the head in it."""
        return head_title(self.summary.architecture) if self.summary else ""

    @property
    def drafts_itself(self) -> bool:
        """Whether it contains an MTP head that is expected to save time."""
        found = self.summary
        return found is not None and found.head == "inside" and found.head_problem is None and pays_off(found)

    @property
    def read_only(self) -> bool:
        """Whether it is in a folder that isn't ours."""
        return self.folder.read_only

    @property
    def license(self) -> str:
        """The license of its repository or file; empty if unspecified."""
        return (self.origin.license if self.origin else "") or (self.summary.license if self.summary else "")

    @property
    def where(self) -> str:
        """Its path within the searched folder: ``owner/repository/file``."""
        if self.folder.kind is FolderKind.OLLAMA or not self.path.is_relative_to(self.folder.path):
            return self.file_title
        return (self.path.relative_to(self.folder.path).parent / self.file_title).as_posix()

    @property
    def words(self) -> str:
        """The text to search in, without case."""
        found = self.summary
        facts = (found.name, found.architecture, found.quantization) if found else ()
        return "\n".join((self.title, self.where, self.folder.kind.label, *facts)).casefold()


def entry_of(
    record: Record, origin: Origin | None = None, *, available: bool = True, last_used: float | None = None
) -> LibraryEntry:
    """The entry for a model's record."""
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
        return ollama_title(record.title)
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
    """The entries with all ``words`` in name, folders, architecture, quantization or location."""
    wanted = words.casefold().split()
    return [entry for entry in entries if all(word in entry.words for word in wanted)]


def in_order(entries: Iterable[LibraryEntry], key: SortKey) -> list[LibraryEntry]:
    """Sorted A to Z by name and quantization, otherwise largest or latest first; unusable entries last."""
    by_name = sorted(entries, key=_KEYS["name"])
    return sorted(sorted(by_name, key=_KEYS[key]), key=lambda entry: not entry.usable)


class Library:
    """Finds, checks and deletes models. Safe from several threads; only checks run concurrently."""

    def __init__(self, models_folder: Path, extra_folders: Iterable[Path], data_folder: Path) -> None:
        """The index is stored in ``data_folder``."""
        self.notices: list[str] = []
        """Messages for the user about the last scan, one sentence each."""
        self.origins = origins_file(data_folder)
        self.used = KeyedFile(data_folder / "usage.json", int, inside="used", most=2000)
        """When each model was last used, in seconds since 1970, by its path."""
        self._own = models_folder.expanduser().absolute()
        self._extra = [path.expanduser().absolute() for path in extra_folders]
        self._index = LibraryIndex(data_folder / INDEX_NAME)
        self._lock = threading.Lock()

    def folders(self) -> list[ModelFolder]:
        """Ours first; a file in several of them is listed once. Reads the disk, which may take time."""
        return [ModelFolder(self._own, FolderKind.OWN), *map(extra_folder, self._extra)]

    @property
    def differences(self) -> MutableMapping[tuple[str, str], Difference | None]:
        """Earlier comparisons of vocabularies, by fingerprints; for `app.models.ranking`."""
        return self._index.differences

    def save(self) -> None:
        """Write the index; `scan`, `delete` and `forget` do that themselves."""
        with self._lock:
            self._index.save()

    def scan(self, is_canceled: Callable[[], bool] = lambda: False) -> list[LibraryEntry]:
        """All models, by title. Raises `Canceled` if told to stop; headers read by then are kept."""
        with self._lock:
            origins = {Path(path): origin for path, origin in self.origins.all().items()}  # on Windows, c: is C:
            scan = _Scan(self._index, origins, self.used.all(), is_canceled)
            try:
                entries = scan.entries(self.folders())
            finally:
                self._index.save()
            self.notices = scan.notices
            if self.origins.problem:
                self.notices.append(
                    f"Slipstream currently doesn't know where models were downloaded from: {self.origins.problem}."
                )
            return sorted(entries, key=lambda entry: entry.title.casefold())

    def entry_at(self, path: Path) -> LibraryEntry:
        """A model anywhere on the disk, as an entry. Raises `ModelFileError` if it doesn't exist."""
        path = path.absolute()
        group = [FoundFile(path)]
        if (name := PART_NAME.match(path.name)) and int(name["number"]) == 1:
            numbers = range(2, int(name["count"]) + 1)
            others = (path.with_name(f"{name['stem']}-{part:05d}-of-{name['count']}.gguf") for part in numbers)
            # Path.is_file raises an error for a link to an inaccessible place.
            group += [FoundFile(other) for other in others if os.path.isfile(other)]  # noqa: PTH113
        try:
            stamps = _stamps_of(group)
        except (OSError, ValueError):
            read_header(path)  # raises an error that says what is wrong
            raise
        record = self._index.records.get(str(path))
        if record is None or record.stamps != stamps:
            folders = [one for one in self.folders() if path.is_relative_to(one.path)]
            record = _read_record(folders[0] if folders else extra_folder(path.parent), group, stamps)
        return entry_of(record, self.origins.get(path), last_used=self.used.get(str(path)))

    def note_use(self, files: Iterable[str | Path]) -> None:
        """Record that these are in use; called when a pair has been loaded."""
        self.used.put_all(dict.fromkeys(map(str, files), int(time.time())))

    def check_deletable(self, entry: LibraryEntry) -> None:
        """Raise `KnownError` for a model that isn't in our own folder, or isn't available now."""
        if not entry.available:
            raise KnownError(
                f"{printable(entry.file_title)} is in a folder that isn't available right now, so it can't be deleted."
            )
        if entry.read_only:
            raise KnownError(
                f"{printable(entry.file_title)} is in a folder that doesn't belong to Slipstream "
                f"({entry.folder.kind.label}), so Slipstream won't delete it. Delete it there yourself."
            )
        top = entry.folder.path.resolve()
        if not all(part.parent.resolve().is_relative_to(top) for part in entry.parts):
            raise KnownError(
                f"{printable(entry.file_title)} is outside the models folder, which only links to it. Delete it there."
            )

    def would_free(self, entry: LibraryEntry) -> int:
        """Bytes that deleting ``entry`` would free: files with other hard links or outside the folder free none."""
        return sum(map(_freed_by, entry.parts))

    def delete(self, entry: LibraryEntry) -> int:
        """Delete all its files, and folders that become empty; returns the bytes freed.

        Raises `KnownError` for a model outside our own folder, and if the system refuses.
        """
        with self._lock:
            self.check_deletable(entry)
            freed = 0
            for part in reversed(entry.parts):
                size = _freed_by(part)
                try:
                    part.unlink(missing_ok=True)
                except OSError as error:
                    raise KnownError(
                        f"{printable(part.name)} couldn't be deleted: {error.strerror or error}. If a model is "
                        "loaded from it, open another one first."
                    ) from error
                self.origins.remove(part)
                freed += size
            self._index.records.pop(str(entry.path), None)
            self._index.save()
            _remove_emptied(entry.path.parent, entry.folder.path.resolve())
            return freed

    def join(self, entry: LibraryEntry, progress: Callable[[int, int], None], is_canceled: Callable[[], bool]) -> Path:
        """Join the pieces of a model in our own folder. Raises `KnownError` and `Canceled`, as `verify` does."""
        self.check_deletable(entry)
        return join(entry.parts, progress, is_canceled)

    def verify(
        self,
        entry: LibraryEntry,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
        is_canceled: Callable[[], bool] = lambda: False,
    ) -> bool | None:
        """Whether the SHA-256 of all files is correct; ``None`` unless it is known for all of them.

        ``progress`` gets the bytes done, and the total. Raises `KnownError` for an unreadable file, and `Canceled`.
        """
        known = {part: digest for part, digest in zip(entry.parts, entry.sha256, strict=False) if digest}
        for part in entry.parts:
            if origin := self.origins.get(part):
                known[part] = origin.sha256
        try:
            told = Progress(sum(part.stat().st_size for part in known), progress)
            if any(sha256_of(part, is_canceled, told) != digest for part, digest in known.items()):
                return False
        except OSError as error:
            reason = error.strerror or error
            raise KnownError(f"The files of {printable(entry.file_title)} can't be read: {reason}.") from error
        return True if len(known) == len(entry.parts) else None

    def forget(self, entry: LibraryEntry) -> None:
        """Stop listing an entry whose folder is unavailable; it comes back with its folder."""
        with self._lock:
            self._index.records.pop(str(entry.path), None)
            self._index.save()


def open_library(models_folder: str, extra_folders: Iterable[str]) -> Library:
    """The library in its usual place; the arguments are the settings of these names."""
    return Library(own_folder(models_folder), map(Path, extra_folders), system.data_dir())


def own_folder(models_folder: str) -> Path:
    """Where downloaded models are stored; the argument is the setting of this name."""
    return Path(models_folder).expanduser().absolute() if models_folder else system.models_dir()


@dataclass(eq=False)
class _Scan:
    """One scan of folders: unchanged files come from the index, other headers are read."""

    index: LibraryIndex
    origins: Mapping[Path, Origin]
    used: Mapping[str, float]
    """When models were used, by path."""
    is_canceled: Callable[[], bool]
    notices: list[str] = field(default_factory=list)
    """Messages for the user, one sentence each."""
    _seen: set[tuple[int, int]] = field(default_factory=set)
    _records: dict[str, Record] = field(default_factory=dict)

    def entries(self, folders: Iterable[ModelFolder]) -> list[LibraryEntry]:
        """All models in ``folders``, which the index contains exactly afterwards. Raises `Canceled`."""
        entries = [entry for folder in folders for entry in self._in_folder(folder)]
        self.index.records = self._records
        return entries

    def _in_folder(self, folder: ModelFolder) -> list[LibraryEntry]:
        found = walk(folder, self.is_canceled)
        if not found.is_complete:
            self.notices.append(
                f"{printable(str(folder.path), 200)} contains too many files to look through, so not all are listed."
            )
        records = [record for group in _models(found.files) if (record := self._record(folder, group)) is not None]
        entries = [self._listed(record) for record in records if not record.hidden]
        for record in self._missing(folder, found.unreadable):
            self._records[record.path] = record
            if not record.hidden:
                entries.append(self._listed(record, available=False))
        return entries

    def _listed(self, record: Record, available: bool = True) -> LibraryEntry:
        origin, used = self.origins.get(Path(record.path)), self.used.get(record.path)
        return entry_of(record, origin, available=available, last_used=used)

    def _missing(self, folder: ModelFolder, unreadable: Sequence[Path]) -> list[Record]:
        """Records from places that are unavailable now."""
        return [
            record
            for record in self.index.records.values()
            if record.folder == str(folder.path)
            and record.path not in self._records
            and any(Path(record.path).is_relative_to(place) for place in unreadable)
        ]

    def _record(self, folder: ModelFolder, group: list[FoundFile]) -> Record | None:
        """The record of a model; ``None`` for a file that is already listed or gone."""
        if self.is_canceled():
            raise Canceled
        try:
            if self._was_seen(group[0].path):
                return None
            stamps = _stamps_of(group)
        except OSError:
            return None
        path = str(group[0].path)
        known = self.index.records.get(path)
        if known is None or not _is_valid(known, folder, group, stamps):
            known = _read_record(folder, group, stamps)
            if known.summary is None or not _is_unchanged(group, stamps) or not _is_text(path):
                return known  # only for now: next time it may be readable, complete, or renamed
            self.index.records[path] = known
        self._records[path] = known
        return known

    def _was_seen(self, path: Path) -> bool:
        status = path.stat()
        identity = status.st_dev, status.st_ino
        if identity in self._seen:
            return True
        if status.st_ino:  # some network drives have no file numbers
            self._seen.add(identity)
        return False


def _read_record(folder: ModelFolder, group: Sequence[FoundFile], stamps: tuple[Stamp, ...]) -> Record:
    """Read the header of a model with the files ``group``."""
    first = group[0]
    title = _title(first)
    summary, problem, hidden = None, "", False
    try:
        if piece_of(first.path.name) is not None:
            raise KnownError(problem_of([file.path for file in group]))
        header = read_header(first.path)
        summary = summary_of(header)
        hidden = is_part_of_model(header.architecture, header.general_type)
        check_loadable(header)
    except ModelFileError as error:
        problem = f"{printable(title)} {error.problem}" if first.title and error.path == first.path else str(error)
    except KnownError as error:
        problem = str(error)
    if not _is_text(str(first.path)):
        problem = f"The name or folder of {printable(first.path.name)} is not valid text. Rename it."
    return Record(
        path=str(first.path),
        folder=str(folder.path),
        kind=folder.kind,
        title=title,
        stamps=stamps,
        sha256=tuple(file.sha256 for file in group),
        hidden=hidden,
        summary=summary,
        problem=problem,
    )


def _models(files: Iterable[FoundFile]) -> list[list[FoundFile]]:
    """The files of each model, its first part first. ``files`` are sorted, so that parts are in order."""
    models: dict[object, list[FoundFile]] = {}
    for file in files:
        name = PART_NAME.match(file.path.name)
        key: object = (file.path.parent, name["stem"], name["count"]) if name and not file.title else file.path
        if piece := piece_of(file.path.name):
            key = file.path.parent, piece.whole
        models.setdefault(key, []).append(file)
    return [sorted(group, key=lambda file: (piece_of(file.path.name) or (0, 0))[1]) for group in models.values()]


def _title(file: FoundFile) -> str:
    piece = piece_of(file.path.name)
    return file.title or stem_of(piece.whole if piece else file.path.name) or file.path.stem


def _stamps_of(group: Iterable[FoundFile]) -> tuple[Stamp, ...]:
    """Stamps to recognize these files later. Raises `OSError`."""
    stats = ((file.path, file.path.stat()) for file in group)
    return tuple(Stamp(str(path), status.st_size, status.st_mtime_ns) for path, status in stats)


def _is_unchanged(group: Iterable[FoundFile], stamps: tuple[Stamp, ...]) -> bool:
    try:
        return _stamps_of(group) == stamps
    except OSError:
        return False


def _is_valid(known: Record, folder: ModelFolder, group: Sequence[FoundFile], stamps: tuple[Stamp, ...]) -> bool:
    digests = tuple(file.sha256 for file in group)
    said = (READER, stamps, str(folder.path), folder.kind, _title(group[0]), digests)
    return said == (known.reader, known.stamps, known.folder, known.kind, known.title, known.sha256)


def _is_text(path: str) -> bool:
    """Whether a file name is valid text; others can be opened, but neither stored nor sent to the engine."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _freed_by(file: Path) -> int:
    try:
        status = file.lstat()
    except OSError:
        return 0
    return status.st_size if file.is_file() and not file.is_symlink() and status.st_nlink <= 1 else 0


def _remove_emptied(folder: Path, top: Path) -> None:
    """Remove ``folder`` and its parents below ``top`` while they are empty."""
    with contextlib.suppress(OSError):
        while folder.resolve() != top and folder.resolve().is_relative_to(top):
            os.rmdir(folder)  # noqa: PTH106 - never anything that is not empty
            folder = folder.parent
