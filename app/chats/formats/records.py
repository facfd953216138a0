"""A chat on its way into the store or out of it: the common form of all formats."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Sequence
from itertools import pairwise
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
Beside: TypeAlias = Callable[[str], bytes]
"""Returns the content of another file in the same folder, by name; empty if it doesn't exist."""
UNNAMED = "Attached text"
"""The name of a file without one."""


_Pixels = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class AttachmentRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    kind: Literal["text", "image"]
    name: str = ""
    text: str = ""
    """The text that the model reads."""
    data: bytes = b""
    """The file of an image."""
    media_type: str = ""
    width: _Pixels = 0
    height: _Pixels = 0

    def content(self) -> bytes:
        """The stored content."""
        return self.data if self.kind == "image" else self.text.encode("utf-8", "replace")

    def sha256(self) -> str:
        """Hash of the content, in hexadecimal."""
        return hashlib.sha256(self.content()).hexdigest()


class MessageRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. Messages with the same parent are versions of each other, oldest first."""

    id: str
    """Only unique within its chat."""
    parent: str | None
    """The id of an earlier message of the chat."""
    role: Role
    text: str
    created_at: float | None = None
    """Seconds since 1970, UTC."""
    thinking: str = ""
    model: str = ""
    """The names of the models that wrote the answer."""
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
    """The name of the format it was read from."""
    id: str = ""
    """Its id in the app it comes from."""
    title: str = ""
    created_at: float | None = None
    updated_at: float | None = None
    current: str | None = None
    """The last message of the shown branch."""
    folder: str = ""
    """The name of its folder."""
    pinned_at: float | None = None
    settings: dict[str, Any] = {}
    messages: list[MessageRecord] = []
    """Parents come before children."""

    def branch(self) -> list[MessageRecord]:
        """The shown messages, first to last."""
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
    """A message whose place in the chat isn't known yet; ``None`` if it is empty.

    For an answer without ``thinking``, leading text between the usual marks becomes its thinking.
    """
    if role == "assistant" and not thinking.strip():
        thinking, written = without_thinking(written)
    if not (written.strip() or thinking.strip() or attachments):
        return None
    model = model if role == "assistant" else ""
    return MessageRecord("", None, role, written, created_at, thinking, model, status, attachments=list(attachments))


def settings_of(prompt: str) -> dict[str, Any]:
    return {"system_prompt": prompt} if prompt.strip() else {}


class Batch(msgspec.Struct, frozen=True):
    """Some chats, and how far reading has progressed."""

    chats: list[ChatRecord]
    left_out: dict[str, int]
    """What was left out since the last batch, by `Reason`."""
    other_files: int
    """The number of files without chats since the last batch."""
    read: int
    """Bytes, out of ``total``."""
    total: int
    is_over: bool


class UnusableError(Exception):
    """A chat or a file that can't be read; ``reason`` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


# Orders the messages of a chat: parents first, and no references to missing messages.


class Node(msgspec.Struct):
    """A place in the tree of a chat, as a format has it."""

    parent: str | None
    message: MessageRecord | None = None
    """``None`` if nothing is imported here: what is below it moves up."""
    joins: bool = False
    """Whether to put its text at the beginning of the answers below it, if it has no other children."""


def arranged(nodes: dict[str, Node], current: str | None) -> tuple[list[MessageRecord], str | None]:
    """The messages, each after its parent, and the last message of the shown branch.

    Otherwise the order of ``nodes`` is kept. A missing parent, or one below its own child, is ignored.
    """
    parents = _resolved(nodes)
    children: dict[str | None, list[str]] = {}
    for name, parent in parents.items():
        children.setdefault(parent, []).append(name)
    order = {name: place for place, name in enumerate(parents)}
    placed: dict[str, None] = {}
    for name, parent in parents.items():
        waiting = [name] if parent is None or parent in placed else []
        while waiting:
            placed[at := waiting.pop()] = None
            # A child listed before its parent comes right after it.
            waiting += [child for child in reversed(children.get(at, [])) if order[child] < order[name]]
    found: dict[str, MessageRecord] = {}
    joined: dict[str | None, MessageRecord] = {}
    for name in placed:
        given = nodes[name].message
        assert given is not None
        message = msgspec.structs.replace(given, id=name, parent=parents[name])
        if (above := joined.get(message.parent)) is not None:
            message = _join(above, message)
        below = [nodes[child].message for child in children.get(name, [])]
        if nodes[name].joins and below and all(one is not None and one.role == "assistant" for one in below):
            joined[name] = message
        else:
            found[name] = message
    return list(found.values()), _leaf(nodes, children, current, found)


def in_a_row(messages: list[MessageRecord]) -> dict[str, Node]:
    """The nodes of a linear chat. The ids of the messages are not used."""
    return {str(number): Node(str(number - 1) if number else None, one) for number, one in enumerate(messages)}


def _join(above: MessageRecord, below: MessageRecord) -> MessageRecord:
    """``below`` with the text of ``above`` at its beginning."""
    return msgspec.structs.replace(
        below,
        parent=above.parent,
        text="\n\n".join(filter(None, (above.text, below.text))),
        thinking="\n\n".join(filter(None, (above.thinking, below.thinking))),
        attachments=[*above.attachments, *below.attachments],
    )


def _resolved(nodes: dict[str, Node]) -> dict[str, str | None]:
    """For each message, its nearest ancestor that is a message."""
    parents: dict[str, str | None] = {}
    sound = _without_cycles(nodes)
    above: dict[str, str | None] = {}
    """For each node without a message, the nearest message above it."""
    for name, node in nodes.items():
        path, at = [], sound[name]
        while at is not None and nodes[at].message is None and at not in above:
            path.append(at)
            at = sound[at]
        found = above[at] if at is not None and at in above else at
        above.update(dict.fromkeys(path, found))
        if node.message is not None:
            parents[name] = found
    return parents


def _without_cycles(nodes: dict[str, Node]) -> dict[str, str | None]:
    """The parents, without missing ones and those that would close a cycle."""
    sound: dict[str, str | None] = {}
    for name in nodes:
        path: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in sound and at not in path:
            path[at] = None
            parent = nodes[at].parent
            at = parent if parent in nodes else None
        names = list(path)
        for child, parent in pairwise([*names, None if at in path else at]):
            assert child is not None
            sound[child] = parent
    return sound


def _leaf(
    nodes: dict[str, Node],
    children: dict[str | None, list[str]],
    current: str | None,
    found: Container[str],
) -> str | None:
    """``current``, or the nearest message above it; by default the newest end."""
    seen: set[str] = set()
    while current is not None and current in nodes and current not in seen:
        if current in found:
            return current
        if nodes[current].message is not None:
            break  # joined with what is below
        seen.add(current)
        current = nodes[current].parent
    leaf = current if current in nodes and current not in seen else None
    while below := children.get(leaf):
        leaf = below[-1]
    return leaf
