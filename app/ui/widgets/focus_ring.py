"""A focus ring for widgets without a border of their own."""

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
