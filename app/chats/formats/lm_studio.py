"""LM Studio's chats: one ``….conversation.json`` each, whose messages have versions."""

from __future__ import annotations

from typing import Any

from app.chats.formats.records import ChatRecord, LeftOut, MessageRecord, Node, arranged, message_of, settings_of
from app.chats.formats.values import items, mapping, mappings, seconds, text

NAME = "lm_studio"
_PROMPT = "llm.prediction.systemPrompt"


def recognizes(record: dict[str, Any]) -> bool:
    return any(isinstance(one.get("versions"), list) for one in mappings(record.get("messages"))) or (
        "perChatPredictionConfig" in record and "messages" in record
    )


def read(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    nodes: dict[str, Node] = {}
    shown: str | None = None
    model = text(mapping(record.get("lastUsedModel")).get("identifier"))
    for number, message in enumerate(mappings(record.get("messages"))):
        versions = list(mappings(message.get("versions")))
        chosen = message.get("currentlySelected")
        if not isinstance(chosen, int) or not 0 <= chosen < len(versions):
            chosen = len(versions) - 1
        above = shown
        for place, version in enumerate(versions):
            name = f"{number}.{place}"
            nodes[name] = Node(above, _message(version, model, left_out))
            if place == chosen:
                shown = name
    messages, current = arranged(nodes, shown)
    created = seconds(record.get("createdAt"))
    last = [seconds(record.get(key)) or 0.0 for key in ("userLastMessagedAt", "assistantLastMessagedAt")]
    return ChatRecord(
        title=text(record.get("name")),
        created_at=created,
        updated_at=max(last) or created,
        current=current,
        pinned_at=created if record.get("pinned") is True else None,
        settings=settings_of(_prompt(record)),
        messages=messages,
    )


def _prompt(record: dict[str, Any]) -> str:
    fields = mapping(record.get("perChatPredictionConfig")).get("fields")
    own = next((text(one.get("value")) for one in mappings(fields) if one.get("key") == _PROMPT), "")
    return own or text(record.get("systemPrompt"))


def _message(version: dict[str, Any], model: str, left_out: LeftOut) -> MessageRecord | None:
    if (role := version.get("role")) not in ("user", "assistant"):
        left_out["hidden"] += 1
        return None
    written: list[str] = []
    thinking: list[str] = []
    for step in _steps(version, left_out):
        parts = thinking if mapping(step.get("style")).get("type") == "thinking" else written
        parts.append(_text(step.get("content"), left_out))
    said, thought = ("\n\n".join(filter(None, parts)) for parts in (written, thinking))
    name = text(mapping(version.get("senderInfo")).get("senderName"))
    return message_of(role, said, thinking=thought, model=name or model)


def _steps(version: dict[str, Any], left_out: LeftOut) -> list[dict[str, Any]]:
    """The parts of a message that have content."""
    if "steps" not in version:
        return [version]
    steps = list(mappings(version.get("steps")))
    left_out["tools"] += sum(step.get("type") == "toolStatus" for step in steps)
    return [step for step in steps if step.get("type") == "contentBlock"]


def _text(content: object, left_out: LeftOut) -> str:
    """Join the text parts: with a draft model, drafted and other tokens are in separate parts."""
    found = ""
    for part in items(content):
        match mapping(part).get("type"):
            case "text" if part.get("isStructural") is not True:  # the marks around the thinking
                found += text(part.get("text"))
            case "file":
                left_out["images" if part.get("fileType") == "image" else "files"] += 1
            case "toolCallRequest" | "toolCallResult":
                left_out["tools"] += 1
    return found
