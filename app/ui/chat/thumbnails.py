"""Small pictures of attached images. They are decoded in a lane, scaled down while they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QSize, Qt
from PySide6.QtGui import QImage

from app.chats.model import Attachment
from app.ui.chat.images import decoded
from app.ui.widgets.tasks import Lane

Load = Callable[[Attachment, int, Callable[[QImage], None]], object]

_LOADED = 256
"""Thumbnails that are kept."""
_WIDEST = 3
"""Times its height."""


def thumbnail_size(image: Attachment, height: int) -> QSize:
    """Of a thumbnail at most so high, in its proportions."""
    size = QSize(image.width or height, image.height or height)
    if size == size.boundedTo(_most(height)):
        return size
    return size.scaled(_most(height), Qt.AspectRatioMode.KeepAspectRatio).expandedTo(QSize(1, 1))


def _most(height: int) -> QSize:
    return QSize(_WIDEST * height, height)


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
        return decoded(Path(path).read_bytes(), _most(height))
    except OSError:
        return QImage()
