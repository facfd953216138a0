"""A message while it is edited."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QPushButton, QWidget

from app.ui.chat.parts import MessageEditor, height_of
from app.ui.chat.send_key import send_key
from app.ui.widgets import theme as themes
from app.ui.widgets.layouts import row

_MOST_LINES = 20


class Editing(QWidget):
    """Its text, and what can be done with it."""

    def __init__(self, text: str, *, is_question: bool, parent: QWidget) -> None:
        """``is_question``: the user wrote it, and it is sent again; else it is an answer, and saved as a version."""
        super().__init__(parent)
        self._is_question = is_question
        self._needs_text = True
        self.text = MessageEditor("Edit your message" if is_question else "Edit this answer", self)
        self.text.setPlainText(text)
        self.text.textChanged.connect(self._on_edited)
        self.save_button = QPushButton("Send again" if is_question else "Save")
        themes.set_role(self.save_button, "primary")
        self.cancel_button = QPushButton("Cancel")
        send_key().changed.connect(self._name_save_button)
        self._name_save_button()
        self._buttons = QWidget(self)
        row(None, self.cancel_button, self.save_button, gap=-1, on=self._buttons)
        self.show()

    def begin(self) -> None:
        """Give the keyboard to it."""
        self.text.setFocus()
        if self._is_question:
            self.text.selectAll()

    def place(self, left: int, top: int, width: int) -> int:
        """Stand in the message from ``top`` on; gives back where it ends."""
        lines = min(_MOST_LINES, max(2, self.text.document().size().height()))
        height = round(lines * self.text.fontMetrics().lineSpacing()) + 20
        below = height_of(self._buttons, width)
        self.setGeometry(left, top, width, height + 8 + below)
        self.text.setGeometry(0, 0, width, height)
        self._buttons.setGeometry(0, height + 8, width, below)
        return self.geometry().bottom() + 1

    @Slot()
    def _name_save_button(self) -> None:
        name = f"{self.save_button.text()} ({send_key().text()})"
        self.save_button.setToolTip(name)
        self.save_button.setAccessibleName(name)

    @property
    def needs_text(self) -> bool:
        """Whether it can't be sent without words: nothing is attached."""
        return self._needs_text

    @needs_text.setter
    def needs_text(self, needs_text: bool) -> None:
        self._needs_text = needs_text
        self._on_edited()

    @Slot()
    def _on_edited(self) -> None:
        self.save_button.setEnabled(not self._needs_text or bool(self.text.toPlainText().strip()))
