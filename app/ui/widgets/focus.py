"""The keyboard focus: the ring around it, where the Tab key goes, what a screen reader is told."""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPainter, QPen
from PySide6.QtWidgets import QApplication, QTextEdit, QWidget

from app.ui.widgets import theme

_WIDTH, _RADIUS = 2, 6


def draw(painter: QPainter, around: QRect) -> None:
    """Draw it inside this rectangle."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(theme.current().focus_line, _WIDTH))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(around.adjusted(1, 1, -1, -1), _RADIUS, _RADIUS)


def read_by_keyboard(area: QWidget, focused: QWidget | None) -> QWidget | None:
    """``area``, or the message or the text in it that has the focus, unless the mouse set it."""
    if focused is None or QApplication.mouseButtons() != Qt.MouseButton.NoButton:
        return None
    is_text = isinstance(focused, QTextEdit) and focused.isReadOnly() and area.isAncestorOf(focused)
    viewport = focused.parentWidget()
    is_message = viewport is not None and viewport.parentWidget() is area
    return focused if focused is area or is_text or is_message else None


def next_in_focus_order(widget: QWidget) -> QWidget:
    """`QWidget.nextInFocusChain`. PySide makes the result a child of ``widget``: with that, everything in it would
    count as destroyed, such as the document of a view. Setting its real parent again undoes this."""
    following = widget.nextInFocusChain()
    assert following is not None  # it is a ring
    following.setParent(following.parentWidget())
    return following


def announce(source: QWidget, text: str, *, is_urgent: bool = False) -> None:
    """Have ``text`` said after what the screen reader is saying, or at once if it ``is_urgent``; ``source`` is where it
    comes from."""
    from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent

    if text and QAccessible.isActive():
        event = QAccessibleAnnouncementEvent(source, text)
        politeness = QAccessible.AnnouncementPoliteness
        event.setPoliteness(politeness.Assertive if is_urgent else politeness.Polite)
        QAccessible.updateAccessibility(event)
