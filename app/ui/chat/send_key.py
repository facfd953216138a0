"""The key that sends a message: Enter, or Enter with Ctrl (Command on a Mac). One choice for the whole app."""

from __future__ import annotations

from functools import cache

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence

_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)


class SendKey(QObject):
    """Says what Enter does where a message is written. The one instance comes from `send_key`.

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


def begins_line(event: QKeyEvent) -> bool:
    """Whether this key press, which does not send, begins a line."""
    return event.key() in _ENTER


def enter(modifiers: str = "") -> str:
    """The Enter key with ``modifiers`` (``Ctrl+``) as this system writes it."""
    text = QKeySequence(f"{modifiers}Return").toString(QKeySequence.SequenceFormat.NativeText)
    return text.replace("Return", "Enter")


@cache
def send_key() -> SendKey:
    """The one of this process."""
    return SendKey()
