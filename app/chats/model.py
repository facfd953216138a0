"""What the chat store hands out: plain values, safe to pass between threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from app.chats.provenance import PackedPiece

Role = Literal["system", "user", "assistant"]
Status = Literal["complete", "streaming", "stopped", "interrupted", "failed"]

TITLE_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Chat:
    """One chat of the list. Times are seconds since 1970, UTC."""

    id: str
    title: str
    """Empty until the first message is sent."""
    created_at: float
    updated_at: float
    leaf_id: str | None
    """The last message of the branch that is shown; ``None`` in an empty chat."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message of a chat's tree. Messages with the same parent are versions of each other."""

    id: str
    chat_id: str
    parent_id: str | None
    role: Role
    text: str
    status: Status
    created_at: float
    seed: int | None = None
    finish_reason: str | None = None
    pair: str | None = None
    """The names of the models that wrote an answer."""
    settings: dict[str, object] = field(default_factory=dict)
    figures: dict[str, object] = field(default_factory=dict)
    provenance: list[PackedPiece] = field(default_factory=list)
    """Where each token came from; `app.chats.provenance.unpack` turns it into pieces."""
    version: int = 1
    """Place among the versions, oldest first, from 1."""
    versions: int = 1

    @property
    def author(self) -> str:
        """Who wrote it, as a heading."""
        if self.role == "assistant":
            return self.pair or "Answer"
        return "You" if self.role == "user" else "System"


def title_of(text: str) -> str:
    """The title a chat gets from its first message: its first line, cut at a word near 40 characters."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    line = next((line for line in lines if line), "")
    if len(line) <= TITLE_LENGTH:
        return line
    head = line[:TITLE_LENGTH]
    at_word = head.rpartition(" ")[0].rstrip(" ,;:.–—-")
    # One very long word (a link, a language without spaces) is cut where it stands.
    return (at_word if len(at_word) >= TITLE_LENGTH // 2 else head) + "…"
