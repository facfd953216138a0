"""A chat on its way into the store or out of it: the common form of all formats."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container
from itertools import groupby, pairwise
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from app.chats.formats.calls import CallState as CallState
from app.chats.formats.calls import StoredCall as StoredCall
from app.chats.formats.values import arguments_of
from app.words import shortened

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
MOST_CALLS = 1000
"""The most tool calls that are imported from one answer."""
MOST_CALLS_AND_RESULTS = 3 * MOST_CALLS
_MOST_COPIED = 4_000_000
"""The most characters that are copied into several messages because each of them continues the same one."""
MOST_RESULT = 1_000_000
"""The most characters of a call's result or arguments that are imported."""
_LONGEST_NAME = 200
_MESSAGE_CHARACTERS = 100
"""The approximate overhead of a message, or of a call, besides its texts."""


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


Turn: TypeAlias = tuple[str, list[StoredCall]]


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
    calls: list[StoredCall] = []
    """While a file is read, a call without ``arguments`` is just the result of an earlier one."""

    def size(self) -> int:
        """Characters of its texts plus an allowance for everything else; without attachments."""
        calls = sum(len(one.arguments) + len(one.result) + _MESSAGE_CHARACTERS for one in self.calls)
        return len(self.text) + len(self.thinking) + calls + _MESSAGE_CHARACTERS

    def turns(self) -> list[Turn]:
        """The text in pieces, each with the tool calls that follow it; the last piece has none."""
        found, at = list[Turn](), 0
        for (end, _), calls in groupby(self.calls, lambda one: (one.text, one.tokens)):
            found.append((self.text[at:end], list(calls)))
            at = end
        return [*found, (self.text[at:], [])]


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
    """Whether to put it at the beginning of the answers below it, if it has no other children; with tool calls, also at
    the end of the answer above."""


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
    copied = 0
    for name in placed:
        given = nodes[name].message
        assert given is not None
        message = msgspec.structs.replace(given, id=name, parent=parents[name])
        if (above := joined.get(message.parent)) is not None:
            if children[message.parent][-1] == name:
                del joined[message.parent]
            message = _join(above, message)
        below = [nodes[child] for child in children.get(name, [])]
        copies = message.size() * (len(below) - 1) if len(below) > 1 else 0
        if _is_begun(nodes[name], message, below) and copied + copies <= _MOST_COPIED:
            joined[name], copied = message, copied + copies
        else:
            found[name] = message
    return list(map(_settled, found.values())), _leaf(nodes, children, current, found)


def _is_begun(node: Node, message: MessageRecord, below: list[Node]) -> bool:
    """Whether everything ``below`` continues the same answer."""
    calls = message.calls
    is_full = len(calls) >= (MOST_CALLS_AND_RESULTS if calls and calls[-1].arguments else MOST_CALLS)
    if message.role != "assistant" or is_full or not below:
        return False
    return all(
        one.message is not None
        and one.message.role == "assistant"
        and (node.joins or (one.joins and bool(one.message.calls)))
        for one in below
    )


def in_a_row(messages: list[MessageRecord], *, joins: bool = True) -> dict[str, Node]:
    """The nodes of a linear chat. If it ``joins``, an answer goes on after its tool calls. The ids aren't used."""
    above = [None, *map(str, range(len(messages)))]
    return {str(place): Node(above[place], one, joins and bool(one.calls)) for place, one in enumerate(messages)}


def _join(above: MessageRecord, below: MessageRecord) -> MessageRecord:
    """``below`` with the text of ``above`` at its beginning."""
    text = "\n\n".join(filter(None, (above.text, below.text)))
    thinking = "\n\n".join(filter(None, (above.thinking, below.thinking)))
    by = len(text) - len(below.text), len(thinking) - len(below.thinking)
    return msgspec.structs.replace(
        below,
        parent=above.parent,
        text=text,
        thinking=thinking,
        model=below.model or above.model,
        attachments=[*above.attachments, *below.attachments],
        calls=[*above.calls, *(moved(one, *by) for one in below.calls)],
    )


def moved(call: StoredCall, text: int, thinking: int = 0) -> StoredCall:
    return msgspec.structs.replace(call, text=call.text + text, thinking=call.thinking + thinking)


def _settled(message: MessageRecord) -> MessageRecord:
    """The message with each call joined with its result, in order and at a valid place; no call is left waiting."""
    if not message.calls:
        return message
    calls, waiting = list[StoredCall](), dict[int, str]()
    for one in message.calls if message.role == "assistant" else ():
        if not one.arguments and (place := _called(calls, waiting, one)) is not None:
            waiting.pop(place, None)
            result = shortened("\n\n".join(filter(None, (calls[place].result, one.result))), MOST_RESULT)
            images = (*calls[place].images, *one.images)
            calls[place] = msgspec.structs.replace(calls[place], state=one.state, result=result, images=images)
        elif len(calls) < MOST_CALLS:
            waiting |= {} if one.has_ended else {len(calls): one.id}
            calls.append(_sound(one, calls[-1] if calls else StoredCall(id="", name="", state="done"), message))
    has_ids = len({one.id for one in calls} - {""}) == len(calls)
    ids = [one.id if has_ids else f"call_{place}" for place, one in enumerate(calls, 1)]
    ended = [msgspec.structs.replace(one.ended, id=call_id) for one, call_id in zip(calls, ids, strict=True)]
    return msgspec.structs.replace(message, calls=ended)


def _called(calls: list[StoredCall], waiting: dict[int, str], result: StoredCall) -> int | None:
    """The place of the call that a result belongs to: the waiting call with its id, otherwise the first that waits, or
    the last call if that has several results. ``waiting``: ids by place."""
    if waiting:
        return next((place for place, call_id in waiting.items() if call_id == result.id), next(iter(waiting)))
    return len(calls) - 1 if calls and calls[-1].name == result.name else None


def _sound(call: StoredCall, before: StoredCall, message: MessageRecord) -> StoredCall:
    """The call at a valid place, with arguments that are an object. After a result or text, a new turn begins."""
    text = max(before.text, min(call.text, len(message.text)))
    thinking = max(before.thinking, min(call.thinking, len(message.thinking)))
    goes_on = not before.has_ended and (text, thinking) == (before.text, before.thinking)
    return msgspec.structs.replace(
        call,
        name=" ".join(call.name.split())[:_LONGEST_NAME] or "tool",
        arguments=arguments_of(call.arguments[:MOST_RESULT]),
        **{key: getattr(call, key)[:_LONGEST_NAME] for key in ("id", "server", "tool")},
        text=text,
        thinking=thinking,
        tokens=max(before.tokens, min(call.tokens, 2**31 - 1)) if call.tokens else before.tokens + (not goes_on),
        result=shortened(call.result, MOST_RESULT),
        seconds=max(call.seconds, 0.0),
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
    nodes: dict[str, Node], children: dict[str | None, list[str]], current: str | None, found: Container[str]
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
