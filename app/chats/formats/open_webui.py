"""Open WebUI's export: a list of chats, each a tree; in an older form, only what is inside ``chat``."""

from __future__ import annotations

import html
import re
from typing import Any

from app.chats.formats.json_stream import Answer, image_from, parts_of
from app.chats.formats.records import (
    UNNAMED,
    AttachmentRecord,
    ChatRecord,
    LeftOut,
    MessageRecord,
    Node,
    arranged,
    in_a_row,
    settings_of,
)
from app.chats.formats.values import from_json, items, mapping, mappings, seconds, text

NAME = "open_webui"
_OPENED = re.compile(
    r'^<details type="(reasoning|tool_calls|code_interpreter)"((?:\s+[\w-]+="[^"]*")*)\s*>', re.MULTILINE
)
_CLOSED = re.compile(r"(?:(?<=\n)|(?<=</summary>))</details>\s*")
_SUMMARY = re.compile(r"<summary>.*?</summary>\n?", re.DOTALL)
_QUOTE = re.compile(r"^> ?", re.MULTILINE)
_ATTRIBUTE = re.compile(r'\b(\w+)="([^"]*)"')
_CODE = re.compile(r"\A`{3,}\w*\n(.*?)\n?`{3,}\s*\Z", re.DOTALL)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


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
        for name, entry in entries.items():
            merged = mapping(mapping(entry).get("merged"))  # one model's summary of several models' answers
            if content := text(merged.get("content")):
                nodes[f"{name}-merged"] = Node(
                    name, _message({**merged, "role": "assistant", "content": content}, left_out)
                )
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
        settings=settings_of(prompt),
        messages=messages,
    )


def _message(entry: dict[str, Any], left_out: LeftOut) -> MessageRecord | None:
    role = entry.get("role")
    if role not in ("user", "assistant", "tool"):
        left_out["hidden" if role == "system" else "tools"] += 1
        return None
    answer = Answer(left_out)
    if role == "tool":
        answer.result(entry.get("tool_call_id"), entry.get("content"), name=entry.get("name"))
    else:
        written, attachments = parts_of(entry.get("content"), left_out)
        answer = _told(written, entry, left_out) if role == "assistant" else Answer(left_out, written)
        answer.attachments += attachments
    left_out["references"] += len(items(entry.get("sources")) or items(entry.get("citations")))
    for file in mappings(entry.get("files")):
        if (attachment := _attachment(file)) is not None:
            answer.attachments.append(attachment)
        else:
            left_out["images" if _is_image(file) else "files"] += 1
    model, created = text(entry.get("modelName")) or text(entry.get("model")), seconds(entry.get("timestamp"))
    answer.status = "failed" if entry.get("error") else "complete"
    message = answer.message(role, created, model)
    left_out["failed"] += message is None and bool(entry.get("error"))
    return message


def _attachment(file: dict[str, Any]) -> AttachmentRecord | None:
    """A file whose content is included in the export."""
    inner = mapping(file.get("file"))
    name = text(file.get("name")) or text(inner.get("filename"))
    if (image := image_from(file.get("url"), name)) is not None:
        return image
    content = text(mapping(inner.get("data")).get("content")) or text(file.get("content"))
    return AttachmentRecord(kind="text", name=name or UNNAMED, text=content) if content.strip() else None


def _is_image(file: dict[str, Any]) -> bool:
    kinds = (
        file.get("type"),
        file.get("content_type"),
        mapping(mapping(file.get("file")).get("meta")).get("content_type"),
    )
    return any(text(kind).startswith("image") for kind in kinds)


def _told(written: str, entry: dict[str, Any], left_out: LeftOut) -> Answer:
    """An answer from its text, and from what newer versions store beside that if it has more."""
    shown, told = _without_details(written, left_out), _output(entry.get("output"), left_out)
    says, has_more = bool(shown.text.strip()), bool(told.calls) and not shown.calls
    if (told.text.strip() and (has_more or not says)) or not (says or shown.calls):
        shown, told = told, shown
    shown.think("" if shown.thinking else told.thinking)
    shown.call_all(entry.get("tool_calls"))
    return shown


def _output(output: object, left_out: LeftOut) -> Answer:
    answer = Answer(left_out)
    for item in mappings(output):
        said, _ = parts_of(item.get("content") or item.get("summary"), LeftOut())
        match text(item.get("type")).removeprefix("open_webui:"):
            case "message":
                answer.say(said)
            case "reasoning":
                answer.think(said)
            case "code_interpreter":
                _program(answer, text(item.get("code")), item.get("output"))
            case "function_call":
                answer.call(item.get("call_id"), item.get("name"), item.get("arguments"))
            case "function_call_output":
                answer.result(item.get("call_id"), item.get("output"))
    return answer


def _without_details(written: str, left_out: LeftOut) -> Answer:
    """The parts of an answer that stand in its text: thinking as a folded quotation, calls as tags."""
    answer = Answer(left_out)
    at = seen = fences = 0
    for opened in _OPENED.finditer(written):
        if opened.start() < at:
            continue
        fences += len(_FENCE.findall(written, seen, opened.start()))
        seen = opened.start()
        if fences % 2:
            continue  # an example inside code
        if (closed := _CLOSED.search(written, opened.end())) is None:
            break
        answer.write(written[at : opened.start()])
        body = _unescaped(_SUMMARY.sub("", written[opened.end() : closed.start()]).strip("\n"))
        given = {name: from_json(html.unescape(value)) for name, value in _ATTRIBUTE.findall(opened[2])}
        if opened[1] == "reasoning":
            answer.think(_QUOTE.sub("", body))
        elif opened[1] == "code_interpreter":
            _program(answer, _CODE.sub(r"\1", body), given.get("output"))
        else:
            answer.call(given.get("id"), given.get("name"), given.get("arguments"))
            if "result" in given:
                answer.result(given.get("id"), given["result"])
        at = seen = closed.end()
    answer.write(written[at:])
    return answer


def _unescaped(body: str) -> str:
    """Undo escaping: some versions escape a quotation as a whole, some only its lines, some not at all."""
    return body if re.search(r"[<\"']", body) else html.unescape(body)


def _program(answer: Answer, code: str, output: object) -> None:
    """A program that the app ran, and what it printed."""
    printed = [text(mapping(output).get(key)) for key in ("stdout", "stderr", "result")]
    answer.call("", "code_interpreter", {"code": code})
    answer.result("", text(output) or "\n".join(filter(None, printed)))
