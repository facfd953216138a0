"""An answer in the transcript: what the model thought, what it wrote, and below it the figures and the buttons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QLabel, QWidget

from app.chats.model import StoredMessage, unpack
from app.protocol.events import Piece
from app.ui.chat.actions import AnswerActions
from app.ui.chat.footer import HELP, details_of, footer_of, note_of, thinking_title
from app.ui.chat.messages import MessageWidget
from app.ui.chat.parts import ChatCommands
from app.ui.chat.thinking import ThinkingPart
from app.ui.widgets.controls import explain, label
from app.ui.widgets.entries import Widths

if TYPE_CHECKING:
    from app.ui.chat.markdown.view import MarkdownView


class AnswerMessage(MessageWidget):
    """A model's answer in Markdown.

    Attributes:
        thinking: What the model thought before; ``None`` where it did not.
    """

    def __init__(
        self, message: StoredMessage, commands: ChatCommands, parent: QWidget, opened: set[str] | None = None
    ) -> None:
        """``opened``: the ids of the messages whose thinking the user wants to see; kept up to date here."""
        super().__init__(message, commands, parent)
        self._opened = set() if opened is None else opened
        self._shows_drafted = False
        self._query = ""
        self._is_complete = False
        self._thinking_seconds: Callable[[], float] = float
        self.thinking: ThinkingPart | None = None
        self.progress: QLabel | None = None
        self.note: QLabel | None = None
        self.footer: QLabel | None = None

    @property
    def buttons(self) -> AnswerActions:
        """Its buttons, made now if there are none yet. Only of a complete answer."""
        self.take_turn()
        assert isinstance(self._made_actions, AnswerActions)
        return self._made_actions

    def _make_actions(self) -> AnswerActions:
        actions = AnswerActions(self._message, self._commands, self._asked)
        actions.set_continues(self._continues)
        return actions

    # -- thinking

    def _thinking_part(self) -> ThinkingPart:
        """The part with what the model thought, hidden while that is empty."""
        if self.thinking is None:
            part = self.thinking = ThinkingPart(f"Thinking of {self._message.author}", self._commands, self)
            part.hide()
            part.lower()  # the Tab key comes to it before the text
            part.set_show_drafted(self._shows_drafted)
            part.set_raw(self._is_raw)
            part.set_find(self._query)
            part.set_open(self._message.id in self._opened)
            part.button.toggled.connect(self._on_thinking_toggled)
            part.height_changed.connect(self._on_part_changed)
            self._asked.thinking = lambda: part.content
        return self.thinking

    @Slot(bool)
    def _on_thinking_toggled(self, is_open: bool) -> None:
        if is_open:
            self._opened.add(self._message.id)
        else:
            self._opened.discard(self._message.id)

    @Slot()
    def _on_part_changed(self) -> None:
        self.height_changed.emit()

    def views(self) -> list[MarkdownView]:
        before = [self.thinking.view] if self.thinking is not None and self.thinking.view is not None else []
        return [*before, self.view]

    def is_drawn(self) -> bool:
        return self.view.is_drawn and (self.thinking is None or self.thinking.is_drawn())

    def spoken(self) -> str:
        if self.view.content or self.thinking is None:
            return super().spoken()
        return f"{super().spoken()}{self.thinking.button.accessibleName()}"

    def set_show_drafted(self, shown: bool) -> None:
        super().set_show_drafted(shown)
        self._shows_drafted = shown
        if self.thinking is not None:
            self.thinking.set_show_drafted(shown)

    def set_raw(self, raw: bool) -> None:
        super().set_raw(raw)
        if self.thinking is not None:
            self.thinking.set_raw(raw)

    def set_find(self, query: str) -> None:
        super().set_find(query)
        self._query = query
        if self.thinking is not None:
            self.thinking.set_find(query)

    def show_find(self, index: int) -> MarkdownView:
        """Those in the thinking come first; it is opened for them."""
        part = self.thinking
        before = part.set_find(self._query) if part is not None else 0
        if part is None or index >= before:
            return super().show_find(index - before)
        part.set_open(True)
        assert part.view is not None
        part.view.show_find(index)
        return part.view

    def _first_stop(self) -> QWidget:
        return self.thinking.button if self.thinking is not None and self.thinking.isVisible() else self.view

    # -- what can be done with it

    def set_continues(self, continues: bool) -> None:
        """Whether it was cut, and can go on now."""
        if continues != self._continues:
            self._continues = continues
            if isinstance(self._made_actions, AnswerActions):
                self._made_actions.set_continues(continues)

    def _has_actions(self) -> bool:
        return self._is_complete

    def _show_editing(self, shown: bool) -> None:
        for part in (self.note, self.footer):
            if part is not None:
                part.setVisible(not shown)
        super()._show_editing(shown)

    def show_progress(self, text: str) -> None:
        """Say what happens while there is no text yet."""
        if text == (self.progress.text() if self.progress is not None else ""):
            return
        if self.progress is None:
            self.progress = label(role="quiet", wraps=True, parent=self)
        self.progress.setText(text)
        self.progress.setVisible(bool(text))
        self.height_changed.emit()

    def begin(self, thinking_seconds: Callable[[], float]) -> None:
        """It is being written. ``thinking_seconds``: how long the model has thought so far."""
        self._thinking_seconds = thinking_seconds

    def append_pieces(self, pieces: list[Piece]) -> None:
        self.show_progress("")
        if self.thinking is not None or any(piece.thinking for piece in pieces):
            self._thinking_part().take(pieces, self._thinking_seconds)
        if answer := [piece for piece in pieces if not piece.thinking]:
            self.view.append_pieces(answer)

    def show_stored(self, message: StoredMessage) -> None:
        """The answer was complete before; what it consists of is worked out only where it is to be seen."""
        self._message = message
        if message.thinking.strip():
            part = self._thinking_part()
            find = partial(_pieces_of, message, thinking=True)
            part.show_stored(message.thinking, find, thinking_title(message))
            part.show()
        self.view.set_text(message.text, partial(_pieces_of, message, thinking=False), folds=True)
        self._show_end(message)

    def finish(self, message: StoredMessage) -> None:
        """The answer that was written is complete."""
        if self.thinking is not None and message.text and not message.thinking:  # what it thought is the answer
            self.thinking.finish("")
            self.thinking.hide()
            self.thinking.deleteLater()
            self.thinking, self._asked.thinking = None, str
            self.view.append_pieces(_pieces_of(message, thinking=False))
        if self.thinking is not None:
            self.thinking.finish(thinking_title(message))
        self.view.finish()
        self._show_end(message)

    def _show_end(self, message: StoredMessage) -> None:
        self._message, self._is_complete = message, True
        footer, note, details = footer_of(message), note_of(message), details_of(message)
        self.show_progress("")
        if footer:
            self.footer = label(footer, role="quiet", wraps=True, scale=0.9, figures=True, parent=self)
            self.footer.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            explain(self.footer, f"{HELP}\n\n{details}" if details else HELP)
            self.footer.setAccessibleDescription(details)
            self.footer.show()
        if note:
            self.note = label(note, role="warning", wraps=True, scale=0.95, parent=self)
            self.note.show()
        self.height_changed.emit()

    def fit(self, widths: Widths) -> int:
        self.view.set_widths(widths.prose, widths.code)
        top = self._stack(0, 0, widths.prose, (self.heading, 4), (self.progress, 6))
        has_thinking = self.thinking is not None and not self.thinking.isHidden()
        if self.thinking is not None and has_thinking:
            self.thinking.move(0, top + 4)
            top += 4 + self.thinking.fit(widths)
        if self.editing is not None:
            return self.editing.place(0, top + 6, widths.prose) + 8
        shows_text = bool(self.view.content) or not has_thinking
        self.view.setVisible(shows_text)
        if shows_text:
            self.view.move(0, top + 6)
            top += 6 + self.view.content_height()
        top = self._stack(top, 0, widths.prose, (self.note, 10), (self.footer, 10))
        if self._is_complete:
            actions = self._measure_actions(widths.prose)
            if self._made_actions is not None:
                # A little to the left, so that the icons and not their frames line up with the text.
                self._made_actions.setGeometry(-5, top + 2, widths.prose, actions.height())
            top += 2 + actions.height()
        return top + 8


def _pieces_of(message: StoredMessage, *, thinking: bool) -> list[Piece]:
    pieces = unpack(message.text, message.provenance, message.thinking)
    return [piece for piece in pieces if piece.thinking == thinking]
