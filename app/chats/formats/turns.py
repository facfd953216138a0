"""Chats without dates or branches (OpenAI's ``messages``, ShareGPT, or a bare list of messages, which is one chat), and
the documents that models edit over several answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from app.chats.formats.json_stream import Answer, data_url, listed, parts_of
from app.chats.formats.records import Beside, ChatRecord, LeftOut, MessageRecord, arranged, in_a_row, settings_of
from app.chats.formats.values import file_text, from_json, mappings, seconds, text

OPENAI, SHAREGPT = "openai", "sharegpt"
_ROLES = {
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bot", "bing", "bard"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "function_response"), "result"),
    "function_call": "calls",
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


def read_all(records: Iterator[Any], _beside: Beside, left_out: LeftOut) -> Iterator[ChatRecord]:
    """The chat whose messages are in this file."""
    yield _chat({}, [_openai(one, left_out) for one in mappings(list(records))])


def _chat(record: dict[str, Any], turns: list[tuple[str, MessageRecord] | None]) -> ChatRecord:
    """A chat from ``turns`` (roles and messages); a system prompt counts only with its text."""
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
        settings=settings_of("\n\n".join(prompts)),
        messages=messages,
    )


def _openai(message: dict[str, Any], left_out: LeftOut) -> tuple[str, MessageRecord] | None:
    return _turn(message.get("role"), message.get("content"), message, left_out)


def _turn(
    name: object, content: object, message: dict[str, Any], left_out: LeftOut
) -> tuple[str, MessageRecord] | None:
    role = _ROLES.get(text(name).lower())
    answer, said = Answer(left_out), role in ("user", "system")
    match role:
        case None:
            left_out["tools"] += 1
        case "result":
            answer.result(message.get("tool_call_id"), content, name=message.get("name"))
        case "calls":
            called = from_json(text(content))
            answer.call_all(called if isinstance(called, list) else [called])
        case _:
            written, answer.attachments = parts_of(content, left_out)
            answer.write(written)
            if not said:
                answer.think(text(message.get("reasoning_content")) or text(message.get("reasoning")))
                answer.call_all(message.get("tool_calls") or [message.get("function_call")])
    created, model = seconds(message.get("created_at")), text(message.get("model"))
    found = answer.message("user" if said else "assistant", created, model)
    return (role or "", found) if found is not None else None


def write_openai(chat: ChatRecord) -> str:
    """The shown branch as one line."""
    prompt = text(chat.settings.get("system_prompt"))
    messages: list[dict[str, Any]] = [{"role": "system", "content": prompt}] if prompt else []
    for message in chat.branch():
        files = [file_text(one.name, one.text) for one in message.attachments if one.kind == "text"]
        images = [
            {"type": "image_url", "image_url": {"url": data_url(one)}}
            for one in message.attachments
            if one.kind == "image"
        ]
        for place, (piece, calls) in enumerate(message.turns()):
            said = "\n\n".join(filter(None, [*files, piece.strip() if message.calls else piece]))
            content = [*images, *([{"type": "text", "text": said}] if said else [])] if images else said
            written: dict[str, Any] = {"role": str(message.role), "content": content}
            if message.thinking and not place:
                written["reasoning_content"] = message.thinking
            if calls:
                written["tool_calls"] = listed(calls)
            messages += [written] if content or calls or not place else []
            ended = [one for one in calls if one.state != "stopped"]
            messages += [{"role": "tool", "tool_call_id": one.id, "content": one.result} for one in ended]
            files, images = [], []
    return json.dumps({"messages": messages}, ensure_ascii=False)


# Documents that a model writes beside its answers and edits later: ChatGPT's canvas, Claude's artifacts.

_ANYTHING = re.compile(r"\(?(?:\.|\[\\s\\S\])[*+]\??\)?")
_SPECIAL = re.compile(r"(?<!\\)(?:\\\\)*[.^$*+?{}\[\]|()]|\\[A-Za-z0-9]")


class Document(msgspec.Struct, frozen=True):
    """One version of a document."""

    name: str
    language: str
    """The language of its code; ``markdown`` for prose."""
    content: str

    def part(self) -> str:
        """The document as part of an answer."""
        return file_text(self.name, self.content, self.language)


def changed(content: str, pattern: str, replacement: str, *, everywhere: bool = False) -> str | None:
    """``content`` with a regular expression replaced; ``None`` if it doesn't match or isn't a simple one.

    Simple ones consist of plain text and ``.*`` and the like. Others could take forever.
    """
    pieces = [re.sub(r"\\(\W)", r"\1", one) for one in _ANYTHING.split(pattern)]
    if any(_SPECIAL.search(one) for one in _ANYTHING.split(pattern)):
        return None
    if pieces == ["", ""]:
        return replacement
    if len(pieces) == 1:
        return content.replace(pieces[0], replacement, -1 if everywhere else 1) if pieces[0] in content else None
    begin, end = content.find(pieces[0]), -1
    for piece in pieces:
        if (at := content.find(piece, max(begin, end))) < 0:
            return None
        end = at + len(piece)
    return content[:begin] + replacement + (content[end:] if pieces[-1] else "")
