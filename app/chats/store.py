"""Chats and their messages in one SQLite file. One store, one thread; see `app.chats.worker`.

A deleted chat goes to the trash and can be restored for `TRASH_DAYS`; then, or when the trash is emptied, it is erased
(`app.chats.erasing`). A deleted message is gone at once: `Deletion`, which can bring it back, is only in memory. The
search index (`app.chats.search`) and attachments (`app.chats.attachments`) are in files of their own.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from app.chats import attachments, erasing, transfer, tree
from app.chats.attachments import AttachmentFiles, Content, attachments_folder
from app.chats.database import MEMORY, back_up_daily, known_errors, open_database, remove_old
from app.chats.formats.records import ChatRecord
from app.chats.model import (
    Attachment,
    Chat,
    Folder,
    Found,
    PackedPiece,
    StoredCall,
    StoredMessage,
    calls_stopped,
    calls_to_json,
    sort_key,
    title_for,
    to_json,
)
from app.chats.search import Search, Upkeep
from app.chats.transfer import Added
from app.chats.tree import (
    ATTACHMENT,
    CHAT,
    MESSAGE,
    Deletion,
    insert,
    insert_attachments,
    message_of,
    replace_attachments,
    storable,
    token_blob,
)
from app.system import KnownError

log = logging.getLogger(__name__)


class ChatFile:
    """Opens, writes and closes the chat file. See `app.chats.store.ChatStore`."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open or create the file; with the path `MEMORY` nothing is written. ``clock`` gives seconds since 1970."""
        self._path = path
        self._clock = clock
        self._connection, self.notice = open_database(path)
        """``notice``: what to tell the user if the file was damaged."""
        on_disk = path if path != MEMORY else None
        self._is_on_disk = on_disk is not None
        self._traces = erasing.Note(on_disk, ".erasing")
        """The file may still contain deleted text."""
        self._copies = erasing.Note(on_disk, ".copies")
        """The engine may still have copies of deleted text."""
        self._upkeep = Upkeep(self._connection, on_disk)
        self._search = Search(self._connection, self._upkeep)
        self._files = AttachmentFiles(attachments_folder(path) if on_disk is not None else None)
        self._deletions: weakref.WeakSet[Deletion] = weakref.WeakSet()
        """Deletions that can still be undone, whose attachments are kept."""
        log.info("chat file open, SQLite %s", sqlite3.sqlite_version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Make the day's backup if something has changed, and close the file."""
        try:
            if self._is_on_disk and self._connection.total_changes > 0:
                back_up_daily(self._connection, self._path, self._now())
        except (sqlite3.Error, OSError) as error:
            log.warning("no backup of the chats: %s", error)
        finally:
            self._upkeep.close()
            self._connection.close()
            self._files.close()

    def remove_old_backups(self) -> None:
        """Remove backups that are a month old. Failures are only logged."""
        try:
            if self._is_on_disk:
                remove_old(self._connection, self._path, self._now())
        except (sqlite3.Error, OSError) as error:
            log.warning("old backups of the chats are still there: %s", error)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """All changes made inside are written together, or none of them."""
        with self._writing():
            yield

    # ------------------------------------------------------------ attachments

    def keep(self, content: Content) -> Attachment:
        """Write the content of an attachment, so that `add_message` or `set_unsent_attachments` can refer to it."""
        return self._files.keep(content)

    def _filled(self, message: StoredMessage) -> StoredMessage:
        """The message with the texts of its attachments."""
        if not message.attachments:
            return message
        return replace(message, attachments=tuple(self._files.filled(one) for one in message.attachments))

    def _sweep(self) -> None:
        """Remove attachments that no message refers to any more. Raises `OSError`, `sqlite3.Error`."""
        wanted = attachments.hashes(self._connection)
        for deletion in self._deletions:
            wanted |= deletion.attached()
        self._files.sweep(wanted)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock())

    @contextlib.contextmanager
    def _writing(self, *, list_changes: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction, or part of that of `together`.

        ``list_changes``: whether it may change titles of chats or their order.
        """
        if list_changes:
            self._search.forget_titles()
        if self._connection.in_transaction:
            yield self._connection
            return
        with known_errors(self._path), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection

    def _write(self, statement: str, values: Sequence[object] = (), *, list_changes: bool = True) -> None:
        with self._writing(list_changes=list_changes) as connection:
            connection.execute(statement, values)

    def _write_each(self, statement: str, value: object, chat_ids: Collection[str]) -> None:
        with self._writing() as connection:
            connection.executemany(statement, [(value, one) for one in chat_ids])

    def _row(self, query: str, key: str) -> tuple[Any, ...]:
        with known_errors(self._path):
            row: tuple[Any, ...] | None = self._connection.execute(query, (key,)).fetchone()
        if row is None:
            raise LookupError(key)
        return row


TRASH_DAYS = 30
_DAY_SECONDS = 86400.0
_BRANCHED = " (branch)"


def new_id() -> str:
    return uuid.uuid4().hex


class ChatStore(ChatFile):
    """The chats. A change is on the disk when its method returns.

    Usable only in the thread that created it. Methods raise `KnownError` if the disk is full or the file can't be
    written or is damaged (what was saved before is untouched), and `LookupError` for an unknown id.
    """

    # ------------------------------------------------------------ chats

    def chats(self) -> list[Chat]:
        """The chats that are not in the trash, newest first."""
        return self._chats("deleted_at IS NULL ORDER BY updated_at DESC, number DESC")

    def search(self, text: str, limit: int = 100) -> list[Found]:
        """The chats with all words of ``text`` in the title or any version of any message, newest first.

        Case does not matter, and nothing in ``text`` has a special meaning.
        """
        with known_errors(self._path):
            return self._search.find(storable(text), limit)

    def update_index(self) -> bool:
        """Update the search index for about 30 ms, when there is nothing else to do.

        Returns whether there is more.
        """
        with known_errors(self._path):
            return self._upkeep.step()

    def chat(self, chat_id: str) -> Chat:
        return Chat(*self._row(f"SELECT {CHAT} FROM chats WHERE id = ?", chat_id))

    def create_chat(self, title: str = "", chat_id: str | None = None, settings: str = "") -> Chat:
        """A new, empty chat. The default title comes from its first message; the default id from `new_id`."""
        chat_id = chat_id or new_id()
        with self._writing():
            self._create(chat_id, title, settings)
        return self.chat(chat_id)

    def rename_chat(self, chat_id: str, title: str) -> None:
        """Does nothing if the title is empty."""
        title = storable(" ".join(title.split()))
        if title:
            self._write("UPDATE chats SET title = ? WHERE id = ?", (title, chat_id))

    def set_settings(self, chat_id: str, settings: str) -> None:
        """Set the settings of a chat, as JSON; empty for the defaults."""
        self._write("UPDATE chats SET settings = ? WHERE id = ?", (storable(settings), chat_id))

    def pin_chats(self, chat_ids: Collection[str], pinned: bool) -> None:
        self._write_each("UPDATE chats SET pinned_at = ? WHERE id = ?", self._clock() if pinned else None, chat_ids)

    # ------------------------------------------------------------ folders

    def folders(self) -> list[Folder]:
        """Sorted by name."""
        with known_errors(self._path):
            found = [Folder(*row) for row in self._connection.execute("SELECT id, name, created_at FROM folders")]
        return sorted(found, key=lambda one: (sort_key(one.name), one.name, one.created_at))

    def create_folder(self, name: str) -> Folder:
        folder = Folder(new_id(), storable(" ".join(name.split())), self._clock())
        self._write("INSERT INTO folders VALUES (?, ?, ?)", (folder.id, folder.name, folder.created_at))
        return folder

    def rename_folder(self, folder_id: str, name: str) -> None:
        """Does nothing if the name is empty."""
        name = storable(" ".join(name.split()))
        if name:
            self._write("UPDATE folders SET name = ? WHERE id = ?", (name, folder_id))

    def delete_folder(self, folder_id: str) -> None:
        """Delete a folder; its chats move to the top level."""
        self._write("DELETE FROM folders WHERE id = ?", (folder_id,))

    def move_chats(self, chat_ids: Collection[str], folder_id: str | None) -> None:
        """Move chats into a folder, or to the top level with ``None``."""
        if folder_id is not None:
            self._row("SELECT id FROM folders WHERE id = ?", folder_id)
        self._write_each("UPDATE chats SET folder_id = ? WHERE id = ?", folder_id, chat_ids)

    # ------------------------------------------------------------ trash

    def delete_chats(self, chat_ids: Collection[str]) -> bool:
        """Move chats to the trash; `restore_chats` brings them back until `erase_deleted`.

        The engine then has to erase its copies: see `finish_erasing`. Returns ``True`` if copies of these chats are
        enough; otherwise all have to go, because something else was deleted, too.
        """
        is_all = not (self._copies.exists() or self._traces.exists())
        try:
            self._copies.write()
        except OSError as error:
            raise KnownError(f"The chat couldn't be deleted: {error.strerror or error}.") from error
        self._write_each("UPDATE chats SET deleted_at = coalesce(deleted_at, ?) WHERE id = ?", self._clock(), chat_ids)
        return is_all

    def restore_chats(self, chat_ids: Collection[str]) -> None:
        """Move chats back to where they were. Does nothing for erased ones."""
        self._write_each("UPDATE chats SET deleted_at = ? WHERE id = ?", None, chat_ids)

    def trash(self) -> list[Chat]:
        """The chats in the trash, the last deleted first."""
        return self._chats("deleted_at IS NOT NULL ORDER BY deleted_at DESC, updated_at DESC, number DESC")

    def expired(self) -> list[str]:
        """The ids of chats that have been in the trash for `TRASH_DAYS`."""
        latest = self._clock() - TRASH_DAYS * _DAY_SECONDS
        return [chat.id for chat in self.trash() if chat.deleted_at is not None and chat.deleted_at <= latest]

    def has_to_erase(self) -> bool:
        """Whether chats in the trash are due, or the file may still contain deleted text."""
        return self._traces.is_due(self._clock()) or bool(self.expired())

    def may_have_copies(self) -> bool:
        """Whether the engine may still have copies of deleted text, because `finish_erasing` wasn't called since."""
        return self._copies.is_due(self._clock())

    def tidy(self) -> bool:
        """At the start and once a day: erase what is due, and remove old backups.

        Returns whether something was erased; the engine's copies have to go then, as after `erase_deleted`.
        """
        try:
            if erases := self.has_to_erase():
                self.erase_deleted(self.expired())
            else:
                self._sweep_quietly()
        finally:
            self.remove_old_backups()
        return erases

    def erase_deleted(self, chat_ids: Collection[str] | None = None) -> bool:
        """Erase chats in the trash (by default all) from the files without a trace. Takes about a second for 100 MB.

        The engine then has to erase its copies: see `finish_erasing`. If erasing fails, the next start has
        `has_to_erase`. Returns the same as `delete_chats`.
        """
        is_all = not (self._copies.exists() or self._traces.exists())
        try:
            self._copies.write()
            self._traces.write()
            self._remove_deleted(chat_ids)
            with known_errors(self._path):
                self._sweep()
                if erasing.rewrite(self._connection):
                    self._traces.remove()
        except (KnownError, OSError) as error:
            raise erasing.not_erased(error) from error
        return is_all

    def _sweep_quietly(self) -> None:
        try:
            self._sweep()
        except (sqlite3.Error, OSError) as error:
            log.info("attachments that nothing refers to are still there: %s", error)

    def finish_erasing(self) -> None:
        """The engine has no copies of deleted text any more."""
        self._copies.remove()

    def _remove_deleted(self, chat_ids: Collection[str] | None) -> None:
        found = [chat.id for chat in self.trash()]
        wanted = set(found if chat_ids is None else chat_ids)
        ids = [one for one in found if one in wanted]
        with known_errors(self._path), self._upkeep.removing("m.chat_id", ids), self._writing() as connection:
            connection.executemany("DELETE FROM chats WHERE id = ?", [(one,) for one in ids])
            for table in ("unsent", "unsent_attachments"):
                connection.execute(f"DELETE FROM {table} WHERE chat_id != '' AND chat_id NOT IN (SELECT id FROM chats)")

    # ------------------------------------------------------------ messages

    def branch(self, chat_id: str) -> list[StoredMessage]:
        """The shown messages, from the first to the chat's leaf."""
        with known_errors(self._path):
            row = self._connection.execute("SELECT leaf_id FROM chats WHERE id = ?", (chat_id,)).fetchone()
            found = tree.branch(self._connection, chat_id, row[0]) if row else []
        return [self._filled(message) for message in found]

    def branch_end(self, chat_id: str, count: int) -> list[StoredMessage]:
        """The last ``count`` messages of the shown branch, to show while the rest is being read."""
        with known_errors(self._path):
            row = self._connection.execute("SELECT leaf_id FROM chats WHERE id = ?", (chat_id,)).fetchone()
            found = tree.branch_end(self._connection, chat_id, row[0], count) if row else []
        return [self._filled(message) for message in found]

    def message(self, message_id: str) -> StoredMessage:
        return self._filled(message_of(self._row(f"SELECT {MESSAGE} FROM messages m WHERE m.id = ?", message_id)))

    def add_message(self, message: StoredMessage) -> StoredMessage:
        """Add a message as the new leaf of its chat; next to existing children of its parent, as a new version.

        An untitled chat gets its title from its first message. Returns the message with its place among the versions.
        """
        with self._writing() as connection:
            insert(connection, message)
            connection.execute(
                "UPDATE chats SET leaf_id = ?, updated_at = ? WHERE id = ?",
                (message.id, message.created_at, message.chat_id),
            )
            if message.role == "user":
                connection.execute(
                    "UPDATE chats SET title = ? WHERE id = ? AND title = ''",
                    (storable(title_for(message)), message.chat_id),
                )
        self._files.use(message.attachments)
        return self.message(message.id)

    def update_answer(
        self,
        message_id: str,
        text: str,
        provenance: Sequence[PackedPiece],
        tokens: Sequence[int] = (),
        thinking: str = "",
        calls: Sequence[StoredCall] = (),
        attachments: Sequence[Attachment] = (),
    ) -> None:
        """Save what there is so far; ``attachments``: images that tools returned. Does nothing once the answer is
        finished."""
        texts = (storable(one) for one in (text, to_json(provenance), thinking, calls_to_json(calls)))
        with self._writing(list_changes=False) as connection:
            changed = connection.execute(
                """
                UPDATE messages SET text = ?, provenance = ?, thinking = ?, calls = ?, tokens = ?
                WHERE id = ? AND status = 'streaming'
                """,
                (*texts, token_blob(tokens), message_id),
            )
            if changed.rowcount and attachments:
                replace_attachments(connection, message_id, attachments)
        self._files.use(attachments)

    def finish_answer(self, answer: StoredMessage) -> None:
        """Save the complete answer and how it ended. Does nothing if it or its chat was deleted."""
        one = answer
        texts = one.text, one.provenance_json, one.settings_json, one.figures_json, one.thinking, one.calls_json
        changing = self._upkeep.removing("m.id", [answer.id], is_erased=False)  # in case it was finished before
        with known_errors(self._path), changing, self._writing() as connection:
            changed = connection.execute(
                """
                UPDATE messages SET text = ?, provenance = ?, settings = ?, figures = ?, thinking = ?, calls = ?,
                    tokens = ?, status = ?, finish_reason = ?, seed = ? WHERE id = ?
                """,
                (
                    *(storable(text) for text in texts),
                    *(token_blob(answer.tokens), answer.status, answer.finish_reason, answer.seed, answer.id),
                ),
            )
            if changed.rowcount:
                replace_attachments(connection, answer.id, answer.attachments)
            connection.execute(
                "INSERT OR IGNORE INTO unindexed SELECT seq FROM messages WHERE id = ? AND status != 'streaming'",
                (answer.id,),
            )
            connection.execute("UPDATE chats SET updated_at = ? WHERE id = ?", (self._clock(), answer.chat_id))
        self._files.use(answer.attachments)

    def resume_answer(self, message_id: str) -> StoredMessage:
        """Set a finished answer to streaming again, to be continued."""
        statement = "UPDATE messages SET status = 'streaming', finish_reason = NULL WHERE id = ? AND role = 'assistant'"
        changing = self._upkeep.removing("m.id", [message_id], is_erased=False)
        with known_errors(self._path), changing, self._writing() as connection:
            connection.execute(statement, (message_id,))
        return self.message(message_id)

    def mark_interrupted(self) -> None:
        """At the start: mark answers that were streaming when the app ended as interrupted, and their open calls as
        stopped."""
        query = "SELECT calls, seq FROM messages WHERE status = 'streaming' AND calls != '[]'"
        with self._writing() as connection:
            calling = [(calls_stopped(calls), seq) for calls, seq in connection.execute(query)]
            connection.executemany("UPDATE messages SET calls = ? WHERE seq = ?", calling)
            connection.execute("INSERT OR IGNORE INTO unindexed SELECT seq FROM messages WHERE status = 'streaming'")
            connection.execute("UPDATE messages SET status = 'interrupted' WHERE status = 'streaming'")

    def select_version(self, message_id: str, step: int) -> list[StoredMessage]:
        """Show the version ``step`` places after (before, if negative) this one, down to its newest leaf.

        Stops at the first and last version; 0 shows this one. Returns the new branch.
        """
        message = self.message(message_id)
        place = min(max(message.version + step, 1), message.versions)
        with self._writing() as connection:
            (version_id,) = connection.execute(
                "SELECT id FROM messages WHERE chat_id = ? AND parent_id IS ? ORDER BY seq LIMIT 1 OFFSET ?",
                (message.chat_id, message.parent_id, place - 1),
            ).fetchone()
            leaf = tree.newest_leaf(connection, message.chat_id, version_id)
            tree.set_leaf(connection, message.chat_id, leaf)
        return self.branch(message.chat_id)

    def set_leaf(self, chat_id: str, message_id: str) -> None:
        """Show the branch that ends with this message."""
        if self.message(message_id).chat_id != chat_id:
            raise LookupError(message_id)
        with self._writing() as connection:
            tree.set_leaf(connection, chat_id, message_id)

    def delete_message(self, message_id: str, following: bool) -> Deletion:
        """Delete a message, and with ``following`` everything below it; otherwise that moves up to its parent.

        A shown branch that loses its end continues with what moved up, else with the nearest other version.
        """
        message = self.message(message_id)
        try:
            self._traces.write(self._clock() + TRASH_DAYS * _DAY_SECONDS)
        except OSError as error:
            raise KnownError(f"The message couldn't be deleted: {error.strerror or error}.") from error
        ids = tree.below(self._connection, message) if following else [message_id]
        removing = self._upkeep.removing("m.id", ids, is_erased=False)
        with known_errors(self._path), removing, self._writing() as connection:
            deletion = tree.delete(connection, message, ids if following else None)
        self._deletions.add(deletion)
        return deletion

    def undo_deletion(self, deletion: Deletion) -> None:
        """Bring deleted messages back, and show what was shown unless the user has moved on."""
        with self._writing() as connection:
            tree.undo(connection, deletion)

    def copy_branch(self, chat_id: str, message_id: str) -> Chat:
        """A new chat with the messages from the first to this one, in the same folder with the same settings."""
        chat, copied = self.chat(chat_id), new_id()
        with self._writing() as connection:
            messages = tree.branch(connection, chat_id, message_id)
            if not messages:
                raise LookupError(message_id)
            title = chat.title if not chat.title or chat.title.endswith(_BRANCHED) else chat.title + _BRANCHED
            self._create(copied, title, chat.settings)
            connection.execute("UPDATE chats SET folder_id = ? WHERE id = ?", (chat.folder_id, copied))
            tree.copy(connection, messages, copied, new_id)
        return self.chat(copied)

    # ------------------------------------------------------------ the composer, export and import

    def set_unsent(self, chat_id: str | None, text: str) -> None:
        """Save the composer's text of a chat; ``None`` is the chat that doesn't exist yet.

        Does nothing for a deleted chat.
        """
        if text:
            self._write(
                """
                INSERT OR REPLACE INTO unsent (chat_id, text)
                SELECT ?1, ?2 WHERE ?1 = '' OR EXISTS (SELECT 1 FROM chats WHERE id = ?1)
                """,
                (chat_id or "", storable(text)),
                list_changes=False,
            )
        else:
            self._write("DELETE FROM unsent WHERE chat_id = ?", (chat_id or "",), list_changes=False)

    def set_unsent_attachments(self, chat_id: str | None, attachments: Sequence[Attachment]) -> None:
        """Save the composer's attachments, replacing earlier ones; otherwise like `set_unsent`."""
        owner = chat_id or ""
        with self._writing(list_changes=False) as connection:
            connection.execute("DELETE FROM unsent_attachments WHERE chat_id = ?", (owner,))
            if not owner or connection.execute("SELECT 1 FROM chats WHERE id = ?", (owner,)).fetchone() is not None:
                insert_attachments(connection, "unsent_attachments", owner, attachments)
        self._files.use(attachments)

    def unsent_attachments(self, chat_id: str | None) -> tuple[Attachment, ...]:
        """The composer's attachments."""
        query = f"SELECT {ATTACHMENT} FROM unsent_attachments WHERE chat_id = ? ORDER BY position"
        with known_errors(self._path):
            rows = self._connection.execute(query, (chat_id or "",)).fetchall()
        return tuple(self._files.filled(Attachment(*row)) for row in rows)

    def unsent(self, chat_id: str | None) -> str:
        with known_errors(self._path):
            row = self._connection.execute("SELECT text FROM unsent WHERE chat_id = ?", (chat_id or "",)).fetchone()
        return str(row[0]) if row else ""

    def record(self, chat_id: str) -> ChatRecord:
        """A chat with everything in it, for export."""
        with known_errors(self._path):
            return transfer.record_of(self._connection, chat_id, self._files)

    def add_records(self, records: Iterable[ChatRecord], folder: str = "") -> Added:
        """Add imported chats that aren't there yet. ``folder``: a name for chats without one."""
        with self._writing() as connection:
            return transfer.add(connection, records, folder, self._clock(), self._files)

    # ------------------------------------------------------------ inside

    def _chats(self, which: str) -> list[Chat]:
        with known_errors(self._path):
            return [Chat(*row) for row in self._connection.execute(f"SELECT {CHAT} FROM chats WHERE {which}")]

    def _create(self, chat_id: str, title: str, settings: str) -> None:
        now = self._clock()
        self._connection.execute(
            """
            INSERT INTO chats (id, title, created_at, updated_at, settings, number)
            SELECT ?, ?, ?, ?, ?, coalesce(max(number), 0) + 1 FROM chats
            """,
            (chat_id, storable(" ".join(title.split())), now, now, storable(settings)),
        )
