"""Finding chats by words in their titles and messages."""

from __future__ import annotations

import sqlite3

from app.chats.model import Chat, Found, Snippet
from app.chats.rows import CHAT
from app.chats.search_text import fold, snippet, words_of

MOST_SNIPPETS = 3


class Search:
    """Searches the open chat file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def find(self, text: str, limit: int) -> list[Found]:
        words = words_of(text)
        if not words:
            return []
        query = f"SELECT {CHAT} FROM chats WHERE deleted_at IS NULL ORDER BY updated_at DESC, rowid DESC"
        found: list[Found] = []
        for row in self._connection.execute(query):
            if len(found) == limit:
                break
            chat = Chat(*row)
            left, snippets = {word for word in words if word not in fold(chat.title)}, list[Snippet]()
            messages = "SELECT id, text FROM messages WHERE chat_id = ? ORDER BY seq"
            for message_id, message in self._connection.execute(messages, (chat.id,)):
                if (one := snippet(message_id, message, words)) is not None:
                    folded = fold(message)
                    left = {word for word in left if word not in folded}
                    if len(snippets) < MOST_SNIPPETS:
                        snippets.append(one)
            if not left:
                found.append(Found(chat, tuple(snippets)))
        return found
