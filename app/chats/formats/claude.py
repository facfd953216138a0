"""Claude's data export: ``conversations.json``, a list of chats."""

from __future__ import annotations

import html
import re
from typing import Any

from app.chats.formats.json_stream import Answer
from app.chats.formats.records import (
    UNNAMED,
    AttachmentRecord,
    ChatRecord,
    LeftOut,
    MessageRecord,
    Node,
    Role,
    arranged,
)
from app.chats.formats.turns import Document
from app.chats.formats.values import items, mapping, mappings, seconds, text

NAME = "claude"
_SILENT = ("token_budget", "flag")
"""Blocks that tell a reader nothing."""
_WRITING = ("artifacts", "create_file", "str_replace")
"""Tools whose documents a reader would miss."""
_LANGUAGES = {
    "text/markdown": "markdown",
    "text/html": "html",
    "image/svg+xml": "svg",
    "application/vnd.ant.react": "jsx",
    "application/vnd.ant.mermaid": "mermaid",
}
"""Languages of artifacts that name none, by type."""
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".heic")
_UNSUPPORTED = re.compile(
    r"^```\n(?:This block is not supported|Viewing artifacts created via)[^`\n]*\n```\n*", re.MULTILINE
)
"""The placeholder that the export writes for a tool call."""
_ARTIFACT = re.compile(r"<antArtifact\b([^>]*)>(.*?)</antArtifact>", re.DOTALL)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_THOUGHT = re.compile(r"<antThinking>(.*?)</antThinking>\s*", re.DOTALL)


def recognizes(record: dict[str, Any]) -> bool:
    return isinstance(record.get("chat_messages"), list)


def read(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    nodes: dict[str, Node] = {}
    documents: dict[str, Document] = {}
    before: str | None = None
    for number, message in enumerate(mappings(record["chat_messages"])):
        name = text(message.get("uuid")) or str(number)
        # Current exports name the parent; the first message names one that doesn't exist.
        parent = text(message.get("parent_message_uuid")) or before
        read = _message(message, documents, left_out)
        nodes[name] = Node(parent, read, joins=read is not None and bool(read.calls))
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


def _message(message: dict[str, Any], documents: dict[str, Document], left_out: LeftOut) -> MessageRecord | None:
    answer = _said(message, documents, left_out)
    attachments = answer.attachments
    for attachment in mappings(message.get("attachments")):
        name = text(attachment.get("file_name"))
        if content := text(attachment.get("extracted_content")):
            attachments.append(AttachmentRecord(kind="text", name=name or UNNAMED, text=content))
        else:
            left_out[_kind_of(name)] += 1
    for file in mappings(message.get("files")):
        if (name := text(file.get("file_name"))) not in {one.name for one in attachments}:
            left_out[_kind_of(name)] += 1
    role: Role = "user" if message.get("sender") == "human" else "assistant"
    return answer.message(role, seconds(message.get("created_at")))


def _said(message: dict[str, Any], documents: dict[str, Document], left_out: LeftOut) -> Answer:
    """The text with the documents written beside it, the thinking, and the other calls of tools."""
    answer = Answer(left_out)
    written: set[str] = set()
    for part in mappings(message.get("content")):
        match part.get("type"):
            case "text" | "voice_note":
                answer.say(_without_tags(text(part.get("text")), answer))
                left_out["references"] += len(items(part.get("citations")))
            case "thinking":
                answer.think(text(part.get("thinking")))
            case "tool_use" | "tool_result":
                _add_call(answer, part, documents, written, left_out)
            case "image":
                left_out["images"] += 1
            case str(kind) if kind not in _SILENT:
                left_out["tools"] += 1
    if not answer.text:
        answer.say(_without_tags(text(message.get("text")), answer))
    return answer


def _add_call(
    answer: Answer, part: dict[str, Any], documents: dict[str, Document], written: set[str], left_out: LeftOut
) -> None:
    """``written``: the calls that wrote documents and whose results, which tell a reader nothing, are still to come."""
    name = text(part.get("name"))
    call_id = text(part.get("tool_use_id")) or text(part.get("id")) or name  # older exports have no ids
    if part["type"] == "tool_result":
        if call_id not in written:
            answer.result(call_id, part.get("content"), failed=part.get("is_error") is True, name=name)
        written.discard(call_id)
    elif (document := _document(part, documents, left_out)) is not None:
        answer.say(document.part())
        written.add(call_id)
    else:
        answer.call(call_id, name, part.get("input"), part.get("integration_name"))


def _kind_of(name: str) -> str:
    return "images" if name.lower().endswith(_IMAGES) else "files"


def _document(part: dict[str, Any], documents: dict[str, Document], left_out: LeftOut) -> Document | None:
    """The artifact or file that a call writes or changes; ``None`` for other calls."""
    call = mapping(part.get("input"))
    key = text(call.get("id")) or text(call.get("path"))
    content = next((call[one] for one in ("content", "file_text") if text(call.get(one))), "")
    before = documents.get(key)
    if part.get("name") not in _WRITING:
        return None
    if "old_str" in call:
        old = text(call.get("old_str"))
        if before is None or old not in before.content:
            left_out["changes"] += 1
            return None
        content = before.content.replace(old, text(call.get("new_str")), 1)
    elif not content:
        return None
    name = text(call.get("title")) or key.rpartition("/")[2]
    language = text(call.get("language")) or _LANGUAGES.get(text(call.get("type")), "")
    if before is not None:
        name, language = text(call.get("title")) or before.name, language or before.language
    documents[key] = Document(name, language, content)
    return documents[key]


def _without_tags(written: str, answer: Answer) -> str:
    """``written`` without the placeholders for calls; artifacts between tags (in older exports) keep their content."""

    def instead(found: re.Match[str]) -> str:
        named = dict(_ATTRIBUTE.findall(found[1]))
        language = named.get("language", "") or _LANGUAGES.get(named.get("type", ""), "")
        document = Document(html.unescape(named.get("title", "")), language, found[2].strip("\n"))
        return f"\n\n{document.part()}\n\n"

    written = _UNSUPPORTED.sub("", written)
    thoughts, end, rest = written.rpartition("</antThinking>")  # searching for a missing end tag would take forever
    for thought in _THOUGHT.findall(thoughts + end):
        answer.think(thought)
    artifacts, end, rest = (_THOUGHT.sub("", thoughts + end) + rest).rpartition("</antArtifact>")
    return _ARTIFACT.sub(instead, artifacts + end) + rest
