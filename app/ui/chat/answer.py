"""An answer in the transcript: what the model thought, what it wrote, the tools that it called in between, and below it
the figures and the buttons.

Nothing of the thinking is laid out before it is opened for the first time: it may be far longer than the answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel, QMenu, QPushButton, QToolButton, QWidget

from app import words
from app.chats.model import Attachment, StoredCall, StoredMessage, unpack
from app.markdown.find import count_matches
from app.protocol.events import Piece
from app.ui.actions import Actions
from app.ui.chat.footer import (
    ABOVE_TEXT,
    BELOW_TEXT,
    HELP,
    INDENT,
    FoldedPart,
    action_button,
    details_of,
    footer_of,
    note_of,
    thinking_title,
    thought_for,
)
from app.ui.chat.messages import MessageButtons, MessageWidget
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Column, Widths
from app.ui.widgets.controls import break_text, explain, label

if TYPE_CHECKING:
    from app.ui.chat.markdown.view import MarkdownView
    from app.ui.chat.tool_cards import ToolCard

_TICK_MS = 1000
_STOP_HELP = "Has the model answer now, with what it has thought so far."


class ThinkingPart(FoldedPart):
    """The thinking of one answer, while it streams or afterwards. ``view``: the text; ``None`` before it was opened."""

    def __init__(
        self,
        name: str,
        column: Column,
        parent: QWidget,
        dress_view: Callable[[MarkdownView], object],
        actions: Actions | None = None,
    ) -> None:
        """``name``: what screen readers call the text. ``dress_view`` makes a new text look like the others."""
        super().__init__(column, parent, ("Stop thinking", _STOP_HELP, "skip_thinking"), actions)
        self._timer = QTimer(self, interval=_TICK_MS)
        self._timer.timeout.connect(self._tell_seconds)
        self.view: MarkdownView | None = None
        self._name = name
        self._dress_view = dress_view
        self._text: list[str] = []
        self._unseen: list[Piece] = []
        """What is given to the view when it is opened."""
        self._find_pieces: Callable[[], list[Piece]] | None = None
        self._is_finished = False
        self._matches = "", -1, 0
        """What was looked for in how long a text, and how often it is there."""
        self._seconds: Callable[[], float] = float

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

    def count(self, query: str) -> int:
        """How many matches there are, whether the text is open or not."""
        length = sum(map(len, self._text))
        if (query, length) != self._matches[:2]:
            self._matches = query, length, count_matches(self.content, query) if query else 0
        return self._matches[2]

    def show_find(self, index: int, _query: str) -> MarkdownView:
        """Open it, and make a match stand out."""
        self.set_open(True)
        assert self.view is not None
        self.view.show_find(index)
        return self.view

    def is_drawn(self) -> bool:
        """Whether all that is to be seen is on screen."""
        return not self.is_open or self.view is None or self.view.is_drawn

    def fit(self, widths: Widths) -> int:
        """Use these widths; gives back the height it needs."""
        bottom = self._fit_buttons(widths)
        if self.view is not None and self.is_open:
            self.view.set_widths(widths.prose - INDENT, widths.code - INDENT)
            self._text_top = bottom + ABOVE_TEXT
            self.view.move(INDENT, self._text_top)
            bottom = self._text_top + self.view.content_height() + BELOW_TEXT
        self.resize(widths.code, bottom)
        return bottom

    def _show_content(self, is_open: bool) -> None:
        if is_open and self.view is None:
            self._make_view()
        if self.view is not None:
            self.view.setVisible(is_open)

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
            view.set_widths(self._widths.prose - INDENT, self._widths.code - INDENT)
        unseen, self._unseen = self._unseen, []
        if unseen or not self._is_finished:
            view.append_pieces(unseen)
            if self._is_finished:
                view.finish()
        else:
            view.set_text(self.content, self._find_pieces, folds=True)
        self._dress_view(view)

    # -- what the button says

    @Slot()
    def _tell_seconds(self) -> None:
        seconds = int(self._seconds())
        self._show_title(f"Thinking… {words.duration(seconds)}" if seconds else "Thinking…")

    def _tell(self, title: str = "") -> None:
        """Without the seconds while these still change."""
        super()._tell(title or ("Thinking" if self._timer.isActive() else ""))


class AnswerMessage(MessageWidget):
    """A model's answer in Markdown. ``thinking``: what the model thought before; ``None`` where it did not. ``view``:
    the text up to the first of the tool calls, which are the ``cards``."""

    def __init__(self, message: StoredMessage, actions: Actions, parent: Column, opened: set[str]) -> None:
        """``opened``: the ids of the messages whose thinking the user wants to see; kept up to date here."""
        super().__init__(message, actions, parent.viewport())
        self._column = parent
        self._opened = opened
        self._is_complete = self._continues = False
        self._thinking_seconds: Callable[[], float] = float
        self.thinking: ThinkingPart | None = None
        self.cards: list[ToolCard] = []
        self._texts: dict[int, MarkdownView] = {0: self.view}
        """By the number of calls before them."""
        self._needed = 0
        """Its height when it was last fitted."""
        self.view.drawn.connect(self._on_text_drawn)
        self._together: QPushButton | None = None
        """Allows several waiting calls at once."""
        self._offered: list[str] = []
        """The ids of those calls."""
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
            part.button.toggled.connect(partial(self._note_open, self.stored.id))
            part.height_changed.connect(self._on_part_changed)
        return self.thinking

    def _note_open(self, place: str, is_open: bool) -> None:
        (self._opened.add if is_open else self._opened.discard)(place)

    @Slot()
    def _on_part_changed(self) -> None:
        self.height_changed.emit()

    def _dress(self, view: MarkdownView) -> None:
        super()._dress(view)
        view.drawn.connect(self._on_text_drawn)

    @Slot()
    def _on_text_drawn(self) -> None:
        """It may have been left higher until everything is drawn, which may change no height."""
        if self.height() > self._needed and self.is_drawn():
            self.height_changed.emit()

    # -- tool calls

    @property
    def content(self) -> str:
        if not self.cards:
            return self.view.content
        return "".join(self._texts[place].content for place in sorted(self._texts)).strip()

    def set_calls(
        self, calls: Sequence[StoredCall], images: Sequence[Attachment] = (), progress: Mapping[str, str] | None = None
    ) -> None:
        """Its tool calls now, and the images that they returned. ``progress``: of running calls, by id."""
        from app.ui.chat.tool_cards import ToolCard, readers

        asked, focus = [card for card in self.cards if card.question is not None], QApplication.focusWidget() or self
        focused = next((card for card in asked if card.isAncestorOf(focus)), None)
        while len(self.cards) < len(calls):
            self.cards.append(card := ToolCard(self._column, self, self._dress, self._actions))
            place = f"{self.stored.id} {len(self.cards)}"
            card.set_open(place in self._opened)
            card.button.toggled.connect(partial(self._note_open, place))
            card.height_changed.connect(self._on_part_changed)
            card.show()
        for card, call in zip(self.cards, calls, strict=True):
            is_held = any(one.state == "asked" and one.tokens == call.tokens for one in calls)
            card.show_call(call, images, is_held=is_held, progress=(progress or {}).get(call.id, ""))
        self._offer_together(readers(self.cards))
        if focused is not None and focused.call.state != "asked" and not self.focus_question():
            self._actions.run("focus_composer")
        if any(card.call.state != "stopped" for card in asked) and not any(card.question for card in self.cards):
            self._column.go_to_end()  # all was decided, and the answer goes on there

    def _offer_together(self, ids: list[str]) -> None:
        if ids == self._offered:
            return
        self._offered = ids
        if self._together is not None:
            self._together.hide()
            self._together.deleteLater()
            self._together = None
        if ids:
            self._together = button = QPushButton(f"Allow these {len(ids)} in this chat", self, autoDefault=False)
            explain(button, "Several calls to one server, which says that these tools only read.")
            for call_id in ids:
                button.clicked.connect(partial(self._actions.run, "allow_in_chat", call_id))
            button.show()

    def focus_question(self) -> bool:
        """Give the keyboard to the first call that waits for the user; ``False`` if there is none."""
        for card in self.cards:
            if card.question is not None and card.call.state == "asked":
                card.question.setFocus(Qt.FocusReason.OtherFocusReason)
                return True
        return False

    def _text_after(self, place: int) -> MarkdownView:
        """The text after ``place`` calls."""
        if place not in self._texts:
            view = self._texts[place] = self.another_view()
            view.height_changed.connect(self._on_part_changed)
            view.selection_dragged.connect(lambda point: self._column.show_point(view, point))
            self._dress(view)
            if place < len(self.cards):
                view.stackUnder(self.cards[place])  # the Tab key goes by the order of the children
        return self._texts[place]

    def _parts(self) -> Iterator[MarkdownView | ToolCard]:
        """Texts and cards in reading order."""
        for place in range(len(self.cards) + 1):
            if place in self._texts:
                yield self._texts[place]
            yield from self.cards[place : place + 1]

    def _append(self, pieces: list[Piece]) -> None:
        """Add text where it belongs between the calls."""
        if not self.cards:
            self.view.append_pieces(pieces)
            return
        so_far = sum(len(view.content) for view in self._texts.values())
        starts = list(accumulate((card.call.text for card in self.cards), max))
        for place, group in groupby(_by_place(pieces, starts, so_far), key=itemgetter(0)):
            self._text_after(place).append_pieces([piece for _, piece in group])

    def views(self) -> list[MarkdownView]:
        found = [self.thinking.view] if self.thinking is not None and self.thinking.view is not None else []
        for part in self._parts():
            found += part.views() if isinstance(part, FoldedPart) else [part]
        return found

    def is_in_use(self) -> bool:
        return super().is_in_use() or any(card.is_in_use() for card in self.cards)

    def is_drawn(self) -> bool:
        texts = all(view.is_drawn for view in self.views()) if self.cards else self.view.is_drawn
        return texts and (self.thinking is None or self.thinking.is_drawn())

    def spoken(self) -> str:
        told = [super().spoken()]
        if not self.content and self.thinking is not None:
            told.append(self.thinking.button.accessibleName())
        if self.cards:
            waits = any(card.call.state == "asked" for card in self.cards)
            told.append(f" {words.count(len(self.cards), 'tool call')}{', which waits for you' if waits else ''}.")
        return "".join(told)

    def show_find(self, index: int) -> MarkdownView:
        """Those in the thinking come first; what is folded is opened."""
        for part in (*filter(None, [self.thinking]), *self._parts()):
            if isinstance(part, FoldedPart):
                if index < (count := part.count(self._query)):
                    return part.show_find(index, self._query)
            elif index < (count := part.set_find(self._query)):
                part.show_find(index)
                return part
            index -= count
        return super().show_find(index)

    def _first_stop(self) -> QWidget:
        if self.thinking is not None and self.thinking.isVisible():
            return self.thinking.button
        part = next((one for one in self._parts() if one.isVisible()), self.view)
        return part.question or part.button if isinstance(part, FoldedPart) else part

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
        if content := self.content:
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
        for part in (self.note, self.footer, *self.cards, *self._texts.values()):
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
        if any(piece.text for piece in pieces):
            self.show_progress("Thinking…" if self.cards and pieces[-1].thinking else "")  # that is far above by now
        if self.thinking is not None or any(piece.thinking for piece in pieces):
            self._thinking_part().take(pieces, self._thinking_seconds)
        if answer := [piece for piece in pieces if not piece.thinking]:
            self._append(answer)

    def show_stored(self, message: StoredMessage) -> None:
        """The answer was complete before; what it consists of is worked out only where it is to be seen."""
        self.stored = message
        if message.thinking.strip():
            part = self._thinking_part()
            find = partial(_pieces_of, message, thinking=True)
            part.show_stored(message.thinking, find, thinking_title(message))
            part.show()
        if calls := message.calls:
            self.set_calls(calls, message.attachments)
        starts = list(accumulate((call.text for call in calls), max))
        for place, (start, end) in enumerate(pairwise([0, *starts, len(message.text)])):
            if not place or message.text[start:end].strip():
                find = partial(_pieces_of, message, thinking=False, starts=starts, place=place)
                self._text_after(place).set_text(message.text[start:end], find, folds=True)
        self._show_end(message)

    def finish(self, message: StoredMessage) -> None:
        """The answer that was written is complete."""
        if self.thinking is not None and message.text and not message.thinking:  # what it thought is the answer
            self.thinking.finish("")
            self.thinking.hide()
            self.thinking.deleteLater()
            self.thinking = None
            self._append(_pieces_of(message, thinking=False))
        if self.thinking is not None:
            self.thinking.finish(thinking_title(message))
        if calls := message.calls:
            self.set_calls(calls, message.attachments)
        for view in self._texts.values():
            view.finish()
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
        for view in self._texts.values():
            view.set_widths(widths.prose, widths.code)
        top = self._stack(0, 0, widths.prose, (self.heading, 4), (None if self.cards else self.progress, 6))
        has_thinking = self.thinking is not None and not self.thinking.isHidden()
        if self.thinking is not None and has_thinking:
            self.thinking.move(0, top + 4)
            top += 4 + self.thinking.fit(widths)
        if self.editing is not None:
            return self.editing.place(0, top + 6, widths.prose) + 8
        top = self._fit_parts(top, widths, shows_empty=not (has_thinking or self.cards))
        top = self._stack(top, 0, widths.prose, (self.note, 10), (self.footer, 10))
        if self._is_complete:
            actions = self._measure_buttons(widths.prose)
            if self._buttons is not None:
                # A little to the left, so that the icons and not their frames line up with the text.
                self._buttons.setGeometry(-5, top + 2, widths.prose, actions.height())
            top += 2 + actions.height()
        self._needed = top + 8
        return self._needed

    def _fit_parts(self, top: int, widths: Widths, *, shows_empty: bool) -> int:
        """The texts and the cards; gives back where they end. ``shows_empty``: there may be nothing else."""
        for part in self._parts():
            if not isinstance(part, FoldedPart):
                part.setVisible(shows_empty or bool(part.content.strip()))
                if part.isHidden():
                    continue
            part.move(0, top + 6)
            top += 6 + (part.fit(widths) if isinstance(part, FoldedPart) else part.content_height())
        if self._together is not None:
            break_text(self._together, widths.prose)
            size = self._together.sizeHint()
            self._together.setGeometry(0, top + 8, min(size.width(), widths.prose), size.height())
            top += 8 + size.height()
        return self._stack(top, 0, widths.prose, (self.progress if self.cards else None, 8))


def _pieces_of(message: StoredMessage, *, thinking: bool, starts: Sequence[int] = (), place: int = 0) -> list[Piece]:
    """Those of the thinking, or of the text behind ``place`` of the calls that start at ``starts``."""
    pieces = unpack(message.text, message.provenance, message.thinking)
    found = [piece for piece in pieces if piece.thinking == thinking]
    return [piece for at, piece in _by_place(found, starts, 0) if at == place] if starts else found


def _by_place(pieces: Iterable[Piece], starts: Sequence[int], at: int) -> Iterator[tuple[int, Piece]]:
    """Pieces of the text from character ``at`` on, each with the number of calls before it. ``starts``: the calls'.
    A piece with a call in it becomes two."""
    for piece in pieces:
        text = piece.text
        while text:
            place = bisect_right(starts, at)
            part = text[: starts[place] - at] if place < len(starts) else text
            yield place, piece if part == piece.text else msgspec.structs.replace(piece, text=part)
            at, text = at + len(part), text[len(part) :]
