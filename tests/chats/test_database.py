"""What can happen to the chat file: newer, foreign, damaged, read-only, disk full, migrated, restored."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from app.chats import database
from app.chats.database import DAILY_BACKUPS, MEMORY, OLDEST, VERSION, backup_folder, daily_backups, open_database
from app.chats.store import ChatStore
from app.system import KnownError
from tests.support.chats import add_question
from tests.support.small_disk import remount, small_disk

DATA = Path(__file__).parent.parent / "data"
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats" / "chats.sqlite"


def write_chat(path: Path, text: str = "hello", day: datetime | None = None) -> str:
    with ChatStore(path, clock=(day or datetime.now()).timestamp) as store:
        chat = store.create_chat("c")
        add_question(store, chat.id, None, text)
        return chat.id


def set_pragma(path: Path, pragma: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA {pragma}")


def broken_files(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.glob("chats.broken-*"))


def test_chats_in_memory_have_no_temporary_files() -> None:
    connection, _notice = open_database(MEMORY)
    with contextlib.closing(connection):
        assert connection.execute("PRAGMA temp_store").fetchone() == (2,)  # memory


def test_there_is_a_file_of_every_version() -> None:
    assert {f"chats-version-{number}.sqlite" for number in range(OLDEST - 1, VERSION + 1)} == {
        file.name for file in DATA.glob("chats-version-*.sqlite")
    }


def test_a_new_file_is_like_one_that_was_written_step_by_step(path: Path) -> None:
    """Each version altered the tables of the one before."""

    def described(connection: sqlite3.Connection) -> dict[str, object]:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema ORDER BY name")]
        found: dict[str, object] = {}
        for name in names:
            for pragma in ("table_info", "foreign_key_list", "index_xinfo"):
                found[f"{pragma} {name}"] = connection.execute(f"PRAGMA {pragma}({name})").fetchall()
        return found

    with contextlib.closing(sqlite3.connect(DATA / f"chats-version-{VERSION}.sqlite")) as before:
        migrated = described(before)
    with ChatStore(path) as store:
        assert described(store._connection) == migrated


def test_a_file_from_before_the_first_release_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    before = Path(shutil.copyfile(DATA / "chats-version-3.sqlite", path)).read_bytes()
    with pytest.raises(KnownError, match=r"before its first release .*format 3; .* Nothing was changed\."):
        ChatStore(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    write_chat(path)
    set_pragma(path, f"user_version = {VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(KnownError, match=f"newer version of Slipstream.*format {VERSION + 1}.*Update Slipstream"):
        ChatStore(path)
    assert path.read_bytes() == before
    assert broken_files(path) == []


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_put_aside(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with ChatStore(path) as store:
        assert store.chats() == []
        assert store.notice is not None
    (aside,) = broken_files(path)
    assert aside in store.notice
    assert "no backup yet" in store.notice
    assert (path.parent / aside).read_bytes() == content


def test_another_applications_database_is_put_aside_and_an_empty_file_is_a_new_one(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with ChatStore(path) as store:
        assert store.notice is None
    assert broken_files(path) == []
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with ChatStore(path) as store:
        assert store.notice is not None
    assert len(broken_files(path)) == 1


def test_a_log_without_its_file_is_put_aside_and_not_deleted(path: Path) -> None:
    path.parent.mkdir()
    log = path.with_name(path.name + "-wal")
    log.write_bytes(b"the only copy")
    with ChatStore(path) as store:
        assert store.notice is not None
    (aside,) = broken_files(path)
    assert aside.endswith("-wal")
    assert (path.parent / aside).read_bytes() == b"the only copy"


def damage(path: Path) -> bytes:
    """Overwrite a page of the messages' tree, as a bad disk would."""
    with path.open("rb+") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))
    return path.read_bytes()


def test_a_damaged_file_is_kept_and_the_newest_sound_backup_comes_back(path: Path) -> None:
    write_chat(path, "first day", datetime(2026, 11, 18, 12))
    write_chat(path, "second day", datetime(2026, 11, 19, 12))
    write_chat(path, "third day", datetime(2026, 11, 20, 12))
    daily_backups(path)[0].write_bytes(b"this backup is damaged too")
    damaged = damage(path)
    with ChatStore(path) as store:
        assert [m.text for chat in store.chats() for m in store.branch(chat.id)] == ["second day", "first day"]
        assert store.notice is not None
        assert "backup of 2026-11-19" in store.notice
    (aside,) = broken_files(path)
    assert (path.parent / aside).read_bytes() == damaged
    assert aside in store.notice


@pytest.mark.allow_logs
def test_damage_while_the_file_is_open_is_told_and_not_backed_up(path: Path) -> None:
    write_chat(path, "first day", datetime(2026, 11, 18, 12))
    with ChatStore(path, clock=datetime(2026, 11, 19, 12).timestamp) as store:
        store.create_chat("changed")
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store._connection.execute("PRAGMA shrink_memory")
        damage(path)
        with pytest.raises(KnownError, match=r"is damaged.*restores the newest backup"):
            store.search("anything")
    assert [backup.stem for backup in daily_backups(path)] == ["chats-2026-11-18"]
    assert not list(backup_folder(path).glob("*.part"))
    with ChatStore(path) as store:
        assert store.notice is not None
        assert len(store.chats()) == 1


def test_one_daily_backup_and_the_newest_seven_are_kept(path: Path) -> None:
    start = datetime(2026, 1, 28, 12)
    for day in range(DAILY_BACKUPS + 3):
        write_chat(path, "a", start + timedelta(days=day))
        write_chat(path, "b", start + timedelta(days=day, hours=1))
    days = [backup.stem for backup in daily_backups(path)]
    assert days == [f"chats-{start + timedelta(days=day):%Y-%m-%d}" for day in range(DAILY_BACKUPS + 2, 2, -1)]
    with contextlib.closing(sqlite3.connect(daily_backups(path)[0])) as backup:
        assert backup.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert backup.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.allow_logs
def test_a_backup_that_is_not_possible_does_not_keep_the_app_from_quitting(path: Path) -> None:
    store = ChatStore(path)
    store.create_chat("c")
    store._connection.execute("BEGIN IMMEDIATE")
    store.close()
    assert daily_backups(path) == []
    with ChatStore(path) as store:
        assert len(store.chats()) == 1


@posix
def test_only_the_user_may_read_the_files(path: Path) -> None:
    write_chat(path)
    path.chmod(0o644)
    with ChatStore(path) as store:
        store.create_chat("c")
        files = [path, path.with_name(path.name + "-wal"), *daily_backups(path)]
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert backup_folder(path).stat().st_mode & 0o777 == 0o700


def test_a_migration_keeps_a_copy_of_the_old_file_first(path: Path) -> None:
    write_chat(path, "before")
    step = ("ALTER TABLE chats ADD COLUMN color TEXT NOT NULL DEFAULT 'blue'",)
    connection, notice = open_database(path, (*database.MIGRATIONS, step))
    with contextlib.closing(connection):
        assert connection.execute("SELECT title, color FROM chats").fetchall() == [("c", "blue")]
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION + 1,)
    assert notice is None
    (old,) = backup_folder(path).glob(f"chats-before-version-{VERSION + 1}-*.sqlite")
    with ChatStore(old) as store:
        assert [m.text for m in store.branch(store.chats()[0].id)] == ["before"]


@pytest.mark.parametrize(
    "step",
    [
        ("ALTER TABLE chats ADD COLUMN color TEXT", "SELECT nonsense"),
        (
            "INSERT INTO unsent VALUES ('a', 'b')",
            "UPDATE chats SET leaf_id = 'nothing'",
        ),
    ],
)
def test_a_migration_that_fails_changes_nothing(path: Path, step: tuple[str, ...]) -> None:
    chat_id = write_chat(path, "before")
    with pytest.raises((sqlite3.Error, database.MigrationError)):
        open_database(path, (*database.MIGRATIONS, step))
    with ChatStore(path) as store:
        assert [m.text for m in store.branch(chat_id)] == ["before"]
        columns = [row[1] for row in store._connection.execute("PRAGMA table_info(chats)")]
    assert "color" not in columns


def test_sqlite_is_set_up_for_safety(path: Path) -> None:
    with ChatStore(path) as store:
        wanted = {
            "journal_mode": "wal",
            "synchronous": 2,
            "foreign_keys": 1,
            "trusted_schema": 0,
            "fullfsync": 1,
            "secure_delete": 1,
            "mmap_size": 0,
        }
        found = {name: store._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted}
        assert found == wanted


# ---------------------------------------------------------------- real small and read-only file systems


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    with small_disk(tmp_path / "small", "size=512k") as folder:
        yield folder


def fill_until_full(store: ChatStore, chat_id: str) -> int:
    """How many messages of 20,000 characters were stored before the disk was full."""
    for number in range(1000):
        leaf = store.chat(chat_id).leaf_id
        try:
            add_question(store, chat_id, leaf, f"{number} " + "x" * 20_000)
        except KnownError as error:
            assert "disk is full" in str(error)
            return number
    raise AssertionError("the disk never became full")


@pytest.mark.allow_logs
def test_a_full_disk_costs_nothing_that_was_stored(mounted: Path) -> None:
    path = mounted / "chats.sqlite"
    ballast = mounted / "ballast"
    ballast.write_bytes(b"x" * 100_000)
    with ChatStore(path) as store:
        chat = store.create_chat("c")
        stored = fill_until_full(store, chat.id)
        assert stored > 0
        assert [m.text.split()[0] for m in store.branch(chat.id)] == [str(number) for number in range(stored)]
        assert store.notice is None
    with ChatStore(path) as store:  # the backup at the end did not fit either; that is not the chats' trouble
        assert store.notice is None
        assert len(store.branch(chat.id)) == stored
        ballast.unlink()
        last = add_question(store, chat.id, store.chat(chat.id).leaf_id, "there is room again")
        assert store.branch(chat.id)[-1] == last
    assert not list(mounted.rglob("*.part"))


def test_a_read_only_disk(mounted: Path) -> None:
    path = mounted / "chats" / "chats.sqlite"
    chat_id = write_chat(path)
    remount(mounted, "ro")
    with pytest.raises(KnownError, match=r"Your chats can't be saved"):
        ChatStore(path)
    remount(mounted, "rw")
    with ChatStore(path) as store:
        assert len(store.branch(chat_id)) == 1


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KnownError, match="Your chats can't be saved in"):
        ChatStore(tmp_path / "file" / "chats.sqlite")


# ---------------------------------------------------------------- damage that SQLite doesn't notice


def test_a_changed_byte_in_a_text_costs_one_character(path: Path) -> None:
    """Found by ``make proof``: the chat could not be opened any more."""
    chat_id = write_chat(path, "hello world")
    data = path.read_bytes()
    assert b"hello world" in data
    path.write_bytes(data.replace(b"hello world", b"hello\xffworld"))
    with ChatStore(path) as store:
        assert store.notice is None
        assert [message.text for message in store.branch(chat_id)] == ["hello\ufffdworld"]
        assert [one.chat.id for one in store.search("world")] == [chat_id]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"media_type TEXT", b"mediaXtype TEXT"),
        (b"TABLE unsent (", b"TABLE unsemt ("),
        (b"CREATE TABLE chats (", b"CREATE \xe4ABLE chats ("),  # Python can't even read what SQLite says about it
        (b"\0\0\0\x04", b"\0\0\0\x4d"),  # the number of the format: SQLite calls that a mistake in the statement
    ],
)
def test_a_changed_byte_in_what_describes_the_tables(path: Path, old: bytes, new: bytes) -> None:
    """Found by ``make proof``: nothing could be sent any more, and no sentence said why."""
    write_chat(path, "before")
    data = path.read_bytes()
    start, rest = (data[:44], data[44:]) if len(old) == 4 else (b"", data)
    assert len(old) == len(new) and old in rest
    path.write_bytes(start + rest.replace(old, new, 1 if start else -1))
    with ChatStore(path) as store:
        assert store.notice is not None and "restored from the backup" in store.notice
        assert [one.title for one in store.chats()] == ["c"]
    assert broken_files(path)


def test_a_backup_from_before_the_first_release_does_not_come_back(path: Path) -> None:
    write_chat(path, "sound", datetime(2026, 11, 18, 12))
    older = Path(shutil.copyfile(DATA / "chats-version-3.sqlite", backup_folder(path) / "chats-2026-11-19.sqlite"))
    damage(path)
    with ChatStore(path) as store:
        assert store.notice is not None and "backup of 2026-11-18" in store.notice
    assert older.read_bytes() == (DATA / "chats-version-3.sqlite").read_bytes()


def test_a_changed_byte_in_an_id_does_not_break_the_search(path: Path) -> None:
    """Found by ``make proof``: an index and the table say different things, which SQLite's quick check doesn't see."""
    chat_id = write_chat(path, "hello")
    data = path.read_bytes()
    places = [found.start() for found in re.finditer(re.escape(chat_id.encode()), data)]
    assert len(places) > 3
    for place in places:
        for file in path.parent.glob("chats.sqlite*"):
            file.unlink()
        path.write_bytes(data[:place] + b"X" + data[place + 1 :])
        with ChatStore(path) as store:
            store.search("hello")
            store.search("c")
