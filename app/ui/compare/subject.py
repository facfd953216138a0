"""What the tab "One answer" is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.chats.model import StoredMessage
from app.ui.compare.repeated_answer import RepeatedAnswer


@dataclass(frozen=True)
class Subject:
    """An answer in a chat, or a prompt of a set (``chat_id`` is ``None``)."""

    chat_id: str | None
    read: Callable[[], RepeatedAnswer | None]
    """How the answer is requested from the pair that is loaded now."""
    is_private: bool = False
    """Whether it belongs to a temporary chat, and is deleted with it."""
    branch: Sequence[StoredMessage] = ()
    """What of the chat would be sent."""
