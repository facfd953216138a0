"""The tables of the chat file, version by version."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from app.errors import KnownError

APPLICATION_ID = 0x534C5053  # "SLPS"

OLDEST = 4
"""The oldest version that can be read; none before it was released."""

_ATTACHMENT = """
    position INTEGER NOT NULL,
    sha256 TEXT NOT NULL CHECK (length(sha256) = 64),
    kind TEXT NOT NULL CHECK (kind IN ('text', 'image')),
    name TEXT NOT NULL,
    size INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL
"""
_TABLES = (
    """
    CREATE TABLE chats (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        leaf_id TEXT,
        deleted_at REAL,
        pinned_at REAL,
        folder_id TEXT REFERENCES folders (id) ON DELETE SET NULL,
        settings TEXT NOT NULL DEFAULT '',
        number INTEGER,
        FOREIGN KEY (id, leaf_id) REFERENCES messages (chat_id, id) DEFERRABLE INITIALLY DEFERRED
    )
    """,
    # The search index refers to chats by their numbers, because VACUUM may change rowids.
    "CREATE UNIQUE INDEX chats_by_number ON chats (number)",
    "CREATE INDEX chats_by_folder ON chats (folder_id)",
    # All that a search reads of the chats, in the order in which it reads them.
    "CREATE INDEX chats_by_time ON chats (deleted_at, updated_at DESC, number DESC, title, id)",
    "CREATE TABLE folders (id TEXT PRIMARY KEY, name TEXT NOT NULL, created_at REAL NOT NULL)",
    # The long columns come last, so that a search can read the text without reading past them; the tokens are 32-bit
    # integers, least significant byte first.
    # A child is always newer than its parent: `seq` orders versions and finds the newest leaf. Messages go with their
    # chat; a cascade from parent to child would nest too deep for SQLite after 1,000 messages.
    """
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        parent_id TEXT,
        role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
        status TEXT NOT NULL CHECK (status IN ('complete', 'streaming', 'stopped', 'interrupted', 'failed')),
        created_at REAL NOT NULL,
        seed INTEGER,
        finish_reason TEXT,
        pair TEXT,
        text TEXT NOT NULL,
        settings TEXT NOT NULL DEFAULT '{}',
        figures TEXT NOT NULL DEFAULT '{}',
        provenance TEXT NOT NULL DEFAULT '[]',
        tokens BLOB NOT NULL DEFAULT x'',
        thinking TEXT NOT NULL DEFAULT '',
        UNIQUE (chat_id, id),
        FOREIGN KEY (chat_id, parent_id) REFERENCES messages (chat_id, id) DEFERRABLE INITIALLY DEFERRED
    )
    """,
    "CREATE INDEX messages_by_parent ON messages (chat_id, parent_id, seq)",
    "CREATE INDEX messages_streaming ON messages (status) WHERE status = 'streaming'",
    # Messages that the search index doesn't have in their current form, and which index has all the others.
    "CREATE TABLE unindexed (seq INTEGER PRIMARY KEY)",
    "CREATE TABLE search_index (key TEXT NOT NULL)",
    f"""
    CREATE TABLE attachments (
        message_id TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        {_ATTACHMENT},
        PRIMARY KEY (message_id, position)
    ) WITHOUT ROWID
    """,
    # An empty chat_id is the composer of a chat that doesn't exist yet.
    "CREATE TABLE unsent (chat_id TEXT PRIMARY KEY, text TEXT NOT NULL)",
    f"""
    CREATE TABLE unsent_attachments (
        chat_id TEXT NOT NULL,
        {_ATTACHMENT},
        PRIMARY KEY (chat_id, position)
    ) WITHOUT ROWID
    """,
)

Migrations = Sequence[Sequence[str | Callable[[sqlite3.Connection], None]]]
MIGRATIONS: Migrations = ()
"""Step i takes a file from version `OLDEST` + i to the next. Never change a step that has been released: add one."""

VERSION = OLDEST + len(MIGRATIONS)

_COLUMNS = {
    "chats": "id, title, created_at, updated_at, leaf_id, deleted_at, pinned_at, folder_id, settings, number",
    "messages": "seq, id, chat_id, parent_id, role, status, created_at, seed, finish_reason, pair, text, settings, "
    "figures, provenance, tokens, thinking",
    "unsent": "chat_id, text",
    "folders": "id, name, created_at",
    "unindexed": "seq",
    "search_index": "key",
    "attachments": "message_id, position, sha256, kind, name, size, media_type, width, height",
    "unsent_attachments": "chat_id, position, sha256, kind, name, size, media_type, width, height",
}
"""What a file of this version has. SQLite's integrity check doesn't notice if a table is called something else."""


class MigrationError(KnownError):
    """A migrated file is inconsistent; it was left as it was."""

    def __init__(self) -> None:
        super().__init__(
            "Your chats can't be converted for this version of Slipstream, because the chat file is damaged: parts of "
            "it refer to others that are missing. Nothing was changed. The version you used before can still open "
            "them."
        )


def migrate(connection: sqlite3.Connection, migrations: Migrations = MIGRATIONS) -> None:
    """Bring a new file, or one of an older version, to the newest, with all steps in one transaction."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for step in (_TABLES, *migrations) if version == 0 else migrations[version - OLDEST :]:
            for statement in step:
                if isinstance(statement, str):
                    connection.execute(statement)
                else:
                    statement(connection)
        if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise MigrationError
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {OLDEST + len(migrations)}")


def has_all_columns(connection: sqlite3.Connection) -> bool:
    """Whether a file of this version has all tables with all columns; nothing is read of their content."""
    try:
        for table, columns in _COLUMNS.items():
            connection.execute(f"SELECT {columns} FROM {table} LIMIT 0")
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR:
            return False
        raise
    return True
