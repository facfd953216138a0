"""The tables of the chat file, version by version."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

APPLICATION_ID = 0x534C5053  # "SLPS"

_VERSION_1 = (
    """
    CREATE TABLE chats (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        leaf_id TEXT,
        deleted_at REAL,
        FOREIGN KEY (id, leaf_id) REFERENCES messages (chat_id, id) DEFERRABLE INITIALLY DEFERRED
    )
    """,
    # The long columns stand last: a search reads the text without reading past it.
    # A child is always younger than its parent: `seq` orders versions and finds the newest leaf. Messages go with their
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
        UNIQUE (chat_id, id),
        FOREIGN KEY (chat_id, parent_id) REFERENCES messages (chat_id, id) DEFERRABLE INITIALLY DEFERRED
    )
    """,
    "CREATE INDEX messages_by_parent ON messages (chat_id, parent_id, seq)",
    "CREATE INDEX messages_streaming ON messages (status) WHERE status = 'streaming'",
    # An empty chat_id is the composer of a chat that does not exist yet.
    "CREATE TABLE unsent (chat_id TEXT PRIMARY KEY, text TEXT NOT NULL)",
)

Migrations = Sequence[Sequence[str]]
MIGRATIONS: Migrations = (_VERSION_1,)
"""Step i takes a file from version i to version i + 1. Never change a step that was released: add one."""

VERSION = len(MIGRATIONS)


class MigrationError(Exception):
    """A migrated file does not hold together; it was left as it was."""


def migrate(connection: sqlite3.Connection, migrations: Migrations = MIGRATIONS) -> None:
    """Bring the file to the newest version, all steps in one transaction."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for step in migrations[version:]:
            for statement in step:
                connection.execute(statement)
        if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise MigrationError("rows refer to rows that are not there")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
