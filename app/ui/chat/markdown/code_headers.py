"""What stands above each code block of a view: its language, and a button that copies it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from PySide6.QtCore import QObject, QRectF, Qt, Signal
from PySide6.QtWidgets import QPushButton, QWidget

from app.models.text import shortened
from app.ui.chat.parts import copy_text
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import row


class CodeWrap(QObject):
    """Whether long lines of code are wrapped, in all code blocks of the window."""

    changed = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.is_on = False

    def set_on(self, wraps: bool) -> None:
        if wraps != self.is_on:
            self.is_on = wraps
            self.changed.emit(wraps)


@cache
def code_wrap() -> CodeWrap:
    """The one of the window."""
    return CodeWrap()


class CodeHeader(QWidget):
    """The language and the button over the top of a code block's frame."""

    def __init__(self, parent: QWidget, code: Callable[[], str]) -> None:
        """``code``: the whole text of the block."""
        super().__init__(parent)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self._language = label(role="quiet", scale=0.9)
        self.copy_button = QPushButton("Copy")
        themes.scale_font(self.copy_button, 0.9)
        themes.set_role(self.copy_button, "flat")
        self.copy_button.clicked.connect(lambda: copy_text(code(), self.copy_button))
        row((self._language, 1), self.copy_button, gap=0, margins=(12, 3, 4, 0), on=self)

    def place(self, frame: QRectF, height: float, language: str) -> None:
        """Stand at the top of this frame; ``language`` is empty where it is not known."""
        self.setGeometry(int(frame.left()), int(frame.top()), int(frame.width()), int(height))
        self.show()
        language = shortened(language, 24)
        if (language or "code") != self._language.text():
            self._language.setText(language or "code")
            self.copy_button.setAccessibleName(f"Copy this {language} code" if language else "Copy this code")
