"""The chat in the window: from a typed message to a stored answer. No widgets; it drives a `TranscriptView`.

A message is stored before it is answered, an answer about once a second while it is written. An answer belongs to its
chat: it goes on while another chat is shown.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.model import StoredMessage
from app.chats.store import ChatStore, new_id
from app.errors import KnownError
from app.protocol.messages import Figures, Round
from app.ui import notices
from app.ui.chat.answer import Answer, AnswerWriter, Pending
from app.ui.chat.conversation import AnswerSettings
from app.ui.chat.page import ChatPage, TranscriptView
from app.ui.chat.stored_chats import StoredChats
from app.ui.chat.unsent_text import UnsentText
from app.ui.engine.interface import Engine, EngineState
from app.ui.engine.pair import PairLoader
from app.ui.notices import NoticeList

_HINTS = {
    EngineState.STARTING: "Your message is sent when the pair is ready.",
    EngineState.LOADING: "Your message is sent when the pair is ready.",
    EngineState.ANSWERING: "Your message is sent after the answer in the other chat.",
    EngineState.MEASURING: "Your message is sent after the measurement.",
    EngineState.COMPARING: "Your message is sent as soon as the prompt being compared is done.",
    EngineState.EMPTY: "Your message waits for a model.",
    EngineState.STOPPED: "Your message waits for a model.",
    EngineState.DIED: "Your message waits for the engine.",
}


@dataclass(eq=False)
class Question:
    """A message on its way to the store."""

    chat_id: str
    text: str
    whole: bool = True
    """Whether it was all of the unsent text of its chat."""
    is_first: bool = False
    """Whether its chat comes into being with it."""
    withdrawn: bool = False
    """Stopped before it was stored: it gets no answer."""


class ChatSession(QObject):
    """One window's chat: shows a branch, has it answered, keeps everything.

    Attributes:
        settings: How the next answer is written.
        writer, unsent_text: The parts; some of what they signal is for the window.

    Signals:
        chat_chosen: The id of the chat that commands are for from now on, ``None`` for the one that does not exist yet;
            and what stands in the composer until its unsent text is here.
        chat_shown: The same id when its messages are on the page, and what shall stand in the composer.
        chat_created: The id the current chat got with its first message.
        chats_changed: The list of chats is out of date.
        busy_changed: Whether the current chat waits for, or is getting, an answer.
        hint_changed: A sentence for the composer; empty for none.
        send_failed: The text of a message of the current chat that could not be stored.
        generation_begun: An answer begins.
        generation_ended: Its `Figures`, or ``None`` if it came to none.
        engine_released: No answer is being written any more, and none waits.
    """

    chat_chosen = Signal(object, str)
    chat_shown = Signal(object, str)
    chat_created = Signal(str)
    chats_changed = Signal()
    busy_changed = Signal(bool)
    hint_changed = Signal(str)
    send_failed = Signal(str)
    generation_begun = Signal()
    generation_ended = Signal(object)
    engine_released = Signal()

    def __init__(
        self,
        engine: Engine,
        pair_loader: PairLoader,
        chat_store: StoredChats,
        notice_list: NoticeList,
        view: TranscriptView,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.settings = AnswerSettings()
        self._engine = engine
        self._pair_loader = pair_loader
        self._chat_store = chat_store
        self._notice_list = notice_list
        self._view = view
        self._page = ChatPage(view)
        self.writer = AnswerWriter(engine, chat_store, notice_list, self)
        self.unsent_text = UnsentText(chat_store, self)
        self._pending: deque[Pending] = deque()
        self._storing: list[Question] = []
        self._chat_id: str | None = None
        self._is_opening = False
        """Whether the page still shows another chat than the current one."""
        self._openings = 0
        """How often it was said which chat to show."""
        self._reading = 0
        """How many branches of the page's chat are being read."""
        self._was_busy = False
        self._page_was_busy = False
        self._wanted_engine = False
        self._connect()

    def _connect(self) -> None:
        self._engine.state_changed.connect(self._on_engine_state_changed)
        self._pair_loader.engine_lost.connect(self.writer.give_up)
        self._pair_loader.pair_given_up.connect(lambda: self.writer.end("stopped", "cancelled"))
        self.writer.begun.connect(self._on_begun)
        self.writer.started.connect(self._on_started)
        self.writer.prompt_progressed.connect(self._on_prompt_progressed)
        self.writer.rounds_received.connect(self._on_rounds_received)
        self.writer.ended.connect(self._on_ended)

    # ------------------------------------------------------------ what is shown

    def chat_id(self) -> str | None:
        """The chat that commands are for; its messages may still be on their way to the page."""
        return self._chat_id

    def branch(self) -> list[StoredMessage]:
        """What stands on the page."""
        return list(self._page.branch)

    def is_busy(self) -> bool:
        """Whether the current chat waits for, or is getting, an answer."""
        return self._is_busy(self._chat_id)

    def wants_engine(self) -> bool:
        """Whether an answer in any chat is being written or waits for it: others leave the engine alone then."""
        return bool(self._storing or self._pending) or not self.writer.is_free()

    def open_chat(self, chat_id: str | None) -> None:
        """Show a chat, or with ``None`` the one that comes into being with its first message.

        An answer being written elsewhere goes on. From now on commands are for this chat, although its messages come to
        the page only when the store answers.
        """
        if self._openings and chat_id == self._chat_id and (self._is_opening or self.unsent_text.is_known):
            if not self._is_opening:
                self._reload()
            return
        text = self.unsent_text.turn_to(chat_id)
        self._chat_id, self._is_opening = chat_id, True
        self._openings += 1
        opening = self._openings
        self.chat_chosen.emit(chat_id, text)
        self._refresh()

        def read(store: ChatStore) -> tuple[list[StoredMessage], str]:
            branch = store.branch(chat_id) if chat_id is not None else []
            return branch, store.unsent(chat_id)

        def show(found: tuple[list[StoredMessage], str]) -> None:
            if opening == self._openings:
                self._is_opening = False
                self._show(chat_id, found[0])
                self.chat_shown.emit(chat_id, self.unsent_text.arrived(found[1]))

        def failed(error: KnownError) -> None:
            self._chat_store.tell(error)
            if opening == self._openings:
                self._is_opening = False
                if self._page.chat_id != chat_id:
                    self.open_chat(self._page.chat_id)

        self._chat_store.ask(read, show, failed)

    # ------------------------------------------------------------ what the user does

    def send(self, text: str) -> None:
        """Store a message of the current chat and have it answered."""
        if not text.strip():
            return
        if self.is_busy():
            self.send_failed.emit(text)
            return
        self._notice_list.remove(*notices.PASSING)
        old_id, chat_id = self._chat_id, self._chat_id or new_id()
        before = list(self._page.branch) if self._page_is_true() else None
        if old_id is None:
            before = []
            self._turn_to_created(chat_id)
        whole = self.unsent_text.sent(chat_id)

        def store_message(store: ChatStore) -> tuple[list[StoredMessage], StoredMessage]:
            if whole:
                store.set_unsent(old_id, "")
            if old_id is None:
                store.create_chat(chat_id=chat_id)
            branch = store.branch(chat_id) if before is None else before
            return branch, store.add_message(_question(chat_id, branch[-1].id if branch else None, text))

        question = Question(chat_id, text, whole, is_first=old_id is None)
        self._store_question(question, store_message)

    def _turn_to_created(self, chat_id: str) -> None:
        """The chat to come has an id now; the page is its own, also where it was not shown yet."""
        if self._page.chat_id is not None:
            self._page.show(chat_id, [], None)
        self._openings += 1
        self._chat_id = self._page.chat_id = chat_id
        self._is_opening = False

    def edit(self, message_id: str, text: str) -> None:
        """Answer another wording of a message on the page; the old one stays as an earlier version."""
        place, chat_id = self._page.place(message_id), self._page.chat_id
        if place is None or chat_id is None or not text.strip() or self._is_busy(chat_id):
            return
        before = self._page.branch[:place]
        parent_id = before[-1].id if before else None
        self._store_question(
            Question(chat_id, text),
            lambda store: (before, store.add_message(_question(chat_id, parent_id, text))),
        )

    def regenerate(self, message_id: str | None = None) -> None:
        """Write an answer on the page again; the old one stays as an earlier version.

        Without an id it is the last answer of the current chat.
        """
        page, chat_id = self._page, self._chat_id
        if message_id is None and not self._page_is_true():

            def try_again(_: None) -> None:
                if chat_id == self._chat_id and self._page_is_true():
                    self.regenerate()

            # What was asked of the store before is done by then.
            self._chat_store.ask(lambda _store: None, try_again)
            return
        place = len(page.branch) - 1 if message_id is None else page.place(message_id)
        if page.chat_id is None or place is None or place < 0 or self._is_busy(page.chat_id):
            return
        page.cut(place if page.branch[place].role == "assistant" else place + 1)
        if page.branch:
            self._enqueue(Pending(page.chat_id, list(page.branch), time.monotonic()))

    def choose_version(self, message_id: str, step: int) -> None:
        """Show an earlier (negative) or later version of a message on the page."""
        chat_id = self._page.chat_id
        if chat_id is not None and not self._is_busy(chat_id):
            self._read(chat_id, lambda store: store.select_version(message_id, step))

    def stop(self, chat_id: str | None = None) -> None:
        """Stop the answer of a chat, by default the current one, or withdraw what waits for one."""
        chat_id = chat_id or self._chat_id
        if chat_id is None:
            return
        for question in self._storing:
            question.withdrawn |= question.chat_id == chat_id
        waited = any(one.chat_id == chat_id for one in self._pending)
        self._pending = deque(one for one in self._pending if one.chat_id != chat_id)
        if self.writer.chat_id() == chat_id:
            self.writer.stop()
        if waited and chat_id == self._page.chat_id:
            self._reload()  # an answer that was to be replaced is still the one there is
        self._refresh()

    def shutdown(self) -> None:
        """Store what there is; call before the engine and the store are closed."""
        self.unsent_text.end()
        self._pending.clear()
        self.writer.save_again()
        self.writer.end("interrupted")

    # ------------------------------------------------------------ questions

    def _store_question(
        self, question: Question, store_message: Callable[[ChatStore], tuple[list[StoredMessage], StoredMessage]]
    ) -> None:
        """Store a message and have it answered. ``store_message`` gives back what stands before it, and the message."""
        asked_at = time.monotonic()
        self._storing.append(question)
        self._refresh()

        def stored(found: tuple[list[StoredMessage], StoredMessage]) -> None:
            before, message = self.writer.newest(found[0]), found[1]
            self._storing.remove(question)
            self._notice_list.remove("send")
            self._show_question(message)
            if question.is_first and question.chat_id == self._chat_id:
                self.chat_created.emit(question.chat_id)
            self.chats_changed.emit()
            if question.withdrawn:
                self._refresh()
            else:
                self._enqueue(Pending(message.chat_id, [*before, message], asked_at))

        def failed(error: KnownError) -> None:
            self._storing.remove(question)
            self._notice_list.show("send", notices.plain_text(f"The message was not sent. {error}"))
            self._give_back(question)
            self._refresh()

        self._chat_store.ask(store_message, stored, failed)

    def _show_question(self, message: StoredMessage) -> None:
        """Put a stored message on the page, if it is that of its chat."""
        if message.chat_id != self._page.chat_id:
            return
        if self._page.add_question(message):
            self._view.go_to_end()
        else:
            self._reload()

    def _give_back(self, question: Question) -> None:
        """A message could not be stored: its text goes back to where it was written."""
        chat_id: str | None = question.chat_id
        if question.is_first:
            self.unsent_text.back_to_new(question.chat_id, question.whole)
            if self._page.chat_id == chat_id:
                self._page.chat_id = None
            if self._chat_id == chat_id:
                self._chat_id = None
            chat_id = None
        if self._chat_id == chat_id:
            self.send_failed.emit(question.text)
        else:
            self.unsent_text.put_aside(chat_id, question.text)

    def _enqueue(self, pending: Pending) -> None:
        self._pending.append(pending)
        self._answer_next()

    @Slot()
    def _answer_next(self) -> None:
        """Begin the next answer if the engine can; otherwise see that it will be able to."""
        if self._pending and self.writer.is_free():
            state = self._engine.state()
            if state is EngineState.READY:
                self.writer.write(self._pending.popleft(), self.settings, self._pair_loader.pair())
            elif state is EngineState.DIED and self._pair_loader.can_bring_back():
                self._pair_loader.restart()
            elif state is EngineState.EMPTY and not (
                self._pair_loader.is_planning() or "load" in self._notice_list.notices()
            ):
                self._notice_list.show("load", notices.no_model())
        self._refresh()

    # ------------------------------------------------------------ answers

    @Slot(object)
    def _on_begun(self, answer: Answer) -> None:
        if answer.message.chat_id == self._page.chat_id and not self._page.begin_answer(answer.message):
            self._reload()
        self.generation_begun.emit()
        self._refresh()

    @Slot(object)
    def _on_started(self, answer: Answer) -> None:
        if self._is_written():
            self._view.mark_context_start(answer.context_start)

    @Slot(int, int)
    def _on_prompt_progressed(self, done: int, total: int) -> None:
        if self._is_written():
            self._view.set_prompt_progress(done, total)

    @Slot(list)
    def _on_rounds_received(self, rounds: list[Round]) -> None:
        pieces = [piece for one in rounds for piece in one.pieces]
        if pieces and self._is_written():
            self._view.append_pieces(pieces)

    @Slot(object, object)
    def _on_ended(self, message: StoredMessage | None, figures: Figures | None) -> None:
        if message is not None and self._page.place(message.id) is not None:
            self._page.finish_answer(message)
        elif message is None:
            self._reload()  # an answer that was to be replaced is still the one there is
        self.generation_ended.emit(figures)
        self._answer_next()

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        if state is EngineState.READY:
            # Not at once: whoever changed the state may still have to tell us how the last answer ended.
            QTimer.singleShot(0, self, self._answer_next)
        self._refresh()

    # ------------------------------------------------------------ inside

    def _is_busy(self, chat_id: str | None) -> bool:
        """Whether this chat waits for, or is getting, an answer."""
        return chat_id is not None and (self._waits(chat_id) or self.writer.chat_id() == chat_id)

    def _waits(self, chat_id: str | None) -> bool:
        """Whether a message of this chat is being stored or waits for the engine."""
        chats = {one.chat_id for one in self._storing} | {one.chat_id for one in self._pending}
        return chat_id in chats

    def _is_written(self) -> bool:
        """Whether the answer being written stands on the page."""
        answer, branch = self.writer.answer, self._page.branch
        return answer is not None and bool(branch) and branch[-1].id == answer.message.id

    def _page_is_true(self) -> bool:
        """Whether the page shows the current chat as the store has it, or soon will."""
        return not self._is_opening and not self._reading

    def _reload(self) -> None:
        """Show the page as the store has it."""
        if (chat_id := self._page.chat_id) is not None:
            self._read(chat_id, lambda store: store.branch(chat_id))

    def _read(self, chat_id: str, read: Callable[[ChatStore], list[StoredMessage]]) -> None:
        """Show another branch on the page of a chat. Until it is there, the store knows better what is shown."""
        self._reading += 1

        def show(branch: list[StoredMessage]) -> None:
            self._reading -= 1
            if chat_id == self._page.chat_id:
                self._show(chat_id, branch)

        def failed(error: KnownError) -> None:
            self._reading -= 1
            self._chat_store.tell(error)

        self._chat_store.ask(read, show, failed)

    def _show(self, chat_id: str | None, branch: list[StoredMessage]) -> None:
        self._page.show(chat_id, self.writer.newest(branch), self.writer.answer)
        self._refresh()

    def _refresh(self) -> None:
        """Tell what has become of busy, hint and the question without an answer."""
        page_is_busy = self._is_busy(self._page.chat_id)
        if page_is_busy != self._page_was_busy:
            self._page_was_busy = page_is_busy
            self._view.set_busy(page_is_busy)
        busy = self.is_busy()
        if busy != self._was_busy:
            self._was_busy = busy
            self.busy_changed.emit(busy)
        branch = self._page.branch
        if not (page_is_busy or self._is_opening) and branch and branch[-1].role == "user":
            self._notice_list.show("unanswered", notices.unanswered())
        else:
            self._notice_list.remove("unanswered")
        wanted, self._wanted_engine = self._wanted_engine, self.wants_engine()
        if wanted and not self._wanted_engine:
            self.engine_released.emit()
        self.hint_changed.emit(_HINTS.get(self._engine.state(), "") if self._waits(self._chat_id) else "")


def _question(chat_id: str, parent_id: str | None, text: str) -> StoredMessage:
    return StoredMessage(new_id(), chat_id, parent_id, "user", text, "complete", time.time())
