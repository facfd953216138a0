"""The contents of attachments: files beside the chat file, named by their SHA-256, so that the same one is kept once.

A file is written before the first row refers to it, and removed when none does any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from app.chats.formats.values import file_text
from app.chats.model import Attachment, AttachmentKind
from app.protocol.commands import Image
from app.storage.files import sync_folder, write_whole
from app.system import KnownError

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
    encoding: str = ""
    """Of a text file, where it was guessed or chosen: a name in `app.helper.messages`."""
    left_out: str = ""
    """What the file has and its text lacks: "2 pictures, 1 comment"."""

    @property
    def note(self) -> str:
        """What should be known of how the file was read; mostly empty."""
        read_as = f"read as {self.encoding}" if self.encoding else ""
        return ", ".join(filter(None, (read_as, f"left out: {self.left_out}" if self.left_out else "")))


def attachments_folder(path: Path) -> Path:
    """Where the attachments of the chat file ``path`` are, or those of a folder of backups."""
    return path.parent / "attachments"


class AttachmentFiles:
    """The contents of an open chat file's attachments."""

    def __init__(self, folder: Path | None) -> None:
        """``folder``: created with the first attachment; ``None``: texts are in memory only, and images, which the
        engine reads from files, in a folder that `close` removes.
        """
        self._folder = folder
        self._in_memory: dict[str, bytes] = {}
        self._images: tempfile.TemporaryDirectory[str] | None = None
        self._unused: set[str] = set()
        """Those that were kept since the start, and that no row refers to yet."""

    def keep(self, content: Content) -> Attachment:
        """Write a content to the disk, unless it is there. Raises `KnownError`."""
        sha256 = self._write(content.data, is_image=content.kind == "image")
        name, size = content.name, len(content.data)
        row = Attachment(sha256, content.kind, name, size, content.media_type, content.width, content.height)
        return self.filled(row)

    def _write(self, data: bytes, *, is_image: bool) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        if self._folder is None and not is_image:
            self._in_memory[sha256] = data
            return sha256
        folder = self._folder
        try:
            folder = folder or self._image_folder()
            path = path_in(folder, sha256)
            if not path.is_file() or path.stat().st_size != len(data):
                _make_folder(path.parent)
                write_whole(path, data)
        except OSError as error:
            where = folder or "the folder for temporary files"
            raise KnownError(f"The attachment couldn't be saved in {where}: {error.strerror or error}.") from error
        self._unused.add(sha256)
        return sha256

    def _image_folder(self) -> Path:
        """Where the system has one in memory that only the user may read, it is there. Raises `OSError`."""
        if self._images is None:
            in_memory = os.environ.get("XDG_RUNTIME_DIR", "")
            place = in_memory if os.access(in_memory, os.W_OK) else None
            self._images = tempfile.TemporaryDirectory(
                prefix="slipstream-temporary-", dir=place, ignore_cleanup_errors=True
            )
        return Path(self._images.name)

    def close(self) -> None:
        """Remove the images of a chat that is in memory only."""
        if self._images is not None:
            self._images.cleanup()

    def use(self, attachments: Collection[Attachment]) -> None:
        """There are rows of these now: they stay only as long as those do."""
        self._unused.difference_update(one.sha256 for one in attachments)

    def filled(self, attachment: Attachment) -> Attachment:
        """The attachment of a row, with its text and where its content is."""
        sha256 = attachment.sha256
        folder = self._place()
        path = "" if folder is None else str(path_in(folder, sha256))
        if attachment.kind == "text":
            data = self.read(sha256)
            text = "" if data is None else data.decode("utf-8", "replace")
            path = "" if data is None or self._folder is None else path
            return replace(attachment, text=text, path=path, is_missing=data is None)
        is_there = bool(path) and os.path.isfile(path)  # noqa: PTH113
        return replace(attachment, path=path if is_there else "", is_missing=not is_there)

    def _place(self) -> Path | None:
        """Where the files are, if there are any."""
        return Path(self._images.name) if self._folder is None and self._images is not None else self._folder

    def read(self, sha256: str) -> bytes | None:
        """A content; ``None`` if it isn't there any more, or can't be read."""
        folder = self._place()
        if sha256 in self._in_memory or folder is None:
            return self._in_memory.get(sha256)
        try:
            return path_in(folder, sha256).read_bytes()
        except OSError:
            return None

    def sweep(self, wanted: Collection[str]) -> None:
        """Remove all contents that no row refers to. ``wanted``: those that rows refer to. Raises `OSError`."""
        keep = {*wanted, *self._unused}
        for sha256 in self._in_memory.keys() - keep:
            del self._in_memory[sha256]
        if (folder := self._place()) is not None:
            remove_except(folder, keep)


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


# What the model reads of a message with attachments.


def prompt_text(text: str, attachments: Iterable[Attachment]) -> str:
    """A message and the texts attached to it. These come first: when only the question behind them changes, their
    tokens don't have to be processed again.
    """
    files = [file_text(one.name, one.text) for one in attachments if one.kind == "text" and not one.is_missing]
    return "\n\n".join(filter(None, [*files, text]))


def prompt_images(attachments: Iterable[Attachment]) -> tuple[Image, ...]:
    """The images among them that are still there."""
    return tuple(Image(one.sha256, one.path, one.name) for one in attachments if one.kind == "image" and one.path)
