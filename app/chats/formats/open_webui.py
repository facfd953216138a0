"""Open WebUI's export: a list of chats, each a tree; in an older form, only what is inside ``chat``."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from app.chats.formats.json_stream import image_from, parts_of
from app.chats.formats.records import (
    UNNAMED,
    AttachmentRecord,
    ChatRecord,
    Ending,
    LeftOut,
    MessageRecord,
    Node,
    arranged,
    in_a_row,
    message_of,
    settings_of,
)
from app.chats.formats.values import file_text, items, mapping, mappings, seconds, text

NAME = "open_webui"
_OPENED = re.compile(r'^<details type="(reasoning|tool_calls|code_interpreter)"([^>]*)>', re.MULTILINE)
_CLOSED = re.compile(r"(?:(?<=\n)|(?<=</summary>))</details>\s*")
_SUMMARY = re.compile(r"<summary>.*?</summary>\n?", re.DOTALL)
_QUOTE = re.compile(r"^> ?", re.MULTILINE)
_OUTPUT = re.compile(r'\boutput="([^"]*)"')
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
    if role not in ("user", "assistant"):
        left_out["hidden" if role == "system" else "tools"] += 1
        return None
    written, attachments = parts_of(entry.get("content"), left_out)
    thinking = ""
    if role == "assistant":
        written, thinking = _without_details(written, left_out)
        said, thought = _output(entry.get("output"), left_out if not written.strip() else LeftOut())
        written, thinking = written if written.strip() else said, thinking or thought
    left_out["references"] += len(items(entry.get("sources")) or items(entry.get("citations")))
    for file in mappings(entry.get("files")):
        if (attachment := _attachment(file)) is not None:
            attachments.append(attachment)
        else:
            left_out["images" if _is_image(file) else "files"] += 1
    model, created = text(entry.get("modelName")) or text(entry.get("model")), seconds(entry.get("timestamp"))
    status: Ending = "failed" if entry.get("error") else "complete"
    message = message_of(role, written, created, thinking, model, attachments, status)
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


def _output(output: object, left_out: LeftOut) -> tuple[str, str]:
    """What newer versions store beside the text: the answer and the thinking."""
    written: list[str] = []
    thoughts: list[str] = []
    for item in mappings(output):
        said, _ = parts_of(item.get("content") or item.get("summary"), LeftOut())
        match text(item.get("type")).removeprefix("open_webui:"):
            case "message":
                written.append(said)
            case "reasoning":
                thoughts.append(said)
            case "code_interpreter":
                language = text(item.get("lang")) or text(item.get("language"))
                written.append(file_text("", text(item.get("code")), language))
            case "function_call":
                left_out["tools"] += 1
    return "\n\n".join(filter(None, written)), "\n\n".join(filter(None, thoughts))


def _without_details(written: str, left_out: LeftOut) -> tuple[str, str]:
    """Split an answer from its thinking, which stands in it as a folded quotation."""
    thoughts: list[str] = []
    kept: list[str] = []
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
        kept.append(written[at : opened.start()])
        body = _unescaped(_SUMMARY.sub("", written[opened.end() : closed.start()]).strip("\n"))
        if opened[1] == "reasoning":
            thoughts.append(_QUOTE.sub("", body))
        elif opened[1] == "code_interpreter":
            output = _OUTPUT.search(opened[2])
            result = _result(html.unescape(output[1])) if output else ""
            kept.append("\n\n".join(filter(None, (body, file_text("", result) if result else ""))) + "\n\n")
        else:
            left_out["tools"] += 1
        at = seen = closed.end()
    return "".join([*kept, written[at:]]), "\n\n".join(filter(None, thoughts))


def _unescaped(body: str) -> str:
    """Undo escaping: some versions escape a quotation as a whole, some only its lines, some not at all."""
    return body if re.search(r"[<\"']", body) else html.unescape(body)


def _result(output: str) -> str:
    """What a program printed, from JSON."""
    try:
        found = mapping(json.loads(output))
    except (ValueError, RecursionError):
        return output
    return "\n".join(text(found.get(key)) for key in ("stdout", "stderr", "result") if text(found.get(key)))
