"""Reads what is to be attached, with a helper process; all of it is called in a lane. No widgets."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QSize, Qt
from PySide6.QtGui import QImage, QImageReader

from app.chats.attachments import Content
from app.chats.reading_files import content_of
from app.errors import KnownError
from app.helper import Helper, HelperError
from app.helper.messages import ChatsRead, FileNotRead, LookAtImage, ReadChats
from app.models.text import printable, shortened
from app.protocol.images import MOST_PIXELS, ImageHead, is_bomb, problem_of

PASTED_IMAGE = "Pasted image"
_LONGEST_NAME = 60
_EXPORTS = (".json", ".jsonl", ".zip")
"""Files that may have the chats of another app."""
_TRIED = QSize(64, 64)
"""The size in which an image is decoded to see whether it can be."""


def name_of(path: str) -> str:
    """The name of a file, fit to be shown."""
    return shortened(printable(Path(path).name or path), _LONGEST_NAME)


def file_content(path: str, helper: Helper) -> Content:
    """The text of a file, or an image. Raises `KnownError`."""
    return image_file(Path(path), helper) or content_of(path, name_of(path), helper)


def may_have_chats(path: str) -> bool:
    """Whether it is worth asking `has_chats`, by its name alone."""
    return path.lower().endswith(_EXPORTS) or not Path(path).suffix


def has_chats(path: str, helper: Helper) -> bool:
    """Whether a file or a folder has chats that were exported from an app."""
    if not path.lower().endswith(_EXPORTS) and not os.path.isdir(path):  # noqa: PTH112 - which raises nothing
        return False
    try:
        found = helper.read_chats(ReadChats([path]))
    except HelperError:
        return False
    finally:
        helper.stop()  # it may be in the middle of a large file
    return isinstance(found, ChatsRead) and bool(found.batch.chats)


def image_file(path: Path, helper: Helper) -> Content | None:
    """What is to be attached of an image file; ``None`` for another kind of file.

    It is decoded, because a damaged image would make each answer in its chat fail. WebP becomes PNG, because the engine
    can't read it. Raises `KnownError`.
    """
    name = printable(path.name)
    try:
        found = helper.look_at_image(LookAtImage(str(path)))
    except HelperError as error:
        raise KnownError(f"{name} can't be read: {error}") from error
    if isinstance(found, FileNotRead):
        return None  # whoever reads files of other kinds says why it can't be attached
    head = ImageHead("png" if found.kind == "webp" else found.kind, found.width, found.height)
    try:
        if problem := problem_of(head, name, path.stat().st_size):
            raise KnownError(problem)
        data = path.read_bytes()
    except OSError as error:
        raise KnownError(f"{name} can't be read: {error.strerror or error}.") from error
    image = decoded(data, None if found.kind == "webp" else _TRIED)
    if image.isNull() or is_bomb(data, head):
        raise KnownError(f"{name} is damaged. Open it in another program and save it again.")
    if found.kind == "webp":
        data = _as_png(image)
    return Content("image", path.name, data, f"image/{head.kind}", head.width, head.height)


def pasted_image(image: QImage) -> Content:
    """What is to be attached of an image from the clipboard. Raises `KnownError`."""
    head = ImageHead("png", image.width(), image.height())
    data = _as_png(image)
    if image.isNull() or (problem := problem_of(head, "The pasted image", len(data))):
        raise KnownError(problem if not image.isNull() else "The clipboard has no image that can be read.")
    return Content("image", f"{PASTED_IMAGE}.png", data, "image/png", head.width, head.height)


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
