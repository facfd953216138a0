"""The chats of llama.cpp's web page: JSON Lines with a session and its messages, or one object for a chat (older)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from app.chats.formats.json_stream import data_url, image_from, reason_for
from app.chats.formats.records import (
    UNNAMED,
    AttachmentRecord,
    Beside,
    ChatRecord,
    LeftOut,
    MessageRecord,
    Node,
    arranged,
    message_of,
    settings_of,
)
from app.chats.formats.values import mapping, mappings, seconds, text

NAME = "llama_cpp"


def recognizes(record: dict[str, Any]) -> bool:
    """Whether this is the current form."""
    return record.get("type") == "session" and "currNode" in record


def recognizes_older(record: dict[str, Any]) -> bool:
    return isinstance(record.get("conv"), dict) and isinstance(record.get("messages"), list)


def read_all(records: Iterator[Any], _beside: Beside, left_out: LeftOut) -> Iterator[ChatRecord]:
    """The chats of the current form, from all lines of a file."""
    session: dict[str, Any] | None = None
    messages: list[dict[str, Any]] = []
    for record in records:
        match record:
            case {"type": "session"}:
                if session is not None:
                    yield _chat(session, messages, left_out)
                session, messages = record, []
            case {"type": "message", "message": dict(message)} if session is not None:
                messages.append(message)
    if session is not None:
        yield _chat(session, messages, left_out)


def read_older(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    return _chat(record["conv"], list(mappings(record["messages"])), left_out)


def _chat(session: dict[str, Any], messages: list[dict[str, Any]], left_out: LeftOut) -> ChatRecord:
    nodes: dict[str, Node] = {}
    system = ""
    for message in messages:
        role = text(message.get("role"))
        node = Node(text(message.get("parent")) or None)
        if message.get("type") == "root":
            pass
        elif role == "system":
            system = text(message.get("content")) or system
        elif role not in ("user", "assistant"):
            left_out["tools"] += 1
        else:
            node.message = _message(message, left_out)
        nodes[str(message.get("id"))] = node
    arranged_messages, current = arranged(nodes, text(session.get("currNode")) or None)
    return ChatRecord(
        id=text(session.get("id")),
        title=text(session.get("name")),
        created_at=min((one.created_at for one in arranged_messages if one.created_at), default=None),
        updated_at=seconds(session.get("lastModified")),
        pinned_at=seconds(session.get("lastModified")) if session.get("pinned") is True else None,
        current=current,
        settings=settings_of(system),
        messages=arranged_messages,
    )


def _message(message: dict[str, Any], left_out: LeftOut) -> MessageRecord | None:
    if message.get("toolCalls") not in (None, "", []):
        left_out["tools"] += 1
    attachments: list[AttachmentRecord] = []
    for extra in mappings(message.get("extra")):
        if content := text(extra.get("content")):
            attachments.append(AttachmentRecord(kind="text", name=text(extra.get("name")) or UNNAMED, text=content))
        elif (image := image_from(extra.get("base64Url"), text(extra.get("name")))) is not None:
            attachments.append(image)
        else:
            left_out[reason_for(extra.get("type"))] += 1
    thinking = text(message.get("reasoningContent")) or text(message.get("thinking"))
    created, model = seconds(message.get("timestamp")), text(message.get("model"))
    return message_of(message["role"], text(message.get("content")), created, thinking, model, attachments)


def write(chat: ChatRecord) -> str:
    last = int((chat.updated_at or 0) * 1000)
    root = f"{chat.id}-root"
    children: dict[str, list[str]] = {}
    for message in chat.messages:
        children.setdefault(message.parent or root, []).append(message.id)
    session = {"id": chat.id, "name": chat.title, "currNode": chat.current or root, "lastModified": last}
    lines: list[dict[str, Any]] = [{"harness": "llama.app", "type": "session", **session}]
    if chat.pinned_at is not None:
        lines[0]["pinned"] = True
    system = text(mapping(chat.settings).get("system_prompt"))
    top = f"{chat.id}-system" if system else root
    begun = int((chat.created_at or 0) * 1000)
    above = {"convId": chat.id, "type": "root", "timestamp": begun, "role": "system", "content": ""}
    lines.append(_line({"id": root, **above, "parent": None, "children": [top] if system else children.get(root, [])}))
    if system:
        prompt = {**above, "type": "system", "content": system, "parent": root, "children": children.get(root, [])}
        lines.append(_line({"id": top, **prompt}))
    for message in chat.messages:
        written: dict[str, Any] = {
            "id": message.id,
            "convId": chat.id,
            "type": "text",
            "timestamp": int((message.created_at or chat.created_at or 0) * 1000),
            "role": message.role,
            "content": message.text,
            "parent": message.parent or top,
            "children": children.get(message.id, []),
        }
        if message.thinking:
            written["reasoningContent"] = message.thinking
        if message.model:
            written["model"] = message.model
        if message.attachments:
            written["extra"] = [_extra(one) for one in message.attachments]
        lines.append(_line(written))
    return "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)


def _extra(file: AttachmentRecord) -> dict[str, str]:
    if file.kind == "image":
        return {"type": "IMAGE", "name": file.name, "base64Url": data_url(file)}
    return {"type": "TEXT", "name": file.name, "content": file.text}


def _line(message: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "message": message}
