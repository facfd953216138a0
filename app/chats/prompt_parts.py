"""What the model reads of a message with attachments."""

from __future__ import annotations

from collections.abc import Iterable

from app.chats.formats.values import file_text
from app.chats.model import Attachment
from app.protocol.commands import Image


def prompt_text(text: str, attachments: Iterable[Attachment]) -> str:
    """A message and the texts attached to it. These come first: when only the question behind them changes, their
    tokens don't have to be processed again.
    """
    files = [file_text(one.name, one.text) for one in attachments if one.kind == "text" and not one.is_missing]
    return "\n\n".join(filter(None, [*files, text]))


def prompt_images(attachments: Iterable[Attachment]) -> tuple[Image, ...]:
    """The images among them that are still there."""
    return tuple(Image(one.sha256, one.path, one.name) for one in attachments if one.kind == "image" and one.path)
