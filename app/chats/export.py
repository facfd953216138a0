"""A chat as a Markdown file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from app.chats.model import Chat, StoredMessage

_ENDINGS = {
    "stopped": "stopped",
    "interrupted": "interrupted before the answer ended",
    "failed": "failed before the answer ended",
    "streaming": "still being written",
}


def to_markdown(chat: Chat, branch: Sequence[StoredMessage]) -> str:
    """Title, date, then each message under a heading that names who wrote it; texts as they are."""
    started = datetime.fromtimestamp(chat.created_at).strftime("%Y-%m-%d %H:%M")
    blocks = [f"# {chat.title or 'New chat'}", f"*{started}*"]
    for message in branch:
        blocks.append(f"## {message.author}")
        if message.text.strip():
            blocks.append(message.text.strip("\n"))
        if message.status in _ENDINGS:
            blocks.append(f"*({_ENDINGS[message.status]})*")
    return "\n\n".join(blocks) + "\n"
