"""The beginning of a text that is too long for the context."""

from __future__ import annotations

from app.chats.attachments import Content
from app.chats.model import Attachment
from app.ui.chat.context_meter import ContextUse

ENDING = " (beginning)"
_ANSWER = 1024
"""Tokens to leave free for an answer, or a quarter of the context if that is less."""
_CAREFUL = 0.97
_LAST_PART = 5
"""A cut may be moved to the end of a line within this fraction (one over it) of what stays."""


def cut_to_fit(attachment: Attachment, tokens: int, use: ContextUse) -> Content | None:
    """As much of the beginning as there is room for; ``None`` if nothing would stay. ``tokens``: what it takes now."""
    room = min(_ANSWER, use.length // 4)
    stays = tokens - use.too_many - room
    if stays <= 0 or not attachment.text:
        return None
    length = int(len(attachment.text) * stays / tokens * _CAREFUL)
    text = attachment.text[:length]
    end = text.rfind("\n", length - length // _LAST_PART)
    text = text[:end] if end > 0 else text
    if not text.strip():
        return None
    name = attachment.name if attachment.name.endswith(ENDING) else attachment.name + ENDING
    return Content("text", name, text.encode("utf-8", "replace"), attachment.media_type)
