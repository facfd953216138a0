"""ChatGPT's data export: one or more ``conversations.json``, in which each chat is a tree."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from app.chats.formats.json_stream import Answer, reason_for
from app.chats.formats.records import ChatRecord, LeftOut, MessageRecord, Node, arranged, settings_of
from app.chats.formats.turns import Document, changed
from app.chats.formats.values import file_text, from_json, items, mapping, mappings, seconds, text

# ChatGPT marks what only its own page can show with private-use characters:
# ``\ue200KIND\ue202FIELD\ue202FIELD…\ue201``. We keep names, links and formulas. References to sources become links if
# the message says where they lead.

_MARK = re.compile(
    "\ue200+(?P<fields>[^\ue200\ue201]*)\ue201|\ue200+(?P<cut>[^\ue200\ue201\n]*)"
    r"|【\d+(?::\d+)?†[^】\n]{0,200}】|:contentReference\[oaicite:\d+\]\{index=\d+\}"
)
_OTHERS = re.compile("[\ue200-\ue206]")
_REFERENCE = re.compile(r"turn\d+[a-z_]*\d+|L\d+(?:-L?\d+)?")
"""Kinds of marks for a source, or for lines of it."""
_ADDRESS = re.compile(r"https?://\S+")
_FORMULA = re.compile(r'math_block\w*"\s*:\s*\{.*?"content"\s*:\s*"(.*?)"\s*\}', re.DOTALL)
_LONGEST_FORMULA = 10_000
_NAMED = ("entity", "product_entity")
_SOURCES = ("cite", "filecite", "memcite", "navlist")


def without_marks(written: str, metadata: dict[str, Any], left_out: LeftOut) -> str:
    """``written`` as a reader should see it; ``metadata`` is that of its message. Counts what is left out."""
    known = {text(one.get("matched_text")): one for one in mappings(metadata.get("content_references"))}

    def instead(found: re.Match[str]) -> str:
        kind, *fields = (found["fields"] or found["cut"] or "").split("\ue202")
        if kind not in (*_NAMED, "url") and (links := _links(known.get(found[0], {}))):
            return links if written[max(0, found.start() - 1)].isspace() else f" {links}"
        return _shown(kind, fields, left_out)

    return _OTHERS.sub("", _MARK.sub(instead, written))


def _links(reference: dict[str, Any]) -> str:
    """A reference as Markdown links; empty if it has no address."""
    if alt := text(reference.get("alt")):
        return alt
    sources = [*mappings(reference.get("items")), reference]
    links = [_link(text(one.get("attribution")) or text(one.get("title")), text(one.get("url"))) for one in sources]
    return f"({', '.join(found)})" if (found := [link for link in links if link]) else ""


def _link(name: str, address: str) -> str:
    if not _ADDRESS.fullmatch(address):
        return ""
    title = " ".join(name.replace("[", "(").replace("]", ")").split())
    target = f"<{address}>" if re.search(r"[()\\]", address) else address
    return f"[{title or address.split('/')[2]}]({target})"


def _shown(kind: str, fields: list[str], left_out: LeftOut) -> str:
    whole = "\ue202".join(fields)
    if kind in _NAMED:
        return _name(whole)
    if kind == "genui" and len(whole) < _LONGEST_FORMULA and (formula := _FORMULA.search(whole)):
        return f"\n$$\n{_unescaped(formula[1])}\n$$\n"
    if kind == "image_group":
        left_out["images"] += 1
        return ""
    if kind == "products":
        return ", ".join(
            text(items(one)[-1]) for one in items(mapping(from_json(whole)).get("selections")) if items(one)
        )
    address = next((one for one in fields if _ADDRESS.fullmatch(one)), "")
    said = [one for one in fields if one != address and not _REFERENCE.fullmatch(one) and one[:1] not in ("{", "[")]
    if (not said and not address) or kind == "navlist":
        left_out["references" if not kind or kind in _SOURCES else "widgets"] += 1
        return ""
    return _link(said[0] if said else "", address) or said[0]


def _name(entity: str) -> str:
    """The name of a person, a place …: the second string of a list."""
    try:
        texts = [one for one in items(json.loads(entity)) if isinstance(one, str)]
    except (ValueError, RecursionError):
        texts = re.findall(r'"([^"]+)"', entity) or [entity]
    return next(iter(texts[1:2] or texts), "")


def _unescaped(value: str) -> str:
    """Unescape the inside of a JSON string; some strings contain unescaped backslashes of formulas."""
    try:
        found = json.loads(f'"{value}"')
        return found if re.search(r"[\x00-\x1f]", found) is None else value
    except ValueError:
        return value


NAME = "chatgpt"
_CREATE, _UPDATE = "canmore.create_textdoc", "canmore.update_textdoc"


def recognizes(record: dict[str, Any]) -> bool:
    return isinstance(record.get("mapping"), dict)


def read(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    nodes: dict[str, Node] = {}
    prompts: dict[str, None] = {}
    for name, value in record["mapping"].items():
        entry = mapping(value)
        nodes[name] = node = Node(text(entry.get("parent")) or None)
        above = mapping(mapping(record["mapping"].get(node.parent)).get("message"))
        if isinstance(message := entry.get("message"), dict):
            _fill(node, message, prompts, left_out, is_after_document=above.get("recipient") in (_CREATE, _UPDATE))
    _add_documents(nodes, record["mapping"], left_out)
    messages, current = arranged(nodes, text(record.get("current_node")) or None)
    return ChatRecord(
        id=text(record.get("conversation_id")) or text(record.get("id")),
        title=text(record.get("title")),
        created_at=seconds(record.get("create_time")),
        updated_at=seconds(record.get("update_time")),
        current=current,
        settings=settings_of("\n\n".join(prompts)),
        messages=messages,
    )


def _fill(
    node: Node, message: dict[str, Any], prompts: dict[str, None], left_out: LeftOut, *, is_after_document: bool
) -> None:
    """Fill ``node`` with what is imported of ``message``."""
    role = text(mapping(message.get("author")).get("role"))
    content, metadata = mapping(message.get("content")), mapping(message.get("metadata"))
    kind = text(content.get("content_type"))
    if kind == "reasoning_recap":
        return  # only says how long the model thought
    if kind == "thoughts":
        node.message, node.joins = _answer(message, thinking=_thoughts(content)), True
    elif (report := _report(metadata))[0]:
        node.message = _answer(message, without_marks(*report, left_out))
    elif custom := _instructions(content, metadata):
        prompts[custom] = None
    elif role == "system":
        if (prompt := _text_of(content, LeftOut())).strip() and not _is_hidden(metadata):
            prompts[prompt] = None
    elif role not in ("user", "assistant") or message.get("recipient", "all") != "all":
        is_of_document = message.get("recipient") in (_CREATE, _UPDATE) or mapping(metadata.get("canvas"))
        if not is_of_document and not (role == "tool" and is_after_document):
            node.message, node.joins = _tool(message, left_out), True
    elif _is_hidden(metadata) or kind == "model_editable_context":
        left_out["hidden"] += 1
    else:
        _fill_text(node, message, left_out)


def _fill_text(node: Node, message: dict[str, Any], left_out: LeftOut) -> None:
    content, metadata = mapping(message.get("content")), mapping(message.get("metadata"))
    images = left_out["images"]
    written = _text_of(content, left_out)
    for file in mappings(metadata.get("attachments")):
        kind = text(file.get("mime_type")) or text(file.get("mimeType"))
        if not kind.startswith("image/") or left_out["images"] == images:  # others were counted above
            left_out["files"] += 1
    if text(mapping(message["author"]).get("role")) == "assistant":
        node.message = _answer(message, without_marks(written, metadata, left_out))
        node.joins = message.get("end_turn") is False
    else:
        node.message = Answer(left_out, written).message("user", seconds(message.get("create_time")))


def _answer(message: dict[str, Any], written: str = "", thinking: str = "") -> MessageRecord | None:
    model, created = text(mapping(message.get("metadata")).get("model_slug")), seconds(message.get("create_time"))
    return Answer(LeftOut(), written, thinking).message("assistant", created, model)


def _tool(message: dict[str, Any], left_out: LeftOut) -> MessageRecord | None:
    """A call of a tool, which is whom the message is for, or what the tool returned."""
    answer, content, author = Answer(left_out), mapping(message.get("content")), mapping(message.get("author"))
    said = next(filter(None, (text(content.get(key)) for key in ("text", "result", "output_str"))), "")
    said = said or _text_of(content, left_out)
    left_out["images"] += isinstance(content.get("screenshot"), dict)
    if author.get("role") == "assistant":
        answer.call("", message.get("recipient"), said)
    else:
        failed = content.get("content_type") == "system_error"
        answer.result("", [{**content, "text": said}] if said else "", failed=failed, name=author.get("name"))
    return answer.message("assistant", seconds(message.get("create_time")))


def _is_hidden(metadata: dict[str, Any]) -> bool:
    return metadata.get("is_visually_hidden_from_conversation") is True


def _thoughts(content: dict[str, Any]) -> str:
    found = [text(one.get("content")) or text(one.get("summary")) for one in mappings(content.get("thoughts"))]
    return "\n\n".join(filter(None, found or map(text, items(content.get("parts")))))


def _instructions(content: dict[str, Any], metadata: dict[str, Any]) -> str:
    """The user's custom instructions: about themselves, and how to answer."""
    own = mapping(metadata.get("user_context_message_data"))
    found = [text(own.get("about_user_message")), text(own.get("about_model_message"))]
    if not any(found):
        found = [text(content.get("user_profile")), text(content.get("user_instructions"))]
    return "\n\n".join(filter(str.strip, found))


def _report(metadata: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text of a finished Deep research report, and its metadata."""
    state = from_json(text(mapping(metadata.get("chatgpt_sdk")).get("widget_state")) or "{}")
    report = mapping(mapping(state).get("report_message"))
    return _text_of(mapping(report.get("content")), LeftOut()), mapping(report.get("metadata"))


def _text_of(content: dict[str, Any], left_out: LeftOut) -> str:
    """The text of a message; counts pictures and the like."""
    written: list[str] = []
    for part in items(content.get("parts")):
        if isinstance(part, str) or text(mapping(part).get("text")):
            written.append(text(part) or text(mapping(part).get("text")))
        else:
            left_out[_counts_as(part)] += 1
    if not written and (alone := text(content.get("text")) or text(content.get("result"))):
        written = [file_text("", alone, text(content.get("language")).replace("unknown", ""))]
    return "\n\n".join(filter(None, written))


def _counts_as(part: object) -> str:
    return reason_for(mapping(part).get("content_type"))


def _add_documents(nodes: dict[str, Node], entries: dict[str, Any], left_out: LeftOut) -> None:
    """Put canvas documents before the answers they belong to, in their version at that time."""
    documents: dict[str, Document] = {}
    for name, value in entries.items():
        message = mapping(mapping(value).get("message"))
        if message.get("recipient") not in (_CREATE, _UPDATE):
            continue
        at: str | None = nodes[name].parent
        seen = {name}
        while at in nodes and at not in documents and at not in seen:
            seen.add(at)
            at = nodes[at].parent
        document = _document(message, documents.get(at or ""))
        if document is None:
            left_out["changes"] += 1
        else:
            documents[name] = document
            nodes[name].message, nodes[name].joins = _answer(message, document.part()), True


def _document(message: dict[str, Any], before: Document | None) -> Document | None:
    """The document that a message creates or changes; ``None`` if unknown."""
    content = mapping(message.get("content"))
    written = text(content.get("text")) or "".join(map(text, items(content.get("parts"))))
    call = mapping(from_json(written))
    if not call:
        return None
    if message["recipient"] == _CREATE:
        language = text(call.get("type")).rpartition("code/")[2].replace("document", "markdown")
        return Document(text(call.get("name")), language, text(call["content"])) if "content" in call else None
    found = before
    for update in mappings(call.get("updates")):
        if found is None:
            return None
        pattern, replacement = text(update.get("pattern")), text(update.get("replacement"))
        new = changed(found.content, pattern, replacement, everywhere=update.get("multiple") is True)
        found = None if new is None else msgspec.structs.replace(found, content=new)
    return found
