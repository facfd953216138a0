"""Jan's chats: a folder for each, with ``thread.json`` and ``messages.jsonl``; we read the latter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from app import system
from app.chats.formats.json_stream import Answer, image_of, reason_for
from app.chats.formats.records import (
    UNNAMED,
    AttachmentRecord,
    Beside,
    ChatRecord,
    LeftOut,
    MessageRecord,
    arranged,
    in_a_row,
    settings_of,
)
from app.chats.formats.values import mapping, mappings, seconds, text

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
    if (role := record.get("role")) not in ("user", "assistant", "tool"):
        left_out["hidden" if role == "system" else "tools"] += 1
        return None
    answer, metadata = Answer(left_out), mapping(record.get("metadata"))
    for part in mappings(record.get("content")):
        _add(answer, record, part, left_out)
    for one in mappings(metadata.get("tool_calls")):  # of older versions
        tool, function = mapping(one.get("tool")), mapping(mapping(one.get("tool")).get("function"))
        _call(answer, tool.get("id"), function.get("name"), function.get("arguments"), one.get("response"))
    for file in mappings(metadata.get("inline_file_contents")):
        if content := text(file.get("content")):
            name = text(file.get("name")) or UNNAMED
            answer.attachments.append(AttachmentRecord(kind="text", name=name, text=content))
    model, created = text(metadata.get("modelId")) or text(metadata.get("model")), seconds(record.get("created_at"))
    return answer.message(role, created, model)


def _add(answer: Answer, record: dict[str, Any], part: dict[str, Any], left_out: LeftOut) -> None:
    value = text(mapping(part.get("text")).get("value")) or text(part.get("text"))
    match text(part.get("type")):
        case "text" if record["role"] == "tool":
            answer.result(record.get("tool_call_id"), value)
        case "text":
            answer.say(value)
        case "reasoning":
            answer.think(value)
        case "tool_call":
            _call(answer, part.get("tool_call_id"), part.get("tool_name"), part.get("input"), part.get("output"))
        case kind if (image := image_of(part)) is None:
            left_out[reason_for(kind)] += 1
        case _:
            answer.attachments.append(image)


def _call(answer: Answer, call_id: object, name: object, arguments: object, returned: object) -> None:
    answer.call(call_id, name, arguments)
    if returned is not None:
        answer.result(call_id, returned, failed=bool(mapping(returned).get("error")))
