"""What a model reads of an attachment."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QImage, QPixmap
from PySide6.QtWidgets import QDialog, QLabel, QPlainTextEdit, QPushButton, QWidget
from shiboken6 import isValid

from app.chats.model import Attachment
from app.models.text import is_right_to_left, visible
from app.ui.chat.chips import LoadThumbnail, details_of, thumbnail_size
from app.ui.chat.parts import copy_text
from app.ui.widgets import theme as themes
from app.ui.widgets import units
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import DIALOG_MARGINS, column, row

MOST_CHARACTERS = 300_000
"""That are shown: more take a text field too long."""
_WIDTH, _HEIGHT = 640, 520


class AttachmentPreview(QDialog):
    """Shows the text of one."""

    def __init__(
        self, attachment: Attachment, tokens: int | None, parent: QWidget | None = None, *, note: str = ""
    ) -> None:
        """``note``: what should be known of how the file was read."""
        super().__init__(parent)
        self.setWindowTitle(visible(attachment.name))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        shown = attachment.text[:MOST_CHARACTERS]
        parts = [f"{units.number(len(attachment.text))} characters"]
        if tokens is not None:
            parts.append(details_of(attachment, tokens))
        if len(shown) < len(attachment.text):
            parts.append(f"the first {units.number(len(shown))} are shown")
        note = visible(note)
        after = f" {note[0].upper()}{note[1:]}." if note else ""
        self.details = label(f"What the model reads: {', '.join(parts)}.{after}", "quiet", wraps=True)
        self.text = QPlainTextEdit(readOnly=True, tabChangesFocus=True)
        self.text.setAccessibleName(f"Text of {visible(attachment.name)}")
        self.text.setFont(themes.monospace_for(self.text.font()))
        if is_right_to_left(shown[:1000]):
            self.text.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
        self.text.setPlainText(shown)
        copy, close = QPushButton("Copy", autoDefault=False), QPushButton("Close", default=True)
        copy.clicked.connect(lambda: copy_text(attachment.text, copy))
        close.clicked.connect(self.accept)
        column(self.details, (self.text, 1), row(None, copy, close), margins=DIALOG_MARGINS, on=self)
        screen = QGuiApplication.primaryScreen().availableSize()
        self.resize(min(themes.px(_WIDTH), screen.width()), min(themes.px(_HEIGHT), screen.height()))
        self.text.setFocus()


class ImagePreview(QDialog):
    """Shows an image."""

    def __init__(self, attachment: Attachment, load: LoadThumbnail, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(visible(attachment.name))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.picture = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        size = f"{units.number(attachment.width)} × {units.number(attachment.height)} pixels"
        self.picture.setAccessibleName(f"{visible(attachment.name)}, {size}")
        close = QPushButton("Close", default=True)
        close.clicked.connect(self.accept)
        column((self.picture, 1), row(label(size, "quiet"), None, close), margins=DIALOG_MARGINS, on=self)
        height = min(themes.px(_HEIGHT), QGuiApplication.primaryScreen().availableSize().height() // 2)
        self.picture.setMinimumSize(thumbnail_size(attachment, height))
        load(attachment, round(height * self.devicePixelRatioF()), self._show)

    def _show(self, image: QImage) -> None:
        if isValid(self):
            pixmap = QPixmap.fromImage(image)
            pixmap.setDevicePixelRatio(self.devicePixelRatioF())
            self.picture.setPixmap(pixmap)
