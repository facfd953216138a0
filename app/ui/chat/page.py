"""Brings a transcript to what the open chat says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from PySide6.QtCore import QMetaObject, QObject, Slot

from app.chats.model import StoredMessage
from app.protocol.events import Piece, Round
from app.ui.chat.live_answer import LiveAnswer
from app.ui.chat.model import ChatModel
from app.ui.chat.open_chats import OpenChats


class TranscriptView(Protocol):
    """What is asked of the widget that shows a chat."""

    def clear(self) -> None: ...
    def show_welcome(self) -> None: ...
    def show_end(self, messages: Sequence[StoredMessage]) -> None: ...
    def add_all(self, messages: Sequence[StoredMessage]) -> None: ...
    def begin_answer(self, message: StoredMessage, thinking_seconds: Callable[[], float]) -> None: ...
    def append_pieces(self, pieces: list[Piece]) -> None: ...
    def set_prompt_progress(self, done: int, total: int) -> None: ...
    def finish_answer(self, message: StoredMessage) -> None: ...
    def remove_from(self, message_id: str) -> None: ...
    def mark_context_start(self, message_id: str | None) -> None: ...
    def set_busy(self, busy: bool) -> None: ...
    def go_to_end(self) -> None: ...


class ChatPage(QObject):
    """Shows one chat at a time."""

    def __init__(self, view: TranscriptView, chats: OpenChats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._view = view
        self._model = chats.current
        self._live: LiveAnswer | None = None
        """Whose pieces the view is getting."""
        self._shown: list[str] = []
        """Ids of the messages in the view, system prompts left out."""
        self._live_connections: list[QMetaObject.Connection] = []
        chats.follow(
            self._show,
            end_read=self._on_end_read,
            branch_changed=self._on_branch_changed,
            answer_begun=self._on_answer_begun,
            answer_ended=self._on_answer_ended,
            state_changed=self._on_state_changed,
        )

    def _show(self, model: ChatModel) -> None:
        self._leave_answer()
        self._model = model
        self._view.clear()
        self._shown = []
        self._on_state_changed()
        self._on_branch_changed(0)

    @Slot(list)
    def _on_end_read(self, messages: list[StoredMessage]) -> None:
        self._view.show_end([one for one in messages if one.role != "system"])

    @Slot(int)
    def _on_branch_changed(self, place: int) -> None:
        """The messages from this place on are other ones."""
        messages = [one for one in self._model.messages[place:] if one.role != "system"]
        first = place - sum(one.role == "system" for one in self._model.messages[:place])
        if first < len(self._shown):
            if first == 0:
                self._view.clear()
            else:
                self._view.remove_from(self._shown[first])
            del self._shown[first:]
        is_live = self._live_answer() is not None
        self._view.add_all(messages[:-1] if is_live else messages)
        self._shown += [one.id for one in messages]
        if not self._shown:
            if self._model.is_new:
                self._view.show_welcome()
        elif is_live:
            self._show_answer()
        self._mark_context()
        if place and messages and messages[-1].role == "user":
            self._view.go_to_end()  # it was sent

    def _live_answer(self) -> LiveAnswer | None:
        """The answer being written, if the last message is its."""
        live = self._model.live
        return live if live is not None and live.message is not None else None

    def _mark_context(self) -> None:
        """Where the context of the last answer begins, if older messages have left it."""
        start: object = None
        if (live := self._live_answer()) is not None:
            start = live.context_start
        elif self._model.messages:
            start = self._model.messages[-1].figures.get("context_start")
        self._view.mark_context_start(start if isinstance(start, str) else None)

    # ------------------------------------------------------------ the answer being written

    def _show_answer(self) -> None:
        live = self._live_answer()
        assert live is not None and live.message is not None
        self._leave_answer()
        self._live = live
        self._view.begin_answer(live.message, live.thinking_seconds)
        if live.prompt_progress is not None and not live.pieces:
            self._view.set_prompt_progress(*live.prompt_progress)
        if live.pieces:
            self._view.append_pieces(live.pieces)
        self._live_connections = [
            live.started.connect(self._mark_context),
            live.prompt_progressed.connect(self._view.set_prompt_progress),
            live.rounds_received.connect(self._on_rounds_received),
        ]

    def _leave_answer(self) -> None:
        for connection in self._live_connections:
            QObject.disconnect(connection)
        self._live, self._live_connections = None, []

    @Slot()
    def _on_answer_begun(self) -> None:
        if self._live is not self._live_answer():
            self._show_answer()

    @Slot(list)
    def _on_rounds_received(self, rounds: list[Round]) -> None:
        pieces = [piece for one in rounds for piece in one.pieces]
        if pieces:
            self._view.append_pieces(pieces)

    @Slot()
    def _on_answer_ended(self) -> None:
        self._leave_answer()
        self._view.finish_answer(self._model.messages[-1])

    @Slot()
    def _on_state_changed(self) -> None:
        self._view.set_busy(self._model.state.is_busy)
