"""The files that chats are read from: files, files in folders, and files in archives.

Nothing is unpacked to the disk, no name in an archive is used as a path, and links in a folder aren't followed.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from app.chats.formats.json_stream import Readable
from app.chats.formats.records import LeftOut, UnusableError

MOST_FILES = 100_000
"""In a folder or an archive."""
MOST_BYTES = 4 * 1024**3
"""In all, unpacked."""
MOST_RATIO = 200
"""An archive that is so many times as large when it is unpacked wasn't made from chats."""
_SMALL_BYTES = 64 * 1024**2
"""The ratio only matters above it."""
_LARGEST_SIBLING = 4 * 1024**2
_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may take any amount of memory
_IS_ENCRYPTED = 1
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError)
"""What a broken archive raises, by where it is broken."""


@dataclass(frozen=True)
class Source:
    """One file, open."""

    name: str
    """Without folders."""
    file: Readable
    beside: Callable[[str], bytes]
    """The content of another file in the same folder, by its name; empty if there is none."""


class Sources:
    """Opens files, one after another. ``left_out`` counts what can't be read.

    Attributes:
        total: The size of all files in bytes, as they are on the disk.
    """

    def __init__(self, paths: Sequence[Path], left_out: LeftOut) -> None:
        """Raises `OSError`."""
        self._files = [found for path in paths for found in _files_of(path)]
        self._left_out = left_out
        self._before = 0
        self._current: IO[bytes] | None = None
        self._unpacked = 0
        self.total = sum(path.stat().st_size for path in self._files)

    def read(self) -> int:
        """How many bytes of ``total`` were read."""
        return self._before + (self._current.tell() if self._current is not None else 0)

    def __iter__(self) -> Iterator[Source]:
        """Each is closed when the next one is asked for. Raises `OSError`."""
        for path in self._files:
            with path.open("rb") as file:
                self._current = file
                try:
                    if file.read(4) in _MAGIC:
                        yield from self._in_archive(file)
                    else:
                        file.seek(0)
                        yield Source(path.name, file, partial(_read_beside, path))
                finally:
                    self._current = None
            self._before += path.stat().st_size

    def _in_archive(self, file: IO[bytes]) -> Iterator[Source]:
        try:
            with zipfile.ZipFile(file) as archive:
                entries = [entry for entry in archive.infolist() if not entry.is_dir()]
                if len(entries) > MOST_FILES:
                    self._left_out["too_much"] += len(entries) - MOST_FILES
                by_name = {entry.filename: entry for entry in entries}
                for entry in entries[:MOST_FILES]:
                    yield from self._entry(archive, entry, by_name)
        except _BROKEN:
            self._left_out["unreadable"] += 1

    def _entry(
        self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, by_name: dict[str, zipfile.ZipInfo]
    ) -> Iterator[Source]:
        if not _is_safe(entry.filename):
            self._left_out["unsafe_names"] += 1
        elif entry.flag_bits & _IS_ENCRYPTED:
            self._left_out["encrypted"] += 1
        elif entry.compress_type not in _METHODS:
            self._left_out["unreadable"] += 1
        else:
            name = PurePosixPath(entry.filename)

            def beside(other: str) -> bytes:
                found = by_name.get(str(name.with_name(other)))
                if found is None or found.flag_bits & _IS_ENCRYPTED or found.compress_type not in _METHODS:
                    return b""
                with archive.open(found) as file:
                    return _Unpacked(file, found, self).read(_LARGEST_SIBLING)

            try:
                with archive.open(entry) as file:
                    yield Source(name.name, _Unpacked(file, entry, self), beside)
            except _BROKEN:
                self._left_out["unreadable"] += 1

    def count_unpacked(self, size: int) -> None:
        """Raises `UnusableError` where it becomes too much."""
        self._unpacked += size
        if self._unpacked > MOST_BYTES:
            raise UnusableError("too_much")


class _Unpacked:
    """A file in an archive. Raises `UnusableError` where it is broken, or becomes too large."""

    def __init__(self, file: IO[bytes], entry: zipfile.ZipInfo, owner: Sources) -> None:
        self._file = file
        self._most = max(MOST_RATIO * entry.compress_size, _SMALL_BYTES)
        self._owner = owner
        self._size = 0

    def read(self, size: int, /) -> bytes:
        try:
            data = self._file.read(size)
        except _BROKEN as error:
            raise UnusableError("unreadable") from error
        self._size += len(data)
        if self._size > self._most:
            raise UnusableError("too_much")
        self._owner.count_unpacked(len(data))
        return data


def _files_of(path: Path) -> Iterator[Path]:
    """The file, or those in the folder in the order of their names. Raises `OSError`."""
    if not path.is_dir():
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe may never end
            raise OSError(f"{path.name} is no file")
        yield path
        return
    count = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            found = Path(folder, name)
            if not found.is_symlink() and found.is_file():
                count += 1
                if count > MOST_FILES:
                    return
                yield found


def _read_beside(path: Path, name: str) -> bytes:
    found = path.with_name(name)
    if found.is_symlink() or not found.is_file():
        return b""
    with found.open("rb") as file:
        return file.read(_LARGEST_SIBLING)


def _is_safe(name: str) -> bool:
    """Whether a name in an archive stays inside of it. It isn't used as a path, but who made another means harm."""
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and ":" not in name and "\0" not in name
