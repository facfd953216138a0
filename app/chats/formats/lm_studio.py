"""LM Studio's chats: one ``….conversation.json`` each, whose messages have versions."""

from __future__ import annotations

from typing import Any

from app.chats.formats.json_stream import Answer
from app.chats.formats.records import ChatRecord, LeftOut, MessageRecord, Node, arranged, settings_of
from app.chats.formats.values import from_json, mapping, mappings, seconds, text

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
    answer = Answer(left_out)
    steps = list(mappings(version.get("steps"))) if "steps" in version else [{**version, "type": "contentBlock"}]
    failed = {str(step.get("callId")) for step in steps if "Failed" in text(_status(step).get("type"))}
    for step in steps:
        if step.get("type") == "contentBlock":
            _add(answer, step, failed, left_out)
    name = text(mapping(version.get("senderInfo")).get("senderName"))
    return answer.message(role, None, name or model)


def _status(step: dict[str, Any]) -> dict[str, Any]:
    """How a tool call went."""
    return mapping(mapping(step.get("statusState")).get("status"))


def _add(answer: Answer, step: dict[str, Any], failed: set[str], left_out: LeftOut) -> None:
    """Join the text parts: with a draft model, drafted and other tokens are in separate parts."""
    add = answer.think if mapping(step.get("style")).get("type") == "thinking" else answer.say
    found = ""
    for part in mappings(step.get("content")):
        call_id = str(part.get("callId"))
        match part.get("type"):
            case "text" if part.get("isStructural") is not True:  # the marks around the thinking
                found += text(part.get("text"))
            case "file":
                left_out["images" if part.get("fileType") == "image" else "files"] += 1
            case "toolCallRequest":
                add(found)
                found, arguments = "", part.get("parameters") or part.get("arguments")
                answer.call(call_id, part.get("name"), arguments, part.get("pluginIdentifier"))
            case "toolCallResult":
                returned = from_json(text(part.get("content")))
                answer.result(call_id, returned, failed=call_id in failed, name=part.get("name"))
    add(found)
