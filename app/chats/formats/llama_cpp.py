"""The chats of llama.cpp's web page: JSON Lines with a session and its messages, or one object for a chat (older)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from app.chats.formats.json_stream import Answer, data_url, image_from, listed, reason_for
from app.chats.formats.records import (
    UNNAMED,
    AttachmentRecord,
    Beside,
    ChatRecord,
    LeftOut,
    MessageRecord,
    Node,
    arranged,
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
        elif role not in ("user", "assistant", "tool"):
            left_out["tools"] += 1
        else:
            node.message = _message(message, left_out)
            node.joins = node.message is not None and bool(node.message.calls)
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
    answer, role, said = Answer(left_out), message["role"], text(message.get("content"))
    extras = list(mappings(message.get("extra")))
    if role == "tool":
        parts = [{**one, "text": one.get("content"), "image_url": one.get("base64Url")} for one in extras]
        answer.result(message.get("toolCallId"), [said, *parts])
    else:
        answer.write(said)
    for extra in extras if role != "tool" else ():
        name = text(extra.get("name"))
        if content := text(extra.get("content")):
            answer.attachments.append(AttachmentRecord(kind="text", name=name or UNNAMED, text=content))
        elif (image := image_from(extra.get("base64Url"), name)) is not None:
            answer.attachments.append(image)
        else:
            left_out[reason_for(extra.get("type"))] += 1
    answer.think(text(message.get("reasoningContent")) or text(message.get("thinking")))
    answer.call_all(message.get("toolCalls"))
    created, model = seconds(message.get("timestamp")), text(message.get("model"))
    return answer.message(role, created, model)


def write(chat: ChatRecord) -> str:
    last = int((chat.updated_at or 0) * 1000)
    root = f"{chat.id}-root"
    session: dict[str, Any] = {
        "id": chat.id,
        "name": chat.title,
        "currNode": chat.current or root,
        "lastModified": last,
    }
    if chat.pinned_at is not None:
        session["pinned"] = True
    system = text(mapping(chat.settings).get("system_prompt"))
    top = f"{chat.id}-system" if system else root
    begun = int((chat.created_at or 0) * 1000)
    above = {"convId": chat.id, "type": "root", "timestamp": begun, "role": "system", "content": ""}
    messages: list[dict[str, Any]] = [{"id": root, **above, "parent": None}]
    if system:
        messages.append({"id": top, **above, "type": "system", "content": system, "parent": root})
    for message in chat.messages:
        messages += _written(message, chat, top)
    children: dict[str, list[str]] = {}
    for one in messages:
        children.setdefault(one["parent"], []).append(one["id"])
    lines = [{"type": "message", "message": {**one, "children": children.get(one["id"], [])}} for one in messages]
    lines.insert(0, {"harness": "llama.app", "type": "session", **session})
    return "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)


def _written(message: MessageRecord, chat: ChatRecord, top: str) -> Iterator[dict[str, Any]]:
    """A message as it stands there: one with tool calls is several, with the results between them."""
    parent = message.parent or top
    common = {"convId": chat.id, "type": "text", "timestamp": int((message.created_at or chat.created_at or 0) * 1000)}
    for place, (piece, calls) in enumerate(message.turns()):
        name = f"{message.id}-{place}" if calls else message.id
        said = piece.strip() if message.calls else piece
        written = {"id": name, **common, "role": message.role, "content": said, "parent": parent}
        if message.thinking and not place:
            written["reasoningContent"] = message.thinking
        if message.model:
            written["model"] = message.model
        of_tools = {image for one in message.calls for image in one.images}
        if extra := [_extra(one) for one in message.attachments if not place and one.sha256() not in of_tools]:
            written["extra"] = extra
        if calls:
            written["toolCalls"] = json.dumps(listed(calls), ensure_ascii=False)
        yield written
        parent = name
        for number, call in enumerate(one for one in calls if one.state != "stopped"):
            extra = [_extra(one) for one in message.attachments if one.sha256() in call.images]
            result = {"role": "tool", "toolCallId": call.id, "content": call.result, "parent": parent, "extra": extra}
            parent = f"{name}-{number}"
            yield {"id": parent, **common, **result}


def _extra(file: AttachmentRecord) -> dict[str, str]:
    if file.kind == "image":
        return {"type": "IMAGE", "name": file.name, "base64Url": data_url(file)}
    return {"type": "TEXT", "name": file.name, "content": file.text}
