"""Open WebUI's export: a list of chats, each a tree; an older form has only what is inside of ``chat``."""

from __future__ import annotations

import html
import re
from typing import Any

from app.chats.formats.branches import Node, arranged, in_a_row
from app.chats.formats.records import ChatRecord, LeftOut, MessageRecord
from app.chats.formats.values import items, mapping, mappings, seconds, text, without_thinking

NAME = "open_webui"
_DETAILS = re.compile(r'<details type="(reasoning|tool_calls|code_interpreter)"[^>]*>(.*?)</details>\s*', re.DOTALL)
_SUMMARY = re.compile(r"<summary>.*?</summary>", re.DOTALL)
_QUOTE = re.compile(r"^> ?", re.MULTILINE)


def recognizes(record: dict[str, Any]) -> bool:
    return _has_messages(mapping(record.get("chat"))) or _has_messages(record)


def _has_messages(chat: dict[str, Any]) -> bool:
    return isinstance(mapping(chat.get("history")).get("messages"), dict) or ("models" in chat and "messages" in chat)


def read(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    chat = mapping(record.get("chat")) or record
    history = mapping(chat.get("history"))
    entries = mapping(history.get("messages"))
    if entries:
        nodes = {
            name: Node(text(mapping(entry).get("parentId")) or None, _message(mapping(entry), left_out))
            for name, entry in entries.items()
        }
    else:
        nodes = in_a_row([one for entry in mappings(chat.get("messages")) if (one := _message(entry, left_out))])
    messages, current = arranged(nodes, text(history.get("currentId")) or None)
    prompt = text(mapping(chat.get("params")).get("system")) or text(chat.get("system"))
    created = seconds(record.get("created_at")) or seconds(chat.get("timestamp"))
    updated = seconds(record.get("updated_at")) or created
    return ChatRecord(
        id=text(record.get("id")) or text(chat.get("id")),
        title=text(record.get("title")) or text(chat.get("title")),
        created_at=created,
        updated_at=updated,
        pinned_at=updated if record.get("pinned") is True else None,
        current=current,
        settings={"system_prompt": prompt} if prompt.strip() else {},
        messages=messages,
    )


def _message(entry: dict[str, Any], left_out: LeftOut) -> MessageRecord | None:
    role = entry.get("role")
    if role not in ("user", "assistant"):
        left_out["hidden" if role == "system" else "tools"] += 1
        return None
    written, thinking = text(entry.get("content")), ""
    if role == "assistant":
        written, thinking = _without_details(written, left_out)
    for file in items(entry.get("files")):
        left_out["images" if mapping(file).get("type") == "image" else "files"] += 1
    if not written.strip() and not thinking.strip():
        return None
    model = text(entry.get("modelName")) or text(entry.get("model"))
    return MessageRecord(
        id="",
        parent=None,
        role=role,
        text=written,
        created_at=seconds(entry.get("timestamp")),
        thinking=thinking,
        model=model if role == "assistant" else "",
    )


def _without_details(written: str, left_out: LeftOut) -> tuple[str, str]:
    """The answer, and what the model thought: that stands in the answer, as a folded quotation."""
    thoughts: list[str] = []

    def take(found: re.Match[str]) -> str:
        if found[1] == "reasoning":
            quoted = _SUMMARY.sub("", found[2]).strip("\n")
            thoughts.append(html.unescape(_QUOTE.sub("", quoted)))
        else:
            left_out["tools"] += 1
        return ""

    answer = _DETAILS.sub(take, written)
    if not thoughts:
        thought, answer = without_thinking(answer)
        thoughts = [thought]
    return answer, "\n\n".join(filter(None, thoughts))
