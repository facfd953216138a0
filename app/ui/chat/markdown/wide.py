"""A text browser that loads nothing and scrolls only tables and code too wide for it.

The document is laid out once, as wide as its parts need. Here is said which parts of it are painted, and answer to the
mouse, some pixels further to the left, and the scroll bar of each is kept.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, QSignalBlocker, Qt, QUrl, Signal, Slot
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QScrollBar, QTextBrowser, QWidget

from app.ui.chat.markdown.formats import CODE_PADDING

BAR_HEIGHT = 12
_INSET = 4
"""Between text that is scrolled and the edge of its frame, in pixels."""
_STEP = 40
_Layout = QAbstractTextDocumentLayout


@dataclass(slots=True)
class WidePart:
    """Document positions ``start`` to ``end``, shown in ``place`` and ``width`` pixels wide."""

    start: int
    end: int
    place: QRect
    width: int
    name: str
    group: int
    """Parts with the same number move together."""
    is_mirrored: bool = False
    """Whether its right end is what is seen first."""

    @property
    def first_offset(self) -> int:
        return self.width - self.place.width() if self.is_mirrored else 0


class _Bar(QScrollBar):
    """A scroll bar that goes right with the right arrow key (Qt's goes left), and leaves up and down to the chat."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        actions = QScrollBar.SliderAction
        by_key = {
            Qt.Key.Key_Left: actions.SliderSingleStepSub,
            Qt.Key.Key_Right: actions.SliderSingleStepAdd,
            Qt.Key.Key_Home: actions.SliderToMinimum,
            Qt.Key.Key_End: actions.SliderToMaximum,
        }
        action = by_key.get(Qt.Key(event.key()))
        if action is None:
            event.ignore()
        else:
            self.triggerAction(action)


class WidePlaces:
    """The parts of a view that are wider than their place, from top to bottom."""

    def __init__(self, viewport: QWidget, moved: Callable[[], None]) -> None:
        """``moved``: called when a part was scrolled."""
        self.parts: list[WidePart] = []
        self._viewport = viewport
        self._moved = moved
        self._offsets: dict[int, int] = {}
        self._bars: list[QScrollBar] = []

    def clear(self) -> None:
        """Another text is shown: nothing of it was scrolled."""
        self._offsets.clear()
        self.set_parts([])

    def set_parts(self, parts: list[WidePart]) -> None:
        """These are the parts now; what was scrolled stays so."""
        self.parts = parts
        while len(self._bars) < len(parts):
            self._bars.append(self._new_bar(len(self._bars)))
        for bar, part in zip(self._bars, parts, strict=False):
            below = QRect(part.place.left(), part.place.bottom() + 1 - BAR_HEIGHT, part.place.width(), BAR_HEIGHT)
            with QSignalBlocker(bar):
                bar.setRange(0, max(0, part.width - part.place.width()))
                bar.setPageStep(part.place.width())
                bar.setValue(self._offsets.get(part.group, part.first_offset))
            bar.setAccessibleName(f"Scroll this {part.name} sideways")
            bar.setGeometry(below)
            bar.show()
        for bar in self._bars[len(parts) :]:
            bar.hide()

    def renumber(self, new: Callable[[int], int]) -> None:
        """The numbers of all groups have changed."""
        self._offsets = {new(group): offset for group, offset in self._offsets.items()}

    def _new_bar(self, number: int) -> QScrollBar:
        bar = _Bar(Qt.Orientation.Horizontal, self._viewport)
        bar.setSingleStep(_STEP)
        bar.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        bar.setCursor(Qt.CursorShape.ArrowCursor)
        bar.valueChanged.connect(lambda value: self._on_bar_moved(number, value))
        return bar

    def _on_bar_moved(self, number: int, value: int) -> None:
        group = self.parts[number].group
        self._offsets[group] = value
        for bar, part in zip(self._bars, self.parts, strict=False):
            if part.group == group:
                with QSignalBlocker(bar):
                    bar.setValue(value)
        self._moved()

    # -- where

    def offset(self, part: WidePart) -> int:
        """How many pixels of the part's left side are scrolled away."""
        most = max(0, part.width - part.place.width())
        return min(self._offsets.get(part.group, part.first_offset), most)

    def at(self, y: float) -> WidePart | None:
        """The part at this height."""
        index = bisect_left(self.parts, y, key=lambda part: part.place.bottom() + 1)
        found = self.parts[index] if index < len(self.parts) else None
        return found if found is not None and found.place.top() <= y else None

    def between(self, top: int, bottom: int) -> list[WidePart]:
        """The parts between two heights."""
        first = bisect_left(self.parts, top, key=lambda part: part.place.bottom())
        return [part for part in self.parts[first:] if part.place.top() <= bottom] if self.parts else []

    def shift_at(self, y: float) -> int:
        """How far to the left what stands at this height is painted."""
        part = self.at(y)
        return self.offset(part) if part is not None else 0

    def in_document(self, point: QPointF) -> QPointF:
        """Which place of the document is seen at this point of the widget."""
        return point + QPointF(self.shift_at(point.y()), 0)

    def on_screen(self, box: QRectF) -> QRectF:
        """Where a box of the document is seen."""
        return box.translated(-self.shift_at(box.center().y()), 0)

    def translated(self, event: QMouseEvent) -> QMouseEvent:
        """A mouse event as it would be if nothing were scrolled."""
        shift = self.shift_at(event.position().y())
        if not shift:
            return event
        return QMouseEvent(
            event.type(),
            event.position() + QPointF(shift, 0),
            event.globalPosition(),
            event.button(),
            event.buttons(),
            event.modifiers(),
        )

    # -- scrolling

    def scroll(self, y: float, pixels: int) -> bool:
        """Move the part at this height so far to the right; false where there is none."""
        part = self.at(y)
        if part is None:
            return False
        bar = self._bars[self.parts.index(part)]
        bar.setValue(bar.value() - pixels)
        return True

    def show_box(self, box: QRectF) -> None:
        """Scroll the part that a box of the document belongs to so that it is seen."""
        part = self.at(box.center().y())
        if part is None:
            return
        bar = self._bars[self.parts.index(part)]
        left, right = box.left() - part.place.left() - _STEP, box.right() - part.place.left() + _STEP
        if left < bar.value():
            bar.setValue(math.floor(left))
        elif right > bar.value() + part.place.width():
            bar.setValue(math.ceil(right) - part.place.width())


def code_place(frame: QRectF, header: float) -> QRect:
    """Where the text of a code block is seen. ``frame``: that of the block, the line above its text included."""
    inner = frame.adjusted(_INSET, header, -_INSET, 0)
    return QRect(
        math.ceil(inner.left()),
        math.floor(inner.top()),
        math.floor(inner.width()),
        math.ceil(inner.bottom()) - math.floor(inner.top()),
    )


def code_extent(width: float) -> int:
    """How many pixels a line of code of this width takes in `code_place`."""
    return math.ceil(width + 2 * (CODE_PADDING - _INSET))


def paint_text(painter: QPainter, layout: _Layout, clip: QRectF, palette: QPalette, cursor: QTextCursor) -> None:
    """Paint the text of a document inside ``clip`` as a text widget does, with what ``cursor`` has selected."""
    context = _Layout.PaintContext()
    context.palette = palette
    context.clip = clip
    if cursor.hasSelection():
        selection = _Layout.Selection()
        selection.cursor = cursor
        form = QTextCharFormat()
        form.setBackground(palette.brush(QPalette.ColorRole.Highlight))
        form.setForeground(palette.brush(QPalette.ColorRole.HighlightedText))
        selection.format = form
        context.selections = [selection]
    layout.draw(painter, context)


class SafeBrowser(QTextBrowser):
    """What is shown in it is at its own height; whoever owns it scrolls it up and down. ``wide``: the parts that are
    scrolled sideways."""

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
