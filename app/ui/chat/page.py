"""Which messages the transcript shows, and how a change of them reaches it."""

from __future__ import annotations

from typing import Protocol

from app.chats.model import StoredMessage
from app.protocol.messages import Piece
from app.ui.chat.answer import Answer


class TranscriptView(Protocol):
    """What a session asks of the widget that shows it."""

    def clear(self) -> None: ...
    def show_welcome(self) -> None: ...
    def add(self, message: StoredMessage) -> None: ...
    def begin_answer(self, message: StoredMessage) -> None: ...
    def append_pieces(self, pieces: list[Piece]) -> None: ...
    def set_prompt_progress(self, done: int, total: int) -> None: ...
    def finish_answer(self, message: StoredMessage) -> None: ...
    def remove_from(self, message_id: str) -> None: ...
    def mark_context_start(self, message_id: str | None) -> None: ...
    def set_busy(self, busy: bool) -> None: ...
    def go_to_end(self) -> None: ...


class ChatPage:
    """The shown branch of the shown chat.

    Attributes:
        chat_id: ``None`` is the chat that comes into being with its first message.
        branch: The messages on the page, oldest first.
    """

    def __init__(self, view: TranscriptView) -> None:
        self._view = view
        self.chat_id: str | None = None
        self.branch: list[StoredMessage] = []

    def place(self, message_id: str) -> int | None:
        """Where a message stands in the branch."""
        return next((place for place, one in enumerate(self.branch) if one.id == message_id), None)

    def show(self, chat_id: str | None, branch: list[StoredMessage], live: Answer | None) -> None:
        """Bring the view to another branch, touching only what differs. ``live`` is being written."""
        old, same = self.branch, 0
        while same < min(len(old), len(branch)) and old[same] == branch[same]:
            same += 1
        if same == 0:
            self._view.clear()
        elif same < len(old):
            self._view.remove_from(old[same].id)
        self.chat_id, self.branch = chat_id, list(branch)
        if not branch:
            self._view.show_welcome()
        for message in branch[same:]:
            self._add(message, live)
        # Where the context of the last answer began, if older messages had left it.
        start = branch[-1].figures.get("context_start") if branch else None
        self._view.mark_context_start(start if isinstance(start, str) else None)

    def cut(self, place: int) -> None:
        """Take away everything from this place on."""
        if place < len(self.branch):
            self._view.remove_from(self.branch[place].id)
            del self.branch[place:]

    def add_question(self, message: StoredMessage) -> bool:
        """Put a message behind its parent, in place of what stands there; ``False`` where the parent is not here."""
        place = 0
        if message.parent_id is not None:
            parent = self.place(message.parent_id)
            if parent is None:
                return False
            place = parent + 1
        self.cut(place)
        self.branch.append(message)
        self._add(message, None)
        return True

    def begin_answer(self, message: StoredMessage) -> bool:
        """Put an empty answer at the end; ``False`` where its question does not stand there."""
        if not self.branch or self.branch[-1].id != message.parent_id:
            return False
        self.branch.append(message)
        self._view.begin_answer(message)
        return True

    def finish_answer(self, message: StoredMessage) -> None:
        """The last message, the answer being written, has become this."""
        self.branch[-1] = message
        self._view.finish_answer(message)

    def _add(self, message: StoredMessage, live: Answer | None) -> None:
        if live is None or live.message.id != message.id:
            if message.role != "system":
                self._view.add(message)
            return
        self._view.begin_answer(message)
        if live.prompt_progress is not None and not live.pieces:
            self._view.set_prompt_progress(*live.prompt_progress)
        self._view.append_pieces(live.pieces)
