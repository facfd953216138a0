"""Messages as rows of the chat file, and back."""

from __future__ import annotations

import json
import sqlite3
import sys
from array import array
from collections.abc import Sequence
from typing import Any

from app.chats.model import Attachment, StoredMessage

CHAT = """
    chats.id, chats.title, chats.created_at, chats.updated_at, chats.leaf_id,
    chats.pinned_at, chats.folder_id, chats.deleted_at, chats.settings
"""
COLUMNS = """
    m.id, m.chat_id, m.parent_id, m.role, m.text, m.status, m.created_at, m.seed, m.finish_reason, m.pair,
    m.settings, m.figures, m.provenance, m.thinking
"""
"""The first fields of a `StoredMessage`; its version, the number of versions and `LONG_COLUMNS` follow."""
ATTACHMENT = "sha256, kind, name, size, media_type, width, height"
"""The first fields of an `Attachment`."""
LONG_COLUMNS = f"""
    m.tokens, (SELECT json_group_array(json_array(position, {ATTACHMENT})) FROM attachments WHERE message_id = m.id)
"""
MESSAGE = f"""
    {COLUMNS},
    (SELECT count(*) FROM messages s WHERE s.chat_id = m.chat_id AND s.parent_id IS m.parent_id AND s.seq <= m.seq),
    (SELECT count(*) FROM messages s WHERE s.chat_id = m.chat_id AND s.parent_id IS m.parent_id),
    {LONG_COLUMNS}
"""
MESSAGE_AS_STORED = f"{COLUMNS}, 1, 1, {LONG_COLUMNS}"
"""The same for one whose place among its versions doesn't matter."""
SEARCHED = "m.text || iif(m.thinking = '', '', char(10) || m.thinking)"
"""All that a search looks at, and the search index has."""
_INSERT = """
    INSERT INTO messages (id, chat_id, parent_id, role, text, status, created_at, seed, finish_reason, pair,
        settings, figures, provenance, thinking, tokens)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def storable(text: str) -> str:
    """Half a surrogate pair (from a bad paste) isn't valid UTF-8; that must not cost the rest of the text."""
    return text.encode("utf-8", "replace").decode("utf-8")


def token_blob(tokens: Sequence[int]) -> bytes:
    """32 bits each, least significant byte first."""
    return _swapped(array("i", tokens)).tobytes()


def message_of(row: Sequence[Any]) -> StoredMessage:
    """From `MESSAGE`; without the texts of its attachments."""
    *fields, blob, attached = row
    fields += [_tokens(blob) if blob else (), _attachments(attached)]
    return StoredMessage(*fields)


def insert(connection: sqlite3.Connection, message: StoredMessage) -> None:
    """Add the row, and have the search index add it unless it is still being written."""
    one = message
    done = connection.execute(
        _INSERT,
        (
            *(one.id, one.chat_id, one.parent_id, one.role, storable(one.text), one.status, one.created_at),
            *(one.seed, one.finish_reason, one.pair),
            *(storable(one.settings_json), storable(one.figures_json), storable(one.provenance_json)),
            *(storable(one.thinking), token_blob(one.tokens)),
        ),
    )
    insert_attachments(connection, "attachments", message.id, message.attachments)
    if message.status != "streaming":
        connection.execute("INSERT INTO unindexed VALUES (?)", (done.lastrowid,))


def insert_attachments(
    connection: sqlite3.Connection, table: str, owner: str, attachments: Sequence[Attachment]
) -> None:
    """Into ``attachments`` or ``unsent_attachments``; ``owner``: the message, or the chat."""
    rows = [
        (owner, place, one.sha256, one.kind, storable(one.name), one.size, one.media_type, one.width, one.height)
        for place, one in enumerate(attachments)
    ]
    connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _attachments(found: str) -> tuple[Attachment, ...]:
    if found == "[]":
        return ()
    return tuple(Attachment(*fields) for _position, *fields in sorted(json.loads(found)))


def _tokens(blob: bytes) -> Sequence[int]:
    tokens = array("i")
    if len(blob) % tokens.itemsize:
        return ()  # damaged, but the text of the chat can still be read
    tokens.frombytes(blob)
    return _swapped(tokens)


def _swapped(tokens: array[int]) -> array[int]:
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens
