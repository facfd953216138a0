"""The chat, and the list of chats, as places to drop files: what is dragged over them sees where it can go."""

from __future__ import annotations

import re

from PySide6.QtCore import QByteArray, QMimeData, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QImage,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QWidget

from app.ui.widgets import theme as themes

TEXT = "Drop files to attach them"
_ADDRESS = re.compile(r"(?:https?|ftp|data|blob|file|chrome|resource|about):\S*", re.IGNORECASE)
_PICTURE = re.compile(r"<img\b[^>]*?\bsrc\s*=\s*[\"'](?:data:image/[\w.+-]+;base64,([^\"']*))?", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".svg", ".avif")


def local_files(data: QMimeData) -> list[str]:
    """The paths of the files on this computer that are dragged or were copied; empty if it is anything else, too."""
    paths = [url.toLocalFile() for url in data.urls()] if data.hasUrls() else []
    return paths if all(paths) else []


def is_picture(data: QMimeData) -> bool:
    """Whether it is a picture as browsers pass it on: with its address, or only that. With other text, as from a word
    processor, the text is meant."""
    if local_files(data) or not all(map(_ADDRESS.fullmatch, data.text().split())):
        return False
    html = data.html()
    has_tag = _PICTURE.search(html) is not None and not _TAG.sub("", html).strip()
    return data.hasImage() or has_tag or any(url.path().lower().endswith(_SUFFIXES) for url in data.urls())


def picture_in(data: QMimeData) -> QImage | None:
    """The picture itself; ``None`` if only its address is there."""
    image = QImage(data.imageData()) if data.hasImage() else QImage()
    if image.isNull() and (found := _PICTURE.search(data.html())) is not None:
        image.loadFromData(QByteArray.fromBase64((found[1] or "").encode()))
    return None if image.isNull() else image


class DropArea(QFrame):
    """What files and pictures are dropped on. Signals ``files_dropped``: their paths. ``picture_dropped``: one that is
    no file; ``None`` if only its address was dropped."""

    files_dropped = Signal(list)
    picture_dropped = Signal(object)

    def __init__(self, text: str = TEXT, parent: QWidget | None = None) -> None:
        """``text``: what happens to what is dropped."""
        super().__init__(parent)
        self.setAcceptDrops(True)
        self.takes_pictures = False
        self.target = _Target(text, self)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if local_files(event.mimeData()) or self._is_picture(event.mimeData()):
            event.acceptProposedAction()
            self.target.setGeometry(self.rect())
            self.target.raise_()
            self.target.show()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.target.hide()
        super().dragLeaveEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        self.target.hide()
        if files := local_files(event.mimeData()):
            event.setDropAction(Qt.DropAction.CopyAction)  # whoever moves files must not remove them
            event.accept()
            self.files_dropped.emit(files)
        elif self._is_picture(event.mimeData()):
            event.setDropAction(Qt.DropAction.CopyAction)
            event.accept()
            self.picture_dropped.emit(picture_in(event.mimeData()))

    def _is_picture(self, data: QMimeData) -> bool:
        return self.takes_pictures and is_picture(data)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.target.setGeometry(self.rect())


class _Target(QWidget):
    """Lies over everything while files are dragged."""

    def __init__(self, text: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._text = text
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAccessibleName(text)
        self.hide()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), themes.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        veil = QColor(theme.surface)
        veil.setAlphaF(0.9)
        painter.fillRect(self.rect(), veil)
        inside = self.rect().adjusted(12, 12, -12, -12)
        painter.setPen(QPen(theme.focus_line, 2, Qt.PenStyle.DashLine))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(inside, themes.RADIUS, themes.RADIUS)
        painter.setPen(theme.text)
        painter.setFont(themes.scaled(self.font(), 1.2))
        flags = int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap)
        painter.drawText(inside.adjusted(8, 8, -8, -8), flags, self._text)
