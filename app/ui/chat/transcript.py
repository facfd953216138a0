"""The middle of the window: the messages of one chat, and the answer while it is written."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import Qt, QUrl, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.protocol.messages import Piece
from app.ui.chat.answer import Finished
from app.ui.chat.extras import ContextLine, Welcome
from app.ui.chat.messages import AnswerMessage, MessageWidget, UserMessage
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Column, Entry
from app.ui.widgets.icons import set_icon

PROGRESS_DELAY = 0.4
"""Seconds of prompt processing before its progress is worth showing."""
_CHARACTERS_PER_LINE = 65
_LINE_HEIGHT = 22
_FRAME_HEIGHT = 90


class Transcript(QWidget):
    """Shows one chat. Message ids are the caller's; every text in here is shown as text or as safe Markdown."""

    regenerate_requested = Signal(str)
    compare_requested = Signal(str)
    edit_requested = Signal(str, str)
    version_requested = Signal(str, int)
    link_activated = Signal(QUrl)
    example_chosen = Signal(str)
    open_models_requested = Signal()
    proposal_accepted = Signal()
    guide_kept = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shows_drafted = False
        self._is_busy = False
        self._proposal = ""
        self._welcomes_guide: bool | None = None
        self._answer: Entry | None = None
        self._answer_heading = ""
        self._answer_pieces: list[Piece] = []
        self._answer_began = 0.0
        themes.set_role(self, "reading")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.column = Column()
        self.column.setAccessibleName("Chat")
        self.column.following_changed.connect(self._on_following_changed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.column)
        self.newest_button = QPushButton("Newest", self)
        set_icon(self.newest_button, "end")
        self.newest_button.setAccessibleName("Go to the newest message")
        self.newest_button.clicked.connect(self.column.go_to_end)
        self.newest_button.hide()

    # -- stored messages

    def clear(self) -> None:
        """Show nothing."""
        self._answer = None
        self._welcomes_guide = None
        self.column.remove(list(self.column.entries))
        self.column.go_to_end()

    def add_user_message(self, message_id: str, text: str, version: int = 1, versions: int = 1) -> None:
        """Add what the user wrote."""

        def build(entry: Entry) -> QWidget:
            message = UserMessage(message_id, text, version, versions)
            message.edit_requested.connect(self.edit_requested)
            return self._prepared(message, entry)

        self._add(message_id, build, text)

    def add_answer(
        self,
        message_id: str,
        heading: str,
        text: str,
        finished: Callable[[], Finished],
        version: int = 1,
        versions: int = 1,
    ) -> None:
        """Add a stored answer. ``finished`` is asked each time the answer comes near the screen."""

        def build(entry: Entry) -> QWidget:
            message, parts = AnswerMessage(message_id, heading), finished()
            message.view.set_text(text, parts.pieces)
            message.finish(parts.footer, parts.note, version, versions, parts.details)
            return self._prepared_answer(message, entry)

        self._add(message_id, build, text)

    def remove_from(self, message_id: str) -> None:
        """Remove this message and everything after it."""
        entries = self.column.entries
        index = next((i for i, entry in enumerate(entries) if entry.key == message_id), None)
        if index is None:
            return
        if self._answer in entries[index:]:
            self._answer = None
        self.column.remove(entries[index:])

    def mark_context_start(self, message_id: str | None) -> None:
        """Draw a line above this message: what stands before it no longer fits into the context."""
        self.column.remove([entry for entry in self.column.entries if entry.key == _CONTEXT])
        for index, entry in enumerate(self.column.entries):
            if entry.key == message_id:
                self.column.add(Entry(_CONTEXT, lambda _entry: ContextLine(), 30), index)
                return

    def go_to_end(self) -> None:
        """Show the newest message and follow what is written."""
        self.column.go_to_end()

    # -- the answer that is being written

    def begin_answer(self, message_id: str, heading: str) -> None:
        """A new answer; `append_pieces` fills it."""

        def build(entry: Entry) -> QWidget:
            return self._prepared_answer(AnswerMessage(message_id, heading), entry)

        entry = self._add(message_id, build, "")
        entry.is_pinned = True
        self.column.build(entry)
        self._answer, self._answer_heading, self._answer_pieces = entry, heading, []
        self._answer_began = time.monotonic()

    def append_pieces(self, pieces: list[Piece]) -> None:
        """Tokens of the answer that was begun; shown with the next frame."""
        if self._answer is not None and isinstance(self._answer.widget, AnswerMessage):
            self._answer.widget.append_pieces(pieces)
            self._answer_pieces += pieces

    def set_prompt_progress(self, done: int, total: int) -> None:
        """How far the model has read the chat, in tokens; shown where that takes noticeable time."""
        if self._answer is None or time.monotonic() - self._answer_began < PROGRESS_DELAY or total <= 0:
            return
        if isinstance(self._answer.widget, AnswerMessage):
            share = min(100, 100 * done // total)
            self._answer.widget.show_progress(f"Reading the chat · {share} %")

    def finish_answer(self, footer: str, note: str | None, version: int, versions: int, details: str = "") -> None:
        """The answer is complete.

        ``note``: what is particular about it, such as that it was cut off. ``details``: lines for the tool tip of
        the footer.
        """
        if self._answer is not None and isinstance(self._answer.widget, AnswerMessage):
            self._answer.widget.view.finish()
            self._answer.widget.finish(footer, note, version, versions, details)
            self._remember(self._answer, Finished(self._answer_pieces, footer, note, details), version, versions)
        self._answer, self._answer_pieces = None, []

    def _remember(self, entry: Entry, parts: Finished, version: int, versions: int) -> None:
        """From now on the answer that was written can be built again."""
        heading = self._answer_heading

        def build(entry: Entry) -> QWidget:
            message = AnswerMessage(entry.key, heading)
            message.view.set_text("".join(piece.text for piece in parts.pieces), parts.pieces)
            message.finish(parts.footer, parts.note, version, versions, parts.details)
            return self._prepared_answer(message, entry)

        entry.build, entry.is_pinned = build, False

    # -- the empty chat

    def show_welcome(self, guide: bool) -> None:
        """The page of an empty chat. ``guide``: say that the model is the bundled guide."""

        def build(_entry: Entry) -> QWidget:
            welcome = Welcome(guide, self._proposal)
            welcome.example_chosen.connect(self.example_chosen)
            welcome.open_models_requested.connect(self.open_models_requested)
            welcome.proposal_accepted.connect(self.proposal_accepted)
            welcome.guide_kept.connect(self.guide_kept)
            return welcome

        self._remove_welcome()
        self._welcomes_guide = guide
        self.column.add(Entry(_WELCOME, build, 400), 0)

    def set_proposal(self, proposal: str) -> None:
        """A pair the card of the first start proposes to get, in a few words; empty for none."""
        if proposal != self._proposal:
            self._proposal = proposal
            if self._welcomes_guide:
                self.show_welcome(guide=True)

    def _remove_welcome(self) -> None:
        if self._welcomes_guide is None:
            return
        self._welcomes_guide = None
        self.column.remove([entry for entry in self.column.entries if entry.key == _WELCOME])

    # -- all messages

    def set_show_drafted(self, shown: bool) -> None:
        """Tint the tokens that came from the draft, in all messages."""
        self._shows_drafted = shown
        for message in self._messages():
            message.set_show_drafted(shown)

    def set_busy(self, busy: bool) -> None:
        """Hide what cannot be done while an answer is being written."""
        self._is_busy = busy
        for message in self._messages():
            message.set_busy(busy)

    def _messages(self) -> list[MessageWidget]:
        return [entry.widget for entry in self.column.entries if isinstance(entry.widget, MessageWidget)]

    def _add(self, key: str, build: Callable[[Entry], QWidget], text: str) -> Entry:
        self._remove_welcome()
        lines = text.count("\n") + len(text) // _CHARACTERS_PER_LINE + 1
        entry = Entry(key, build, lines * _LINE_HEIGHT + _FRAME_HEIGHT)
        self.column.add(entry)
        return entry

    def _prepared_answer(self, message: AnswerMessage, entry: Entry) -> AnswerMessage:
        message.regenerate_requested.connect(self.regenerate_requested)
        message.compare_requested.connect(self.compare_requested)
        self._prepared(message, entry)
        return message

    def _prepared(self, message: MessageWidget, entry: Entry) -> MessageWidget:
        message.set_show_drafted(self._shows_drafted)
        message.set_busy(self._is_busy)
        message.view.selection_dragged.connect(lambda point: self.column.show_point(message.view, point))
        message.link_activated.connect(self.link_activated)
        message.version_requested.connect(self.version_requested)
        message.height_changed.connect(lambda: self.column.refit(entry))
        return message

    @Slot(bool)
    def _on_following_changed(self, follows: bool) -> None:
        if follows and self.newest_button.hasFocus():
            # Else Qt hands the focus to some message, and the view would go there.
            self.column.setFocus()
        self.newest_button.setVisible(not follows)
        self._place_button()

    def _place_button(self) -> None:
        size = self.newest_button.sizeHint()
        self.newest_button.setGeometry(
            (self.width() - size.width()) // 2, self.height() - size.height() - 12, size.width(), size.height()
        )
        self.newest_button.raise_()

    # -- Qt

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_button()


_WELCOME = "\0welcome"
_CONTEXT = "\0context"
