"""The messages of a chat as a tree of rows. All changes run in a transaction started by the caller."""

from __future__ import annotations

import json
import sqlite3
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.chats.model import Attachment, StoredMessage, calls_stopped

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
    m.tokens, m.calls,
    (SELECT json_group_array(json_array(position, {ATTACHMENT})) FROM attachments WHERE message_id = m.id)
"""
MESSAGE = f"""
    {COLUMNS},
    (SELECT count(*) FROM messages s WHERE s.chat_id = m.chat_id AND s.parent_id IS m.parent_id AND s.seq <= m.seq),
    (SELECT count(*) FROM messages s WHERE s.chat_id = m.chat_id AND s.parent_id IS m.parent_id),
    {LONG_COLUMNS}
"""
MESSAGE_AS_STORED = f"{COLUMNS}, 1, 1, {LONG_COLUMNS}"
"""The same for a message whose place among its versions doesn't matter."""
SHOWN_TEXT = """
    m.text || coalesce((SELECT char(10) || group_concat(name, char(10)) FROM
        (SELECT name FROM attachments WHERE message_id = m.id ORDER BY position)), '')
"""
"""The text of a message followed by the names of its attachments."""
CALLS = "iif(m.calls = '[]', '', char(10) || text_of_calls(CAST(m.calls AS BLOB)))"
"""The text of its tool calls; `app.chats.search` has the function."""
SEARCHED = f"{SHOWN_TEXT} || iif(m.thinking = '', '', char(10) || m.thinking) || {CALLS}"
"""All text that is searched and indexed."""
_INSERT = """
    INSERT INTO messages (id, chat_id, parent_id, role, text, status, created_at, seed, finish_reason, pair,
        settings, figures, provenance, thinking, tokens, calls)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def storable(text: str) -> str:
    """Replace half surrogate pairs (from a bad paste), which aren't valid UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def token_blob(tokens: Sequence[int]) -> bytes:
    """32 bits each, least significant byte first."""
    return _swapped(array("i", tokens)).tobytes()


def message_of(row: Sequence[Any]) -> StoredMessage:
    """A message from its `MESSAGE` columns, without the texts of its attachments."""
    *fields, blob, calls, attached = row
    fields += [_tokens(blob) if blob else (), calls, _attachments(attached)]
    return StoredMessage(*fields)


def insert(connection: sqlite3.Connection, message: StoredMessage) -> None:
    """Insert the row, and queue it for the search index unless it is still streaming."""
    one = message
    done = connection.execute(
        _INSERT,
        (
            *(one.id, one.chat_id, one.parent_id, one.role, storable(one.text), one.status, one.created_at),
            *(one.seed, one.finish_reason, one.pair),
            *(storable(one.settings_json), storable(one.figures_json), storable(one.provenance_json)),
            *(storable(one.thinking), token_blob(one.tokens), storable(one.calls_json)),
        ),
    )
    insert_attachments(connection, "attachments", message.id, message.attachments)
    if message.status != "streaming":
        connection.execute("INSERT INTO unindexed VALUES (?)", (done.lastrowid,))


def insert_attachments(
    connection: sqlite3.Connection, table: str, owner: str, attachments: Sequence[Attachment]
) -> None:
    """Insert into ``attachments`` or ``unsent_attachments``; ``owner`` is the id of the message or chat."""
    rows = [
        (owner, place, one.sha256, one.kind, storable(one.name), one.size, one.media_type, one.width, one.height)
        for place, one in enumerate(attachments)
    ]
    connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def replace_attachments(connection: sqlite3.Connection, message_id: str, attachments: Sequence[Attachment]) -> None:
    """Set those of a message."""
    connection.execute("DELETE FROM attachments WHERE message_id = ?", (message_id,))
    insert_attachments(connection, "attachments", message_id, attachments)


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


_SKELETON = "SELECT id, parent_id, seq FROM messages WHERE chat_id = ? ORDER BY parent_id, seq"
_AT_ONCE = 5000
_END = f"""
    WITH RECURSIVE up (seq, parent_id, depth) AS (
        SELECT seq, parent_id, 1 FROM messages WHERE chat_id = ?1 AND id = ?2
        UNION ALL
        SELECT m.seq, m.parent_id, depth + 1
        FROM up JOIN messages m ON m.chat_id = ?1 AND m.id = up.parent_id WHERE depth < ?3
    )
    SELECT {MESSAGE} FROM up JOIN messages m ON m.seq = up.seq ORDER BY depth DESC
"""
_DOWN = """
    WITH RECURSIVE down (id, seq) AS (
        SELECT id, seq FROM messages WHERE chat_id = ?1 AND id = ?2
        UNION ALL
        SELECT m.id, m.seq FROM messages m JOIN down ON m.chat_id = ?1 AND m.parent_id = down.id
    )
"""
_ALL = """
    seq, id, chat_id, parent_id, role, status, created_at, seed, finish_reason, pair, text, settings, figures,
    provenance, thinking, tokens, calls
"""
_STATUS = 5  # the position in these columns
_PARENT = 3
_CALLS = 16


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Deletion:
    """Deleted messages, and what `ChatStore.undo_deletion` needs to bring them back. In memory only."""

    chat_id: str
    message_id: str
    count: int
    rows: Sequence[tuple[Any, ...]]
    attachments: Sequence[tuple[Any, ...]]
    """The rows of the messages."""
    moved: Sequence[str]
    """Messages that were moved up to this parent."""
    ancestors: Sequence[str]
    """The parent, its parent, and so on."""
    leaf_before: str | None
    leaf_after: str | None

    def attached(self) -> set[str]:
        """The hashes of their attachments."""
        return {row[2] for row in self.attachments}


def branch(connection: sqlite3.Connection, chat_id: str, leaf_id: str | None) -> list[StoredMessage]:
    """The messages from the first to ``leaf_id``.

    A long branch is read in file order and its versions are counted here: recursion in SQL takes twice as long, and
    counting there several times as long.
    """
    places: dict[str, tuple[int, str | None]] = {}
    versions: dict[str | None, list[int]] = {}
    for message_id, parent_id, seq in connection.execute(_SKELETON, (chat_id,)):
        places[message_id] = seq, parent_id
        versions.setdefault(parent_id, []).append(seq)
    path: list[tuple[int, str | None]] = []
    while leaf_id is not None and leaf_id in places:
        path.append(places[leaf_id])
        leaf_id = places[leaf_id][1]
    path.reverse()
    found: list[StoredMessage] = []
    for start in range(0, len(path), _AT_ONCE):
        some = path[start : start + _AT_ONCE]  # children have higher numbers than their parents, so this is their order
        numbers = ", ".join(str(seq) for seq, _ in some)
        query = f"SELECT {COLUMNS}, {LONG_COLUMNS} FROM messages m WHERE m.seq IN ({numbers}) ORDER BY m.seq"
        for (seq, parent_id), row in zip(some, connection.execute(query), strict=True):
            beside = versions[parent_id]
            found.append(message_of((*row[:-3], beside.index(seq) + 1, len(beside), *row[-3:])))
    return found


def branch_end(connection: sqlite3.Connection, chat_id: str, leaf_id: str | None, count: int) -> list[StoredMessage]:
    """The last messages of the branch, at most ``count``; fast even for a long branch."""
    return [message_of(row) for row in connection.execute(_END, (chat_id, leaf_id, count))]


def newest_leaf(connection: sqlite3.Connection, chat_id: str, message_id: str) -> str:
    """The newest message below this one, or this one. It has no children, as children are newer."""
    query = f"{_DOWN} SELECT id FROM down ORDER BY seq DESC LIMIT 1"
    return str(connection.execute(query, (chat_id, message_id)).fetchone()[0])


def set_leaf(connection: sqlite3.Connection, chat_id: str, leaf_id: str | None) -> None:
    connection.execute("UPDATE chats SET leaf_id = ? WHERE id = ?", (leaf_id, chat_id))


def below(connection: sqlite3.Connection, message: StoredMessage) -> list[str]:
    """The ids of a message and of everything below it."""
    found = connection.execute(f"{_DOWN} SELECT id FROM down", (message.chat_id, message.id))
    return [one for (one,) in found]


def delete(connection: sqlite3.Connection, message: StoredMessage, all_below: Sequence[str] | None) -> Deletion:
    """Remove a message with ``all_below``; with ``None``, remove only the message and move its children to its parent.

    If that removes the end of the shown branch, it continues with the children that moved up, otherwise with the
    nearest other version, otherwise it ends at the parent.
    """
    chat_id, parent_id = message.chat_id, message.parent_id
    leaf_before = _leaf(connection, chat_id)
    ancestors = [one for (one,) in connection.execute(_ANCESTORS, (chat_id, message.id))][1:]
    beside = _beside(connection, message)
    ids = [message.id] if all_below is None else all_below
    moved = _children(connection, chat_id, message.id) if all_below is None else []
    rows = [_whole_row(connection, one) for one in ids]
    query = "SELECT * FROM attachments WHERE message_id = ?"
    attachments = [row for one in ids for row in connection.execute(query, (one,))]
    connection.executemany("UPDATE messages SET parent_id = ? WHERE id = ?", [(parent_id, one) for one in moved])
    connection.executemany("DELETE FROM messages WHERE id = ?", [(one,) for one in ids])
    leaf = leaf_before
    if leaf in set(ids):
        goes_on = moved[-1] if moved else beside
        leaf = newest_leaf(connection, chat_id, goes_on) if goes_on is not None else parent_id
        set_leaf(connection, chat_id, leaf)
    return Deletion(chat_id, message.id, len(rows), rows, attachments, moved, ancestors, leaf_before, leaf)


_ANCESTORS = """
    WITH RECURSIVE up (id, parent_id, depth) AS (
        SELECT id, parent_id, 0 FROM messages WHERE chat_id = ?1 AND id = ?2
        UNION ALL
        SELECT m.id, m.parent_id, depth + 1 FROM up JOIN messages m ON m.chat_id = ?1 AND m.id = up.parent_id
    )
    SELECT id FROM up ORDER BY depth
"""


def undo(connection: sqlite3.Connection, deletion: Deletion) -> None:
    """Restore deleted messages where they were, or as near as later deletions allow. Idempotent."""
    chat_id = deletion.chat_id
    leaf_now = _leaf(connection, chat_id)
    rows = [row for row in deletion.rows if not _exists(connection, chat_id, row[1])]
    if not rows:
        return
    parent = next((one for one in deletion.ancestors if _exists(connection, chat_id, one)), None)
    places = ", ".join("?" * len(rows[0]))
    for row in rows:
        values = list(row)
        if values[1] == deletion.message_id:
            values[_PARENT] = parent
        if values[_STATUS] == "streaming":  # it is no longer being written
            values[_STATUS], values[_CALLS] = "interrupted", calls_stopped(values[_CALLS])
        connection.execute(f"INSERT INTO messages ({_ALL}) VALUES ({places})", values)
        connection.execute("INSERT OR IGNORE INTO unindexed VALUES (?)", (values[0],))
    ids = {row[1] for row in rows}
    for attachment in deletion.attachments:
        if attachment[0] in ids:
            connection.execute(f"INSERT INTO attachments VALUES ({', '.join('?' * len(attachment))})", attachment)
    for child in deletion.moved:
        connection.execute(
            "UPDATE messages SET parent_id = ? WHERE chat_id = ? AND id = ? AND parent_id IS ?",
            (deletion.message_id, chat_id, child, parent),
        )
    before = deletion.leaf_before
    if leaf_now == deletion.leaf_after and before is not None and _exists(connection, chat_id, before):
        set_leaf(connection, chat_id, before)


def copy(
    connection: sqlite3.Connection, messages: Sequence[StoredMessage], chat_id: str, new_id: Callable[[], str]
) -> None:
    """Copy a branch into another chat, which then shows it. An unfinished answer becomes interrupted there."""
    parent_id = None
    for message in messages:
        copied = replace(message, id=new_id(), chat_id=chat_id, parent_id=parent_id)
        if copied.status == "streaming":
            copied = replace(copied, status="interrupted", calls_json=calls_stopped(copied.calls_json))
        insert(connection, copied)
        parent_id = copied.id
    set_leaf(connection, chat_id, parent_id)


def _leaf(connection: sqlite3.Connection, chat_id: str) -> str | None:
    row = connection.execute("SELECT leaf_id FROM chats WHERE id = ?", (chat_id,)).fetchone()
    if row is None:
        raise LookupError(chat_id)
    leaf: str | None = row[0]
    return leaf


def _children(connection: sqlite3.Connection, chat_id: str, parent_id: str | None) -> list[str]:
    query = "SELECT id FROM messages WHERE chat_id = ? AND parent_id IS ? ORDER BY seq"
    return [one for (one,) in connection.execute(query, (chat_id, parent_id))]


def _beside(connection: sqlite3.Connection, message: StoredMessage) -> str | None:
    """The version before this one, else the one after it."""
    versions = _children(connection, message.chat_id, message.parent_id)
    place = versions.index(message.id)
    near = versions[place - 1 : place] if place else versions[1:2]
    return near[0] if near else None


def _whole_row(connection: sqlite3.Connection, message_id: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] = connection.execute(f"SELECT {_ALL} FROM messages WHERE id = ?", (message_id,)).fetchone()
    return row


def _exists(connection: sqlite3.Connection, chat_id: str, message_id: str) -> bool:
    query = "SELECT 1 FROM messages WHERE chat_id = ? AND id = ?"
    return connection.execute(query, (chat_id, message_id)).fetchone() is not None
