"""ChatGPT's data export: ``conversations.json`` (or several of them), in which each chat is a tree."""

from __future__ import annotations

import re
from typing import Any

from app.chats.formats.branches import Node, arranged
from app.chats.formats.records import ChatRecord, LeftOut, MessageRecord
from app.chats.formats.values import items, mapping, mappings, seconds, text

NAME = "chatgpt"
_MARKS = re.compile("\ue200[^\ue201]*\ue201")
"""References to sources, between characters for private use, which only ChatGPT's own page can show."""
_SILENT = ("reasoning_recap", "model_editable_context")
"""What says nothing that isn't elsewhere."""
_IMAGES = ("image_asset_pointer", "video_container_asset_pointer")


def recognizes(record: dict[str, Any]) -> bool:
    return isinstance(record.get("mapping"), dict)


def read(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    nodes: dict[str, Node] = {}
    prompts: list[str] = []
    for name, value in record["mapping"].items():
        entry = mapping(value)
        nodes[name] = node = Node(text(entry.get("parent")) or None)
        if isinstance(message := entry.get("message"), dict):
            _fill(node, message, prompts, left_out)
    messages, current = arranged(nodes, text(record.get("current_node")) or None)
    return ChatRecord(
        id=text(record.get("conversation_id")) or text(record.get("id")),
        title=text(record.get("title")),
        created_at=seconds(record.get("create_time")),
        updated_at=seconds(record.get("update_time")),
        current=current,
        settings={"system_prompt": "\n\n".join(prompts)} if prompts else {},
        messages=messages,
    )


def _fill(node: Node, message: dict[str, Any], prompts: list[str], left_out: LeftOut) -> None:
    """Put into ``node`` what of ``message`` is imported."""
    role = text(mapping(message.get("author")).get("role"))
    content, metadata = mapping(message.get("content")), mapping(message.get("metadata"))
    kind = text(content.get("content_type"))
    if kind in _SILENT:
        return
    if kind == "thoughts":
        node.thinking = "\n\n".join(text(one.get("content")) for one in mappings(content.get("thoughts")))
        return
    written = _text_of(content, left_out if role in ("user", "assistant") else LeftOut())
    if role == "system":
        if written.strip() and metadata.get("is_visually_hidden_from_conversation") is not True:
            prompts.append(written)
    elif role not in ("user", "assistant") or message.get("recipient", "all") != "all":
        left_out["tools"] += 1
    elif metadata.get("is_visually_hidden_from_conversation") is True or metadata.get("is_user_system_message") is True:
        left_out["hidden"] += 1
    elif written.strip():
        left_out["files"] += sum(1 for _ in mappings(metadata.get("attachments")))
        node.message = MessageRecord(
            id="",
            parent=None,
            role="user" if role == "user" else "assistant",
            text=written,
            created_at=seconds(message.get("create_time")),
            model=text(metadata.get("model_slug")) if role == "assistant" else "",
        )


def _text_of(content: dict[str, Any], left_out: LeftOut) -> str:
    """The text of a message; pictures and the like are counted."""
    written: list[str] = []
    for part in items(content.get("parts")):
        if isinstance(part, str):
            written.append(part)
        elif (kind := text(mapping(part).get("content_type"))) == "audio_transcription":
            written.append(text(part.get("text")))
        else:
            left_out["images" if kind in _IMAGES else "files"] += 1
    if not written and (alone := text(content.get("text"))):
        written = [f"```{text(content.get('language')).replace('unknown', '')}\n{alone}\n```"]
    return _MARKS.sub("", "\n\n".join(filter(None, written)))
