"""Small pictures of attached images. They are decoded in a lane, scaled down while they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtGui import QImage

from app.chats.model import Attachment
from app.ui.chat.chips import largest_thumbnail
from app.ui.chat.images import decoded
from app.ui.widgets.tasks import Lane

_LOADED = 256
"""Thumbnails that are kept."""


class Thumbnails(QObject):
    """Kept by the checksums of what they show."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = Lane(self, "thumbnails")
        self._known: dict[tuple[str, int], QImage] = {}

    def load(self, attachment: Attachment, height: int, show: Callable[[QImage], None]) -> None:
        """``show`` gets the picture, ``height`` pixels high at most, at once or later; never, if there is none."""
        key = attachment.sha256, height
        if (known := self._known.get(key)) is not None:
            show(known)
            return

        def loaded(image: QImage) -> None:
            if not image.isNull():
                while len(self._known) >= _LOADED:
                    del self._known[next(iter(self._known))]
                self._known[key] = image
                show(image)

        if attachment.path:
            self._lane.submit(partial(_thumbnail, attachment.path, height), loaded)

    def close(self) -> None:
        """Load nothing any more."""
        self._lane.close()


def _thumbnail(path: str, height: int) -> QImage:
    try:
        return decoded(Path(path).read_bytes(), largest_thumbnail(height))
    except OSError:
        return QImage()
