"""Chats and their messages in one SQLite file. One store, one thread; see `app.chats.worker`.

A deleted chat is hidden at first and can be brought back. When that is over it is erased in steps, so that a kill
between any two of them leaves nothing behind:

1. a note, an empty file beside the chat file, says that something of deleted chats may be left;
2. their rows are removed;
3. the chat file is written anew and its log emptied: SQLite's ``secure_delete`` alone can leave copies of rows that
   it has moved within the file;
4. whoever knows the engine has it erase its copies of KV caches, in memory and on disk;
5. the note is removed.

Every step may be repeated. A start that finds the note, or a chat that is still hidden, begins again at the first.
An index over the text (FTS5) would need its ``optimize`` between the second step and the third.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from app.chats.backup import back_up_daily, remove_old
from app.chats.database import known_errors, open_database
from app.chats.model import Chat, PackedPiece, StoredMessage, title_of, to_markdown
from app.errors import KnownError
from app.storage.files import sync_folder

log = logging.getLogger(__name__)

_CHAT = "chats.id, title, chats.created_at, updated_at, leaf_id"
_MESSAGE = """
    m.id, m.chat_id, m.parent_id, m.role, m.text, m.status, m.created_at, m.seed, m.finish_reason, m.pair,
    m.settings, m.figures, m.provenance,
    (SELECT count(*) FROM messages s WHERE s.chat_id = m.chat_id AND s.parent_id IS m.parent_id AND s.seq <= m.seq),
    (SELECT count(*) FROM messages s WHERE s.chat_id = m.chat_id AND s.parent_id IS m.parent_id)
"""

_HIDDEN = "SELECT id FROM chats WHERE deleted_at IS NOT NULL"


def new_id() -> str:
    """An id that no chat has yet."""
    return uuid.uuid4().hex


class ChatStore:
    """The chats. Every method that changes something has written it to the disk when it returns.

    Usable only in the thread that made it. All methods raise `KnownError` when the disk is full, the file cannot be
    written or is damaged, with what was saved before untouched; and `LookupError` for an id that does not exist.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open or make the file. ``clock`` gives seconds since 1970."""
        self._path = path
        self._clock = clock
        self._connection, self.notice = open_database(path)
        """``notice``: what the user must know about a damaged file, if it was one."""
        self._note = path.with_name(path.name + ".erasing")
        self._is_rewritten = False
        """Whether nothing of deleted chats is left in the file."""
        self._connection.create_function("contains", 2, _contains, deterministic=True)
        log.info("chat file open, SQLite %s", sqlite3.sqlite_version)

    def __enter__(self) -> ChatStore:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Make the day's backup if something changed, and close the file."""
        try:
            if self._connection.total_changes > 0:
                back_up_daily(self._connection, self._path, self._now())
        except (sqlite3.Error, OSError) as error:
            log.warning("no backup of the chats: %s", error)
        finally:
            self._connection.close()

    def remove_old_backups(self) -> None:
        """Remove the backups that are a month old; to be called once a day. What cannot be is only logged."""
        try:
            remove_old(self._connection, self._path, self._now())
        except (sqlite3.Error, OSError) as error:
            log.warning("old backups of the chats are still there: %s", error)

    # ------------------------------------------------------------ chats

    def chats(self, search: str = "") -> list[Chat]:
        """The chats, newest first; with ``search`` those with it in the title or in any message, whatever the case."""
        needle = _storable(search.strip().casefold())
        found = """
            AND (contains(title, ?1)
                 OR EXISTS (SELECT 1 FROM messages m WHERE m.chat_id = chats.id AND contains(m.text, ?1)))
        """
        query = f"""
            SELECT {_CHAT} FROM chats WHERE deleted_at IS NULL {found if needle else ""}
            ORDER BY updated_at DESC, rowid DESC
        """
        with known_errors(self._path):
            return [Chat(*row) for row in self._connection.execute(query, (needle,) if needle else ())]

    def chat(self, chat_id: str) -> Chat:
        return Chat(*self._row(f"SELECT {_CHAT} FROM chats WHERE id = ?", chat_id))

    def create_chat(self, title: str = "", chat_id: str | None = None) -> Chat:
        """A new, empty chat. Without a title it takes its first message's; without an id (see `new_id`) it gets one."""
        chat_id, now = chat_id or new_id(), self._clock()
        self._write(
            "INSERT INTO chats (id, title, created_at, updated_at) VALUES (?, ?, ?, ?)",
            (chat_id, _storable(" ".join(title.split())), now, now),
        )
        return self.chat(chat_id)

    def rename_chat(self, chat_id: str, title: str) -> None:
        """An empty title changes nothing."""
        title = _storable(" ".join(title.split()))
        if title:
            self._write("UPDATE chats SET title = ? WHERE id = ?", (title, chat_id))

    def delete_chat(self, chat_id: str) -> None:
        """Hide the chat; `restore_chat` brings it back until `erase_deleted`."""
        self._write("UPDATE chats SET deleted_at = ? WHERE id = ?", (self._clock(), chat_id))

    def restore_chat(self, chat_id: str) -> Chat:
        self._write("UPDATE chats SET deleted_at = NULL WHERE id = ?", (chat_id,))
        return self.chat(chat_id)

    def has_to_erase(self) -> bool:
        """Whether there are deleted chats, or something may be left of some that were."""
        with known_errors(self._path):
            return self._note.exists() or self._connection.execute(f"{_HIDDEN} LIMIT 1").fetchone() is not None

    def erase_deleted(self, chat_ids: Collection[str] | None = None) -> None:
        """Remove deleted chats for good, by default all of them, and every trace of them in the file.

        What they said may be in copies that an engine keeps: when these are gone too, call `finish_erasing`. Until
        then, and where this fails, the next start has `has_to_erase`. Takes about a second for 100 MB.
        """
        self._is_rewritten = False
        try:
            os.close(os.open(self._note, os.O_CREAT | os.O_WRONLY, 0o600))
            sync_folder(self._path.parent)  # the note must be on the disk before anything is removed
            self._remove_hidden(chat_ids)
            with known_errors(self._path):
                self._connection.execute("VACUUM")
                (busy, *_) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._is_rewritten = not busy
        except (KnownError, OSError) as error:
            log.info("deleted chats are not erased yet: %s", error)
            raise KnownError(
                "A deleted chat could not be erased from the disk yet: it may be full or read-only. "
                "Slipstream will try again the next time it starts."
            ) from error

    def finish_erasing(self) -> None:
        """No copy of a deleted chat is left anywhere else. Where erasing failed the next start tries again."""
        try:
            if self._is_rewritten:
                self._note.unlink(missing_ok=True)
        except OSError as error:
            log.info("deleted chats will be erased once more: %s", error)

    def _remove_hidden(self, chat_ids: Collection[str] | None) -> None:
        with self._writing() as connection:
            for (chat_id,) in connection.execute(_HIDDEN).fetchall():
                if chat_ids is None or chat_id in chat_ids:
                    connection.execute("DELETE FROM chats WHERE id = ?", (chat_id,))
            connection.execute("DELETE FROM unsent WHERE chat_id != '' AND chat_id NOT IN (SELECT id FROM chats)")

    # ------------------------------------------------------------ messages

    def branch(self, chat_id: str) -> list[StoredMessage]:
        """The messages that are shown: from the first to the chat's leaf."""
        query = f"""
            WITH RECURSIVE up (id, parent_id, depth) AS (
                SELECT m.id, m.parent_id, 0 FROM messages m JOIN chats c ON m.id = c.leaf_id WHERE c.id = ?
                UNION ALL
                SELECT m.id, m.parent_id, depth + 1 FROM messages m JOIN up ON m.id = up.parent_id
            )
            SELECT {_MESSAGE} FROM up JOIN messages m ON m.id = up.id ORDER BY depth DESC
        """
        with known_errors(self._path):
            return [_message(row) for row in self._connection.execute(query, (chat_id,))]

    def message(self, message_id: str) -> StoredMessage:
        return _message(self._row(f"SELECT {_MESSAGE} FROM messages m WHERE m.id = ?", message_id))

    def add_user_message(self, chat_id: str, parent_id: str | None, text: str) -> StoredMessage:
        """Keep what the user sent, as the new leaf; with a parent that has children already, as a new version."""
        message = StoredMessage(new_id(), chat_id, parent_id, "user", text, "complete", self._clock())
        with self._writing() as connection:
            self._insert(message)
            connection.execute(
                "UPDATE chats SET title = ? WHERE id = ? AND title = ''", (_storable(title_of(text)), chat_id)
            )
        return self.message(message.id)

    def begin_answer(
        self, chat_id: str, parent_id: str | None, pair: str, settings: dict[str, object]
    ) -> StoredMessage:
        """A new, empty answer as the new leaf, to be filled while it streams."""
        answer = StoredMessage(
            new_id(), chat_id, parent_id, "assistant", "", "streaming", self._clock(), pair=pair, settings=settings
        )
        with self._writing():
            self._insert(answer)
        return self.message(answer.id)

    def update_answer(self, message_id: str, text: str, provenance: Sequence[PackedPiece]) -> None:
        """Keep what has streamed so far. Does nothing once the answer is finished."""
        self._write(
            "UPDATE messages SET text = ?, provenance = ? WHERE id = ? AND status = 'streaming'",
            (_storable(text), _json(provenance), message_id),
        )

    def finish_answer(self, answer: StoredMessage) -> None:
        """Keep the whole answer and how it ended: text, provenance, status, reason, seed and figures.

        Does nothing where its chat was deleted.
        """
        text, provenance, figures = _storable(answer.text), _json(answer.provenance), _json(answer.figures)
        with self._writing() as connection:
            connection.execute(
                """
                UPDATE messages SET text = ?, provenance = ?, status = ?, finish_reason = ?, seed = ?, figures = ?
                WHERE id = ?
                """,
                (text, provenance, answer.status, answer.finish_reason, answer.seed, figures, answer.id),
            )
            connection.execute("UPDATE chats SET updated_at = ? WHERE id = ?", (self._clock(), answer.chat_id))

    def mark_interrupted(self) -> None:
        """At the start: answers that were streaming when the app ended are interrupted."""
        self._write("UPDATE messages SET status = 'interrupted' WHERE status = 'streaming'")

    def select_version(self, message_id: str, step: int) -> list[StoredMessage]:
        """Show the version ``step`` places after (before, if negative) this one, down to its newest leaf.

        Beyond the first and last version the nearest is shown. Returns the new branch.
        """
        message = self.message(message_id)
        place = min(max(message.version + step, 1), message.versions)
        with self._writing() as connection:
            (version_id,) = connection.execute(
                "SELECT id FROM messages WHERE chat_id = ? AND parent_id IS ? ORDER BY seq LIMIT 1 OFFSET ?",
                (message.chat_id, message.parent_id, place - 1),
            ).fetchone()
            connection.execute(
                """
                WITH RECURSIVE down (id, seq) AS (
                    SELECT id, seq FROM messages WHERE id = ?1
                    UNION ALL
                    SELECT m.id, m.seq FROM messages m JOIN down ON m.chat_id = ?2 AND m.parent_id = down.id
                )
                UPDATE chats SET leaf_id = (SELECT id FROM down ORDER BY seq DESC LIMIT 1) WHERE id = ?2
                """,
                (version_id, message.chat_id),
            )
        return self.branch(message.chat_id)

    # ------------------------------------------------------------ the composer, and export

    def set_unsent(self, chat_id: str | None, text: str) -> None:
        """Keep what stands in the composer of a chat; ``None`` is the chat that does not exist yet.

        Nothing is kept for a chat that is deleted.
        """
        if text:
            self._write(
                """
                INSERT OR REPLACE INTO unsent (chat_id, text)
                SELECT ?1, ?2 WHERE ?1 = '' OR EXISTS (SELECT 1 FROM chats WHERE id = ?1)
                """,
                (chat_id or "", _storable(text)),
            )
        else:
            self._write("DELETE FROM unsent WHERE chat_id = ?", (chat_id or "",))

    def unsent(self, chat_id: str | None) -> str:
        with known_errors(self._path):
            row = self._connection.execute("SELECT text FROM unsent WHERE chat_id = ?", (chat_id or "",)).fetchone()
        return str(row[0]) if row else ""

    def export_markdown(self, chat_id: str) -> str:
        """The shown branch as one Markdown text."""
        return to_markdown(self.chat(chat_id), self.branch(chat_id))

    # ------------------------------------------------------------ inside

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock())

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on the disk afterwards, or nothing."""
        with known_errors(self._path), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection

    def _write(self, statement: str, values: Sequence[object] = ()) -> None:
        """A transaction of one statement."""
        with self._writing() as connection:
            connection.execute(statement, values)

    def _row(self, query: str, key: str) -> tuple[Any, ...]:
        with known_errors(self._path):
            row: tuple[Any, ...] | None = self._connection.execute(query, (key,)).fetchone()
        if row is None:
            raise LookupError(key)
        return row

    def _insert(self, message: StoredMessage) -> None:
        """As the new leaf of its chat."""
        text, settings = _storable(message.text), _json(message.settings)
        key = message.id, message.chat_id, message.parent_id
        self._connection.execute(
            """
            INSERT INTO messages (id, chat_id, parent_id, role, status, created_at, pair, text, settings)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            (*key, message.role, message.status, message.created_at, message.pair, text, settings),
        )
        self._connection.execute(
            "UPDATE chats SET leaf_id = ?, updated_at = ? WHERE id = ?",
            (message.id, message.created_at, message.chat_id),
        )


def _contains(text: str, folded: str) -> bool:
    # SQLite's own LIKE folds ASCII letters only.
    return folded in text.casefold()


def _storable(text: str) -> str:
    """Half of a surrogate pair (a bad paste) is no UTF-8; the rest of the text must not be lost for it."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _json(value: object) -> str:
    return _storable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _message(row: Sequence[Any]) -> StoredMessage:
    *plain, settings, figures, provenance, version, versions = row
    values = [*plain, json.loads(settings), json.loads(figures), json.loads(provenance), version, versions]
    return StoredMessage(*values)
