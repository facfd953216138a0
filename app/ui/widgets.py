"""Small helpers for making widgets."""

from __future__ import annotations

import textwrap

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from app.ui import theme
from app.ui.theme import SPACING


def explain(widget: QWidget, text: str) -> None:
    """Give a widget a tooltip of lines short enough to read; screen readers get it as help."""
    widget.setToolTip(textwrap.fill(text, 56))
    widget.setWhatsThis(text)


def label(text: str = "", role: str | None = None, *, wraps: bool = False) -> QLabel:
    """A label that never takes its text for markup."""
    result = QLabel(text)
    result.setTextFormat(Qt.TextFormat.PlainText)
    result.setWordWrap(wraps)
    if role is not None:
        theme.set_role(result, role)
    return result


def stacked(*widgets: QWidget) -> QWidget:
    """One widget of several, one below the other."""
    result = QWidget()
    column = QVBoxLayout(result)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(2 * SPACING)
    for widget in widgets:
        column.addWidget(widget)
    return result
