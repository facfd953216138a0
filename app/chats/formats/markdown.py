"""A chat as Markdown: the shown branch, for people."""

from __future__ import annotations

from datetime import datetime

from app.chats.formats.records import ChatRecord, MessageRecord
from app.chats.formats.values import file_text

_UNTITLED = "New chat"
_ENDINGS = {
    "stopped": "stopped",
    "interrupted": "interrupted before the answer ended",
    "failed": "failed before the answer ended",
}


def write(chat: ChatRecord) -> str:
    """Title, date, then each message under a heading with its author; texts are unchanged. What the model thought is a
    quotation before its answer; the texts of attached files stand before the message they belong to.
    """
    blocks = [f"# {title_of(chat)}"]
    if started := date_of(chat):
        blocks.append(f"*{started}*")
    for message in chat.branch():
        blocks.append(f"## {author_of(message)}")
        if message.thinking.strip():
            lines = [f"*{thinking_title(message)}*", "", *message.thinking.strip("\n").split("\n")]
            blocks.append("\n".join(f"> {line}" if line else ">" for line in lines))
        blocks += [file_text(one.name, one.text) for one in message.attachments if one.kind == "text"]
        blocks += [f"*({one.name})*" for one in message.attachments if one.kind == "image"]
        if message.text.strip():
            blocks.append(message.text.strip("\n"))
        if ending := ending_of(message):
            blocks.append(f"*({ending})*")
    return "\n\n".join(blocks) + "\n"


def title_of(chat: ChatRecord) -> str:
    return chat.title or _UNTITLED


def date_of(chat: ChatRecord) -> str:
    """When it was begun, in local time; empty if that isn't known."""
    try:
        return "" if chat.created_at is None else datetime.fromtimestamp(chat.created_at).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return ""


def author_of(message: MessageRecord) -> str:
    if message.role == "assistant":
        return message.model or "Answer"
    return "You" if message.role == "user" else "System"


def ending_of(message: MessageRecord) -> str:
    """How an answer ended, if that is worth a word."""
    return _ENDINGS.get(message.status, "")


def thinking_title(message: MessageRecord) -> str:
    seconds = message.figures.get("thinking_s")
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        return "Thinking"
    minutes, rest = divmod(max(1, round(seconds)), 60)
    return f"Thought for {minutes} min {rest} s" if minutes else f"Thought for {rest} s"
