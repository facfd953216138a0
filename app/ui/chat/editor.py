"""Where messages are written and edited, and the key that sends them: Enter, or Enter with Ctrl (Command on a Mac)."""

from __future__ import annotations

from functools import cache

from PySide6.QtCore import QEvent, QObject, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QPlainTextEdit, QPushButton, QWidget

from app.models.text import is_right_to_left
from app.ui.chat.parts import height_of
from app.ui.widgets import theme as themes
from app.ui.widgets.layouts import row

_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
_MOST_LINES = 20
"""Of a message that is edited."""


class SendKey(QObject):
    """Says what Enter does where a message is written: one choice for the whole app, which comes from `send_key`.

    Signals:
        changed: Another key sends now.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.needs_ctrl = False

    def choose(self, *, needs_ctrl: bool) -> None:
        """Send with Ctrl+Enter, so that Enter begins a line; or with Enter, so that Shift+Enter does."""
        if needs_ctrl != self.needs_ctrl:
            self.needs_ctrl = needs_ctrl
            self.changed.emit()

    def sends(self, event: QKeyEvent) -> bool:
        """Whether this key press sends. Ctrl+Enter always does, for whoever is used to it."""
        modifiers = event.modifiers()
        if event.key() not in _ENTER or modifiers & Qt.KeyboardModifier.ShiftModifier:
            return False
        return not self.needs_ctrl or bool(modifiers & Qt.KeyboardModifier.ControlModifier)

    def text(self) -> str:
        """What is on the keys that send, such as ``Ctrl+Enter``, or ``⌘↩`` on a Mac."""
        return enter("Ctrl+" if self.needs_ctrl else "")

    def new_line_text(self) -> str:
        """What is on the keys that begin a line."""
        return enter("" if self.needs_ctrl else "Shift+")


def enter(modifiers: str = "") -> str:
    """The Enter key with ``modifiers`` (``Ctrl+``) as this system writes it."""
    text = QKeySequence(f"{modifiers}Return").toString(QKeySequence.SequenceFormat.NativeText)
    return text.replace("Return", "Enter")


@cache
def send_key() -> SendKey:
    """The one of this process."""
    return SendKey()


class MessageEditor(QPlainTextEdit):
    """Where a message is written: Enter submits it and Shift+Enter begins a line, or as the user chose it."""

    submitted = Signal()
    escaped = Signal()

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        """``name``: what a screen reader says."""
        super().__init__(parent, tabChangesFocus=True)
        self.setAccessibleName(name)
        self.textChanged.connect(self._on_text_changed)

    @Slot()
    def _on_text_changed(self) -> None:
        """Write from the side on which the text begins. (Qt orders the words, but leaves them on the left.)"""
        is_mirrored = is_right_to_left(self.toPlainText())
        option = self.document().defaultTextOption()
        alignment = Qt.AlignmentFlag.AlignRight if is_mirrored else Qt.AlignmentFlag.AlignLeft
        if option.alignment() != alignment:
            directions = Qt.LayoutDirection
            option.setAlignment(alignment)
            option.setTextDirection(directions.RightToLeft if is_mirrored else directions.LayoutDirectionAuto)
            self.document().setDefaultTextOption(option)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent):
            document = self.document()
            # Where nothing was written the key takes back a deletion; but not after the last of what was written.
            if event.matches(QKeySequence.StandardKey.Undo) and not (
                document.isUndoAvailable() or document.isRedoAvailable()
            ):
                event.ignore()
                return False
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.textCursor().block().layout().preeditAreaText():
            return  # a key that an input method passes on does nothing to a word that is not finished
        if event.key() == Qt.Key.Key_Escape:
            self.escaped.emit()
        elif send_key().sends(event):
            self.submitted.emit()
        elif event.key() in _ENTER:
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        else:
            super().keyPressEvent(event)


class Editing(QWidget):
    """A message while it is edited, and what can be done with it."""

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

    def set_needs_text(self, needs_text: bool) -> None:
        """Whether it can't be sent without words: nothing is attached."""
        self._needs_text = needs_text
        self._on_edited()

    @Slot()
    def _on_edited(self) -> None:
        self.save_button.setEnabled(not self._needs_text or bool(self.text.toPlainText().strip()))
