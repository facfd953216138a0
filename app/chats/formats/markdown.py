"""A chat as Markdown: the shown branch, for people, and importable again.

An invisible comment before each heading says what follows: ``<!-- slipstream 1f2e3d4c: assistant, thinking, stopped
-->``. Its number occurs in no message of the chat, so that nothing in a message can pass for one of ours. Each message
is closed before the next comment: ``closed 1`` means that the last line was added by us, such as the end of a code
block in which an answer was stopped. Comments also stand before a tool call and before the text after it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import datetime
from typing import get_args

import msgspec
from markdown_it import MarkdownIt

from app.chats.formats.records import (
    AttachmentRecord,
    CallState,
    ChatRecord,
    Ending,
    LeftOut,
    MessageRecord,
    Role,
    StoredCall,
    arranged,
    in_a_row,
    moved,
)
from app.chats.formats.values import file_text

NAME = "markdown"
_UNTITLED = "New chat"
_ENDINGS: dict[Ending, str] = {
    "stopped": "stopped",
    "interrupted": "interrupted before the answer ended",
    "failed": "failed before the answer ended",
}
_ANSWER = "Answer"
_DATE = "%Y-%m-%d %H:%M"
_FIRST = re.compile(r"^<!-- slipstream ([0-9a-f]{8}): ", re.MULTILINE)
BEGINNING = 2000
"""Our first comment is within this many characters of a file."""
_CLOSERS = ("-->", "?>", "]]>", "</script>", "</style>", "</pre>", "</textarea>", ">")
"""Ends HTML that continues over empty lines."""
_TAG = re.compile(r"<(/?)(\w+)(?:\s[^<>]*)?>")
_LEAKING = re.compile(
    "a|b|blockquote|center|code|del|details|div|em|font|h[1-6]|i|ins|kbd|mark|ol|pre|s|small|span|strong|su[bp]|table|ul?"
)
"""Tags that affect what follows until they are closed."""
_LONGEST_WITH_TAGS = 50_000
_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)|<!--.*?-->", re.DOTALL)
_QUOTE = re.compile(r">[^\n]*(?:\n>[^\n]*)*")
_FILE = re.compile(r"(?:`(?P<name>[^\n]*)`\n\n)?(?P<fence>`{3,})\n(?P<text>.*?)\n(?P=fence)(?:\n\n|$)", re.DOTALL)
_IMAGE = re.compile(r"\*\([^\n]*\)\*(?:\n\n|$)")
_parser = MarkdownIt("commonmark")
_parser.core.ruler.enableOnly(["normalize", "block"])


def write(chat: ChatRecord) -> str:
    """Title, date, then each message under a heading with its author. Thinking is quoted before its answer; the texts
    of attached files come before their message.
    """
    branch = chat.branch()
    number = _number(branch)
    blocks = [f"# {' '.join(title_of(chat).split())}"]
    if started := date_of(chat):
        blocks.append(f"*{started}*")
    for message in branch:
        for flags, said in _parts(message):
            blocks += [f"<!-- slipstream {number}: {', '.join(flags)} -->", *said]
    return "\n\n".join(blocks) + "\n"


def _number(branch: list[MessageRecord]) -> str:
    """Eight hexadecimal digits that don't occur in the messages, always the same for the same messages."""
    texts = [part for one in branch for part in (one.text, one.thinking, *(file.text for file in one.attachments))]
    texts += [part for one in branch for call in one.calls for part in (call.name, call.arguments, call.result)]
    number = hashlib.sha256("".join(texts).encode("utf-8", "replace")).hexdigest()[:8]
    while any(number in text for text in texts):
        number = hashlib.sha256(number.encode()).hexdigest()[:8]
    return number


def _parts(message: MessageRecord) -> Iterator[tuple[list[str], list[str]]]:
    """The parts of a message, such as a tool call or the text up to it: the words in the comment, the blocks below."""
    flags, blocks = [str(message.role)], [f"## {' '.join(author_of(message).split())}"]
    if message.thinking:
        lines = [f"*{thinking_title(message)}*", "", *message.thinking.split("\n")]
        blocks.append("\n".join(f"> {line}" if line else ">" for line in lines))
        flags.append("thinking")
    files = [file_text(one.name, one.text) for one in message.attachments if one.kind == "text"]
    images = [f"*({' '.join(one.name.split())})*" for one in message.attachments if one.kind == "image"]
    flags += [f"{name} {len(found)}" for name, found in (("files", files), ("images", images)) if found]
    blocks += [*files, *images]
    for text, calls in message.turns():
        closers = _closers("\n\n".join([*blocks, text]))
        if text or closers:
            blocks.append("\n".join([text, *closers]))
        flags += [f"closed {len(closers)}"] if closers else []
        if not calls and (ending := ending_of(message)):
            blocks.append(f"*({ending})*")
            flags.append(message.status)
        if blocks:
            yield flags, blocks
        for call in calls:
            result = [file_text("", call.result)] if call.result else []
            yield ["call", call.state], [f"*{call_title(call)}*", file_text(call.name, call.arguments), *result]
        flags, blocks = ["text"], []


def _closers(body: str) -> list[str]:
    """The lines needed to keep a message from swallowing the next one."""
    if "<" not in body and "```" not in body and "~~~" not in body:
        return []
    found: list[str] = []
    if not _ends(body):
        last = _parser.parse(body)[-1]
        ends = [last.markup] if last.type == "fence" else _CLOSERS
        found += [one for one in ends if _ends(f"{body}\n{one}")][:1]
    tags: list[str] = []
    for token in _parser.parse(body):
        if token.type in ("html_block", "inline") and len(token.content) < _LONGEST_WITH_TAGS:
            for closes, name in _TAG.findall(_CODE.sub("", token.content)):
                if closes and name.lower() in tags:
                    del tags[len(tags) - 1 - tags[::-1].index(name.lower()) :]
                elif not closes and _LEAKING.fullmatch(name.lower()):
                    tags.append(name.lower())
    return [*found, *(["", "".join(f"</{name}>" for name in reversed(tags))] if tags else [])]


def _ends(body: str) -> bool:
    """Whether a heading after this text would be recognized as one."""
    tokens = _parser.parse(f"{body}\n\n## next")
    return tokens[-1].type == "heading_close" and tokens[-1].level == 0


# -------------------------------------------------------------------------------------------------- reading


def recognizes(beginning: str) -> bool:
    """Whether a file with this beginning was written by `write`."""
    return beginning.startswith("# ") and _FIRST.search(beginning[:BEGINNING]) is not None


def read(content: str, left_out: LeftOut) -> ChatRecord:
    """The chat in a file that was recognized."""
    first = _FIRST.search(content)
    assert first is not None
    if re.match(r"[^\n]*\r\n", content):  # line endings changed by an editor, or by Git on Windows
        content = content.replace("\r\n", "\n")
    title, *dated = content[: first.start()].split("\n\n")
    try:
        created: float | None = datetime.strptime(dated[0].strip("*\n"), _DATE).timestamp() if dated else None
    except (ValueError, OverflowError, OSError):
        created = None
    found: list[MessageRecord] = []
    parts = content.split(f"<!-- slipstream {first[1]}: ")[1:]
    parts = [*(one.removesuffix("\n\n") for one in parts[:-1]), *(one.removesuffix("\n") for one in parts[-1:])]
    for part in parts:
        if found and part.startswith(("call, ", "text")):
            found[-1] = _continued(found[-1], part)
        elif (message := _message(part, left_out)) is None:
            left_out["damaged"] += 1
        else:
            found.append(message)
    messages, current = arranged(in_a_row(found, joins=False), None)
    name = title.removeprefix("# ").strip()
    return ChatRecord(title="" if name == _UNTITLED else name, created_at=created, current=current, messages=messages)


def _message(part: str, left_out: LeftOut) -> MessageRecord | None:
    head, _, rest = part.partition(" -->\n\n## ")
    name, flags = _flags(head)
    role: Role | None = next((one for one in get_args(Role) if one == name), None)
    if role is None:
        return None
    heading, _, body = rest.partition("\n")
    body = body.removeprefix("\n")
    thinking = ""
    if "thinking" in flags and (quoted := _QUOTE.match(body)):
        thinking = "\n".join(line[2:] for line in quoted[0].split("\n")[2:])
        body = body[quoted.end() :].removeprefix("\n\n")
    files, body = _taken(body, _FILE, flags.get("files", 0))
    images, body = _taken(body, _IMAGE, flags.get("images", 0))
    left_out["images"] += len(images)
    body, status = _text(body, flags)
    return MessageRecord(
        id="",
        parent=None,
        role=role,
        text=body,
        thinking=thinking,
        model=heading if role == "assistant" and heading != _ANSWER else "",
        status=status,
        attachments=[AttachmentRecord(kind="text", name=one["name"] or "", text=one["text"]) for one in files],
    )


def _flags(head: str) -> tuple[str, dict[str, int]]:
    name, *words = head.split(", ")
    parts = (one.partition(" ") for one in words)
    return name, {word: int(count) if count.isdecimal() else 0 for word, _, count in parts}


def _text(body: str, flags: dict[str, int]) -> tuple[str, Ending]:
    """A text without what was added to it, and how it ended."""
    status: Ending = next((one for one in _ENDINGS if one in flags), "complete")
    if status != "complete" or "closed" in flags:
        body = body.rstrip("\n")  # added by an editor
    if status != "complete":
        body = body.removesuffix(f"*({_ENDINGS[status]})*").removesuffix("\n\n")
    if closed := flags.get("closed"):
        body = "\n".join(body.split("\n")[:-closed])
    return body, status


def _continued(message: MessageRecord, part: str) -> MessageRecord:
    """The message with a tool call, or with more text."""
    head, _, body = part.partition(" -->\n\n")
    name, flags = _flags(head)
    if name == "text":
        said, status = _text(body, flags)
        return msgspec.structs.replace(message, text=message.text + said, status=status)
    blocks, _ = _taken(body.partition("\n\n")[2] + "\n\n", _FILE, 2)
    name, arguments = (blocks[0]["name"] or "", blocks[0]["text"]) if blocks else ("", "{}")
    result = blocks[1]["text"] if len(blocks) > 1 else ""
    state: CallState = next((one for one in get_args(CallState) if one in flags), "stopped")
    call = StoredCall(id="", name=name, arguments=arguments, result=result, state=state, text=len(message.text))
    call = moved(call, 0, len(message.thinking))
    return msgspec.structs.replace(message, calls=[*message.calls, call])


def _taken(body: str, block: re.Pattern[str], count: int) -> tuple[list[re.Match[str]], str]:
    """Split the leading blocks of a kind, at most ``count``, from the rest of ``body``."""
    found: list[re.Match[str]] = []
    while len(found) < count and (one := block.match(body, found[-1].end() if found else 0)) is not None:
        found.append(one)
    return found, body[found[-1].end() if found else 0 :]


def title_of(chat: ChatRecord) -> str:
    return chat.title or _UNTITLED


def date_of(chat: ChatRecord) -> str:
    """When the chat began, in local time; empty if unknown."""
    try:
        return "" if chat.created_at is None else datetime.fromtimestamp(chat.created_at).strftime(_DATE)
    except (OverflowError, OSError, ValueError):
        return ""


def author_of(message: MessageRecord) -> str:
    if message.role == "assistant":
        return message.model or _ANSWER
    return "You" if message.role == "user" else "System"


def ending_of(message: MessageRecord) -> str:
    """How an answer ended, if that is worth mentioning."""
    return _ENDINGS.get(message.status, "")


def call_title(call: StoredCall) -> str:
    return "Tool call" if call.state == "done" else f"Tool call, {call.state}"


def thinking_title(message: MessageRecord) -> str:
    seconds = message.figures.get("thinking_s")
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        return "Thinking"
    minutes, rest = divmod(max(1, round(seconds)), 60)
    return f"Thought for {minutes} min {rest} s" if minutes else f"Thought for {rest} s"
