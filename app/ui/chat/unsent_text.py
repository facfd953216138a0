"""What stands in the composer and was not sent: stored for each chat, never overwritten by what was stored before."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.store import ChatStore
from app.errors import KnownError
from app.ui.chat.stored_chats import StoredChats

STORE_INTERVAL_MS = 500


def joined(first: str, second: str) -> str:
    """Both texts, one below the other; one of them where it begins or ends with the other."""
    if not second.strip() or first == second or first.endswith(f"\n{second}"):
        return first
    return second if not first.strip() or second.startswith(first) else f"{first}\n{second}"


class UnsentText(QObject):
    """The composer's text of the current chat, on its way to the store and back.

    Attributes:
        is_known: Whether the composer has what was stored for the chat. Until then the store's text is added to, not
            replaced.

    Signals:
        came_back: Text of the current chat that the store could not take, and that the composer no longer has.
    """

    came_back = Signal(str)

    def __init__(self, chat_store: StoredChats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.is_known = False
        self._chat_store = chat_store
        self._chat_id: str | None = None
        self._typed: str | None = None
        """Text of the composer that the store does not have yet."""
        self._has_chat = False
        self._unstored: dict[str | None, str] = {}
        """Text that could not be stored."""
        self._never_made: set[str | None] = set()
        """Chats that were to come into being with a message that could not be stored."""
        self._timer = QTimer(self, interval=STORE_INTERVAL_MS, singleShot=True)
        self._timer.timeout.connect(self._on_due)

    def remember(self, text: str) -> None:
        """Remember what stands in the composer; stored a moment later."""
        self._typed = text
        self._timer.start()

    def turn_to(self, chat_id: str | None) -> str:
        """The composer belongs to another chat from now on. Gives back the text it begins with.

        That is empty, but for what was typed before there was any chat.
        """
        if self._has_chat:
            self.flush()
            self._typed = None
        self._chat_id, self._has_chat, self.is_known = chat_id, True, False
        return self._typed or ""

    def arrived(self, stored: str) -> str:
        """What was stored for the chat: gives back what shall stand in the composer."""
        self.is_known = True
        text = joined(joined(stored, self._unstored.get(self._chat_id, "")), self._typed or "")
        if text != stored:
            self.remember(text)
        return text

    def sent(self, chat_id: str) -> bool:
        """The text was sent, to the chat of this id. Gives back whether that was all of what is stored."""
        whole = self.is_known
        self._timer.stop()
        self._typed = None
        if whole:
            self._unstored.pop(self._chat_id, None)
        if self._chat_id != chat_id:  # the first message of a new chat
            self._chat_id, self._has_chat, self.is_known = chat_id, True, True
        return whole

    def back_to_new(self, chat_id: str, whole: bool) -> None:
        """The chat could not be made, so that its unsent text is again that of the chat to come."""
        self._never_made.add(chat_id)
        if self._chat_id == chat_id:
            self._chat_id, self.is_known = None, whole
        if chat_id in self._unstored:
            self.put_aside(None, self._unstored.pop(chat_id))

    def put_aside(self, chat_id: str | None, text: str) -> None:
        """Keep a text for a chat that is not shown and that the store does not take."""
        self._unstored[chat_id] = joined(self._unstored.get(chat_id, ""), text)

    @Slot()
    def flush(self) -> None:
        """Store what stands in the composer now."""
        self._timer.stop()
        if self._typed is None:
            return
        chat_id, text, whole = self._chat_id, self._typed, self.is_known
        self._typed = None
        if whole:
            self._unstored.pop(chat_id, None)
        if whole or text:
            self._store(chat_id, text, whole)

    def end(self) -> None:
        """Store everything, also what could not be stored before."""
        self.flush()
        for chat_id, text in list(self._unstored.items()):
            self._store(chat_id, text, whole=False)

    def _store(self, chat_id: str | None, text: str, whole: bool) -> None:
        def store_it(store: ChatStore) -> None:
            store.set_unsent(chat_id, text if whole else joined(store.unsent(chat_id), text))

        def stored(_: None) -> None:
            if chat_id in self._never_made:  # the store takes no text for a chat that is not there
                self._remember_for_new(text)

        def failed(error: KnownError) -> None:
            if chat_id in self._never_made:
                self._remember_for_new(text)
            else:
                self.put_aside(chat_id, text)
            self._chat_store.tell(error)

        self._chat_store.ask(store_it, stored, failed)

    def _remember_for_new(self, text: str) -> None:
        """What was typed in a chat that could not be made belongs to the chat to come."""
        if self._chat_id is None:
            self.came_back.emit(text)
        else:
            self.put_aside(None, text)

    @Slot()
    def _on_due(self) -> None:
        if self.is_known:
            self.flush()  # else it is joined with the stored text as soon as that is here
