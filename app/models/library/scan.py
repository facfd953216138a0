"""One look through the folders of a library: what is unchanged comes from the index, other headers are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import Cancelled
from app.models.architectures import is_part_of_model
from app.models.gguf import ModelFileError, check_loadable, read_header
from app.models.library.entry import LibraryEntry, entry_of
from app.models.library.folders import ModelFolder
from app.models.library.index import READER, LibraryIndex, Record, Stamp, summary_of
from app.models.library.walk import FoundFile, split_name, walk
from app.models.origins import Origin
from app.models.text import printable


@dataclass(eq=False)
class Scan:
    """Looks through folders once."""

    index: LibraryIndex
    origins: Mapping[Path, Origin]
    used: Mapping[str, float]
    """When models were used, by path."""
    is_cancelled: Callable[[], bool]
    notices: list[str] = field(default_factory=list)
    """What the user should know, a sentence each."""
    _seen: set[tuple[int, int]] = field(default_factory=set)
    _records: dict[str, Record] = field(default_factory=dict)

    def entries(self, folders: Iterable[ModelFolder]) -> list[LibraryEntry]:
        """All models in ``folders``; the index holds exactly these afterwards. Raises `Cancelled`."""
        entries = [entry for folder in folders for entry in self._in_folder(folder)]
        self.index.records = self._records
        return entries

    def _in_folder(self, folder: ModelFolder) -> list[LibraryEntry]:
        found = walk(folder, self.is_cancelled)
        if not found.is_complete:
            self.notices.append(
                f"{printable(str(folder.path), 200)} holds more files than are looked through; not all are listed."
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
        """What is known from earlier of places that cannot be looked into now."""
        return [
            record
            for record in self.index.records.values()
            if record.folder == str(folder.path)
            and record.path not in self._records
            and any(Path(record.path).is_relative_to(place) for place in unreadable)
        ]

    def _record(self, folder: ModelFolder, group: list[FoundFile]) -> Record | None:
        """What is known of a model; ``None`` for a file that was listed already or has gone."""
        if self.is_cancelled():
            raise Cancelled
        try:
            if self._was_seen(group[0].path):
                return None
            stamps = stamps_of(group)
        except OSError:
            return None
        path = str(group[0].path)
        known = self.index.records.get(path)
        if known is None or not _is_valid(known, folder, group, stamps):
            known = read_record(folder, group, stamps)
            if known.summary is None or not _is_unchanged(group, stamps) or not _is_text(path):
                return known  # for now: next time it may be readable, complete, or called otherwise
            self.index.records[path] = known
        self._records[path] = known
        return known

    def _was_seen(self, path: Path) -> bool:
        status = path.stat()
        identity = status.st_dev, status.st_ino
        if identity in self._seen:
            return True
        if status.st_ino:  # some network drives number nothing
            self._seen.add(identity)
        return False


def read_record(folder: ModelFolder, group: Sequence[FoundFile], stamps: tuple[Stamp, ...]) -> Record:
    """What the header of a model says, whose files are ``group``."""
    first = group[0]
    title = _title(first)
    summary, problem, hidden = None, "", False
    try:
        header = read_header(first.path)
        summary = summary_of(header)
        hidden = is_part_of_model(header.architecture, header.general_type)
        check_loadable(header)
    except ModelFileError as error:
        problem = f"{printable(title)} {error.problem}" if first.title and error.path == first.path else str(error)
    if not _is_text(str(first.path)):
        problem = f"{printable(first.path.name)} has a name or a folder that is no text. Rename it."
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
        name = split_name(file.path)
        key = (file.path.parent, name[0], name[2]) if name and not file.title else file.path
        models.setdefault(key, []).append(file)
    return list(models.values())


def _title(file: FoundFile) -> str:
    name = split_name(file.path)
    return file.title or (name[0] if name else file.path.stem)


def stamps_of(group: Iterable[FoundFile]) -> tuple[Stamp, ...]:
    """By what these files are recognized later. Raises `OSError`."""
    stats = ((file.path, file.path.stat()) for file in group)
    return tuple(Stamp(str(path), status.st_size, status.st_mtime_ns) for path, status in stats)


def _is_unchanged(group: Iterable[FoundFile], stamps: tuple[Stamp, ...]) -> bool:
    try:
        return stamps_of(group) == stamps
    except OSError:
        return False


def _is_valid(known: Record, folder: ModelFolder, group: Sequence[FoundFile], stamps: tuple[Stamp, ...]) -> bool:
    digests = tuple(file.sha256 for file in group)
    said = (READER, stamps, str(folder.path), folder.kind, _title(group[0]), digests)
    return said == (known.reader, known.stamps, known.folder, known.kind, known.title, known.sha256)


def _is_text(path: str) -> bool:
    """File names of other encodings can be opened, but neither kept nor sent to the engine."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
