"""The chat, and the list of chats, as places to drop files: what is dragged over them sees where it can go."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QWidget

from app.ui.widgets import theme as themes

TEXT = "Drop files to attach them"


def local_files(data: QMimeData) -> list[str]:
    """The paths of the files on this computer that are dragged or were copied; empty if it is anything else, too."""
    paths = [url.toLocalFile() for url in data.urls()] if data.hasUrls() else []
    return paths if all(paths) else []


class DropArea(QFrame):
    """What files are dropped on.

    Signals:
        files_dropped: Their paths.
    """

    files_dropped = Signal(list)

    def __init__(self, text: str = TEXT, parent: QWidget | None = None) -> None:
        """``text``: what happens to what is dropped."""
        super().__init__(parent)
        self.setAcceptDrops(True)
        self.target = _Target(text, self)

    # -- Qt

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if local_files(event.mimeData()):
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
