"""The chat in the window: from a typed message to a stored answer. No widgets; it drives a `TranscriptView`.

A message is stored before it is answered, an answer about once a second while it is written. An answer belongs to its
chat: it goes on while another chat is shown.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.model import StoredMessage
from app.chats.store import ChatStore
from app.engine.protocol import Figures, Round
from app.errors import KnownError
from app.ui import notices
from app.ui.answer import Answer, Pending, TranscriptView
from app.ui.chat_access import ChatAccess
from app.ui.conversation import AnswerSettings
from app.ui.engine_client import Engine, EngineState
from app.ui.notices import NoticeBoard
from app.ui.page import ChatPage
from app.ui.pair import PairKeeper
from app.ui.writer import AnswerWriter

UNSENT_INTERVAL_MS = 500

T = TypeVar("T")

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


class ChatSession(QObject):
    """One window's chat: shows a branch, has it answered, keeps everything.

    Attributes:
        settings: How the next answer is written.

    Signals:
        chat_shown: The id of the chat now shown (``None``: the one that does not exist yet) and its unsent text.
        chat_created: The id the shown chat got with its first message.
        chats_changed: The list of chats is out of date.
        busy_changed: Whether the shown chat waits for, or is getting, an answer.
        hint_changed: A sentence for the composer; empty for none.
        send_failed: The text of a message that could not be stored.
        generation_begun: An answer begins.
        rounds_received: Rounds of the answer being written, whichever chat it is in.
        generation_ended: Its `Figures`, or ``None`` if it came to none.
        engine_released: No answer is being written any more, and none waits.
    """

    chat_shown = Signal(object, str)
    chat_created = Signal(str)
    chats_changed = Signal()
    busy_changed = Signal(bool)
    hint_changed = Signal(str)
    send_failed = Signal(str)
    generation_begun = Signal()
    rounds_received = Signal(list)
    generation_ended = Signal(object)
    engine_released = Signal()

    def __init__(
        self,
        engine: Engine,
        keeper: PairKeeper,
        access: ChatAccess,
        board: NoticeBoard,
        view: TranscriptView,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.settings = AnswerSettings()
        self._engine = engine
        self._keeper = keeper
        self._access = access
        self._board = board
        self._view = view
        self._page = ChatPage(view)
        self._writer = AnswerWriter(engine, access, board, self)
        self._pending: deque[Pending] = deque()
        self._storing = 0
        self._showing = 0
        self._unsent: str | None = None
        self._unstored_texts: dict[str | None, str] = {}
        """What stood in the composer of a chat and could not be stored."""
        self._was_busy = False
        self._wanted_engine = False
        self._unsent_timer = QTimer(self, interval=UNSENT_INTERVAL_MS, singleShot=True)
        self._unsent_timer.timeout.connect(self.flush_unsent)
        self._connect()

    def _connect(self) -> None:
        self._engine.state_changed.connect(self._on_engine_state_changed)
        self._keeper.engine_lost.connect(self._writer.give_up)
        self._keeper.pair_given_up.connect(self._on_pair_given_up)
        self._writer.begun.connect(self._on_begun)
        self._writer.started.connect(self._on_started)
        self._writer.prompt_progressed.connect(self._on_prompt_progressed)
        self._writer.rounds_received.connect(self._on_rounds_received)
        self._writer.ended.connect(self._on_ended)
        self._writer.stored.connect(self.chats_changed)

    # ------------------------------------------------------------ what is shown

    def chat_id(self) -> str | None:
        return self._page.chat_id

    def branch(self) -> list[StoredMessage]:
        return list(self._page.branch)

    def is_busy(self) -> bool:
        """Whether the shown chat waits for, or is getting, an answer."""
        return bool(self._storing) or self._waits() or self._is_written()

    def wants_engine(self) -> bool:
        """Whether an answer in any chat is being written or waits for it: others leave the engine alone then."""
        return bool(self._storing or self._pending) or not self._writer.is_free()

    def set_guide(self, is_guide: bool) -> None:
        """Whether an empty chat introduces the guide."""
        self._page.set_guide(is_guide)

    def new_chat(self) -> None:
        """Show the chat that comes into being with its first message."""
        self.open_chat(None)

    def open_chat(self, chat_id: str | None) -> None:
        """Show a chat; an answer being written elsewhere goes on."""
        self.flush_unsent()
        self._showing += 1
        showing = self._showing

        def read(store: ChatStore) -> tuple[list[StoredMessage], str]:
            branch = store.branch(chat_id) if chat_id is not None else []
            return branch, store.unsent(chat_id)

        def show(found: tuple[list[StoredMessage], str]) -> None:
            if showing == self._showing:
                self._show(chat_id, found[0])
                self.chat_shown.emit(chat_id, self._unstored_texts.get(chat_id, found[1]))

        self._ask(read, show)

    def keep_unsent(self, text: str) -> None:
        """Remember what stands in the composer; stored a moment later."""
        self._unsent = text
        self._unsent_timer.start()

    @Slot()
    def flush_unsent(self) -> None:
        """Store what stands in the composer now."""
        self._unsent_timer.stop()
        if self._unsent is not None:
            chat_id, text, self._unsent = self.chat_id(), self._unsent, None

            def failed(error: KnownError) -> None:
                self._unstored_texts[chat_id] = text
                self._on_store_failed(error)

            self._unstored_texts.pop(chat_id, None)
            self._ask(lambda store: store.set_unsent(chat_id, text), None, failed)

    # ------------------------------------------------------------ what the user does

    def send(self, text: str) -> None:
        """Store a message and have it answered."""
        if not text.strip() or self.is_busy():
            return
        chat_id, branch = self._page.chat_id, self._page.branch
        parent_id = branch[-1].id if branch else None
        self._unsent_timer.stop()
        self._unsent = None
        self._unstored_texts.pop(chat_id, None)
        self._board.remove(*notices.PASSING)

        def store_message(store: ChatStore) -> StoredMessage:
            store.set_unsent(chat_id, "")
            target = chat_id if chat_id is not None else store.create_chat().id
            return store.add_user_message(target, parent_id, text)

        self._store_question(store_message, len(branch), text)

    def edit(self, message_id: str, text: str) -> None:
        """Answer another wording of a message; the old one stays as an earlier version."""
        place, chat_id = self._page.place(message_id), self._page.chat_id
        if place is None or chat_id is None or not text.strip() or self.is_busy():
            return
        parent_id = self._page.branch[place - 1].id if place else None
        self._store_question(lambda store: store.add_user_message(chat_id, parent_id, text), place, text)

    def regenerate(self, message_id: str | None = None) -> None:
        """Write an answer again, by default the last one; the old one stays as an earlier version."""
        page = self._page
        place = len(page.branch) - 1 if message_id is None else page.place(message_id)
        if page.chat_id is None or place is None or place < 0 or self.is_busy():
            return
        page.cut(place if page.branch[place].role == "assistant" else place + 1)
        if page.branch:
            self._enqueue(Pending(page.chat_id, list(page.branch), time.monotonic()))

    def choose_version(self, message_id: str, step: int) -> None:
        """Show an earlier (negative) or later version of a message."""
        showing, chat_id = self._showing, self._page.chat_id
        if not self.is_busy():
            self._ask(
                lambda store: store.select_version(message_id, step),
                lambda branch: self._show(chat_id, branch) if showing == self._showing else None,
            )

    def stop(self) -> None:
        """Stop the answer of the shown chat, or withdraw what waits for one."""
        if self._page.chat_id is not None:
            self.stop_chat(self._page.chat_id)

    def stop_chat(self, chat_id: str) -> None:
        """`stop` for any chat."""
        waited = self._waits()
        self._pending = deque(one for one in self._pending if one.chat_id != chat_id)
        if self._writer.chat_id() == chat_id:
            self._writer.stop()
        if waited and not self._waits():
            self.open_chat(chat_id)  # an answer that was to be replaced is still the one there is
        self._refresh()

    def save_again(self) -> None:
        """Try again to store what could not be."""
        self._writer.save_again()

    def shutdown(self) -> None:
        """Store what there is; call before the engine and the store are closed."""
        self.flush_unsent()
        self._pending.clear()
        self._writer.save_again()
        self._writer.end("interrupted")

    # ------------------------------------------------------------ questions

    def _store_question(self, store_message: Callable[[ChatStore], StoredMessage], place: int, text: str) -> None:
        """Store a message that stands at ``place`` of the branch, in place of what stands there."""
        showing, asked_at = self._showing, time.monotonic()
        before = self._page.branch[:place]
        self._storing += 1
        self._refresh()

        def stored(message: StoredMessage) -> None:
            self._storing -= 1
            self._board.remove("send")
            if showing == self._showing:
                is_new = self._page.chat_id is None
                self._page.cut(place)
                self._page.add_question(message)
                if is_new:
                    self.chat_created.emit(message.chat_id)
            self.chats_changed.emit()
            self._enqueue(Pending(message.chat_id, [*before, message], asked_at))

        def failed(error: KnownError) -> None:
            self._storing -= 1
            self._board.show("send", notices.plain_text(f"The message was not sent. {error}"))
            self._refresh()
            self.send_failed.emit(text)

        self._ask(store_message, stored, failed)

    def _enqueue(self, pending: Pending) -> None:
        self._pending.append(pending)
        self._answer_next()

    @Slot()
    def _answer_next(self) -> None:
        """Begin the next answer if the engine can; otherwise see that it will be able to."""
        if self._pending and self._writer.is_free():
            state = self._engine.state()
            if state is EngineState.READY:
                self._writer.write(self._pending.popleft(), self.settings, self._keeper.pair())
            elif state is EngineState.DIED and self._keeper.can_bring_back():
                self._keeper.restart()
            elif state is EngineState.EMPTY and not (self._keeper.is_planning() or "load" in self._board.notices()):
                self._board.show("load", notices.no_model())
        self._refresh()

    # ------------------------------------------------------------ answers

    @Slot(object)
    def _on_begun(self, answer: Answer) -> None:
        if answer.message.chat_id == self._page.chat_id:
            self._page.begin_answer(answer.message)
        self.generation_begun.emit()
        self._refresh()

    @Slot()
    def _on_started(self) -> None:
        answer = self._writer.answer()
        if answer is not None and self._is_written():
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
        self.rounds_received.emit(rounds)

    @Slot(object, object)
    def _on_ended(self, message: StoredMessage | None, figures: Figures | None) -> None:
        if message is not None and self._page.place(message.id) is not None:
            self._page.finish_answer(message)
        elif message is None and self._page.chat_id is not None:
            self.open_chat(self._page.chat_id)  # an answer that was to be replaced is still the one there is
        self.generation_ended.emit(figures)
        self._answer_next()

    @Slot()
    def _on_pair_given_up(self) -> None:
        self._writer.end("stopped", "cancelled")

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        if state is EngineState.READY:
            # Not at once: whoever changed the state may still have to tell us how the last answer ended.
            QTimer.singleShot(0, self, self._answer_next)
        self._refresh()

    # ------------------------------------------------------------ inside

    def _ask(
        self,
        function: Callable[[ChatStore], T],
        done: Callable[[T], None] | None = None,
        failed: Callable[[KnownError], None] | None = None,
    ) -> None:
        self._access.ask(function, done, failed or self._on_store_failed)

    def _on_store_failed(self, error: KnownError) -> None:
        self._board.show("store", notices.plain_text(str(error)))

    def _waits(self) -> bool:
        return any(pending.chat_id == self._page.chat_id for pending in self._pending)

    def _is_written(self) -> bool:
        """Whether the answer being written is in the chat that is shown."""
        return not self._writer.is_free() and self._writer.chat_id() == self._page.chat_id

    def _show(self, chat_id: str | None, branch: list[StoredMessage]) -> None:
        self._page.show(chat_id, self._writer.newest(branch), self._writer.answer())
        self._board.show_again()
        self._refresh()

    def _refresh(self) -> None:
        """Tell what has become of busy, hint and the question without an answer."""
        busy = self.is_busy()
        if busy != self._was_busy:
            self._was_busy = busy
            self._view.set_busy(busy)
            self.busy_changed.emit(busy)
        branch = self._page.branch
        if not busy and branch and branch[-1].role == "user":
            self._board.show("unanswered", notices.unanswered())
        else:
            self._board.remove("unanswered")
        wanted, self._wanted_engine = self._wanted_engine, self.wants_engine()
        if wanted and not self._wanted_engine:
            self.engine_released.emit()
        waits = self._storing or self._waits()
        self.hint_changed.emit(_HINTS.get(self._engine.state(), "") if waits else "")
