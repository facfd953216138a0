"""Claude's data export: ``conversations.json``, a list of chats."""

from __future__ import annotations

from typing import Any

from app.chats.formats.branches import Node, arranged
from app.chats.formats.records import UNNAMED, AttachmentRecord, ChatRecord, LeftOut, MessageRecord
from app.chats.formats.values import items, mapping, mappings, seconds, text

NAME = "claude"
_TOOLS = ("tool_use", "tool_result")


def recognizes(record: dict[str, Any]) -> bool:
    return isinstance(record.get("chat_messages"), list)


def read(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    nodes: dict[str, Node] = {}
    before: str | None = None
    for number, message in enumerate(mappings(record["chat_messages"])):
        name = text(message.get("uuid")) or str(number)
        # Exports of today name the parent; of the first message it is one that isn't there.
        parent = text(message.get("parent_message_uuid")) or before
        nodes[name] = Node(parent, _message(message, left_out))
        before = name
    messages, current = arranged(nodes, text(record.get("current_leaf_message_uuid")) or before)
    return ChatRecord(
        id=text(record.get("uuid")),
        title=text(record.get("name")),
        created_at=seconds(record.get("created_at")),
        updated_at=seconds(record.get("updated_at")),
        current=current,
        messages=messages,
    )


def _message(message: dict[str, Any], left_out: LeftOut) -> MessageRecord | None:
    written: list[str] = []
    thinking: list[str] = []
    for part in mappings(message.get("content")):
        match part.get("type"):
            case "text":
                written.append(text(part.get("text")))
            case "thinking":
                thinking.append(text(part.get("thinking")))
            case str(kind) if kind in _TOOLS:
                left_out["tools"] += 1
            case "image":
                left_out["images"] += 1
    whole = "\n\n".join(filter(None, written)) or text(message.get("text"))
    attachments: list[AttachmentRecord] = []
    for attachment in mappings(message.get("attachments")):
        if content := text(attachment.get("extracted_content")):
            name = text(attachment.get("file_name")) or UNNAMED
            attachments.append(AttachmentRecord(kind="text", name=name, text=content))
        else:
            left_out["files"] += 1
    left_out["files"] += len([one for one in items(message.get("files")) if mapping(one)])
    if not whole.strip() and not any(thinking) and not attachments:
        return None
    return MessageRecord(
        id="",
        parent=None,
        role="user" if message.get("sender") == "human" else "assistant",
        text=whole,
        created_at=seconds(message.get("created_at")),
        thinking="\n\n".join(filter(None, thinking)),
        attachments=attachments,
    )
