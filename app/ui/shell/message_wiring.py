"""Connects what can be done with messages, and the search in a chat, with the window's actions and buttons."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot

from app.chats.model import StoredMessage
from app.markdown.find import count_matches
from app.ui.chat.find_in_chat import FindInChat
from app.ui.chat.open_chats import OpenChats
from app.ui.shell.main_window import MainWindow
from app.ui.shell.message_operations import MessageOperations


class MessageWiring(QObject):
    """One for a window.

    Attributes:
        find: The search in the chat that is shown.
    """

    def __init__(
        self,
        window: MainWindow,
        chats: OpenChats,
        messages: MessageOperations,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._window = window
        self._chats = chats
        self._messages = messages
        self.find = FindInChat(window.find_bar, window.transcript, chats, self)
        window.find_bar.closed.connect(self._on_find_closed)
        messages.continued_changed.connect(window.transcript.set_continued)

    def open_message(self, chat_id: str, message_id: str) -> None:
        """Show a message that was found in the list of chats, with the words that were searched for."""
        searched = self._window.chat_list.search_field.text().strip()

        def found(message: StoredMessage) -> None:
            self._window.transcript.show_message(message_id)
            wordings = [searched, *sorted(searched.split(), key=len, reverse=True)]
            is_plain = message.role == "user"
            texts = (message.text, message.thinking)
            found_in = (one for one in wordings if any(count_matches(text, one, plain=is_plain) for text in texts))
            words = next(found_in, "")
            if words:
                self.find.look_for(words, message_id)

        self._messages.open_message(chat_id, message_id, found)

    def branch(self) -> None:
        """At the message that has the keyboard, else at the last one."""
        messages = self._chats.current.messages
        if messages:
            self._messages.branch(self._window.transcript.focused_message() or messages[-1].id)

    def step(self, step: int) -> None:
        """Go to the next message, or to the one before; behind the last one to where the user writes."""
        if not self._window.transcript.step_message(step):
            self._window.composer.setFocus()

    @Slot()
    def _on_find_closed(self) -> None:
        """The keyboard goes to the message with the match, else back to where one writes."""
        self._window.composer.setFocus()
