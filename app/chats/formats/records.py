"""A chat on its way into the store or out of it: what every format is turned into, and written from."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from app.chats.formats.values import without_thinking

Role = Literal["system", "user", "assistant"]
Ending = Literal["complete", "stopped", "interrupted", "failed"]
Reason = Literal[
    "images",
    "files",
    "recordings",
    "references",
    "widgets",
    "changes",
    "tools",
    "failed",
    "hidden",
    "empty",
    "damaged",
    "newer",
    "rest",
    "too_large",
    "too_deep",
    "encoding",
    "unreadable",
    "unsafe_names",
    "encrypted",
    "too_much",
]
"""Why something isn't imported; `app.chats.importing` has the sentences."""
LeftOut: TypeAlias = Counter[str]
"""How many things were left out, by `Reason`."""
UNNAMED = "Attached text"
"""A file whose name isn't known."""


_Pixels = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class AttachmentRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A file that goes with a message."""

    kind: Literal["text", "image"]
    name: str = ""
    text: str = ""
    """What the model reads of it."""
    data: bytes = b""
    """Of an image: its file."""
    media_type: str = ""
    width: _Pixels = 0
    height: _Pixels = 0

    def content(self) -> bytes:
        """What is stored of it."""
        return self.data if self.kind == "image" else self.text.encode("utf-8", "replace")

    def sha256(self) -> str:
        """Of its content, in hexadecimal."""
        return hashlib.sha256(self.content()).hexdigest()


class MessageRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. Messages with the same parent are versions of each other, oldest first."""

    id: str
    """Only has a meaning within its chat."""
    parent: str | None
    """The id of an earlier message of the chat."""
    role: Role
    text: str
    created_at: float | None = None
    """Seconds since 1970, UTC."""
    thinking: str = ""
    model: str = ""
    """The names of the models that wrote an answer."""
    status: Ending = "complete"
    finish_reason: str | None = None
    seed: int | None = None
    settings: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    provenance: list[Any] = []
    tokens: list[int] = []
    attachments: list[AttachmentRecord] = []


class ChatRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One chat with all its branches."""

    source: str = ""
    """The format that it was read from, by its name in the table."""
    id: str = ""
    """What the app it comes from calls it."""
    title: str = ""
    created_at: float | None = None
    updated_at: float | None = None
    current: str | None = None
    """The last message of the branch that is shown."""
    folder: str = ""
    """The name of its folder."""
    pinned_at: float | None = None
    settings: dict[str, Any] = {}
    messages: list[MessageRecord] = []
    """A message comes after its parent."""

    def branch(self) -> list[MessageRecord]:
        """The messages that are shown, first to last."""
        by_id = {message.id: message for message in self.messages}
        found: list[MessageRecord] = []
        message = by_id.get(self.current or "")
        while message is not None and len(found) < len(by_id):
            found.append(message)
            message = by_id.get(message.parent or "")
        return found[::-1]


def message_of(
    role: Role,
    written: str,
    created_at: float | None = None,
    thinking: str = "",
    model: str = "",
    attachments: Sequence[AttachmentRecord] = (),
    status: Ending = "complete",
) -> MessageRecord | None:
    """A message whose place in its chat is still to be found; ``None`` if there is nothing in it.

    In an answer without ``thinking``, what it begins with between the usual marks is that.
    """
    if role == "assistant" and not thinking.strip():
        thinking, written = without_thinking(written)
    if not (written.strip() or thinking.strip() or attachments):
        return None
    model = model if role == "assistant" else ""
    return MessageRecord("", None, role, written, created_at, thinking, model, status, attachments=list(attachments))


def settings_of(prompt: str) -> dict[str, Any]:
    """The settings of a chat with this system prompt."""
    return {"system_prompt": prompt} if prompt.strip() else {}


class Batch(msgspec.Struct, frozen=True):
    """Some chats, and how far reading has come."""

    chats: list[ChatRecord]
    left_out: dict[str, int]
    """What wasn't read since the last batch, by `Reason`."""
    other_files: int
    """Files since the last batch that have no chats."""
    read: int
    """Bytes, of ``total``."""
    total: int
    is_over: bool


class UnusableError(Exception):
    """A chat or a file that can't be read; ``reason`` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason
