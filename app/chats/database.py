"""The chat file as an SQLite file: its tables by version, opening it safely, backups, and what its errors mean."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from pathlib import Path

from app.chats.attachments import attachments_folder, copy_to, hashes, remove_except
from app.storage.files import broken_name
from app.system import KnownError

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
    # A covering index for everything a search reads from chats, in the order in which it reads.
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
    # Messages that the search index doesn't have in their current form; the key of the index that has all others.
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
MIGRATIONS: Migrations = (("ALTER TABLE messages ADD COLUMN calls TEXT NOT NULL DEFAULT '[]'",),)
"""Step i takes a file from version `OLDEST` + i to the next. Never change a step that has been released: add one."""

VERSION = OLDEST + len(MIGRATIONS)

_COLUMNS = {
    "chats": "id, title, created_at, updated_at, leaf_id, deleted_at, pinned_at, folder_id, settings, number",
    "messages": "seq, id, chat_id, parent_id, role, status, created_at, seed, finish_reason, pair, text, settings, "
    "figures, provenance, tokens, thinking, calls",
    "unsent": "chat_id, text",
    "folders": "id, name, created_at",
    "unindexed": "seq",
    "search_index": "key",
    "attachments": "message_id, position, sha256, kind, name, size, media_type, width, height",
    "unsent_attachments": "chat_id, position, sha256, kind, name, size, media_type, width, height",
}
"""The columns of this version. SQLite's integrity check doesn't notice a renamed table."""


class MigrationError(KnownError):
    """A migrated file is inconsistent; it was left as it was."""

    def __init__(self) -> None:
        super().__init__(
            "Your chats can't be converted for this version of Slipstream, because the chat file is damaged: parts of "
            "it refer to others that are missing. Nothing was changed. The version you used before can still open "
            "them."
        )


def migrate(connection: sqlite3.Connection, migrations: Migrations = MIGRATIONS) -> None:
    """Bring a new or older file to the newest version, with all steps in one transaction."""
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
    """Whether all tables and columns of this version exist; reads no content."""
    try:
        for table, columns in _COLUMNS.items():
            connection.execute(f"SELECT {columns} FROM {table} LIMIT 0")
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR:
            return False
        raise
    return True


# Backups of the chat file (before each migration, and one each day) with its attachments, and restoring them. They
# contain chats that have since been deleted, so none is kept longer than `MOST_DAYS`.

DAILY_BACKUPS = 7
MOST_DAYS = 30
_DATE = re.compile(r"-(\d{4}-\d{2}-\d{2})(-\d{6})?$")


def backup_folder(path: Path) -> Path:
    return path.parent / "backups"


def daily_backups(path: Path, today: datetime | None = None) -> list[Path]:
    """The daily backups of the chat file ``path``, newest first.

    Backups dated in the future sort as oldest: they were made before the clock was set back.
    """
    pattern = f"{path.stem}-[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]{path.suffix}"
    latest = f"{path.stem}-{today or datetime.now():%Y-%m-%d}"
    return sorted(backup_folder(path).glob(pattern), key=lambda one: (one.stem <= latest, one.stem), reverse=True)


def back_up(connection: sqlite3.Connection, target: Path) -> None:
    """Copy the open database to ``target`` through SQLite, completely or not at all.

    Raises `sqlite3.Error`, `OSError`.
    """
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with contextlib.closing(sqlite3.connect(part)) as copy:
            connection.backup(copy, progress=_give_up_when_locked)
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file, without a log
            if copy.execute("SELECT 1 FROM sqlite_schema WHERE name = 'search_index'").fetchone() is not None:
                copy.execute("DELETE FROM search_index")  # the index of a restored copy would be newer than its chats
                copy.commit()
            if copy.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("the file is damaged, so the older backups are kept")
        _sync(part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def back_up_before_migration(connection: sqlite3.Connection, path: Path, version: int) -> None:
    name = f"{path.stem}-before-version-{version}-{datetime.now():%Y-%m-%d-%H%M%S}{path.suffix}"
    _back_up_all(connection, path, backup_folder(path) / name)


def back_up_daily(connection: sqlite3.Connection, path: Path, today: datetime) -> None:
    """Make the first backup of the day unless it exists; keep the newest seven days."""
    target = backup_folder(path) / f"{path.stem}-{today:%Y-%m-%d}{path.suffix}"
    if not target.exists():
        _back_up_all(connection, path, target)
        for old in daily_backups(path, today)[DAILY_BACKUPS:]:
            old.unlink(missing_ok=True)
        _remove_attachments(path)


def _back_up_all(connection: sqlite3.Connection, path: Path, target: Path) -> None:
    copy_to(attachments_folder(target), attachments_folder(path), hashes(connection))
    back_up(connection, target)


def _remove_attachments(path: Path) -> None:
    """Remove attachments that no backup refers to any more; removes nothing if a backup can't be read."""
    wanted: set[str] = set()
    try:
        for backup in _backups(path):
            wanted |= _attachments_of(backup)
    except sqlite3.Error:
        return
    remove_except(attachments_folder(backup_folder(path) / path.name), wanted)


def remove_old(connection: sqlite3.Connection, path: Path, today: datetime) -> None:
    """Remove backups of both kinds older than `MOST_DAYS`, and unfinished ones left by a killed process.

    Makes a new daily backup first if none would be left; if that fails, nothing is removed. Raises `sqlite3.Error`,
    `OSError`.
    """
    path.with_name(path.name + ".part").unlink(missing_ok=True)
    for part in backup_folder(path).glob(f"{path.stem}-*{path.suffix}.part*"):
        part.unlink(missing_ok=True)
    old = [backup for backup in _backups(path) if _is_old(backup, today)]
    if old and all(backup in old for backup in daily_backups(path, today)):
        back_up_daily(connection, path, today)
    for backup in old:
        backup.unlink(missing_ok=True)
    if old:
        _remove_attachments(path)


def _backups(path: Path) -> list[Path]:
    return list(backup_folder(path).glob(f"{path.stem}-*{path.suffix}"))


def _is_old(backup: Path, today: datetime) -> bool:
    """Judged by the date in the name, because copying a file changes its timestamps."""
    if (found := _DATE.search(backup.stem)) is None:
        return False  # not one of our backups
    try:
        day = date.fromisoformat(found[1])
    except ValueError:
        return False
    return (today.date() - day).days > MOST_DAYS


def restore_newest(path: Path) -> Path | None:
    """Restore the newest intact daily backup with its attachments to ``path``, which must not exist; ``None`` if there
    is no backup.
    """
    for backup in daily_backups(path):
        if _is_sound(backup):
            part = path.with_name(path.name + ".part")
            part.unlink(missing_ok=True)
            shutil.copyfile(backup, part)
            part.chmod(0o600)
            _sync(part)
            copy_to(attachments_folder(path), attachments_folder(backup), _attachments_of(backup))
            part.replace(path)
            return backup
    return None


def _give_up_when_locked(status: int, _remaining: int, _total: int) -> None:
    # Python would retry forever, and the app couldn't quit.
    if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise sqlite3.OperationalError("the file is locked")


def _attachments_of(backup: Path) -> set[str]:
    with contextlib.closing(_read_only(backup)) as connection:
        return hashes(connection)


def _read_only(backup: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{backup.as_uri()}?mode=ro&immutable=1", uri=True)


def _is_sound(backup: Path) -> bool:
    try:
        with contextlib.closing(_read_only(backup)) as connection:
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error:
        return False
    return bool(application_id == APPLICATION_ID and OLDEST <= version <= VERSION and verdict == "ok")


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


log = logging.getLogger(__name__)

_SETTINGS = (
    "busy_timeout = 1000",
    # No other process opens the file, so WAL needs no shared memory.
    "locking_mode = EXCLUSIVE",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "mmap_size = 0",
)
_WRITE_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "fullfsync = ON",  # macOS: fsync alone doesn't reach the disk
    "checkpoint_fullfsync = ON",
    "foreign_keys = ON",
    "secure_delete = ON",
)


MEMORY = Path(":memory:")
"""The path that stands for a chat file in memory only."""

_NO_TEXT = "what SQLite says about it contains damaged text of it"


class _DamagedError(Exception):
    """The file isn't an intact chat file."""


@contextlib.contextmanager
def known_errors(path: Path) -> Iterator[None]:
    """Turn SQLite errors caused by the environment into a `KnownError`; bugs in our SQL pass through unchanged."""
    try:
        yield
    except sqlite3.Error as error:
        sentence = _sentence(getattr(error, "sqlite_errorcode", 0) & 0xFF, path)
        if sentence is None:
            raise
        log.info("chat file: %s (%s)", type(error).__name__, getattr(error, "sqlite_errorname", "no code"))
        raise KnownError(sentence) from error
    except UnicodeDecodeError as error:
        log.info("chat file: %s", _NO_TEXT)
        raise KnownError(str(_sentence(sqlite3.SQLITE_CORRUPT, path))) from error


def _sentence(code: int, path: Path) -> str | None:
    match code:
        case sqlite3.SQLITE_FULL:
            return (
                f"The disk is full, so the last change to your chats wasn't saved ({path.parent}). "
                "Everything saved before that is safe. Free up some space and try again."
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return (
                f"Your chats can't be saved because {path} can't be written. "
                "Check who owns the file and its folder, and whether the disk is read-only."
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"Another program is using your chats ({path}), such as a window of Slipstream. "
                "Close it, then try again."
            )
        case sqlite3.SQLITE_IOERR:
            return (
                f"The disk reported an error with the file that holds your chats ({path}), so the last change wasn't "
                "saved. Check the disk, then start Slipstream again."
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return (
                f"The file that holds your chats is damaged ({path}). "
                "Start Slipstream again: it keeps the damaged file and restores the newest backup."
            )
    return None


def open_database(path: Path, migrations: Migrations = MIGRATIONS) -> tuple[sqlite3.Connection, str | None]:
    """Open and check the chat file and migrate it; also returns a notice for the user if a damaged file was moved
    aside.

    Raises `KnownError` if its version can't be read, or if it can't be written or is in use. A damaged or foreign file
    is never written to: it is renamed, and the newest intact backup takes its place.
    """
    if path == MEMORY:
        return _open(path, migrations), None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return _connect(path, migrations), None
        except _DamagedError as damage:
            log.info("chat file put aside: %s", damage)
            notice = _put_aside(path)
            return _connect(path, migrations), notice
    except OSError as error:
        raise KnownError(
            f"Your chats can't be saved in {path.parent}: {error.strerror or error}. Check the folder, then start "
            "Slipstream again."
        ) from error


def _connect(path: Path, migrations: Migrations) -> sqlite3.Connection:
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size > 0 and (not path.exists() or path.stat().st_size == 0):
        # SQLite would delete the log, which holds the only copy of its content.
        raise _DamagedError("the file is missing or empty, but its log isn't")
    # The log files get the same mode.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    with contextlib.suppress(OSError):
        path.chmod(0o600)
    return _open(path, migrations)


def _open(path: Path, migrations: Migrations) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = _text
    try:
        with known_errors(path):
            if path == MEMORY:
                connection.execute("PRAGMA temp_store = MEMORY")  # sorting and VACUUM could write files
            _check(connection, path, OLDEST + len(migrations))
            for setting in _WRITE_SETTINGS:
                connection.execute(f"PRAGMA {setting}")
            _upgrade(connection, path, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _text(data: bytes) -> str:
    """Decode text from the file. The integrity check doesn't detect flipped bytes in text; one of them costs only a
    character.
    """
    return data.decode("utf-8", "replace")


def _check(connection: sqlite3.Connection, path: Path, supported: int) -> None:
    """Check, without writing, that the file is ours, intact and of a readable version."""
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables == 0 and application_id == 0 and version == 0:
            return
        if application_id != APPLICATION_ID:
            raise _DamagedError("another application's database")
        _check_version(path, version, supported)
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _DamagedError("the integrity check failed")
        if version == VERSION and not has_all_columns(connection):
            raise _DamagedError("a table or a column is missing")
    except sqlite3.DatabaseError as error:
        # Our statements above are correct, so SQLITE_ERROR is about the file: "unsupported file format".
        damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in damage:
            raise _DamagedError(str(error)) from error
        raise
    except UnicodeDecodeError as error:
        raise _DamagedError(_NO_TEXT) from error


def _check_version(path: Path, version: int, supported: int) -> None:
    if version > supported:
        raise KnownError(
            f"Your chats were saved by a newer version of Slipstream ({path}, format {version}; this version reads "
            f"up to {supported}). Nothing was changed. Update Slipstream to open them."
        )
    if version < OLDEST:
        raise KnownError(
            f"Your chats were saved by a version of Slipstream from before its first release ({path}, format "
            f"{version}; this version reads {OLDEST} and newer). Nothing was changed. Move the file to another folder "
            "to begin without these chats."
        )


def _upgrade(connection: sqlite3.Connection, path: Path, migrations: Migrations) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < OLDEST + len(migrations):
        if version > 0:
            back_up_before_migration(connection, path, OLDEST + len(migrations))
        migrate(connection, migrations)
    else:
        # Fail now, rather than at the first message, if the file can't be written or is in use.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def _put_aside(path: Path) -> str:
    """Rename the damaged file with its logs and attachments, restore a backup, and tell the user."""
    aside = broken_name(path)
    for ending in ("-wal", "-shm", ""):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(aside.with_name(aside.name + ending))
    if (attachments := attachments_folder(path)).exists():
        attachments.rename(aside.with_name(aside.name + ".attachments"))
    backup = restore_newest(path)
    what = f"The file that held your chats was damaged. It is now {aside}."
    if backup is None:
        return f"{what} There was no backup yet, so the chat list starts empty."
    day = backup.stem.removeprefix(f"{path.stem}-")
    return f"{what} Your chats were restored from the backup of {day}; later changes are only in the damaged file."
