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
    """The language and the button over the top of a code block's frame. The owner connects the button."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self._language = label(role="quiet", scale=0.9)
        self.copy_button = QPushButton("Copy")
        themes.scale_font(self.copy_button, 0.9)
        themes.set_role(self.copy_button, "flat")
        row((self._language, 1), self.copy_button, gap=0, margins=(12, 3, 4, 0), on=self)

    def set_language(self, language: str) -> None:
        """Name the language of the code; empty where it is not known."""
        language = shortened(language, 24)
        if (language or "code") != self._language.text():
            self._language.setText(language or "code")
            self.copy_button.setAccessibleName(f"Copy this {language} code" if language else "Copy this code")


class CodeHeaders:
    """The headers of all code blocks of a view, from top to bottom."""

    def __init__(self, viewport: QWidget, code: Callable[[int], str]) -> None:
        """``code``: the text of a code block by its number."""
        self._viewport = viewport
        self._code = code
        self._headers: list[CodeHeader] = []

    @property
    def made(self) -> int:
        """For how many code blocks there is a header."""
        return len(self._headers)

    def make(self) -> None:
        """Make the header of one more code block, which takes a while."""
        self._headers.append(self._new(len(self._headers)))

    def place(self, number: int, frame: QRectF, height: float) -> CodeHeader:
        """Put a header that was made over the top of this frame."""
        header = self._headers[number]
        header.setGeometry(int(frame.left()), int(frame.top()), int(frame.width()), int(height))
        header.show()
        return header

    def hide_from(self, number: int) -> None:
        """There are only so many code blocks."""
        for header in self._headers[number:]:
            header.hide()

    def _new(self, number: int) -> CodeHeader:
        header = CodeHeader(self._viewport)
        header.copy_button.clicked.connect(lambda _checked: copy_text(self._code(number), header.copy_button))
        return header
