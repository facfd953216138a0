"""The contents of attachments: files beside the chat file, named by their SHA-256, so that the same one is kept once.

A file is written before the first row refers to it, and removed when none does any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from app.chats.model import Attachment, AttachmentKind
from app.errors import KnownError
from app.storage.files import sync_folder, write_whole

_HASHES = "SELECT sha256 FROM attachments UNION SELECT sha256 FROM unsent_attachments"


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be attached to a message."""

    kind: AttachmentKind
    name: str
    data: bytes
    """A text as the model reads it, in UTF-8, or an image's file."""
    media_type: str = ""
    """Of the file it comes from; empty if that isn't known."""
    width: int = 0
    height: int = 0
    """Of an image, in pixels."""


def attachments_folder(path: Path) -> Path:
    """Where the attachments of the chat file ``path`` are, or those of a folder of backups."""
    return path.parent / "attachments"


class AttachmentFiles:
    """The contents of an open chat file's attachments."""

    def __init__(self, folder: Path | None) -> None:
        """``folder``: created with the first attachment; ``None``: they are in memory only."""
        self._folder = folder
        self._in_memory: dict[str, bytes] = {}
        self._unused: set[str] = set()
        """Those that were kept since the start, and that no row refers to yet."""

    def keep(self, content: Content) -> Attachment:
        """Write a content to the disk, unless it is there. Raises `KnownError`."""
        sha256 = self._write(content.data)
        name, size = content.name, len(content.data)
        row = Attachment(sha256, content.kind, name, size, content.media_type, content.width, content.height)
        return self.filled(row)

    def _write(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        if self._folder is None:
            self._in_memory[sha256] = data
            return sha256
        path = path_in(self._folder, sha256)
        try:
            if not path.is_file() or path.stat().st_size != len(data):
                _make_folder(path.parent)
                write_whole(path, data)
        except OSError as error:
            raise KnownError(
                f"The attachment couldn't be saved in {self._folder}: {error.strerror or error}."
            ) from error
        self._unused.add(sha256)
        return sha256

    def use(self, attachments: Collection[Attachment]) -> None:
        """There are rows of these now: they stay only as long as those do."""
        self._unused.difference_update(one.sha256 for one in attachments)

    def filled(self, attachment: Attachment) -> Attachment:
        """The attachment of a row, with its text and where its content is."""
        sha256 = attachment.sha256
        path = "" if self._folder is None else str(path_in(self._folder, sha256))
        if attachment.kind == "text":
            data = self.read(sha256)
            text = "" if data is None else data.decode("utf-8", "replace")
            return replace(attachment, text=text, path="" if data is None else path, is_missing=data is None)
        is_there = os.path.isfile(path) if path else sha256 in self._in_memory  # noqa: PTH113
        return replace(attachment, path=path if is_there else "", is_missing=not is_there)

    def read(self, sha256: str) -> bytes | None:
        """A content; ``None`` if it isn't there any more, or can't be read."""
        if self._folder is None:
            return self._in_memory.get(sha256)
        try:
            return path_in(self._folder, sha256).read_bytes()
        except OSError:
            return None

    def sweep(self, wanted: Collection[str]) -> None:
        """Remove all contents that no row refers to. ``wanted``: those that rows refer to. Raises `OSError`."""
        keep = {*wanted, *self._unused}
        for sha256 in self._in_memory.keys() - keep:
            del self._in_memory[sha256]
        if self._folder is not None:
            remove_except(self._folder, keep)


def path_in(folder: Path, sha256: str) -> Path:
    return folder / sha256[:2] / sha256


def hashes(connection: sqlite3.Connection) -> set[str]:
    """Those that the rows of a chat file refer to, of whatever version that is. Raises `sqlite3.Error`."""
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'attachments'").fetchone() is None:
        return set()
    return {one for (one,) in connection.execute(_HASHES)}


def remove_except(folder: Path, wanted: Collection[str]) -> None:
    """Remove the files that aren't wanted, and what a killed process left of others. Raises `OSError`."""
    for inner in _entries(folder):
        for file in _entries(inner):
            if file.name not in wanted:
                file.unlink()
        with contextlib.suppress(OSError):
            inner.rmdir()


def copy_to(folder: Path, source: Path, wanted: Collection[str]) -> None:
    """Have these also in another folder. Where the disk can, both names lead to one file: contents never change.

    Files that aren't there are left out. Raises `OSError`.
    """
    for sha256 in wanted:
        target, there = path_in(folder, sha256), path_in(source, sha256)
        if target.exists() or not there.is_file():
            continue
        _make_folder(target.parent)
        try:
            target.hardlink_to(there)
        except OSError:
            write_whole(target, there.read_bytes())
        else:
            sync_folder(target.parent)


def _make_folder(folder: Path) -> None:
    for one in (folder.parent, folder):
        if not one.is_dir():
            one.mkdir(mode=0o700, parents=True)
            sync_folder(one.parent)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
