"""Jan's chats: a folder for each, with ``thread.json`` and ``messages.jsonl``; we read the latter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from app import system
from app.chats.formats.json_stream import image_of, reason_for
from app.chats.formats.records import (
    UNNAMED,
    AttachmentRecord,
    Beside,
    ChatRecord,
    LeftOut,
    MessageRecord,
    arranged,
    in_a_row,
    message_of,
    settings_of,
)
from app.chats.formats.values import items, mapping, mappings, seconds, text

NAME = "jan"
_THREAD = "thread.json"


def recognizes(record: dict[str, Any]) -> bool:
    return "thread_id" in record and isinstance(record.get("content"), list)


def is_thread(record: dict[str, Any]) -> bool:
    """Whether the record describes a chat whose messages are in the file beside it."""
    return isinstance(record.get("assistants"), list) and ("title" in record or "summary" in record)


def read_all(records: Iterator[Any], beside: Beside, left_out: LeftOut) -> Iterator[ChatRecord]:
    """The chat whose messages are in this file."""
    found: list[MessageRecord] = []
    name = ""
    for record in mappings(list(records)):
        name = name or text(record.get("thread_id"))
        if (message := _message(record, left_out)) is not None:
            found.append(message)
    thread = _thread(beside(_THREAD))
    messages, current = arranged(in_a_row(found), None)
    dates = [one.created_at for one in found if one.created_at]
    assistant = next(mappings(thread.get("assistants")), {})
    yield ChatRecord(
        id=name or text(thread.get("id")),
        title=text(thread.get("title")) or text(thread.get("summary")),
        created_at=seconds(thread.get("created")) or min(dates, default=None),
        updated_at=seconds(thread.get("updated")) or max(dates, default=None),
        current=current,
        settings=settings_of(text(assistant.get("instructions"))),
        messages=messages,
    )


def _thread(data: bytes) -> dict[str, Any]:
    try:
        return system.decode(data, dict[str, Any]) if data else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}  # the messages can be read without it


def _message(record: dict[str, Any], left_out: LeftOut) -> MessageRecord | None:
    if (role := record.get("role")) not in ("user", "assistant"):
        left_out["hidden" if role == "system" else "tools"] += 1
        return None
    written: list[str] = []
    thinking = ""
    for part in mappings(record.get("content")):
        value = text(mapping(part.get("text")).get("value")) or text(part.get("text"))
        if part.get("type") == "text":
            written.append(value)
        elif part.get("type") == "reasoning":
            thinking = value
    metadata = mapping(record.get("metadata"))
    left_out["tools"] += len(items(metadata.get("tool_calls")))
    model, created = text(metadata.get("modelId")) or text(metadata.get("model")), seconds(record.get("created_at"))
    whole = "\n\n".join(filter(None, written))
    return message_of(role, whole, created, thinking, model, _attached(record, left_out))


def _attached(record: dict[str, Any], left_out: LeftOut) -> list[AttachmentRecord]:
    found: list[AttachmentRecord] = []
    for part in mappings(record.get("content")):
        if (kind := text(part.get("type"))) in ("text", "reasoning"):
            continue
        if (image := image_of(part)) is not None:
            found.append(image)
        else:
            left_out[reason_for(kind)] += 1
    for file in mappings(mapping(record.get("metadata")).get("inline_file_contents")):
        if content := text(file.get("content")):
            found.append(AttachmentRecord(kind="text", name=text(file.get("name")) or UNNAMED, text=content))
    return found
