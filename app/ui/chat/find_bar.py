"""The bar above a chat in which one looks for words in all its messages, whether they are on the screen or not."""

from __future__ import annotations

import time
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QMetaObject, QObject, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QLineEdit, QToolButton
from shiboken6 import isValid

from app import words
from app.chats.model import StoredMessage
from app.markdown.find import count_matches
from app.ui.chat.transcript import Transcript
from app.ui.widgets import icons, theme
from app.ui.widgets.column import prose_margin
from app.ui.widgets.controls import keeps_escape, label, named, row
from app.ui.widgets.focus import announce
from app.ui.widgets.theme import SPACING
from app.ui.widgets.turns import turns

if TYPE_CHECKING:
    from app.ui.chat.markdown.view import MarkdownView
    from app.ui.chat.model import ChatModel
    from app.ui.chat.open_chats import OpenChats

_SLICE = 0.004
"""Seconds of counting in one turn of the event loop."""
_GROWN_MS = 250
"""After which an answer that grows is counted again."""


class FindBar(QFrame):
    """Hidden until it is opened. A match is named by its message and its number there; all that show matches count
    alike.

    Attributes:
        field, previous_button, next_button, close_button: Its controls.

    Signals:
        closed: The user is done.
    """

    closed = Signal()
    _model: ChatModel
    _query = ""
    _current: tuple[str, int] | None = None
    _start: str | None = None
    """The message from which on the first match is wanted, while it is looked for."""
    _is_wanted = False
    """Whether the first match shall be gone to as soon as it is known."""
    _awaited: tuple[MarkdownView, QMetaObject.Connection] | None = None

    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self._transcript = transcript
        self._answer: list[QMetaObject.Connection] = []
        """To the answer that is being written."""
        self._counts: dict[str, int] = {}
        """Of the messages that were counted."""
        self._grown = QTimer(self, singleShot=True, interval=_GROWN_MS)
        self._grown.timeout.connect(self._on_grown)
        theme.set_role(self, "bar")
        self.field = named(QLineEdit(placeholderText="Find in this chat"), "Find in this chat")
        self._found = label(role="quiet", figures=True)
        self.previous_button = self._button("up", "Previous match", "Shift+Enter")
        self.next_button = self._button("down", "Next match", "Enter")
        self.close_button = self._button("close", "Close", "Esc")
        buttons = (self.previous_button, self.next_button, self.close_button)
        self._row = row((self.field, 1), self._found, *buttons, gap=SPACING, on=self)
        theme.follow_zoom(self, self._align)
        self.field.textChanged.connect(self._look)
        self.previous_button.clicked.connect(lambda: self.step(-1))
        self.next_button.clicked.connect(lambda: self.step(1))
        self.close_button.clicked.connect(self.leave)
        self.hide()

    def _button(self, icon: str, name: str, keys: str) -> QToolButton:
        button = QToolButton(autoRaise=True)
        icons.set_icon(button, icon)
        button.setToolTip(f"{name} ({keys})")
        button.setAccessibleName(name)
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        return button

    def begin(self, chats: OpenChats) -> None:
        """The chats are there: look in the one that is shown."""
        chats.follow(
            self._show,
            branch_changed=self._on_branch_changed,
            answer_begun=self._on_answer_begun,
            answer_ended=self._on_grown,
        )

    def open(self, query: str | None = None) -> None:
        """Show it, with what was looked for before or with ``query``; the keyboard goes there only for the former."""
        was_hidden = self.isHidden()
        self.show()
        if query is None:
            self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.field.selectAll()
            if was_hidden:
                self._look(self.field.text())
        elif query != self.field.text():
            self.field.setText(query)

    @Slot()
    def leave(self) -> None:
        """Close."""
        if not self.isHidden():
            self.hide()
            self._query = ""
            self._forget()
            self._transcript.set_find("")
            self.closed.emit()

    def show_count(self, number: int, count: int, *, is_complete: bool) -> None:
        """Match ``number``, from 1, of ``count``; 0 where none stands out. Not ``is_complete``: more may be found."""
        if not self.field.text().strip():
            text = ""
        elif not is_complete:
            text = "Searching…"
        elif not count:
            text = "No matches"
        else:
            text = f"{words.number(number)} of {words.number(count)}" if number else f"{words.number(count)} found"
        self.previous_button.setEnabled(count > 0)
        self.next_button.setEnabled(count > 0)
        if text != self._found.text():
            self._found.setText(text)
            if is_complete and self.field.hasFocus():
                announce(self, text)

    def count_text(self) -> str:
        """What it says about the matches."""
        return self._found.text()

    # ------------------------------------------------------------ the chat

    def _show(self, model: ChatModel) -> None:
        self._model = model
        self._watch_answer()
        self._forget()
        self._go_on()

    @Slot(int)
    def _on_branch_changed(self, _place: int) -> None:
        if not self._query:
            return
        there = {one.id for one in self._model.messages}
        self._counts = {key: count for key, count in self._counts.items() if key in there}
        if self._current is not None and self._current[0] not in there:
            self._current = None
        self._go_on()

    @Slot()
    def _on_answer_begun(self) -> None:
        self._watch_answer()
        self._grown.start()

    def _watch_answer(self) -> None:
        for connection in self._answer:
            QObject.disconnect(connection)
        live = self._model.live
        grows = () if live is None else (live.rounds_received, live.calls_changed)
        self._answer = [one.connect(self._on_rounds) for one in grows]

    @Slot()
    def _on_rounds(self) -> None:
        if self._query and not self._grown.isActive():
            self._grown.start()

    @Slot()
    def _on_grown(self) -> None:
        """The last message has more text."""
        if self._query and self._model.messages:
            self._counts.pop(self._model.messages[-1].id, None)
            self._go_on()

    # ------------------------------------------------------------ what the user does

    def look_for(self, query: str, message_id: str) -> None:
        """Mark ``query`` and go to its first match in this message."""
        self.open(query)
        self._look(query)
        self._start, self._is_wanted = message_id, True

    @Slot(str)
    def _look(self, query: str) -> None:
        if self.isHidden():
            return
        self._query = query if query.strip() else ""
        self._forget()
        self._transcript.set_find(self._query)
        self._start, self._is_wanted = self._transcript.first_seen(), bool(self._query)
        self._go_on()

    @Slot(int)
    def step(self, step: int) -> None:
        """Go to the next match (1) or the one before (-1), around the ends; opens the bar where it is closed."""
        if self.isHidden() or not self._query:
            self.open()
            return
        matches = self._order()
        if self._current is None or not matches:
            self._start, self._is_wanted = self._transcript.first_seen(), True
            self._go_on()
            return
        message_id, index = self._current
        keys = [key for key, _ in matches]
        place = keys.index(message_id) if message_id in keys else 0
        if 0 <= index + step < self._counts[keys[place]]:
            self._go_to(message_id, index + step)
            return
        place = (place + step) % len(keys)
        self._go_to(keys[place], 0 if step > 0 else self._counts[keys[place]] - 1)

    def _forget(self) -> None:
        self._counts, self._current = {}, None
        self._leave_awaited()

    # ------------------------------------------------------------ counting

    def _texts(self) -> list[StoredMessage]:
        return [one for one in self._model.messages if one.role != "system"]

    def _order(self) -> list[tuple[str, int]]:
        """The messages with matches, in their order, and how many each has."""
        return [(one.id, self._counts[one.id]) for one in self._texts() if self._counts.get(one.id)]

    def _go_on(self) -> None:
        if self._query:
            turns().want(self, later=True)
        self._tell()

    def take_turn(self) -> None:
        """Count for a moment, from where the user is looking (see `app.ui.widgets.turns`). Going to a match takes
        another turn."""
        if not self._query:
            return
        deadline, has_counted = time.perf_counter() + _SLICE, False
        messages = self._texts()
        first = next((place for place, one in enumerate(messages) if one.id == self._start), 0)
        for message in [*messages[first:], *messages[:first]]:
            if message.id not in self._counts:
                self._counts[message.id] = self._count(message)
                has_counted = True
            is_first = self._is_wanted and self._counts[message.id] > 0
            if is_first and not has_counted:
                self._is_wanted = False
                self._go_to(message.id, 0)
            if is_first or time.perf_counter() > deadline:
                turns().want(self, later=True)
                return
        self._is_wanted = False
        self._tell()

    def _count(self, message: StoredMessage) -> int:
        """The matches in a message; those in the thinking come first."""
        live, thinking, text, calls = self._model.live, message.thinking, message.text, message.calls
        if live is not None and live.message is not None and live.message.id == message.id:
            thinking, text, calls, message = live.thinking(), live.text(), tuple(live.calls), live.message
        is_plain = message.role == "user" or bool(message.code_language)
        count = count_matches(thinking, self._query)
        ends = accumulate([0, *(call.text for call in calls), len(text)], max)
        count += sum(count_matches(text[a:b], self._query, plain=is_plain) for a, b in pairwise(ends))
        if calls:
            from app.ui.chat.tool_cards import count_in_call  # the first picture shows no card

            count += sum(count_in_call(call, self._query) for call in calls)
        return count

    def _tell(self) -> None:
        is_complete = len(self._counts) >= len(self._texts()) and not turns().is_waiting(self)
        if not is_complete:  # no number is shown, and to add them up takes a while
            self.show_count(0, int(any(self._counts.values())), is_complete=False)
            return
        number = before = 0
        for key, count in self._order():
            if self._current is not None and key == self._current[0]:
                number = before + self._current[1] + 1
            before += count
        self.show_count(number, before, is_complete=True)

    # ------------------------------------------------------------ going there

    def _go_to(self, message_id: str, index: int) -> None:
        self._current = message_id, index
        self._leave_awaited()
        view = self._transcript.show_match(message_id, index)
        if view is not None and not view.is_drawn:
            self._awaited = view, view.drawn.connect(self._on_drawn)
        self._tell()

    @Slot()
    def _on_drawn(self) -> None:
        """What was not drawn yet when it was gone to is there now."""
        if self._awaited is not None and isValid(self._awaited[0]):
            view = self._awaited[0]
            box = view.find_box()
            if box is not None:
                self._leave_awaited()
                self._transcript.scroll_to_match(view, box)

    def _leave_awaited(self) -> None:
        if self._awaited is not None:
            if isValid(self._awaited[0]):
                QObject.disconnect(self._awaited[1])
            self._awaited = None

    def _align(self) -> None:
        """In line with the messages."""
        side = prose_margin(self.font(), self.width())
        self._row.setContentsMargins(side, SPACING, side, SPACING)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._align()

    def event(self, event: QEvent) -> bool:
        return keeps_escape(event) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc closes it, Enter goes to the next match, with Shift to the one before."""
        if event.key() == Qt.Key.Key_Escape:
            self.leave()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.field.hasFocus():
            self.step(-1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1)
        else:
            super().keyPressEvent(event)
