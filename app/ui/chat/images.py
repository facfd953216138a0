"""Images to attach: from files, from the clipboard and from tools. Whoever calls this is in a thread of its own."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QSize, Qt
from PySide6.QtGui import QImage, QImageReader

from app.chats.attachments import Content
from app.helper import Helper, HelperError
from app.helper.messages import FileNotRead, LookAtImage
from app.protocol.images import HEAD_BYTES, MOST_PIXELS, ImageHead, is_bomb, problem_of, read_head
from app.system import KnownError
from app.words import printable

PASTED_IMAGE = "Pasted image"
_TRIED = QSize(64, 64)
"""The size in which an image is decoded to see whether it can be."""


def image_file(path: Path, helper: Helper) -> Content | None:
    """What to attach of an image file; ``None`` if it isn't one. It is decoded, because a damaged image would make
    every answer in its chat fail; WebP becomes PNG, which the engine can read. Raises `KnownError`."""
    name = printable(path.name)
    try:
        found = helper.ask(LookAtImage(str(path)))
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
    return _checked_image(data, head, path.name, is_webp=found.kind == "webp")


def image_content(data: bytes, name: str) -> Content:
    """What to attach of an image that isn't in a file. Raises `KnownError`."""
    found = read_head(data[:HEAD_BYTES])
    is_webp = found is not None and found.kind == "webp"
    head = ImageHead("png", found.width, found.height) if found and is_webp else found
    if (problem := problem_of(head, name, len(data))) or head is None:
        raise KnownError(problem or "")
    return _checked_image(data, head, name, is_webp=is_webp)


def _checked_image(data: bytes, head: ImageHead, name: str, *, is_webp: bool) -> Content:
    image = decoded(data, None if is_webp else _TRIED)
    if image.isNull() or is_bomb(data, head):
        raise KnownError(f"{printable(name)} is damaged. Open it in another program and save it again.")
    return Content("image", name, _as_png(image) if is_webp else data, f"image/{head.kind}", head.width, head.height)


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
