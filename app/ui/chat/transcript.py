"""The middle of the window: the messages of one chat, and the answer while it is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from PySide6.QtCore import QMetaObject, QObject, QRect, QRectF, Qt, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from app.chats.model import StoredMessage
from app.models.starter import is_starter, starter_file
from app.protocol.events import Piece, Round
from app.settings import Pair, Settings
from app.ui.actions import Actions
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.footer import Card, ContextLine, height_of, named_button
from app.ui.chat.markdown.fold_button import folded_length
from app.ui.chat.messages import MessageWidget, UserMessage
from app.ui.engine.pair_names import PairFiles, is_guide
from app.ui.widgets import theme as themes
from app.ui.widgets.column import MARGIN, Column, Entry, Widths
from app.ui.widgets.controls import GAP, column, label, plain_tooltip
from app.ui.widgets.icons import set_icon
from app.ui.widgets.turns import turns

if TYPE_CHECKING:
    from app.ui.chat.live_answer import LiveAnswer
    from app.ui.chat.markdown.view import MarkdownView
    from app.ui.chat.model import ChatModel
    from app.ui.chat.open_chats import OpenChats

PROGRESS_DELAY = 0.4
"""Seconds of prompt processing before its progress is worth showing."""
TEMPORARY_TEXT = "Temporary chat. It isn't saved, and it will be gone when you leave it."
_WELCOME = "\0welcome"
CONTEXT = "\0context"
_HEIGHT_OF_CHARACTER = 0.42
"""Pixels a character adds to a message of prose, lists and code. Counting lines would take thousands of messages too
long."""
_FRAME_HEIGHT = 90
_THINKING_HEIGHT = 28
"""While it is closed; the same for a tool call."""
_AT_ONCE = 500
"""So many messages are added in one turn of the event loop."""
EXAMPLES = ("What is speculative decoding?", "Write a JSON settings file", "Tell me a short story")
STARTER_EXAMPLES = {
    "Rewrite a sentence": 'Rewrite this sentence without mistakes: "She dont like the coffe becuase it are to hot."',
    "Find facts in a text": (
        "Find the name, the city and the year in the last text.\n\n"
        "Text: Ben Miller moved to Berlin in 2015.\nFacts: Ben Miller, Berlin, 2015\n\n"
        "Text: Maria Lopez opened a small bakery in Lisbon in 2021. It sells bread and cakes.\nFacts:"
    ),
    "Continue a story": (
        "Tom found an old map in the attic. It showed the way to a cave in the hills. He took a lamp and went into the "
        "cave.\n\nContinue the story with one sentence."
    ),
}
"""What the buttons say while the starter model is loaded, and what is sent; each was tried 20 times."""
_TEXTS = {
    "guide": (
        "This is the Slipstream Guide, a tiny built-in model that only answers questions about the app. "
        "For everything else,"
    ),
    "starter model": "This is the starter model. It is small and quick, but often wrong. For better answers,",
}


@dataclass(frozen=True)
class Introduction:
    """What an empty chat says of a model that came with the app; of others nothing."""

    model: Literal["", "guide", "starter model"] = ""
    has_card: bool = False
    offers_starter: bool = False
    proposal: str = ""


def introduction(settings: Settings, files: Pair | PairFiles | None) -> Introduction:
    """What an empty chat says of this pair, until the user wants to keep it; ``None``: the bundled one."""
    if files is None or (not files.server and is_guide(files.target)):
        offers_starter = not settings.starter_hidden and starter_file() is not None
        return Introduction("guide", not settings.guide_introduced, offers_starter)
    if not files.server and is_starter(files.target):
        return Introduction("starter model", not settings.starter_introduced)
    return Introduction()


class Welcome(QWidget):
    """The page of an empty chat: examples and, for a model that came with the app, an introduction."""

    def __init__(self, actions: Actions, introduction: Introduction) -> None:
        super().__init__()
        self._actions = actions
        title = label("Ask anything", "heading", wraps=True, scale=1.5)
        hint = label("Try one of these:", "quiet", wraps=True)
        for text in (title, hint):
            text.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        asked = STARTER_EXAMPLES if introduction.model == "starter model" else {text: text for text in EXAMPLES}
        self.examples = [named_button(name, partial(actions.run, "ask", text)) for name, text in asked.items()]
        for button, sent in zip(self.examples, asked.values(), strict=True):
            button.setMinimumWidth(260)
            button.setToolTip(plain_tooltip(sent) if sent != button.text() else "")
        centered = [(button, Qt.AlignmentFlag.AlignHCenter) for button in self.examples]
        self.card = self._make_card(introduction) if introduction.has_card else None
        layout = column(None, title, hint, GAP, *centered, None, on=self)
        if self.card is not None:
            layout.addWidget(self.card)

    def _make_card(self, said: Introduction) -> Card:
        text = _TEXTS[said.model]
        text += f" get a model that runs well on this computer: {said.proposal}." if said.proposal else " open a model."
        names = ["get_proposed"] if said.proposal else []
        if said.offers_starter:
            text += " Or start right away with the starter model, which is small and quick, but often wrong."
            names.append("load_starter")
        buttons = [(self._actions.text(name), partial(self._actions.run, name)) for name in [*names, "choose_models"]]
        card = Card(text, [*buttons, (f"Keep the {said.model}", self._hide_card)], role="info")
        if said.proposal:
            themes.set_role(card.buttons[0], "primary")
        return card

    def _hide_card(self) -> None:
        if self.card is not None:
            self.card.hide()
        self._actions.run("hide_introduction")

    def fit(self, widths: Widths) -> int:
        parent = self.parentWidget()
        available = parent.height() - 64 if parent is not None else 0
        self.setMaximumWidth(widths.prose)
        if self.card is not None:
            self.card.fit(widths)
        return max(height_of(self, widths.prose), available)

    def is_in_use(self) -> bool:
        return False

    def is_drawn(self) -> bool:
        return True


class Transcript(QWidget):
    """Shows one chat; every text in here is shown as text or as safe Markdown."""

    _model: ChatModel | None = None
    _live: LiveAnswer | None = None
    """Whose pieces are shown."""
    _answer: Entry | None = None
    _answer_began = 0.0
    _shows_drafted = _is_busy = _is_welcoming = False
    _introduction = Introduction()
    _continued: str | None = None
    """The answer that was cut and can go on."""
    _context_start: str | None = None
    _query = ""
    _match: tuple[str, int] | None = None
    """The match that stands out: in which message, and which one there."""

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        """``actions``: what can be done with messages."""
        super().__init__(parent)
        self._actions = actions
        self._live_connections: list[QMetaObject.Connection] = []
        self._shown: list[str] = []
        """Ids of the messages of `_model` that are here, system prompts left out."""
        self._opened: set[str] = set()
        """The messages whose thinking the user opened."""
        self._end: list[Entry] = []
        """What `show_end` showed."""
        self._older: list[StoredMessage] = []
        """What stands above, and is still to be added; see `take_turn`."""
        themes.set_role(self, "reading")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.column = Column()
        self.column.setAccessibleName("Chat")
        self.column.following_changed.connect(self._on_following_changed)
        self._temporary = label(TEMPORARY_TEXT, "quiet", wraps=True)
        self._temporary.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._temporary.setContentsMargins(MARGIN, GAP, MARGIN, 0)
        self._temporary.hide()
        column(self._temporary, (self.column, 1), gap=0, on=self)
        self.newest_button = QPushButton("Newest", self)
        self.newest_button.setAccessibleName("Go to the newest message")
        set_icon(self.newest_button, "end")
        self.newest_button.clicked.connect(self.column.go_to_end)
        self.newest_button.hide()

    # -- the chat that is shown

    def begin(self, chats: OpenChats) -> None:
        """The chats are there: show the one that is open."""
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
        self._temporary.setVisible(model.is_temporary)
        self.clear()
        self._shown = []
        self._on_state_changed()
        self._on_branch_changed(0)

    @Slot(list)
    def _on_end_read(self, messages: list[StoredMessage]) -> None:
        self.show_end([one for one in messages if one.role != "system"])

    @Slot(int)
    def _on_branch_changed(self, place: int) -> None:
        """The messages from this place on have changed."""
        assert self._model is not None
        messages = [one for one in self._model.messages[place:] if one.role != "system"]
        first = place - sum(one.role == "system" for one in self._model.messages[:place])
        if first < len(self._shown):
            if first == 0:
                self.clear()
            else:
                self.remove_from(self._shown[first])
            del self._shown[first:]
        is_live = self._live_answer() is not None
        self.add_all(messages[:-1] if is_live else messages)
        self._shown += [one.id for one in messages]
        if not self._shown:
            if self._model.is_new:
                self.show_welcome()
        elif is_live:
            self._show_answer()
        self._mark_context()
        if place and messages and messages[-1].role == "user":
            self.column.go_to_end()  # it was sent

    def _live_answer(self) -> LiveAnswer | None:
        """The answer being written, if the last message is its."""
        live = self._model.live if self._model is not None else None
        return live if live is not None and live.message is not None else None

    def _mark_context(self) -> None:
        """Where the context of the last answer begins, if older messages have left it."""
        start: object = None
        assert self._model is not None
        if (live := self._live_answer()) is not None:
            start = live.context_start
        elif self._model.messages:
            start = self._model.messages[-1].figures.get("context_start")
        self.mark_context_start(start if isinstance(start, str) else None)

    def _show_answer(self) -> None:
        live = self._live_answer()
        assert live is not None and live.message is not None
        self._leave_answer()
        self._live = live
        self.begin_answer(live.message, live.thinking_seconds)
        if live.prompt_progress is not None and not live.pieces:
            self.set_prompt_progress(*live.prompt_progress)
        self._on_calls_changed()
        if live.pieces:
            self.append_pieces(live.pieces)
        self._live_connections = [
            live.calls_changed.connect(self._on_calls_changed),
            live.started.connect(self._mark_context),
            live.prompt_progressed.connect(self.set_prompt_progress),
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
            self.append_pieces(pieces)

    @Slot()
    def _on_calls_changed(self) -> None:
        widget, live = self._answer.widget if self._answer is not None else None, self._live
        if live is None or not isinstance(widget, AnswerMessage):
            return
        if live.calls or widget.cards:
            widget.set_calls(live.calls, live.attachments, live.progress)
        widget.show_progress("Calling a tool…" if live.is_writing_call else "")
        self._answer_began = time.monotonic()  # the prompt is processed again, with the results

    def focus_question(self) -> None:
        """Give the keyboard to the tool call that waits for the user, unless the user has scrolled up to read."""
        self._on_calls_changed()  # the caller may have heard of the call before this widget did
        if self.column.follows and self._answer is not None and isinstance(self._answer.widget, AnswerMessage):
            self._answer.widget.focus_question()

    @Slot()
    def _on_answer_ended(self) -> None:
        assert self._model is not None
        self._leave_answer()
        self.finish_answer(self._model.messages[-1])

    @Slot()
    def _on_state_changed(self) -> None:
        assert self._model is not None
        self.set_busy(self._model.state.is_busy)

    # -- stored messages

    def clear(self) -> None:
        """Show nothing."""
        self._answer = None
        self._end = []
        self._older = []
        self._context_start = None
        self._is_welcoming = False
        self.column.remove(list(self.column.entries))
        self.column.go_to_end()

    def show_end(self, messages: Sequence[StoredMessage]) -> None:
        """Show the last messages of a chat until all are read, and given to `add_all`."""
        self.add_all(messages)
        self._end = list(self.column.entries)

    def add_all(self, messages: Sequence[StoredMessage]) -> None:
        """Add many messages at the end: quicker than one by one. Of very many the oldest come a little later."""
        end, self._end = self._end, []
        if messages:
            self._remove_welcome()
        if end and [entry.content for entry in end] == list(messages[-len(end) :]):
            self._older = list(messages[: -len(end)])
            self.take_turn()
        elif len(self.column.entries) == len(end) and not self._older:
            self.column.remove(end)
            self._older = list(messages)
            self.take_turn()
        else:
            self.column.remove(end)
            self.column.add_all(self._stored(messages))

    def take_turn(self) -> None:
        """Some of the older messages; see `app.ui.widgets.turns`."""
        self._add_older(_AT_ONCE)
        if self._older:
            turns().want(self, later=True)

    def _add_older(self, count: int) -> None:
        """Add so many of the older messages above all others."""
        messages = self._older[-count:]
        del self._older[-count:]
        self.column.add_all(self._stored(messages), 0)
        if self._context_start is not None and any(message.id == self._context_start for message in messages):
            self._show_context_start()

    def show_message(self, message_id: str) -> MessageWidget | None:
        """Bring a message, however far it is, to the screen and give back its widget; ``None`` where it is not here."""
        if any(message.id == message_id for message in self._older):
            self._add_older(len(self._older))
        entry = next((entry for entry in self.column.entries if entry.key == message_id), None)
        widget = self.column.reveal(entry) if entry is not None else None
        return widget if isinstance(widget, MessageWidget) else None

    def remove_from(self, message_id: str) -> None:
        """Remove this message and everything after it."""
        if any(message.id == message_id for message in self._older):
            self._add_older(len(self._older))
        entries = self.column.entries
        index = next((i for i, entry in enumerate(entries) if entry.key == message_id), None)
        if index is None:
            return
        if self._answer in entries[index:]:
            self._answer = None
        self.column.remove(entries[index:])

    def mark_context_start(self, message_id: str | None) -> None:
        """Draw a line above this message: what stands before it no longer fits into the context."""
        self._context_start = message_id
        self.column.remove([entry for entry in self.column.entries if entry.key == CONTEXT])
        if message_id is not None:
            self._show_context_start()

    def _show_context_start(self) -> None:
        for index, entry in enumerate(self.column.entries):
            if entry.key == self._context_start:
                self.column.add(Entry(CONTEXT, lambda _entry: ContextLine(), 30), index)
                return

    # -- the answer that is being written

    def begin_answer(self, message: StoredMessage, thinking_seconds: Callable[[], float] = float) -> None:
        """A new answer; `append_pieces` fills it. ``thinking_seconds``: how long the model has thought so far."""
        self._remove_welcome()
        entry = self._entry(message, self._build)
        entry.is_pinned = True
        self.column.add(entry)
        widget = cast(AnswerMessage, self.column.build(entry))
        widget.begin(thinking_seconds)
        widget.set_find(self._query)
        self._answer, self._answer_began = entry, time.monotonic()

    def append_pieces(self, pieces: list[Piece]) -> None:
        """Tokens of the answer that was begun; shown with the next frame."""
        if self._answer is not None and isinstance(self._answer.widget, AnswerMessage):
            self._answer.widget.append_pieces(pieces)

    def set_prompt_progress(self, done: int, total: int) -> None:
        """How far the model has read the chat, in tokens; shown where that takes noticeable time."""
        if self._answer is None or time.monotonic() - self._answer_began < PROGRESS_DELAY or total <= 0:
            return
        if isinstance(self._answer.widget, AnswerMessage):
            share = min(100, 100 * done // total)
            self._answer.widget.show_progress(f"Processing the prompt · {share}%")

    def finish_answer(self, message: StoredMessage) -> None:
        """The answer is complete: this is what was stored of it."""
        entry, self._answer = self._answer, None
        if entry is not None and isinstance(entry.widget, AnswerMessage):
            entry.widget.finish(message)
            entry.build, entry.content, entry.is_pinned = self._build_stored, message, False
            entry.text = message.text

    # -- the empty chat

    def show_welcome(self) -> None:
        """The page of an empty chat."""
        self._remove_welcome()
        self._is_welcoming = True
        self.column.add(Entry(_WELCOME, lambda _entry: Welcome(self._actions, self._introduction), 400), 0)

    def introduce(self, introduction: Introduction | None = None, proposal: str | None = None) -> None:
        """What an empty chat says of the model, and what it proposes to get, in a few words; ``None``: as before."""
        before = self._introduction
        introduction = replace(introduction or before, proposal=before.proposal if proposal is None else proposal)
        if introduction != before:
            self._introduction = introduction
            if self._is_welcoming:
                self.show_welcome()

    def _remove_welcome(self) -> None:
        if self._is_welcoming:
            self._is_welcoming = False
            self.column.remove([entry for entry in self.column.entries if entry.key == _WELCOME])

    # -- from message to message

    def focused_message(self) -> str | None:
        """The message that has the keyboard, or in which something has it."""
        focus = QApplication.focusWidget() or self
        built = (one for one in self.column.built() if isinstance(one.widget, MessageWidget))
        return next((one.key for one in built if one.widget and one.widget.isAncestorOf(focus)), None)

    def first_seen(self) -> str | None:
        """The first message of which something is on the screen."""
        top = self.column.verticalScrollBar().value()
        return next((one.key for one in self._message_entries() if one.top + one.height > top), None)

    def step_message(self, step: int) -> bool:
        """Focus the next message (1) or the one before (-1); from elsewhere, the last. ``False`` if there is none,
        behind the last."""
        keys = [one.key for one in self._message_entries()]
        focused = self.focused_message()
        outside = len(keys) - 1 if step < 0 else len(keys)
        place = outside if focused is None else max(0, keys.index(focused) + step)
        if not 0 <= place < len(keys):
            return False
        widget = self.show_message(keys[place])
        if widget is not None:
            widget.show()
            widget.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.column.show_box(widget, QRect(0, 0, 1, min(widget.height(), self.column.viewport().height() // 2)))
        return widget is not None

    def _message_entries(self) -> list[Entry]:
        return [one for one in self.column.entries if not one.key.startswith("\0")]

    # -- find

    def set_find(self, query: str) -> None:
        """Mark what is looked for in all messages; empty: nothing."""
        self._query, self._match = query, None
        for message in self._messages():
            message.set_find(query)

    def show_match(self, message_id: str, index: int) -> MarkdownView | None:
        """Bring a match to the screen and make it stand out. Returns the text it is in, ``None`` if the message isn't
        here."""
        if self._match is not None and self._match[0] != message_id:
            for message in self._messages():
                message.leave_match()
        self._match = message_id, index
        widget = self.show_message(message_id)
        if widget is None:
            return None
        widget.set_find(self._query)
        view = widget.show_find(index)
        self.scroll_to_match(view, view.find_box())
        return view

    def scroll_to_match(self, view: MarkdownView, box: QRectF | None) -> None:
        """Bring this part of a message's text to the screen."""
        if box is not None:
            self.column.arrange()
            self.column.show_box(view, box.toAlignedRect())

    # -- all messages

    def set_continued(self, message_id: str | None) -> None:
        """Which answer was cut and can go on now."""
        self._continued = message_id
        for entry in self.column.built():
            if isinstance(entry.widget, AnswerMessage):
                entry.widget.set_continues(entry.key == message_id)

    def set_show_drafted(self, shown: bool) -> None:
        """Tint the tokens that came from the draft, in all messages."""
        if shown != self._shows_drafted:
            self._shows_drafted = shown
            for message in self._messages():
                message.set_show_drafted(shown)

    def set_busy(self, busy: bool) -> None:
        """Hide what cannot be done while an answer is being written."""
        if busy != self._is_busy:
            self._is_busy = busy
            for message in self._messages():
                message.set_busy(busy)

    def _messages(self) -> list[MessageWidget]:
        return [entry.widget for entry in self.column.built() if isinstance(entry.widget, MessageWidget)]

    def _entry(self, message: StoredMessage, build: Callable[[Entry], QWidget]) -> Entry:
        text = message.text[: folded_length(message.text)]  # what is shown of it when it is built
        folded = bool(message.thinking) + message.calls_json.count('{"id":')
        height = _FRAME_HEIGHT + folded * _THINKING_HEIGHT
        return Entry(message.id, build, int(len(text) * _HEIGHT_OF_CHARACTER) + height, text, message)

    def _stored(self, messages: Iterable[StoredMessage]) -> list[Entry]:
        build = self._build_stored
        return [self._entry(message, build) for message in messages]

    def _build_stored(self, entry: Entry) -> MessageWidget:
        result = self._build(entry)
        if isinstance(result, AnswerMessage):
            result.show_stored(cast(StoredMessage, entry.content))
        if self._query:
            result.set_find(self._query)
            if self._match is not None and self._match[0] == entry.key:
                result.show_find(self._match[1])
        return result

    def _build(self, entry: Entry) -> MessageWidget:
        """The widget of a message; an answer is only begun."""
        message = cast(StoredMessage, entry.content)
        result: MessageWidget
        if message.role == "user":
            result = UserMessage(message, self._actions, self.column.viewport())
        else:
            result = AnswerMessage(message, self._actions, self.column, self._opened)
        result.set_show_drafted(self._shows_drafted)
        result.set_busy(self._is_busy)
        if isinstance(result, AnswerMessage):
            result.set_continues(entry.key == self._continued)
        result.view.selection_dragged.connect(lambda point: self.column.show_point(result.view, point))
        for source in (result, result.view):
            source.height_changed.connect(lambda: self.column.refit(entry))
        return result

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

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_button()
