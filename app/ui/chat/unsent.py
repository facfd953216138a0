"""What a chat's composer contains: kept in the store, so that nothing typed is ever lost."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.ui.chat.saver import ChatSaver

INTERVAL_MS = 500


def joined(first: str, second: str) -> str:
    """Both texts, one below the other; only one of them if it begins or ends with the other."""
    if not second.strip() or first == second or first.endswith(f"\n{second}"):
        return first
    return second if not first.strip() or second.startswith(first) else f"{first}\n{second}"


class UnsentText(QObject):
    """One for each open chat.

    Attributes:
        text: As it is now.
        is_known: Whether the stored text has been read. Until then nothing is saved, so that nothing is overwritten.

    Signals:
        typed: The text is a different one.
        replaced: So it is, and it wasn't typed: the composer has to show it.
    """

    typed = Signal()
    replaced = Signal(str)

    def __init__(self, saver: ChatSaver, key: Callable[[], str | None], parent: QObject, *, is_known: bool) -> None:
        """``key``: under which id it is stored at the moment, ``None`` for a chat that doesn't exist yet."""
        super().__init__(parent)
        self.text = ""
        self.is_known = is_known
        self._saver = saver
        self._key = key
        self._timer = QTimer(self, interval=INTERVAL_MS, singleShot=True)
        self._timer.timeout.connect(self.save)

    def type(self, text: str) -> None:
        """The user typed this; it is saved a moment later."""
        if text != self.text:
            self.text = text
            self._timer.start()
            self.typed.emit()

    def replace(self, text: str) -> None:
        """Put this into the composer."""
        self.type(text)
        self.replaced.emit(text)

    def take(self) -> str:
        """Remove the text, which will be stored elsewhere. Returns it."""
        text, self.text = self.text, ""
        self._timer.stop()
        return text

    def add_stored(self, stored: str) -> None:
        """The stored text has been read; keep it together with what was typed in the meantime."""
        self.is_known = True
        typed, self.text = self.text, stored
        self.replace(joined(stored, typed))
        if self.text != stored:
            self.save()  # another chat may be shown by now

    @Slot()
    def save(self) -> None:
        """Save it now."""
        self._timer.stop()
        if self.is_known:
            key, text = self._key(), self.text
            self._saver.write(lambda store: store.set_unsent(key, text), replaces="unsent")

    def save_if_changed(self) -> None:
        """Save it now, unless that has been done."""
        if self._timer.isActive():
            self.save()

    def is_saved(self) -> bool:
        """Whether `ChatSaver` was given the text as it is now."""
        return not self._timer.isActive() and (self.is_known or not self.text)

    def finish(self, not_sent: str) -> None:
        """The window closes. Save the text together with a message that was to be sent but wasn't."""
        typed = joined(not_sent, self.text)
        if self.is_known and not not_sent:
            self.save_if_changed()
        elif typed:
            key = self._key()
            self._saver.write(lambda store: store.set_unsent(key, joined(store.unsent(key), typed)))
