"""Reads files that are to be attached, in a thread of its own through a helper process. No widgets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject

from app.chats.attachments import Content
from app.errors import KnownError
from app.helper import READING_SECONDS, Helper, HelperError, NotStarted, TookTooLong, TooMuchMemory
from app.helper.messages import ChatsRead, FileNotRead, FileReason, ReadChats, ReadFile
from app.models.text import printable, shortened
from app.ui.widgets import units
from app.ui.widgets.tasks import Lane

PASTED = "Pasted text"
MOST_ATTACHMENTS = 20
"""Of a message."""
_PATIENCE_SECONDS = 5.0
_LONGEST_NAME = 60
_EXPORTS = (".json", ".jsonl", ".zip")
"""Files that may have the chats of another app."""
_SENTENCES: dict[FileReason, str] = {
    "unreadable": "{name} can't be read: {detail}.",
    "folder": "{name} is a folder. Attach the files in it instead.",
    "special": "{name} is a device or a pipe, and not a file that can be attached.",
    "empty": "{name} is empty.",
    "too_large": "{name} is larger than 100 MB, which is the most that can be attached.",
    "too_long": "{name} has {detail} characters of text. The most that can be attached is 4,000,000.",
    "too_much": "{name} becomes far too large when it is unpacked. It may be damaged.",
    "too_many_pages": "{name} has {detail} pages. The most that can be attached is 3,000.",
    "image": "{name} is a picture. Only files with text can be attached.",
    "binary": "{name} isn't a kind of file that can be attached. "
    "Text, code, CSV, Markdown, web pages, PDF files and Word documents (.docx) can.",
    "old_office": "{name} is in an older Office format, or protected with a password. "
    "Save it as .docx or PDF and attach that.",
    "encrypted": "{name} is protected with a password. Attach a copy that isn't.",
    "no_text": "This PDF has no text: {name} may be a scan, which is only pictures of pages. "
    "Run text recognition (OCR) on it in another app first.",
    "damaged": "{name} is damaged, so it can't be read.",
}


def name_of(path: str) -> str:
    """The name of a file, fit to be shown."""
    return shortened(printable(Path(path).name or path), _LONGEST_NAME)


class FileReader(QObject):
    """One for a window. Files are read one after another; every function passed in is called in the window's thread."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = Lane(self, "files to attach")
        self._helper = Helper(READING_SECONDS)

    def read(self, path: str, done: Callable[[Content], None], failed: Callable[[KnownError], None]) -> None:
        """The text of a file."""
        self._lane.submit(lambda: self._content(path), done, failed)

    def find_chats(self, path: str, done: Callable[[bool], None]) -> None:
        """Whether a file has chats that were exported from an app; for most names without reading it."""
        if path.lower().endswith(_EXPORTS):
            self._lane.submit(lambda: self._has_chats(path), done, lambda _error: done(False))
        else:
            done(False)

    def close(self) -> None:
        """Stop reading."""
        self._helper.stop()
        self._lane.close(_PATIENCE_SECONDS)

    def _content(self, path: str) -> Content:
        name = name_of(path)
        try:
            found = self._helper.read_file(ReadFile(path))
        except HelperError as error:
            raise KnownError(_failure(error, name)) from error
        if isinstance(found, FileNotRead):
            detail = units.number(int(found.detail)) if found.detail.isdecimal() else found.detail
            raise KnownError(_SENTENCES[found.reason].format(name=name, detail=detail))
        return Content("text", name, found.text.encode(), found.media_type)

    def _has_chats(self, path: str) -> bool:
        try:
            found = self._helper.read_chats(ReadChats([path]))
        except HelperError:
            return False
        finally:
            self._helper.stop()  # it may be in the middle of a large file
        return isinstance(found, ChatsRead) and bool(found.batch.chats)


def _failure(error: HelperError, name: str) -> str:
    match error:
        case TookTooLong():
            return f"Reading {name} takes too long. It may be very large or damaged."
        case TooMuchMemory():
            return f"{name} needs too much memory to be read. It may be very large or damaged."
        case NotStarted():
            return f"{name} can't be read because a process couldn't be started: {error}."
    return f"{name} can't be read: the process that reads it ended unexpectedly."
