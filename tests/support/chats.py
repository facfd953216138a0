"""Messages put into a chat store."""

from __future__ import annotations

from collections.abc import Mapping

from app.chats.model import StoredMessage, to_json
from app.chats.store import ChatStore, new_id


def add_question(store: ChatStore, chat_id: str, parent_id: str | None, text: str) -> StoredMessage:
    """What the user sent, as the new leaf."""
    return store.add_message(StoredMessage(new_id(), chat_id, parent_id, "user", text, "complete", _now(store)))


def begin_answer(
    store: ChatStore,
    chat_id: str,
    parent_id: str | None,
    pair: str = "Guide",
    settings: Mapping[str, object] | None = None,
) -> StoredMessage:
    """An empty answer that streams, as the new leaf."""
    return store.add_message(
        StoredMessage(
            new_id(),
            chat_id,
            parent_id,
            "assistant",
            "",
            "streaming",
            _now(store),
            pair=pair,
            settings_json=to_json(settings or {}),
        )
    )


def _now(store: ChatStore) -> float:
    return store._clock()
