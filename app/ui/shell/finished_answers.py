"""A desktop notification for an answer that was finished while the user was in another app."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject

from app.chats.model import StoredMessage
from app.models.text import shortened, visible
from app.settings import Settings
from app.ui.chat.list.rows import UNTITLED
from app.ui.widgets.system_notifications import Notifier

_TITLE, _TEXT = 60, 120
"""Characters."""


class FinishedAnswers(QObject):
    """Notifies of finished answers if the settings say so, except of those that the user stopped."""

    def __init__(
        self,
        notifier: Notifier,
        values: Settings,
        title_of: Callable[[str], str],
        open_chat: Callable[[str], object],
        parent: QObject | None = None,
    ) -> None:
        """``title_of`` gives the title of a chat; ``open_chat`` brings it and the window to the front."""
        super().__init__(parent)
        self._notifier = notifier
        self._values = values
        self._title_of = title_of
        self._open_chat = open_chat

    def tell(self, message: StoredMessage | None) -> None:
        """This answer ended; ``None`` for one that came to nothing."""
        is_stopped = message is not None and message.status == "stopped" and message.finish_reason != "repeats"
        if message is None or is_stopped or not self._values.notify_finished:
            return
        chat_id = message.chat_id
        title = shortened(visible(self._title_of(chat_id)) or UNTITLED, _TITLE)
        text = "The answer couldn't be finished."
        if message.status == "complete":
            text = shortened(" ".join(visible(message.text[: 2 * _TEXT]).split()), _TEXT)
        self._notifier.tell(title, text, lambda: self._open_chat(chat_id))
