"""The chat in the window: from a typed message to a stored answer. No widgets; it drives a `TranscriptView`.

A message is stored before it is answered, an answer about once a second while it is written. An answer belongs to its
chat: it goes on while another chat is shown.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.model import StoredMessage
from app.chats.provenance import pack
from app.chats.store import ChatStore, FinalStatus
from app.chats.worker import ChatWorker
from app.engine.protocol import (
    Figures,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PromptProgressed,
    Round,
)
from app.errors import KnownError
from app.ui import notices
from app.ui.answer import Answer, Pending, TranscriptView, context_start_of, heading_of, pieces_of
from app.ui.background import Doorbell
from app.ui.conversation import AnswerSettings, conversation
from app.ui.engine_client import Engine, EngineState
from app.ui.footer import figures_of, footer_of, note_of
from app.ui.naming import speaker
from app.ui.notices import NoticeBoard
from app.ui.pair import PairKeeper

SAVE_INTERVAL_MS = 1000
UNSENT_INTERVAL_MS = 500
ENGINE_LOST = "The engine ended while this was written. What had arrived is kept."

T = TypeVar("T")

_HINTS = {
    EngineState.STARTING: "Your message is sent when the pair is ready.",
    EngineState.LOADING: "Your message is sent when the pair is ready.",
    EngineState.ANSWERING: "Your message is sent after the answer in the other chat.",
    EngineState.MEASURING: "Your message is sent after the measurement.",
    EngineState.EMPTY: "Your message waits for a model.",
    EngineState.STOPPED: "Your message waits for a model.",
    EngineState.DIED: "Your message waits for the engine.",
}


class ChatSession(QObject):
    """One window's chat: shows a branch, asks the engine, keeps everything.

    Signals:
        chat_shown: The id of the chat now shown (``None``: the one that does not exist yet) and its unsent text.
        chats_changed: The list of chats is out of date.
        busy_changed: Whether the shown chat waits for, or is getting, an answer.
        hint_changed: A sentence for the composer; empty for none.
        send_failed: The text of a message that could not be stored.
        generation_begun: An answer begins.
        rounds_received: Rounds of the answer being written, whichever chat it is in.
        generation_ended: Its `Figures`, or ``None`` if it came to none.
    """

    chat_shown = Signal(object, str)
    chats_changed = Signal()
    busy_changed = Signal(bool)
    hint_changed = Signal(str)
    send_failed = Signal(str)
    generation_begun = Signal()
    rounds_received = Signal(list)
    generation_ended = Signal(object)

    def __init__(
        self,
        engine: Engine,
        keeper: PairKeeper,
        worker: ChatWorker,
        board: NoticeBoard,
        view: TranscriptView,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.settings = AnswerSettings()
        self._engine = engine
        self._keeper = keeper
        self._worker = worker
        self._board = board
        self._view = view
        self._bell = Doorbell(self)
        self._chat_id: str | None = None
        self._branch: list[StoredMessage] = []
        self._storing = 0
        self._pending: deque[Pending] = deque()
        self._answer: Answer | None = None
        self._beginning: Pending | None = None
        self._unsaved: list[Callable[[], None]] = []
        self._unsent: str | None = None
        self._was_busy = False
        self._is_guide = True
        self._generation = 0
        self._save_timer = QTimer(self, interval=SAVE_INTERVAL_MS)
        self._save_timer.timeout.connect(self._on_save_due)
        self._unsent_timer = QTimer(self, interval=UNSENT_INTERVAL_MS, singleShot=True)
        self._unsent_timer.timeout.connect(self.flush_unsent)
        engine.state_changed.connect(self._on_engine_state_changed)
        engine.generation_started.connect(self._on_generation_started)
        engine.prompt_progressed.connect(self._on_prompt_progressed)
        engine.rounds_received.connect(self._on_rounds_received)
        engine.generation_finished.connect(self._on_generation_finished)
        engine.generation_failed.connect(self._on_generation_failed)
        keeper.engine_lost.connect(self._on_engine_lost)

    # ------------------------------------------------------------ what is shown

    def chat_id(self) -> str | None:
        return self._chat_id

    def branch(self) -> list[StoredMessage]:
        return list(self._branch)

    def set_worker(self, worker: ChatWorker) -> None:
        """Use another store from now on."""
        self._worker = worker

    def is_busy(self) -> bool:
        """Whether the shown chat waits for, or is getting, an answer."""
        waiting = [*self._pending, *([self._beginning] if self._beginning else [])]
        waits = any(pending.chat_id == self._chat_id for pending in waiting)
        return bool(self._storing) or waits or self._shown_answer() is not None

    def set_guide(self, is_guide: bool) -> None:
        """Whether an empty chat introduces the guide."""
        if is_guide != self._is_guide:
            self._is_guide = is_guide
            if not self._branch:
                self._show_branch([])

    def new_chat(self) -> None:
        """Show the chat that comes into being with its first message."""
        self.open_chat(None)

    def open_chat(self, chat_id: str | None) -> None:
        """Show a chat; an answer being written elsewhere goes on."""
        self.flush_unsent()
        self._generation += 1
        generation = self._generation

        def read(store: ChatStore) -> tuple[list[StoredMessage], str]:
            branch = store.branch(chat_id) if chat_id is not None else []
            return branch, store.unsent(chat_id)

        def show(found: tuple[list[StoredMessage], str]) -> None:
            if generation == self._generation:
                self._chat_id = chat_id
                self._show_branch(found[0])
                self.chat_shown.emit(chat_id, found[1])

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
            chat_id, text, self._unsent = self._chat_id, self._unsent, None
            self._ask(lambda store: store.set_unsent(chat_id, text))

    # ------------------------------------------------------------ what the user does

    def send(self, text: str) -> None:
        """Store a message and have it answered."""
        if not text.strip() or self.is_busy():
            return
        chat_id, asked_at = self._chat_id, time.monotonic()
        parent_id = self._branch[-1].id if self._branch else None
        self._unsent_timer.stop()
        self._unsent = None
        self._board.remove(*notices.PASSING)

        def store_message(store: ChatStore) -> StoredMessage:
            store.set_unsent(chat_id, "")
            target = chat_id if chat_id is not None else store.create_chat().id
            return store.add_user_message(target, parent_id, text)

        self._store_question(store_message, chat_id, list(self._branch), text, asked_at)

    def edit(self, message_id: str, text: str) -> None:
        """Answer another wording of a message; the old one stays as an earlier version."""
        place = self._place(message_id)
        if place is None or not text.strip() or self.is_busy() or self._chat_id is None:
            return
        chat_id, before = self._chat_id, self._branch[:place]
        parent_id = before[-1].id if before else None
        self._store_question(
            lambda store: store.add_user_message(chat_id, parent_id, text),
            chat_id,
            before,
            text,
            time.monotonic(),
            replaced=message_id,
        )

    def regenerate(self, message_id: str | None = None) -> None:
        """Write an answer again, by default the last one; the old one stays as an earlier version."""
        if self._chat_id is None or not self._branch or self.is_busy():
            return
        place = len(self._branch) - 1 if message_id is None else self._place(message_id)
        if place is None:
            return
        if self._branch[place].role == "assistant":
            self._view.remove_from(self._branch[place].id)
            place -= 1
        self._branch = self._branch[: place + 1]
        if self._branch:
            self._enqueue(Pending(self._chat_id, list(self._branch), time.monotonic()))

    def choose_version(self, message_id: str, step: int) -> None:
        """Show an earlier (negative) or later version of a message."""
        if self.is_busy():
            return
        generation = self._generation
        self._ask(
            lambda store: store.select_version(message_id, step),
            lambda branch: self._show_branch(branch) if generation == self._generation else None,
        )

    def stop(self) -> None:
        """Stop the answer of the shown chat, or withdraw what waits for one."""
        if self._chat_id is not None:
            self.stop_chat(self._chat_id)

    def stop_chat(self, chat_id: str) -> None:
        """`stop` for any chat."""
        self._pending = deque(one for one in self._pending if one.chat_id != chat_id)
        if self._beginning is not None and self._beginning.chat_id == chat_id:
            self._beginning.withdrawn = True
        if self._answer is not None and self._answer.message.chat_id == chat_id:
            self._engine.cancel()
        self._refresh()

    def shutdown(self) -> None:
        """Store what there is; call before the engine and the store are closed."""
        self.flush_unsent()
        self._pending.clear()
        if self._answer is not None:
            self._finish("interrupted", None, None)

    def save_again(self) -> None:
        """Try again to store an answer that could not be."""
        waiting, self._unsaved = self._unsaved, []
        self._board.remove("save")
        for again in waiting:
            again()

    # ------------------------------------------------------------ storing questions

    def _store_question(
        self,
        store_message: Callable[[ChatStore], StoredMessage],
        chat_id: str | None,
        before: list[StoredMessage],
        text: str,
        asked_at: float,
        replaced: str | None = None,
    ) -> None:
        generation = self._generation
        self._storing += 1
        self._refresh()

        def stored(message: StoredMessage) -> None:
            self._storing -= 1
            branch = [*before, message]
            if generation == self._generation:
                if replaced is not None:
                    self._view.remove_from(replaced)
                self._chat_id = message.chat_id
                self._branch = branch
                self._view.add_user_message(message.id, message.text, message.version, message.versions)
                if chat_id is None:
                    self.chat_shown.emit(message.chat_id, "")
            self._board.remove("save")
            self.chats_changed.emit()
            self._enqueue(Pending(message.chat_id, branch, asked_at))

        def failed(error: KnownError) -> None:
            self._storing -= 1
            self._board.show("save", notices.plain_text(f"The message was not sent. {error}"))
            self._refresh()
            self.send_failed.emit(text)

        self._ask(store_message, stored, failed)

    # ------------------------------------------------------------ asking the engine

    def _enqueue(self, pending: Pending) -> None:
        self._pending.append(pending)
        self._answer_next()

    def _answer_next(self) -> None:
        """Begin the next answer if the engine can; otherwise see that it will be able to."""
        if self._pending and self._answer is None and self._beginning is None:
            state = self._engine.state()
            if state is EngineState.READY:
                self._begin(self._pending.popleft())
            elif state in (EngineState.DIED, EngineState.STOPPED, EngineState.EMPTY):
                self._bring_back(state)
        self._refresh()

    def _bring_back(self, state: EngineState) -> None:
        if state is EngineState.DIED and self._keeper.can_bring_back():
            self._keeper.restart()
        elif state is not EngineState.DIED and "load" not in self._board.notices():
            self._board.show("load", notices.no_model())

    def _begin(self, pending: Pending) -> None:
        pair = self._keeper.pair()
        settings = self.settings
        kept = {
            **msgspec.to_builtins(settings),
            "template": pair.template if pair else "model",
            "draft": pair.draft.name if pair and pair.draft else None,
        }
        name = speaker(pair)
        self._beginning = pending

        def begun(message: StoredMessage) -> None:
            self._beginning = None
            self._on_answer_begun(pending, message, settings)

        def failed(error: KnownError) -> None:
            self._beginning = None
            self._board.show("save", notices.plain_text(f"The answer could not be begun. {error}"))
            self._refresh()

        parent_id = pending.branch[-1].id
        self._ask(lambda store: store.begin_answer(pending.chat_id, parent_id, name, kept), begun, failed)

    def _on_answer_begun(self, pending: Pending, message: StoredMessage, settings: AnswerSettings) -> None:
        asked = conversation(pending.branch, settings.system_prompt)
        answer = self._answer = Answer(message, asked, pending.asked_at)
        if message.chat_id == self._chat_id:
            self._branch = [*pending.branch, message]
            self._view.begin_answer(message.id, heading_of(message))
        self.generation_begun.emit()
        if pending.withdrawn or self._engine.state() is not EngineState.READY:
            if pending.withdrawn:
                self._finish("stopped", "cancelled", None)
            else:
                self._on_engine_lost()
            return
        answer.request = self._engine.generate(
            asked.messages,
            sampling=settings.sampling,
            seed=settings.seed,
            max_tokens=settings.max_tokens,
            stop=settings.stop,
            draft_length=settings.draft_length,
            accept=settings.accept,
        )
        self._save_timer.start()
        self._refresh()

    # ------------------------------------------------------------ what the engine says

    @Slot(object)
    def _on_generation_started(self, started: GenerationStarted) -> None:
        answer = self._answer
        if answer is not None:
            answer.seed = started.seed
            answer.context_start = answer.asked.first_kept(started.dropped_messages)
            if self._shown_answer() is not None:
                self._view.mark_context_start(answer.context_start)

    @Slot(object)
    def _on_prompt_progressed(self, progress: PromptProgressed) -> None:
        if self._answer is not None:
            self._answer.prompt_progress = (progress.done, progress.total)
            if self._shown_answer() is not None:
                self._view.set_prompt_progress(progress.done, progress.total)

    @Slot(list)
    def _on_rounds_received(self, rounds: list[Round]) -> None:
        answer = self._answer
        if answer is None:
            return
        if answer.first_token_s is None and any(one.tokens for one in rounds):
            answer.first_token_s = time.monotonic() - answer.asked_at
        pieces = [piece for one in rounds for piece in one.pieces]
        answer.pieces += pieces
        if pieces and self._shown_answer() is not None:
            self._view.append_pieces(pieces)
        self.rounds_received.emit(rounds)

    @Slot(object)
    def _on_generation_finished(self, finished: GenerationFinished) -> None:
        if self._answer is not None:
            status: FinalStatus = "stopped" if finished.finish_reason == "cancelled" else "complete"
            extra = {"stop_string": finished.stop_string} if finished.stop_string else {}
            self._finish(status, finished.finish_reason, finished.figures, extra)

    @Slot(object)
    def _on_generation_failed(self, failed: GenerationFailed) -> None:
        if self._answer is not None and failed.request == self._answer.request:
            self._finish("failed", None, None, {"failure": failed.message})

    @Slot()
    def _on_engine_lost(self) -> None:
        if self._answer is not None:
            self._finish("interrupted", None, None, {"failure": ENGINE_LOST})

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        if state is EngineState.READY:
            # Not at once: whoever changed the state may still have to tell us how the last answer ended.
            QTimer.singleShot(0, self, self._answer_next)
        self._refresh()

    # ------------------------------------------------------------ storing answers

    @Slot()
    def _on_save_due(self) -> None:
        if self._answer is not None and self._answer.pieces:
            message_id, text, provenance = self._answer.message.id, self._answer.text(), pack(self._answer.pieces)
            self._ask(lambda store: store.update_answer(message_id, text, provenance))

    def _finish(
        self, status: FinalStatus, reason: str | None, figures: Figures | None, extra: Mapping[str, str] | None = None
    ) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        self._save_timer.stop()
        message = answer.ended(status, reason, figures, extra or {})
        if message.chat_id == self._chat_id:
            self._branch = [message if one.id == message.id else one for one in self._branch]
            self._view.finish_answer(footer_of(message), note_of(message), message.version, message.versions)
        self.generation_ended.emit(figures_of(message.figures) if figures is not None else None)
        self._store_answer(message, status)
        self._answer_next()

    def _store_answer(self, message: StoredMessage, status: FinalStatus) -> None:
        def store_it(store: ChatStore) -> StoredMessage:
            return store.finish_answer(
                message.id,
                message.text,
                message.provenance,
                status,
                message.finish_reason,
                message.seed,
                message.figures,
            )

        def failed(error: KnownError) -> None:
            self._unsaved.append(lambda: self._store_answer(message, status))
            self._board.show("save", notices.not_saved(f"The answer is not saved yet. {error}"))

        self._ask(store_it, lambda _: self.chats_changed.emit(), failed)

    # ------------------------------------------------------------ inside

    def _ask(
        self,
        function: Callable[[ChatStore], T],
        done: Callable[[T], None] | None = None,
        failed: Callable[[KnownError], None] | None = None,
    ) -> None:
        self._bell.when_done(self._worker.submit(function), done, failed or self._on_store_failed)

    def _on_store_failed(self, error: KnownError) -> None:
        self._board.show("store", notices.plain_text(str(error)))

    def _place(self, message_id: str) -> int | None:
        return next((place for place, one in enumerate(self._branch) if one.id == message_id), None)

    def _shown_answer(self) -> Answer | None:
        """The answer being written, if it is in the chat that is shown."""
        answer = self._answer
        return answer if answer is not None and answer.message.chat_id == self._chat_id else None

    def _show_branch(self, branch: list[StoredMessage]) -> None:
        """Bring the view from the branch it shows to this one, touching only what differs."""
        old = self._branch
        same = 0
        while same < min(len(old), len(branch)) and old[same] == branch[same]:
            same += 1
        if same == 0:
            self._view.clear()
        elif same < len(old):
            self._view.remove_from(old[same].id)
        self._branch = branch
        if not branch:
            self._view.show_welcome(self._is_guide)
        for message in branch[same:]:
            self._show_message(message)
        self._view.mark_context_start(context_start_of(branch))
        self._board.show_again()
        self._refresh()

    def _show_message(self, message: StoredMessage) -> None:
        answer = self._answer
        if message.role == "user":
            self._view.add_user_message(message.id, message.text, message.version, message.versions)
        elif answer is not None and answer.message.id == message.id:
            self._view.begin_answer(message.id, heading_of(message))
            if answer.prompt_progress is not None and not answer.pieces:
                self._view.set_prompt_progress(*answer.prompt_progress)
            self._view.append_pieces(answer.pieces)
        elif message.role == "assistant":
            footer = " · ".join(part for part in (footer_of(message), note_of(message)) if part)
            self._view.add_answer(
                message.id,
                heading_of(message),
                message.text,
                pieces_of(message),
                footer,
                message.version,
                message.versions,
            )

    def _refresh(self) -> None:
        busy = self.is_busy()
        if busy != self._was_busy:
            self._was_busy = busy
            self._view.set_busy(busy)
            self.busy_changed.emit(busy)
        if not busy and self._branch and self._branch[-1].role == "user":
            self._board.show("unanswered", notices.unanswered())
        else:
            self._board.remove("unanswered")
        waits = any(pending.chat_id == self._chat_id for pending in self._pending)
        self.hint_changed.emit(_HINTS.get(self._engine.state(), "") if waits else "")
