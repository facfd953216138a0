"""Images to attach, and small pictures of attached ones. What reads or decodes files runs in a lane."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import shiboken6
from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QObject, QSize, Qt
from PySide6.QtGui import QImage, QImageReader, QPixmap
from PySide6.QtWidgets import QLabel, QWidget

from app.chats.attachments import Content
from app.chats.model import Attachment
from app.errors import KnownError
from app.helper import Helper, HelperError
from app.helper.messages import FileNotRead, LookAtImage
from app.models.text import printable
from app.protocol.images import MOST_PIXELS, ImageHead, problem_of
from app.ui.widgets import theme as themes
from app.ui.widgets.layouts import row
from app.ui.widgets.tasks import Lane
from app.ui.widgets.theme import SPACING

Load = Callable[[Attachment, int, Callable[[QImage], None]], object]

HEIGHT = 96
"""Of a thumbnail, in pixels of a display without zoom; it may be twice as wide."""
_LOADED = 256
"""Thumbnails that are kept."""


def image_file(path: Path, helper: Helper) -> Content:
    """What is to be attached of an image file. WebP becomes PNG, because the engine can't read it. Raises
    `KnownError`.
    """
    name = printable(path.name)
    try:
        found = helper.look_at_image(LookAtImage(str(path)))
    except HelperError as error:
        raise KnownError(f"{name} can't be read: {error}") from error
    if isinstance(found, FileNotRead):
        raise KnownError(f"{name} can't be attached: {found.detail or 'it is no PNG, JPEG, GIF, BMP or WebP image'}.")
    head = ImageHead("png" if found.kind == "webp" else found.kind, found.width, found.height)
    try:
        if problem := problem_of(head, name, path.stat().st_size):
            raise KnownError(problem)
        data = path.read_bytes()
    except OSError as error:
        raise KnownError(f"{name} can't be read: {error.strerror or error}.") from error
    if found.kind == "webp":
        image = decoded(data)
        if image.isNull():
            raise KnownError(f"{name} is damaged, or this system can't read WebP. Save it as PNG or JPEG.")
        data = _as_png(image)
    return Content("image", path.name, data, f"image/{head.kind}", head.width, head.height)


def pasted_image(image: QImage) -> Content:
    """What is to be attached of an image from the clipboard. Raises `KnownError`."""
    head = ImageHead("png", image.width(), image.height())
    data = _as_png(image)
    if image.isNull() or (problem := problem_of(head, "The pasted image", len(data))):
        raise KnownError(problem if not image.isNull() else "The clipboard has no image that can be read.")
    return Content("image", "Pasted image.png", data, "image/png", head.width, head.height)


def decoded(data: bytes, within: QSize | None = None) -> QImage:
    """The image in ``data``, scaled down to fit ``within``; null if it can't be read or is too large."""
    buffer = QBuffer()
    buffer.setData(QByteArray(data))
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer)
    size = reader.size()
    if size.width() * size.height() > MOST_PIXELS:
        return QImage()
    if within is not None and size.isValid() and size != size.boundedTo(within):
        reader.setScaledSize(size.scaled(within, Qt.AspectRatioMode.KeepAspectRatio).expandedTo(QSize(1, 1)))
    return reader.read()


def _as_png(image: QImage) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]
    return bytes(buffer.data().data())


class Thumbnails(QObject):
    """Small pictures of attachments, decoded in a lane and kept by their checksums."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = Lane(self, "thumbnails")
        self._known: dict[tuple[str, int], QImage] = {}

    def load(self, attachment: Attachment, height: int, show: Callable[[QImage], None]) -> None:
        """``show`` gets the picture, at once or later; never, if there is none."""
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
        return decoded(Path(path).read_bytes(), QSize(2 * height, height))
    except OSError:
        return QImage()


class ImageStrip(QWidget):
    """Thumbnails of the images of a message beside each other; names where they can't be shown."""

    def __init__(self, images: list[Attachment], load: Load, parent: QWidget | None = None) -> None:
        """``load``: `Thumbnails.load`."""
        super().__init__(parent)
        self._labels = [QLabel(_described(image)) for image in images]
        row(*self._labels, None, gap=2 * SPACING, on=self)
        ratio = self.devicePixelRatioF()
        for label, image in zip(self._labels, images, strict=True):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setToolTip(_described(image))
            label.setAccessibleName(f"Image: {_described(image)}")
            load(image, round(themes.px(HEIGHT) * ratio), partial(_show, label, ratio))
        self.setFixedHeight(themes.px(HEIGHT))


def _described(image: Attachment) -> str:
    size = f" ({image.width:,} × {image.height:,} pixels)" if image.width else ""
    return f"{printable(image.name)}{size}" + (", which is no longer there" if image.is_missing else "")


def _show(label: QLabel, ratio: float, image: QImage) -> None:
    if not shiboken6.isValid(label):  # the message is no longer shown
        return
    pixmap = QPixmap.fromImage(image)
    pixmap.setDevicePixelRatio(ratio)
    label.setPixmap(pixmap)
