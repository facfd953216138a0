"""A text browser that loads nothing and scrolls nothing but what is too wide for it, in its own place."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, QRectF, Qt, QUrl, Signal, Slot
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QTextDocument, QWheelEvent
from PySide6.QtWidgets import QFrame, QTextBrowser, QWidget

from app.ui.chat.markdown.wide import WidePart, WidePlaces, paint_text


class SafeBrowser(QTextBrowser):
    """What is shown in it is at its own height; whoever owns it scrolls it up and down.

    Attributes:
        wide: The parts that are scrolled sideways.
    """

    selection_dragged = Signal(QPoint)
    """The user selects with the mouse and is at this point of the widget."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, openLinks=False)
        self.wide = WidePlaces(self.viewport(), self.viewport().update)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setUndoRedoEnabled(False)
        self.viewport().setAutoFillBackground(False)
        self.cursorPositionChanged.connect(self._on_cursor_moved)
        self.horizontalScrollBar().rangeChanged.connect(self._on_range_changed)

    def paint_ground(self, painter: QPainter, area: QRectF) -> None:
        """Paint what stands around the text and is never scrolled."""

    def paint_marks(self, painter: QPainter, area: QRectF) -> None:
        """Paint what lies under the text, where the document has it."""

    def _paint_strip(self, strip: QRect) -> None:
        """Paint text, and what lies under it, that is not scrolled sideways."""
        if strip.isEmpty():
            return
        painter = QPainter(self.viewport())
        painter.setClipRect(strip)
        self.paint_marks(painter, QRectF(strip))
        painter.end()
        super().paintEvent(QPaintEvent(strip))

    def _paint_wide(self, part: WidePart, area: QRect) -> None:
        clip = part.place & area
        offset = self.wide.offset(part)
        painter = QPainter(self.viewport())
        painter.setClipRect(clip)
        painter.translate(-offset, 0)
        shown = QRectF(clip.translated(offset, 0))
        self.paint_marks(painter, shown)
        paint_text(painter, self.document().documentLayout(), shown, self.palette(), self.textCursor())
        painter.end()

    def paintEvent(self, event: QPaintEvent) -> None:
        area = event.rect()
        painter = QPainter(self.viewport())
        self.paint_ground(painter, QRectF(area))
        painter.end()
        top = area.top()
        for part in self.wide.between(area.top(), area.bottom()):
            self._paint_strip(QRect(area.left(), top, area.width(), part.place.top() - top))
            self._paint_wide(part, area)
            top = part.place.bottom() + 1
        self._paint_strip(QRect(area.left(), top, area.width(), area.bottom() + 1 - top))

    @Slot()
    def _on_cursor_moved(self) -> None:
        if self.wide.parts and self.textCursor().hasSelection():
            self.wide.show_box(QRectF(self.cursorRect()))

    @Slot(int, int)
    def _on_range_changed(self, _first: int, last: int) -> None:
        if last:
            self.horizontalScrollBar().setRange(0, 0)

    def loadResource(self, _type: int, _name: QUrl | str) -> object:
        """Nothing is ever loaded."""
        return None

    def doSetSource(  # noqa: N802
        self, name: QUrl | str, type: QTextDocument.ResourceType = QTextDocument.ResourceType.UnknownResource
    ) -> None:
        """No page is ever opened in here."""

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(self.wide.translated(event))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(self.wide.translated(event))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        super().mouseDoubleClickEvent(self.wide.translated(event))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(self.wide.translated(event))
        if event.buttons() & Qt.MouseButton.LeftButton:
            self.selection_dragged.emit(event.position().toPoint())

    def wheelEvent(self, event: QWheelEvent) -> None:
        delta = event.pixelDelta() if not event.pixelDelta().isNull() else event.angleDelta()
        is_shifted = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        sideways = delta.x() or (delta.y() if is_shifted else 0)
        is_sideways = is_shifted or abs(delta.x()) > abs(delta.y())
        if not (is_sideways and self.wide.scroll(event.position().y(), sideways)):
            event.ignore()
