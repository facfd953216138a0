"""Has one answer at a time written by the engine, and stores it: begun, about once a second, and at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.model import PackedPiece, Status, StoredMessage, pack, to_json
from app.chats.store import new_id
from app.errors import KnownError
from app.protocol.messages import (
    Figures,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    Piece,
    PromptProgressed,
    RoundsReceived,
)
from app.ui import notices
from app.ui.chat.conversation import AnswerSettings, Conversation, conversation
from app.ui.chat.footer import figures_of
from app.ui.chat.stored_chats import StoredChats
from app.ui.engine.interface import Engine, EngineState
from app.ui.engine.pair_names import speaker
from app.ui.notices import NoticeList

SAVE_INTERVAL_MS = 1000
TOKENS_PER_INTERVAL = 5000
"""A long answer is saved less often, as all of it is written each time: every two seconds from so many tokens on, …"""
MOST_INTERVALS = 5
ENGINE_LOST = "The engine ended while this was written. What had arrived is kept."


@dataclass
class Pending:
    """A stored message that waits for its answer."""

    chat_id: str
    branch: list[StoredMessage]
    asked_at: float
    withdrawn: bool = False
    """Stopped after its answer was begun in the store and before the engine was asked."""


@dataclass
class Answer:
    """The answer being written."""

    message: StoredMessage
    asked: Conversation
    asked_at: float
    request: int = 0
    seed: int | None = None
    pieces: list[Piece] = field(default_factory=list)
    first_token_seconds: float | None = None
    context_start: str | None = None
    prompt_progress: tuple[int, int] | None = None
    _packed: list[PackedPiece] = field(default_factory=list)

    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    def packed(self) -> list[PackedPiece]:
        """The provenance so far. Only what came since the last call is packed: this is called about once a second."""
        self._packed += pack(self.pieces[len(self._packed) :])
        return list(self._packed)

    def ended(
        self, status: Status, reason: str | None, figures: Figures | None, extra: Mapping[str, str]
    ) -> StoredMessage:
        """The message as it is stored. Time to first token counts from the press of Send, queueing included."""
        if figures is not None and self.first_token_seconds is not None:
            figures = msgspec.structs.replace(figures, time_to_first_token_seconds=self.first_token_seconds)
        stored: dict[str, object] = {**(msgspec.to_builtins(figures) if figures else {}), **extra}
        if self.context_start is not None:
            stored["context_start"] = self.context_start
        return replace(
            self.message,
            text=self.text(),
            provenance_json=to_json(self.packed()),
            status=status,
            finish_reason=reason,
            seed=self.seed,
            figures_json=to_json(stored),
        )


class AnswerWriter(QObject):
    """Between the engine and the store.

    Attributes:
        answer: The answer being written.

    Signals:
        begun: The `Answer` is stored as begun and the engine was asked.
        started: The engine has read the request; seed and beginning of the context are known.
        prompt_progressed: Tokens of the prompt done, and all of them.
        rounds_received: Rounds of the answer.
        ended: The answer as a `StoredMessage`, and its `Figures` or ``None``.
        stored: The finished answer is in the store.
    """

    begun = Signal(object)
    started = Signal(object)
    prompt_progressed = Signal(int, int)
    rounds_received = Signal(list)
    ended = Signal(object, object)
    stored = Signal()

    def __init__(
        self, engine: Engine, chat_store: StoredChats, notice_list: NoticeList, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._chat_store = chat_store
        self._notice_list = notice_list
        self.answer: Answer | None = None
        self._beginning: Pending | None = None
        self._unstored: dict[str, StoredMessage] = {}
        """Answers that have ended, until the store has their end."""
        self._intervals = 0
        """How many intervals the answer was not saved."""
        self._save_timer = QTimer(self, interval=SAVE_INTERVAL_MS)
        self._save_timer.timeout.connect(self._on_save_due)
        engine.generation_started.connect(self._on_generation_started)
        engine.prompt_progressed.connect(self._on_prompt_progressed)
        engine.rounds_received.connect(self._on_rounds_received)
        engine.generation_finished.connect(self._on_generation_finished)
        engine.generation_failed.connect(self._on_generation_failed)

    def is_free(self) -> bool:
        return self.answer is None and self._beginning is None

    def chat_id(self) -> str | None:
        """The chat whose answer is being written or begun."""
        if self.answer is not None:
            return self.answer.message.chat_id
        return self._beginning.chat_id if self._beginning is not None else None

    # ------------------------------------------------------------ beginning

    def write(self, pending: Pending, settings: AnswerSettings, pair: PairLoaded | None) -> None:
        """Begin an answer in the store, then ask the engine. Only when free."""
        self._beginning = pending
        asked_with = {
            **msgspec.to_builtins(settings),
            "template": pair.template if pair else "model",
            "draft": pair.draft.name if pair and pair.draft else None,
        }

        def begun(message: StoredMessage) -> None:
            self._beginning = None
            self._ask_engine(pending, message, settings)

        def failed(error: KnownError) -> None:
            self._beginning = None
            self._notice_list.show("send", notices.plain_text(f"The answer could not be begun. {error}"))
            self.ended.emit(None, None)

        answer = StoredMessage(
            *(new_id(), pending.chat_id, pending.branch[-1].id, "assistant", "", "streaming", time.time()),
            pair=speaker(pair),
            settings_json=to_json(asked_with),
        )
        self._chat_store.ask(lambda store: store.add_message(answer), begun, failed)

    def _ask_engine(self, pending: Pending, message: StoredMessage, settings: AnswerSettings) -> None:
        asked = conversation(pending.branch, settings.system_prompt)
        answer = self.answer = Answer(message, asked, pending.asked_at)
        self.begun.emit(answer)
        if pending.withdrawn:
            self.end("stopped", "cancelled")
        elif self._engine.state() is not EngineState.READY:
            self.give_up()
        else:
            answer.request = self._engine.ask(settings.command(asked.messages))
            self._save_timer.start()

    # ------------------------------------------------------------ ending

    def stop(self) -> None:
        """The user wants no more of this answer."""
        if self._beginning is not None:
            self._beginning.withdrawn = True
        if self.answer is not None:
            self._engine.cancel()

    def give_up(self) -> None:
        """The engine is gone: keep what has arrived."""
        self.end("interrupted", failure=ENGINE_LOST)

    def end(self, status: Status, reason: str | None = None, figures: Figures | None = None, **extra: str) -> None:
        """Finish the answer as it is now; does nothing when there is none. ``extra`` is stored beside its figures."""
        answer, self.answer = self.answer, None
        if answer is None:
            return
        self._save_timer.stop()
        message = answer.ended(status, reason, figures, extra)
        self._store(message)
        self.ended.emit(message, figures_of(message.figures) if figures is not None else None)

    def save_again(self) -> None:
        """Try again to store what could not be."""
        self._notice_list.remove("save")
        for message in list(self._unstored.values()):
            self._store(message)

    def newest(self, branch: Sequence[StoredMessage]) -> list[StoredMessage]:
        """A branch that was read from the store, its answers as they ended also where the store does not know it."""
        return [
            replace(self._unstored[one.id], version=one.version, versions=one.versions)
            if one.id in self._unstored
            else one
            for one in branch
        ]

    # ------------------------------------------------------------ what the engine says

    @Slot(object)
    def _on_generation_started(self, started: GenerationStarted) -> None:
        if (answer := self._answer_to(started.request)) is not None:
            answer.seed = started.seed
            answer.context_start = answer.asked.first_in_context(started.dropped_messages)
            self.started.emit(answer)

    @Slot(object)
    def _on_prompt_progressed(self, progress: PromptProgressed) -> None:
        if (answer := self._answer_to(progress.request)) is not None:
            answer.prompt_progress = (progress.done, progress.total)
            self.prompt_progressed.emit(progress.done, progress.total)

    @Slot(object)
    def _on_rounds_received(self, event: RoundsReceived) -> None:
        answer, rounds = self._answer_to(event.request), event.rounds
        if answer is None:
            return
        if answer.first_token_seconds is None and any(one.tokens for one in rounds):
            answer.first_token_seconds = time.monotonic() - answer.asked_at
        answer.pieces += [piece for one in rounds for piece in one.pieces]
        self.rounds_received.emit(rounds)

    @Slot(object)
    def _on_generation_finished(self, finished: GenerationFinished) -> None:
        if self._answer_to(finished.request) is None:
            return
        status: Status = "stopped" if finished.finish_reason == "cancelled" else "complete"
        extra = {"stop_string": finished.stop_string} if finished.stop_string else {}
        if finished.draft_failure:
            self._notice_list.show("draft", notices.draft_failed(finished.draft_failure))
        self.end(status, finished.finish_reason, finished.figures, **extra)

    @Slot(object)
    def _on_generation_failed(self, failed: GenerationFailed) -> None:
        if self._answer_to(failed.request) is not None:
            self.end("failed", failure=failed.message)

    def _answer_to(self, request: int) -> Answer | None:
        """The answer being written, if this is its request."""
        return self.answer if self.answer is not None and self.answer.request == request else None

    # ------------------------------------------------------------ storing

    @Slot()
    def _on_save_due(self) -> None:
        self._intervals += 1
        answer = self.answer
        if answer is None or not answer.pieces:
            return
        if self._intervals >= min(MOST_INTERVALS, 1 + len(answer.pieces) // TOKENS_PER_INTERVAL):
            self._intervals = 0
            message_id, text, provenance = answer.message.id, answer.text(), answer.packed()
            # A disk that is full now may have room at the end; that is when it is worth a word.
            self._chat_store.ask(
                lambda store: store.update_answer(message_id, text, provenance), failed=lambda _error: None
            )

    def _store(self, message: StoredMessage) -> None:
        self._unstored[message.id] = message

        def stored(_: None) -> None:
            self._unstored.pop(message.id, None)
            self.stored.emit()

        def failed(error: KnownError) -> None:
            self._notice_list.show("save", notices.not_saved(f"The answer is not saved yet. {error}"))

        self._chat_store.ask(lambda store: store.finish_answer(message), stored, failed)
