"""An answer while it is written, and what it becomes when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, get_args

import msgspec

from app.chats.model import StoredMessage
from app.chats.provenance import PackedPiece, pack, unpack
from app.chats.store import FinalStatus
from app.protocol.messages import DrafterName, Figures, Piece
from app.ui.chat.conversation import Conversation

_DRAFTERS: dict[str, DrafterName] = {name: name for name in get_args(DrafterName)}


class TranscriptView(Protocol):
    """What a session asks of the widget that shows it."""

    def clear(self) -> None: ...
    def show_welcome(self, guide: bool) -> None: ...
    def add(self, message: StoredMessage) -> None: ...
    def begin_answer(self, message: StoredMessage) -> None: ...
    def append_pieces(self, pieces: list[Piece]) -> None: ...
    def set_prompt_progress(self, done: int, total: int) -> None: ...
    def finish_answer(self, message: StoredMessage) -> None: ...
    def remove_from(self, message_id: str) -> None: ...
    def mark_context_start(self, message_id: str | None) -> None: ...
    def set_busy(self, busy: bool) -> None: ...
    def go_to_end(self) -> None: ...


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
        self, status: FinalStatus, reason: str | None, figures: Figures | None, extra: Mapping[str, str]
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
            provenance=self.packed(),
            status=status,
            finish_reason=reason,
            seed=self.seed,
            figures=stored,
        )


def pieces_of(message: StoredMessage) -> list[Piece]:
    """The tokens of a stored answer with their origin."""
    return [
        Piece(text=piece.text, drafter=_DRAFTERS.get(piece.drafter or ""), round=piece.round, rejected=piece.rejected)
        for piece in unpack(message.text, message.provenance)
    ]


def context_start_of(branch: list[StoredMessage]) -> str | None:
    """Where the context of the branch's last answer began, if older messages had left it."""
    start = branch[-1].figures.get("context_start") if branch else None
    return start if isinstance(start, str) else None
