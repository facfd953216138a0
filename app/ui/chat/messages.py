"""The messages of the transcript: what they share, what the user wrote, and the answers.

Many are made while one scrolls through a chat, so a message is made of as few widgets as it needs: its buttons come in
a turn of their own, an editor only when it is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from PySide6.QtCore import QPoint, QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import QApplication, QLabel, QMenu, QWidget

from app.chats.model import Attachment, StoredMessage, unpack
from app.models.text import shortened, visible
from app.protocol.events import Piece
from app.ui.actions import Actions
from app.ui.chat.chips import Chips, chips_of
from app.ui.chat.editor import Editing
from app.ui.chat.footer import HELP, details_of, footer_of, note_of, thinking_title
from app.ui.chat.parts import AnswerButtons, MessageButtons, UserButtons, height_of
from app.ui.chat.thinking import ThinkingPart
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Column
from app.ui.widgets.controls import explain, label
from app.ui.widgets.entries import Widths
from app.ui.widgets.turns import turns

if TYPE_CHECKING:
    from app.ui.chat.markdown.view import MarkdownView

_PADDING = 12
_PICTURE = 96
"""The height of a thumbnail."""
_SPOKEN = 120
"""Characters of a message that a screen reader reads at once."""


class MessageWidget(QWidget):
    """What all messages share: a heading, the text, a row of quiet buttons; an editor in the place of the text.

    A message can have the focus, when one goes from message to message: then a screen reader reads its beginning, and
    Enter opens the menu of what can be done with it.

    Attributes:
        stored: What it shows.
        view: Its text.
    """

    height_changed = Signal()
    """It needs another height, for another reason than its text."""

    _buttons_size: ClassVar = QSize()
    """Of the row of buttons that was made last: so much is left free for the next one."""

    def __init__(self, message: StoredMessage, actions: Actions, parent: QWidget) -> None:
        from app.ui.chat.markdown.view import MarkdownView  # the first picture shows no message

        super().__init__(parent)
        self.stored = message
        self._actions = actions
        self._is_busy = False
        self._continues = False
        self._is_raw = False
        self._buttons: MessageButtons | None = None
        self.editing: Editing | None = None
        self.heading = label(message.author, "quiet", wraps=True, scale=0.95, bold=True, parent=self)
        self.view = MarkdownView(plain=message.role == "user", language=message.code_language, parent=self)
        self.view.setAccessibleName(f"Message from {message.author}")
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)

    def set_busy(self, busy: bool) -> None:
        """While an answer is being written, other messages cannot be changed."""
        self._is_busy = busy
        if busy:
            self.stop_editing()
        if self._buttons is not None:
            self._buttons.set_busy(busy)

    def fit(self, widths: Widths) -> int:
        raise NotImplementedError

    def views(self) -> list[MarkdownView]:
        """The texts in it that have been shown, as one reads."""
        return [self.view]

    def is_in_use(self) -> bool:
        return self.editing is not None or any(view.textCursor().hasSelection() for view in self.views())

    def is_drawn(self) -> bool:
        return self.view.is_drawn

    def set_show_drafted(self, shown: bool) -> None:
        """Tint the tokens that came from the draft."""
        self.view.set_show_drafted(shown)

    def spoken(self) -> str:
        """What a screen reader says of it: who wrote it, which version, how it begins."""
        message = self.stored
        version = f", version {message.version} of {message.versions}" if message.versions > 1 else ""
        beginning = " ".join(self.view.content[: 4 * _SPOKEN].split())
        names = ", ".join(visible(one.name) for one in message.attachments)
        attached = f" Attached: {names}." if names else ""
        return f"{message.author}{version}: {shortened(beginning, _SPOKEN)}{attached}"

    # -- editing

    @Slot()
    def start_editing(self) -> None:
        """Let the user write it anew in its place."""
        if self.editing is not None or self._is_busy:
            return
        editing = self.editing = Editing(self.view.content, is_question=self.stored.role == "user", parent=self)
        editing.text.textChanged.connect(self._on_edited)
        editing.text.submitted.connect(self._on_save)
        editing.text.escaped.connect(self.stop_editing)
        editing.save_button.clicked.connect(self._on_save)
        editing.cancel_button.clicked.connect(self.stop_editing)
        self._show_editing(True)
        editing.begin()

    @Slot()
    def _on_edited(self) -> None:
        self.height_changed.emit()

    @Slot()
    def stop_editing(self) -> None:
        """Leave the message as it was."""
        if self.editing is not None:
            editing, self.editing = self.editing, None
            had_focus = editing.isAncestorOf(QApplication.focusWidget() or self)
            editing.hide()
            editing.deleteLater()
            self._show_editing(False)
            if had_focus:
                self.setFocus(Qt.FocusReason.OtherFocusReason)

    def _show_editing(self, shown: bool) -> None:
        self.view.setVisible(not shown)
        self.take_turn()
        if self._buttons is not None:
            self._buttons.setVisible(not shown)
        self.height_changed.emit()

    @Slot()
    def _on_save(self) -> None:
        text = self.editing.text.toPlainText() if self.editing is not None else ""
        attachments = self._attachments()
        if text.strip() or attachments:
            self.stop_editing()
            if self.stored.role == "user" or text != self.view.content:  # a question may be asked once more
                self._actions.run("edit_message", self.stored.id, text, attachments)

    def _attachments(self) -> Sequence[Attachment]:
        """What goes with it."""
        return self.stored.attachments

    # -- find

    def set_find(self, query: str) -> None:
        """Mark what is looked for; empty: nothing."""
        self.view.set_find(query)

    def show_find(self, index: int) -> MarkdownView:
        """Make a match stand out, wherever it is, and give back the text it is in; see `MarkdownView.find_box`."""
        self.view.show_find(index)
        return self.view

    def leave_match(self) -> None:
        """The match that stands out is in another message now."""
        for view in self.views():
            view.leave_match()

    # -- raw text

    def set_raw(self, raw: bool) -> None:
        """Show the text as the model wrote it."""
        self._is_raw = raw
        self.view.set_raw(raw)

    # -- what can be done with it

    def fill_menu(self, menu: QMenu) -> None:
        """Put everything that can be done now into a menu."""
        menu.clear()
        self._add_views(menu)
        if self._is_busy:
            return
        menu.addSeparator()
        menu.addAction("Edit…", self.start_editing)
        self._add_answering(menu)
        menu.addSeparator()
        if self._actions.is_enabled("branch_message"):
            self._actions.add(menu, "branch_message", self.stored.id)
        self._actions.add(menu, "delete_message", self.stored.id)
        self._actions.add(menu, "delete_from_here", self.stored.id)

    def _add_views(self, menu: QMenu) -> None:
        menu.addAction("Copy", lambda: QGuiApplication.clipboard().setText(self.view.content))

    def _add_answering(self, menu: QMenu) -> None:
        """What only an answer has."""

    # -- the keyboard

    def open_menu(self, at: QPoint | None = None) -> None:
        """Show what can be done with it, at a point of the screen or at its top."""
        if not self._has_buttons() or self.editing is not None:
            return
        menu = QMenu(self)
        self.fill_menu(menu)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(at or self.mapToGlobal(self.heading.geometry().bottomLeft()))
        menu.setActiveAction(menu.actions()[0])

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.open_menu()
        elif event.key() == Qt.Key.Key_Escape:
            self._actions.run("focus_composer")
        elif event.matches(QKeySequence.StandardKey.Copy):
            QGuiApplication.clipboard().setText(self.view.content)
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        is_key = event.reason() is QContextMenuEvent.Reason.Keyboard
        self.open_menu(None if is_key else event.globalPos())

    def focusNextPrevChild(self, forward: bool) -> bool:  # noqa: N802
        """From the message itself the Tab key goes to what stands in it."""
        if forward and self.hasFocus():
            self._first_stop().setFocus(Qt.FocusReason.TabFocusReason)
            return True
        return bool(super().focusNextPrevChild(forward))

    def _first_stop(self) -> QWidget:
        """Where the Tab key stops first in it."""
        return self.view

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.setAccessibleName(self.spoken())

    def _stack(self, top: int, left: int, width: int, *parts: tuple[QWidget | None, int]) -> int:
        """Put the parts that can be seen below each other, each with some space above it; gives back where they end."""
        for part, space in parts:
            if part is None or part.isHidden():
                continue
            height = height_of(part, width)
            part.setGeometry(left, top + space, width, height)
            top += space + height
        return top

    # -- buttons

    def _make_buttons(self) -> MessageButtons:
        raise NotImplementedError

    def _has_buttons(self) -> bool:
        """Whether there is something that could be done with it."""
        return True

    def take_turn(self) -> None:
        """The buttons; see `app.ui.widgets.turns`."""
        if self._buttons is None and self._has_buttons():
            self._buttons = self._make_buttons()
            self._buttons.setParent(self)
            self._buttons.set_busy(self._is_busy)
            self._buttons.show()
            self.height_changed.emit()

    def _measure_buttons(self, width: int) -> QSize:
        """The size of the buttons' row within this width. There is room for it also while it is not made."""
        if self._buttons is None and not MessageWidget._buttons_size.isEmpty():
            turns().want(self, later=True)
        else:
            self.take_turn()
        if self._buttons is not None:
            self._buttons.fit(width)
            MessageWidget._buttons_size = self._buttons.sizeHint()
        return MessageWidget._buttons_size


class UserMessage(MessageWidget):
    """The user's words on a quiet ground, with what is attached to them; they can be edited in place."""

    def __init__(self, message: StoredMessage, actions: Actions, parent: QWidget) -> None:
        super().__init__(message, actions, parent)
        self._ground = QRectF()
        self.chips: Chips | None = None
        self._kept = list(message.attachments)
        """What stays attached if the message is sent again."""
        self.view.set_text(message.text, folds=True)
        self._show_chips()
        self._hide_empty_text()

    @property
    def buttons(self) -> UserButtons:
        """Its buttons, made now if there are none yet."""
        self.take_turn()
        assert isinstance(self._buttons, UserButtons)
        return self._buttons

    def _attachments(self) -> Sequence[Attachment]:
        return tuple(self._kept)

    def _show_chips(self) -> None:
        """Those that stay, while it is edited; else all."""
        if self.stored.attachments:
            self.chips = self.chips or Chips(self)
            remove = self._remove if self.editing is not None else None
            self.chips.show_chips(chips_of(self._kept, self.chips, self._actions, themes.px(_PICTURE), remove))

    def _remove(self, place: int) -> None:
        del self._kept[place]
        self._show_chips()
        if self.editing is not None:
            self.editing.needs_text = not self._kept
            self.editing.text.setFocus()
        self.height_changed.emit()

    def _show_editing(self, shown: bool) -> None:
        self._kept = list(self.stored.attachments)
        if self.editing is not None:
            self.editing.needs_text = not self._kept
        self._show_chips()
        super()._show_editing(shown)
        self._hide_empty_text()

    def _hide_empty_text(self) -> None:
        """A message may be nothing but what is attached to it."""
        if not self.stored.text:
            self.view.hide()

    def is_drawn(self) -> bool:
        return not self.stored.text or super().is_drawn()

    def _first_stop(self) -> QWidget:
        return self.chips.chips[0].button if self.chips is not None and self.chips.chips else self.view

    def _make_buttons(self) -> UserButtons:
        return UserButtons(self, self._actions)

    def set_busy(self, busy: bool) -> None:
        super().set_busy(busy)
        self.height_changed.emit()

    def fit(self, widths: Widths) -> int:
        inner = widths.prose - 2 * _PADDING
        self.view.set_widths(inner, inner)
        named = self.heading.fontMetrics().horizontalAdvance(self.heading.text())
        actions = self._measure_buttons(inner - named)
        if self._buttons is not None:
            self._buttons.setGeometry(widths.prose - actions.width() - 4, 4, actions.width(), actions.height())
        self.heading.setGeometry(_PADDING, 4, inner - actions.width(), actions.height())
        top = actions.height() + 4
        if self.chips is not None and self.chips.chips:
            height = self.chips.fit(inner)
            self.chips.setGeometry(_PADDING, top, inner, height)
            top += height + (_PADDING if self.editing is not None or self.stored.text else 0)
        if self.editing is not None:
            bottom = self.editing.place(_PADDING, top, inner) + _PADDING
        elif self.stored.text:
            self.view.move(_PADDING, top)
            bottom = top + self.view.content_height() + _PADDING
        else:
            bottom = top + _PADDING
        self._ground = QRectF(0, 0, widths.prose, bottom)
        return bottom

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(themes.current().raised)
        painter.drawRoundedRect(self._ground, themes.RADIUS, themes.RADIUS)


class AnswerMessage(MessageWidget):
    """A model's answer in Markdown.

    Attributes:
        thinking: What the model thought before; ``None`` where it did not.
    """

    def __init__(self, message: StoredMessage, actions: Actions, parent: Column, opened: set[str]) -> None:
        """``opened``: the ids of the messages whose thinking the user wants to see; kept up to date here."""
        super().__init__(message, actions, parent.viewport())
        self._column = parent
        self._opened = opened
        self._shows_drafted = False
        self._query = ""
        self._is_complete = False
        self._thinking_seconds: Callable[[], float] = float
        self.thinking: ThinkingPart | None = None
        self.progress: QLabel | None = None
        self.note: QLabel | None = None
        self.footer: QLabel | None = None

    @property
    def buttons(self) -> AnswerButtons:
        """Its buttons, made now if there are none yet. Only of a complete answer."""
        self.take_turn()
        assert isinstance(self._buttons, AnswerButtons)
        return self._buttons

    def _make_buttons(self) -> AnswerButtons:
        buttons = AnswerButtons(self, self._actions)
        buttons.set_continues(self._continues)
        return buttons

    # -- thinking

    def _thinking_part(self) -> ThinkingPart:
        """The part with what the model thought, hidden while that is empty."""
        if self.thinking is None:
            part = self.thinking = ThinkingPart(f"Thinking of {self.stored.author}", self._column, self, self._actions)
            part.hide()
            part.lower()  # the Tab key comes to it before the text
            part.set_show_drafted(self._shows_drafted)
            part.set_raw(self._is_raw)
            part.set_find(self._query)
            part.set_open(self.stored.id in self._opened)
            part.button.toggled.connect(self._on_thinking_toggled)
            part.height_changed.connect(self._on_part_changed)
        return self.thinking

    @Slot(bool)
    def _on_thinking_toggled(self, is_open: bool) -> None:
        if is_open:
            self._opened.add(self.stored.id)
        else:
            self._opened.discard(self.stored.id)

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
            if isinstance(self._buttons, AnswerButtons):
                self._buttons.set_continues(continues)

    def _has_buttons(self) -> bool:
        return self._is_complete

    def _add_views(self, menu: QMenu) -> None:
        copy = QGuiApplication.clipboard().setText
        if content := self.view.content:
            menu.addAction("Copy as Markdown", lambda: copy(content))
            menu.addAction("Copy as plain text", lambda: copy(_plain(content)))
        if self.thinking is not None and (thought := self.thinking.content):
            menu.addAction("Copy thinking", lambda: copy(thought))
        raw = menu.addAction("Show raw text")
        raw.setCheckable(True)
        raw.setChecked(self._is_raw)
        raw.toggled.connect(self.set_raw)

    def _add_answering(self, menu: QMenu) -> None:
        message_id = self.stored.id
        if self._continues:
            self._actions.add(menu, "continue_message", message_id)
        self._actions.add(menu, "regenerate_answer", message_id)
        if self._actions.choices("regenerate_with", message_id):
            self._actions.fill(menu.addMenu(self._actions.text("regenerate_with")), "regenerate_with", message_id)
        self._actions.add(menu, "compare_answer", message_id)

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
        self.stored = message
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
            self.thinking = None
            self.view.append_pieces(_pieces_of(message, thinking=False))
        if self.thinking is not None:
            self.thinking.finish(thinking_title(message))
        self.view.finish()
        self._show_end(message)

    def _show_end(self, message: StoredMessage) -> None:
        self.stored, self._is_complete = message, True
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
            actions = self._measure_buttons(widths.prose)
            if self._buttons is not None:
                # A little to the left, so that the icons and not their frames line up with the text.
                self._buttons.setGeometry(-5, top + 2, widths.prose, actions.height())
            top += 2 + actions.height()
        return top + 8


def _pieces_of(message: StoredMessage, *, thinking: bool) -> list[Piece]:
    pieces = unpack(message.text, message.provenance, message.thinking)
    return [piece for piece in pieces if piece.thinking == thinking]


def _plain(markdown: str) -> str:
    from app.ui.chat.markdown.plain_text import plain_text

    return plain_text(markdown)
