"""Reads files that are to be attached, in a thread of its own through a helper process. No widgets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtGui import QImage

from app.chats.attachments import Content
from app.chats.reading_files import content_of, pages_of
from app.errors import KnownError
from app.helper import READING_SECONDS, Helper, HelperError
from app.helper.messages import ChatsRead, Form, ReadChats
from app.models.text import printable, shortened
from app.ui.chat.images import image_file, pasted_image
from app.ui.widgets.tasks import Lane

PASTED = "Pasted text"
MOST_ATTACHMENTS = 20
"""Of a message."""
_PATIENCE_SECONDS = 5.0
_LONGEST_NAME = 60
_EXPORTS = (".json", ".jsonl", ".zip")
"""Files that may have the chats of another app."""


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
        """The text of a file, or an image."""
        self._lane.submit(lambda: self._content(path), done, failed)

    def read_again(
        self,
        path: str,
        encoding: str,
        form: Form,
        done: Callable[[Content], None],
        failed: Callable[[KnownError], None],
    ) -> None:
        """The text of a file as `ReadFile` has it."""
        self._lane.submit(lambda: content_of(path, name_of(path), self._helper, encoding, form), done, failed)

    def read_pages(
        self,
        path: str,
        most: int,
        done: Callable[[tuple[list[Content], int]], None],
        failed: Callable[[KnownError], None],
    ) -> None:
        """The first ``most`` pages of a PDF file as images, and how many it has."""
        self._lane.submit(lambda: pages_of(path, name_of(path), most, self._helper), done, failed)

    def read_image(self, image: QImage, done: Callable[[Content], None], failed: Callable[[KnownError], None]) -> None:
        """An image that was pasted."""
        self._lane.submit(lambda: pasted_image(image), done, failed)

    def find_chats(self, path: str, done: Callable[[bool], None]) -> None:
        """Whether a file or a folder has chats that were exported from an app; for most names without reading it."""
        if path.lower().endswith(_EXPORTS) or not Path(path).suffix:
            self._lane.submit(lambda: self._has_chats(path), done, lambda _error: done(False))
        else:
            done(False)

    def close(self) -> None:
        """Stop reading."""
        self._helper.stop()
        self._lane.close(_PATIENCE_SECONDS)

    def _content(self, path: str) -> Content:
        image = image_file(Path(path), self._helper)
        return image or content_of(path, name_of(path), self._helper)

    def _has_chats(self, path: str) -> bool:
        if not path.lower().endswith(_EXPORTS) and not os.path.isdir(path):  # noqa: PTH112 - which raises nothing
            return False
        try:
            found = self._helper.read_chats(ReadChats([path]))
        except HelperError:
            return False
        finally:
            self._helper.stop()  # it may be in the middle of a large file
        return isinstance(found, ChatsRead) and bool(found.batch.chats)
