"""The contents of attachments: files beside the chat file, named by their SHA-256, so that identical ones are stored
once.

A file is written before the first row refers to it, and removed when no row does any more.
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
    """Something to attach to a message."""

    kind: AttachmentKind
    name: str
    data: bytes
    """Text in UTF-8 as the model reads it, or an image file."""
    media_type: str = ""
    """Of the original file; empty if unknown."""
    width: int = 0
    height: int = 0
    """Of an image, in pixels."""
    encoding: str = ""
    """Encoding of a text file, guessed or chosen: a name in `app.helper.messages`."""
    left_out: str = ""
    """What the file contains that its text doesn't: "2 pictures, 1 comment"."""

    @property
    def note(self) -> str:
        """What the user should know about how the file was read; usually empty."""
        read_as = f"read as {self.encoding}" if self.encoding else ""
        return ", ".join(filter(None, (read_as, f"left out: {self.left_out}" if self.left_out else "")))


def attachments_folder(path: Path) -> Path:
    """The folder for attachments of the chat file (or of the backup folder's file) ``path``."""
    return path.parent / "attachments"


class AttachmentFiles:
    """The contents of an open chat file's attachments."""

    def __init__(self, folder: Path | None) -> None:
        """``folder`` is created with the first attachment. With ``None``, texts stay in memory, and images, which the
        engine reads from files, are kept in a temporary folder until `close`.
        """
        self._folder = folder
        self._in_memory: dict[str, bytes] = {}
        self._images: tempfile.TemporaryDirectory[str] | None = None
        self._unused: set[str] = set()
        """Stored since the start, with no row referring to them yet."""

    def keep(self, content: Content) -> Attachment:
        """Write the content to the disk unless it is already there. Raises `KnownError`."""
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
        """A temporary folder for images, in memory where the system has such a folder private to the user. Raises
        `OSError`.
        """
        if self._images is None:
            in_memory = os.environ.get("XDG_RUNTIME_DIR", "")
            place = in_memory if os.access(in_memory, os.W_OK) else None
            self._images = tempfile.TemporaryDirectory(
                prefix="slipstream-temporary-", dir=place, ignore_cleanup_errors=True
            )
        return Path(self._images.name)

    def close(self) -> None:
        """Remove the images of chats that are in memory only."""
        if self._images is not None:
            self._images.cleanup()

    def use(self, attachments: Collection[Attachment]) -> None:
        """Mark these as used by rows, so that they are removed when their last row is."""
        self._unused.difference_update(one.sha256 for one in attachments)

    def filled(self, attachment: Attachment) -> Attachment:
        """Complete the attachment of a row with its text and the path of its content."""
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
        return Path(self._images.name) if self._folder is None and self._images is not None else self._folder

    def read(self, sha256: str) -> bytes | None:
        """The content; ``None`` if it is gone or can't be read."""
        folder = self._place()
        if sha256 in self._in_memory or folder is None:
            return self._in_memory.get(sha256)
        try:
            return path_in(folder, sha256).read_bytes()
        except OSError:
            return None

    def sweep(self, wanted: Collection[str]) -> None:
        """Remove all contents except the ``wanted`` ones, which rows refer to. Raises `OSError`."""
        keep = {*wanted, *self._unused}
        for sha256 in self._in_memory.keys() - keep:
            del self._in_memory[sha256]
        if (folder := self._place()) is not None:
            remove_except(folder, keep)


def path_in(folder: Path, sha256: str) -> Path:
    return folder / sha256[:2] / sha256


def hashes(connection: sqlite3.Connection) -> set[str]:
    """The attachments that a chat file of any version refers to. Raises `sqlite3.Error`."""
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'attachments'").fetchone() is None:
        return set()
    return {one for (one,) in connection.execute(_HASHES)}


def remove_except(folder: Path, wanted: Collection[str]) -> None:
    """Remove all other files, including what a killed process left behind. Raises `OSError`."""
    for inner in _entries(folder):
        for file in _entries(inner):
            if file.name not in wanted:
                file.unlink()
        with contextlib.suppress(OSError):
            inner.rmdir()


def copy_to(folder: Path, source: Path, wanted: Collection[str]) -> None:
    """Copy these to another folder, as hard links where possible: contents never change.

    Missing files are skipped. Raises `OSError`.
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


# The prompt of a message with attachments.


def prompt_text(text: str, attachments: Iterable[Attachment]) -> str:
    """A message with the texts attached to it. These come first, so that their tokens can be reused when only the
    question below them changes.
    """
    files = [file_text(one.name, one.text) for one in attachments if one.kind == "text" and not one.is_missing]
    return "\n\n".join(filter(None, [*files, text]))


def prompt_images(attachments: Iterable[Attachment]) -> tuple[Image, ...]:
    """The attached images that still exist."""
    return tuple(Image(one.sha256, one.path, one.name) for one in attachments if one.kind == "image" and one.path)
