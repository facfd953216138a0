"""Chats without dates or branches: ``messages`` as OpenAI's API has them, and ShareGPT's ``conversations``.

Also a list of such messages alone, which is one chat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from app.chats.formats.branches import arranged, in_a_row
from app.chats.formats.images import data_url, parts_of
from app.chats.formats.records import AttachmentRecord, ChatRecord, LeftOut, MessageRecord
from app.chats.formats.values import file_text, mappings, seconds, text, without_thinking

OPENAI, SHAREGPT = "openai", "sharegpt"
_ROLES = {
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bot", "bing", "bard"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
}


def recognizes_openai(record: dict[str, Any]) -> bool:
    return any("role" in one for one in mappings(record.get("messages")))


def recognizes_sharegpt(record: dict[str, Any]) -> bool:
    return any("from" in one and "value" in one for one in mappings(record.get("conversations")))


def is_message(record: dict[str, Any]) -> bool:
    return isinstance(record.get("role"), str) and "content" in record


def read_openai(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    return _chat(record, [_openai(one, left_out) for one in mappings(record["messages"])])


def read_sharegpt(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    turns = mappings(record["conversations"])
    return _chat(record, [_turn(one.get("from"), text(one.get("value")), {}, left_out) for one in turns])


def read_all(records: Iterator[Any], left_out: LeftOut) -> Iterator[ChatRecord]:
    """The chat whose messages a file has."""
    yield _chat({}, [_openai(one, left_out) for one in mappings(list(records))])


def _chat(record: dict[str, Any], turns: list[tuple[str, MessageRecord] | None]) -> ChatRecord:
    """``turns``: roles and messages; of a system prompt, only the text of its message counts."""
    found = [turn for turn in turns if turn is not None]
    prompts = [message.text for role, message in found if role == "system"]
    prompts += filter(None, [text(record.get("system"))])
    messages, current = arranged(in_a_row([message for role, message in found if role != "system"]), None)
    dates = [message.created_at for message in messages if message.created_at]
    return ChatRecord(
        id=text(record.get("id")),
        title=text(record.get("title")) or text(record.get("name")),
        created_at=next((at for key in ("created_at", "created") if (at := seconds(record.get(key)))), None)
        or min(dates, default=None),
        updated_at=seconds(record.get("updated_at")) or max(dates, default=None),
        current=current,
        settings={"system_prompt": "\n\n".join(prompts)} if prompts else {},
        messages=messages,
    )


def _openai(message: dict[str, Any], left_out: LeftOut) -> tuple[str, MessageRecord] | None:
    written, images = parts_of(message.get("content"), left_out)
    if message.get("tool_calls") or message.get("function_call"):
        left_out["tools"] += 1
    return _turn(message.get("role"), written, message, left_out, images)


def _turn(
    name: object,
    written: str,
    message: dict[str, Any],
    left_out: LeftOut,
    images: Sequence[AttachmentRecord] = (),
) -> tuple[str, MessageRecord] | None:
    role = _ROLES.get(text(name).lower())
    if role is None:
        left_out["tools"] += 1
        return None
    thinking = ""
    if role == "assistant":
        thinking = text(message.get("reasoning_content")) or text(message.get("reasoning"))
        if not thinking:
            thinking, written = without_thinking(written)
    if not written.strip() and not thinking.strip() and not images:
        return None
    return role, MessageRecord(
        id="",
        parent=None,
        role="assistant" if role == "assistant" else "user",
        text=written,
        created_at=seconds(message.get("created_at")),
        thinking=thinking,
        model=text(message.get("model")) if role == "assistant" else "",
        attachments=list(images),
    )


def write_openai(chat: ChatRecord) -> str:
    """The shown branch as one line."""
    prompt = text(chat.settings.get("system_prompt"))
    messages: list[dict[str, Any]] = [{"role": "system", "content": prompt}] if prompt else []
    for message in chat.branch():
        files = [file_text(one.name, one.text) for one in message.attachments if one.kind == "text"]
        said = "\n\n".join(filter(None, [*files, message.text]))
        images = [
            {"type": "image_url", "image_url": {"url": data_url(one)}}
            for one in message.attachments
            if one.kind == "image"
        ]
        content = [*images, *([{"type": "text", "text": said}] if said else [])] if images else said
        written: dict[str, Any] = {"role": str(message.role), "content": content}
        if message.thinking:
            written["reasoning_content"] = message.thinking
        messages.append(written)
    return json.dumps({"messages": messages}, ensure_ascii=False)
