"""What stands above each code block of a view: its language, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property

from PySide6.QtCore import QObject, QRectF, Qt, QTimer, Signal
from PySide6.QtWidgets import QPushButton, QWidget
from shiboken6 import isValid

from app.models.text import shortened
from app.ui.chat.markdown.code_saving import save_code
from app.ui.chat.parts import copy_text
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import row

_SAVED_MILLISECONDS = 1500


class CodeWrap(QObject):
    """Whether long lines of code are wrapped in code blocks that are drawn from now on. There is one for the window."""

    changed = Signal(bool)
    """The user, or a setting, chose otherwise."""

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


def set_code_wrap(wraps: bool) -> None:
    """Wrap long lines of code, or let them be scrolled, in code blocks that are drawn from now on."""
    code_wrap().set_on(wraps)


class CodeHeader(QWidget):
    """The language and the buttons over the top of a code block's frame. The owner connects the buttons."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self._language = label(role="quiet", scale=0.9)
        self.set_wrapped: Callable[[bool], object] = bool
        """Called when long lines shall be wrapped, or not; given by the owner."""
        self._of = "this code"
        self.save_button = self._button("Save…")
        self.copy_button = self._button("Copy")
        self._row = row((self._language, 1), self.save_button, self.copy_button, gap=0, margins=(12, 3, 4, 0), on=self)

    @cached_property
    def wrap_button(self) -> QPushButton:
        """The switch, made only where it is needed: many headers are made while one scrolls through a chat."""
        button = self._button("Wrap")
        button.setCheckable(True)
        button.setToolTip("Wrap long lines")
        button.setAccessibleName(f"Wrap the long lines of {self._of}")
        button.clicked.connect(self.set_wrapped)
        self._row.insertWidget(1, button)
        QWidget.setTabOrder(button, self.save_button)
        return button

    def _button(self, text: str) -> QPushButton:
        button = QPushButton(text)
        themes.scale_font(button, 0.9)
        themes.set_role(button, "flat")
        return button

    def set_language(self, language: str) -> None:
        """Name the language of the code; empty where it is not known."""
        language = shortened(language, 24)
        if (language or "code") == self._language.text():
            return
        self._language.setText(language or "code")
        of = self._of = f"this {language} code" if language else "this code"
        if "wrap_button" in self.__dict__:
            self.wrap_button.setAccessibleName(f"Wrap the long lines of {of}")
        self.save_button.setAccessibleName(f"Save {of} as a file")
        self.copy_button.setAccessibleName(f"Copy {of}")

    def show_wrap(self, *, is_useful: bool, is_on: bool) -> None:
        """Whether lines are wrapped; the switch is only there where one is long."""
        if is_useful or "wrap_button" in self.__dict__:
            self.wrap_button.setVisible(is_useful)
            self.wrap_button.setChecked(is_on)

    def show_saved(self) -> None:
        """The code was saved: the button says so for a moment."""
        if isValid(self):
            self.save_button.setText("Saved")
            QTimer.singleShot(_SAVED_MILLISECONDS, self.save_button, lambda: self.save_button.setText("Save…"))


class CodeHeaders:
    """The headers of all code blocks of a view, from top to bottom."""

    def __init__(
        self,
        viewport: QWidget,
        code: Callable[[int], tuple[str, str]],
        set_wrapped: Callable[[int, bool], None],
    ) -> None:
        """``code``: the language and the text of a code block by its number; ``set_wrapped``: wrap its long lines."""
        self._viewport = viewport
        self._code = code
        self._set_wrapped = set_wrapped
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
        header.copy_button.clicked.connect(lambda _checked: copy_text(self._code(number)[1], header.copy_button))
        header.save_button.clicked.connect(lambda _checked: self._save(number))
        header.set_wrapped = lambda is_on: self._set_wrapped(number, is_on)
        return header

    def _save(self, number: int) -> None:
        language, code = self._code(number)
        save_code(self._viewport.window(), language, code, self._headers[number].show_saved)
