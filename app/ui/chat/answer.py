"""An answer in the transcript: what the model thought, what it wrote, and below it the figures and the buttons.

Nothing of the thinking is laid out before it is opened for the first time: it may be far longer than the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QMenu, QPushButton, QToolButton, QWidget

from app import words
from app.chats.model import StoredMessage, unpack
from app.markdown.find import count_matches
from app.protocol.events import Piece
from app.ui.actions import Actions
from app.ui.chat.footer import HELP, action_button, details_of, footer_of, note_of, thinking_title, thought_for
from app.ui.chat.messages import MessageButtons, MessageWidget
from app.ui.widgets import icons
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Column, Widths
from app.ui.widgets.controls import explain, label

if TYPE_CHECKING:
    from app.ui.chat.markdown.view import MarkdownView

_TICK_MS = 1000
_INDENT = 16
"""Of the text, beside the line that marks it."""
_LINE_LEFT = 7
_ABOVE_TEXT, _BELOW_TEXT = 4, 8
_STOP_HELP = "Has the model answer now, with what it has thought so far."


class _FoldButton(QPushButton):
    """Opens and closes the text, and stays where it is on the screen."""

    def __init__(self, column: Column, parent: QWidget) -> None:
        super().__init__(parent, autoDefault=True)  # Enter presses it, too
        self._column = column
        self.setCheckable(True)
        themes.set_role(self, "fold")

    def nextCheckState(self) -> None:  # noqa: N802
        self._column.keep_place(self, super().nextCheckState)


class ThinkingPart(QWidget):
    """The thinking of one answer, while it streams or afterwards.

    Attributes:
        button: Opens and closes it.
        stop_button: Ends the thinking; only while the model thinks, and where that can be done.
        view: The text; ``None`` before it was opened.

    Signals:
        height_changed: It needs another height.
    """

    height_changed = Signal()

    def __init__(
        self,
        name: str,
        column: Column,
        parent: QWidget,
        dress_view: Callable[[MarkdownView], object],
        actions: Actions | None = None,
    ) -> None:
        """``name``: what screen readers call the text. ``column``: whose entry it is in. ``dress_view`` makes a new
        text look like the others. Without ``actions`` nobody can stop it here."""
        super().__init__(parent)
        self.view: MarkdownView | None = None
        self._name = name
        self._column = column
        self._dress_view = dress_view
        self._actions = actions
        self._text: list[str] = []
        self._unseen: list[Piece] = []
        """What is given to the view when it is opened."""
        self._find_pieces: Callable[[], list[Piece]] | None = None
        self._is_finished = False
        self._matches = "", -1, 0
        """What was looked for in how long a text, and how often it is there."""
        self._seconds: Callable[[], float] = float
        self._widths = Widths(0, 0)
        self.button = _FoldButton(column, self)
        self.stop_button: QPushButton | None = None
        self._timer = QTimer(self, interval=_TICK_MS)
        self._timer.timeout.connect(self._tell_seconds)
        self.button.toggled.connect(self._on_toggled)
        themes.follow(self, self._dress)

    # -- text

    @property
    def content(self) -> str:
        """What the model thought, as it wrote it."""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0] if self._text else ""

    def append_pieces(self, pieces: list[Piece]) -> None:
        """More of it. Pieces that are not thinking are left out."""
        pieces = [piece for piece in pieces if piece.thinking]
        self._text += [piece.text for piece in pieces]
        if self.view is not None:
            self.view.append_pieces(pieces)
        else:
            self._unseen += pieces

    def take(self, pieces: list[Piece], seconds: Callable[[], float]) -> None:
        """More of an answer; only its thinking is shown here. ``seconds``: how long the model has thought so far."""
        self.append_pieces(pieces)
        if self.isHidden() and self.content.strip():
            self.show()
            self.height_changed.emit()
        if pieces[-1].thinking:
            self.begin(seconds)
        else:
            self.pause()

    def begin(self, seconds: Callable[[], float]) -> None:
        """The model thinks. ``seconds``: for how long so far."""
        if not self._timer.isActive():
            self._seconds = seconds
            self._timer.start()
            self._show_stop(self._actions is not None and self._actions.is_enabled("skip_thinking"))
            self._tell_seconds()

    def pause(self) -> None:
        """The model writes its answer; it may think again."""
        if self._timer.isActive():
            self._timer.stop()
            self._show_stop(False)
            self._show_title(thought_for(self._seconds()))

    def finish(self, title: str) -> None:
        """There is no more of it. ``title``: how it was, in a few words."""
        self._timer.stop()
        self._show_stop(False)
        self._is_finished = True
        if self.view is not None:
            self.view.finish()
        self._show_title(title)

    def show_stored(self, text: str, find_pieces: Callable[[], list[Piece]] | None, title: str) -> None:
        """Thinking that was complete before; see `MarkdownView.set_text`."""
        self._text, self._find_pieces, self._is_finished = [text], find_pieces, True
        if self.view is not None:
            self.view.set_text(text, find_pieces, folds=True)
        self._show_title(title)

    # -- how it is shown

    @property
    def is_open(self) -> bool:
        return self.button.isChecked()

    def set_open(self, is_open: bool) -> None:
        """Show or hide the text."""
        self.button.setChecked(is_open)

    def count(self, query: str) -> int:
        """How many matches there are, whether the text is open or not."""
        length = sum(map(len, self._text))
        if (query, length) != self._matches[:2]:
            self._matches = query, length, count_matches(self.content, query) if query else 0
        return self._matches[2]

    def is_drawn(self) -> bool:
        """Whether all that is to be seen is on screen."""
        return not self.is_open or self.view is None or self.view.is_drawn

    def fit(self, widths: Widths) -> int:
        """Use these widths; gives back the height it needs."""
        self._widths = widths
        size = self.button.sizeHint()
        width = min(size.width(), widths.prose)
        self.button.setGeometry(0, 0, width, size.height())
        bottom = size.height()
        if self.stop_button is not None and not self.stop_button.isHidden():
            wanted = self.stop_button.sizeHint()
            fits = width + 8 + wanted.width() <= widths.prose
            top = (size.height() - wanted.height()) // 2 if fits else size.height()
            left = width + 8 if fits else 0
            self.stop_button.setGeometry(left, top, min(wanted.width(), widths.prose), wanted.height())
            bottom = bottom if fits else top + wanted.height()
        if self.view is not None and self.is_open:
            self.view.set_widths(widths.prose - _INDENT, widths.code - _INDENT)
            self.view.move(_INDENT, bottom + _ABOVE_TEXT)
            bottom += _ABOVE_TEXT + self.view.content_height() + _BELOW_TEXT
        self.resize(widths.code, bottom)
        return bottom

    @Slot(bool)
    def _on_toggled(self, is_open: bool) -> None:
        if is_open and self.view is None:
            self._make_view()
        if self.view is not None:
            self.view.setVisible(is_open)
        self._dress()
        self._tell()
        self.height_changed.emit()

    def _make_view(self) -> None:
        from app.ui.chat.markdown.view import MarkdownView

        view = self.view = MarkdownView(soft=True, parent=self)
        view.setAccessibleName(self._name)
        view.lower()  # behind the buttons for the Tab key, which goes by the order of the children
        for button in (self.stop_button, self.button):
            if button is not None:
                button.lower()
        themes.scale_font(view, 0.95)
        view.height_changed.connect(self._on_view_height_changed)
        view.selection_dragged.connect(lambda point: self._column.show_point(view, point))
        if self._widths.prose:
            view.set_widths(self._widths.prose - _INDENT, self._widths.code - _INDENT)
        unseen, self._unseen = self._unseen, []
        if unseen or not self._is_finished:
            view.append_pieces(unseen)
            if self._is_finished:
                view.finish()
        else:
            view.set_text(self.content, self._find_pieces, folds=True)
        self._dress_view(view)

    @Slot()
    def _on_view_height_changed(self) -> None:
        if self.is_open:
            self.height_changed.emit()

    def _show_stop(self, shown: bool) -> None:
        if shown and self.stop_button is None:
            self.stop_button = QPushButton("Stop thinking", self, autoDefault=False)
            themes.set_role(self.stop_button, "link")
            explain(self.stop_button, _STOP_HELP)
            self.stop_button.clicked.connect(self._on_stop)
        if self.stop_button is not None:
            if not shown and self.stop_button.hasFocus():
                self.button.setFocus(Qt.FocusReason.OtherFocusReason)
            self.stop_button.setEnabled(shown)
            self.stop_button.setVisible(shown)
        self.height_changed.emit()

    @Slot()
    def _on_stop(self) -> None:
        if self._actions is not None and self.stop_button is not None:
            self.button.setFocus(Qt.FocusReason.OtherFocusReason)  # a disabled button would lose it
            self.stop_button.setEnabled(False)
            self._actions.run("skip_thinking")

    # -- what the button says

    @Slot()
    def _tell_seconds(self) -> None:
        seconds = int(self._seconds())
        self._show_title(f"Thinking… {words.duration(seconds)}" if seconds else "Thinking…")

    def _show_title(self, title: str) -> None:
        if title != self.button.text():
            self.button.setText(title)
            self._tell()
            self.height_changed.emit()

    def _tell(self) -> None:
        """Tell screen readers, without the seconds while these still change."""
        title = "Thinking" if self._timer.isActive() else self.button.text().replace(words.NO_BREAK, " ")
        name = f"{title}, {'open' if self.is_open else 'closed'}"
        if name != self.button.accessibleName():
            self.button.setAccessibleName(name)

    def _dress(self) -> None:
        self.button.setIcon(icons.themed("chevron-down" if self.is_open else "chevron-right", themes.current()))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self.view is not None and self.is_open:
            top = self.view.y()
            line = QRectF(_LINE_LEFT, top, 2, self.height() - _BELOW_TEXT - top)
            QPainter(self).fillRect(line, themes.current().line)


class AnswerMessage(MessageWidget):
    """A model's answer in Markdown. ``thinking``: what the model thought before; ``None`` where it did not."""

    def __init__(self, message: StoredMessage, actions: Actions, parent: Column, opened: set[str]) -> None:
        """``opened``: the ids of the messages whose thinking the user wants to see; kept up to date here."""
        super().__init__(message, actions, parent.viewport())
        self._column = parent
        self._opened = opened
        self._is_complete = self._continues = False
        self._thinking_seconds: Callable[[], float] = float
        self.thinking: ThinkingPart | None = None
        self.progress: QLabel | None = None
        self.note: QLabel | None = None
        self.footer: QLabel | None = None

    def _make_buttons(self) -> MessageButtons:
        own = {"regenerate": action_button("regenerate", self._actions, "regenerate_answer", self.stored.id)}
        buttons = MessageButtons(self, self._actions, own, right=False)
        if self._continues:
            buttons.add("end", self._continue_button())
        return buttons

    def _continue_button(self) -> QToolButton:
        return action_button("end", self._actions, "continue_message", self.stored.id)

    # -- thinking

    def _thinking_part(self) -> ThinkingPart:
        """The part with what the model thought, hidden while that is empty."""
        if self.thinking is None:
            name = f"Thinking of {self.stored.author}"
            part = self.thinking = ThinkingPart(name, self._column, self, self._dress, self._actions)
            part.hide()
            part.lower()  # the Tab key comes to it before the text
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

    def show_find(self, index: int) -> MarkdownView:
        """Those in the thinking come first; it is opened for them."""
        part = self.thinking
        before = part.count(self._query) if part is not None else 0
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
            self._show_continue()

    def _show_continue(self) -> None:
        if (buttons := self._buttons) is not None:
            if self._continues and "end" not in buttons.own:
                buttons.add("end", self._continue_button())
            if "end" in buttons.own:
                buttons.own["end"].setVisible(self._continues and not self._is_busy)
            buttons.fit(buttons.width())

    def set_busy(self, busy: bool) -> None:
        super().set_busy(busy)
        self._show_continue()

    def _has_buttons(self) -> bool:
        return self._is_complete

    def _add_views(self, menu: QMenu) -> None:
        from app.ui.chat.markdown.plain_text import plain_text

        copy = QGuiApplication.clipboard().setText
        if content := self.view.content:
            menu.addAction("Copy as Markdown", lambda: copy(content))
            menu.addAction("Copy as plain text", lambda: copy(plain_text(content)))
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
        self._thinking_seconds = float  # what told it has the whole chat
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
