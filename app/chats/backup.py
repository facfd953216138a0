"""Copies of the chat file (one before a migration, one each day) and of its attachments, and restoring them.

They contain chats that have since been deleted, so none is kept longer than `MOST_DAYS`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
from datetime import date, datetime
from pathlib import Path

from app.chats.attachments import attachments_folder, copy_to, hashes, remove_except
from app.chats.schema import APPLICATION_ID, OLDEST, VERSION

DAILY_BACKUPS = 7
MOST_DAYS = 30
_DATE = re.compile(r"-(\d{4}-\d{2}-\d{2})(-\d{6})?$")


def backup_folder(path: Path) -> Path:
    return path.parent / "backups"


def daily_backups(path: Path, today: datetime | None = None) -> list[Path]:
    """The daily backups of the chat file ``path``, newest first.

    Those of days to come are the oldest: they were made before the clock was set back.
    """
    pattern = f"{path.stem}-[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]{path.suffix}"
    latest = f"{path.stem}-{today or datetime.now():%Y-%m-%d}"
    return sorted(backup_folder(path).glob(pattern), key=lambda one: (one.stem <= latest, one.stem), reverse=True)


def back_up(connection: sqlite3.Connection, target: Path) -> None:
    """Copy the open database to ``target`` through SQLite, completely and intact or not at all.

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
                copy.execute("DELETE FROM search_index")  # the index of the chats will be newer than the copy
                copy.commit()
            if copy.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("the file is damaged, so the older backups are kept")
        _sync(part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def back_up_before_migration(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Keep a copy of the file before it is migrated to ``version``."""
    name = f"{path.stem}-before-version-{version}-{datetime.now():%Y-%m-%d-%H%M%S}{path.suffix}"
    _back_up_all(connection, path, backup_folder(path) / name)


def back_up_daily(connection: sqlite3.Connection, path: Path, today: datetime) -> None:
    """Make the first backup of a day, unless there is one already; keep the newest seven days."""
    target = backup_folder(path) / f"{path.stem}-{today:%Y-%m-%d}{path.suffix}"
    if not target.exists():
        _back_up_all(connection, path, target)
        for old in daily_backups(path, today)[DAILY_BACKUPS:]:
            old.unlink(missing_ok=True)
        _remove_attachments(path)


def _back_up_all(connection: sqlite3.Connection, path: Path, target: Path) -> None:
    """The chat file ``path`` and its attachments."""
    copy_to(attachments_folder(target), attachments_folder(path), hashes(connection))
    back_up(connection, target)


def _remove_attachments(path: Path) -> None:
    """Remove the attachments that are in no backup any more; none if a backup can't be read."""
    wanted: set[str] = set()
    try:
        for backup in _backups(path):
            wanted |= _attachments_of(backup)
    except sqlite3.Error:
        return
    remove_except(attachments_folder(backup_folder(path) / path.name), wanted)


def remove_old(connection: sqlite3.Connection, path: Path, today: datetime) -> None:
    """Remove backups of both kinds that are older than `MOST_DAYS`, and those that a killed process didn't finish.

    If no daily backup would be left, a new one is made first. Raises `sqlite3.Error`, `OSError`; no old backup is
    removed then.
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
    """The backups of both kinds."""
    return list(backup_folder(path).glob(f"{path.stem}-*{path.suffix}"))


def _is_old(backup: Path, today: datetime) -> bool:
    """By the date in its name, because copying a file changes its timestamps."""
    if (found := _DATE.search(backup.stem)) is None:
        return False  # not one of our backups
    try:
        day = date.fromisoformat(found[1])
    except ValueError:
        return False
    return (today.date() - day).days > MOST_DAYS


def restore_newest(path: Path) -> Path | None:
    """Put the newest intact daily backup, with its attachments, in the place of ``path``, which must be free; ``None``
    if there is none.
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
    # Python would keep trying forever, and the app couldn't quit.
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
