"""Opens the chat file safely: checks whose it is, its version and whether it is intact; explains SQLite's errors."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from app.chats.attachments import attachments_folder
from app.chats.backup import back_up_before_migration, restore_newest
from app.chats.schema import APPLICATION_ID, MIGRATIONS, OLDEST, VERSION, Migrations, has_all_columns, migrate
from app.errors import KnownError
from app.storage.files import broken_name

log = logging.getLogger(__name__)

_SETTINGS = (
    "busy_timeout = 1000",
    # No other process writes while the file is open, so WAL needs no shared memory.
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
"""A chat file that is only in memory."""

_NO_TEXT = "what SQLite says about it contains damaged text of it"


class _DamagedError(Exception):
    """The file isn't an intact chat file."""


@contextlib.contextmanager
def known_errors(path: Path) -> Iterator[None]:
    """Turn SQLite errors caused by the environment into a `KnownError`; mistakes in our SQL are passed on unchanged."""
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
    """The open, checked and up-to-date chat file, and a notice for the user if a damaged one was moved aside.

    Raises `KnownError` when the file is of a version that can't be read, cannot be written or is in use. A file that is
    damaged or isn't a chat file is never written to: it is renamed, and the newest intact backup takes its place.
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
        # SQLite would delete the log, which is the only copy of its content.
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
                connection.execute("PRAGMA temp_store = MEMORY")  # otherwise sorting and VACUUM may write files
            _check(connection, path, OLDEST + len(migrations))
            for setting in _WRITE_SETTINGS:
                connection.execute(f"PRAGMA {setting}")
            _upgrade(connection, path, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _text(data: bytes) -> str:
    """A text of the file. The integrity check doesn't find a byte that was changed in it: this costs a character."""
    return data.decode("utf-8", "replace")


def _check(connection: sqlite3.Connection, path: Path, supported: int) -> None:
    """Check, without writing, that the file is ours, intact and of a version that can be read."""
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
        # Without mistakes in the statements above, SQLITE_ERROR is about the file: "unsupported file format".
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
        # If the file can't be written or is in use, this shows now, not at the first message.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def _put_aside(path: Path) -> str:
    """Rename the damaged file with its logs and attachments, restore a backup, and say so."""
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
