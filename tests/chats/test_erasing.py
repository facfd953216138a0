"""Deleting a chat leaves nothing of it in any file, at whatever step the process is killed."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sqlite3
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from app.chats.database import MOST_DAYS, backup_folder, daily_backups
from app.chats.model import StoredCall, calls_to_json, to_json
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.storage.files import erase_chat_caches
from app.system import KnownError
from tests.support.chats import add_question, begin_answer

SECRET = b"unmistakable"
KEPT = "what is kept"
_FILE_EVENTS = frozenset({"open", "os.remove", "os.rename"})
_INSTRUCTIONS = 150
"""Of SQLite between two places to be killed at."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "chats.sqlite"


def copies(path: Path) -> Path:
    return path.parent / "cache" / "chats"


def write_chats(store: ChatStore) -> tuple[str, str]:
    """Two chats whose messages lie among each other in the file, so that SQLite has moved many of them."""
    secret = SECRET.decode()
    deleted, kept = store.create_chat(f"{secret} title").id, store.create_chat(KEPT).id
    parents: dict[str, str | None] = {deleted: None, kept: None}
    for number in range(6):
        for chat_id, words in ((deleted, secret), (kept, KEPT)):
            asked = add_question(store, chat_id, parents[chat_id], f"{words} {number} " * (1 + 40 * number))
            answer = begin_answer(store, chat_id, asked.id, "Guide", {"system_prompt": words})
            for length in (10, 100, 300):
                call = StoredCall(id=words, name=words, result=f"{words}: " * length)
                saved = f"{words} " * length, [[5, None, 1, words]], (), f"{words}. " * length, [call]
                store.update_answer(answer.id, *saved)
            packed = to_json([[5, None, 1, words]])
            call = StoredCall(id=words, name=words, arguments=to_json({words: words}), result=f"{words}: " * 600)
            calls = calls_to_json([call, replace_struct(call, state="done")])
            whole = replace(
                answer, text=f"{words} " * 400, thinking=f"{words}. " * 500, provenance_json=packed, calls_json=calls
            )
            store.finish_answer(replace(whole, status="complete"))
            parents[chat_id] = answer.id
    store.set_unsent(deleted, f"{secret} draft")
    store.set_unsent(kept, KEPT)
    return deleted, kept


@pytest.fixture
def chats(path: Path) -> tuple[str, str]:
    """Id of a chat that was in the trash for long enough, and of one that is not deleted."""
    with ChatStore(path, clock=lambda: 0.0) as store:
        ids = write_chats(store)
        store.delete_chats([ids[0]])
    copies(path).mkdir(parents=True)
    (copies(path) / "a.kept").write_bytes(SECRET)
    shutil.rmtree(backup_folder(path))  # they may remember it for a while
    assert found(path)
    return ids


def found(path: Path) -> list[str]:
    """The files in which something is left."""
    return [file.name for file in path.parent.rglob("*") if file.is_file() and SECRET in file.read_bytes().lower()]


def texts(path: Path, chat_id: str) -> str:
    with ChatStore(path) as store:
        assert [chat.title for chat in store.chats()] == [KEPT]
        return " ".join([message.text for message in store.branch(chat_id)] + [store.unsent(chat_id)])


def erase(store: ChatStore, path: Path, chat_id: str) -> None:
    store.erase_deleted([chat_id])
    erase_chat_caches(copies(path), ())  # as the engine does when it is told to forget
    store.finish_erasing()


def test_nothing_is_left_while_the_app_goes_on(path: Path, chats: tuple[str, str]) -> None:
    with ChatStore(path) as store:
        before = [message.text for message in store.branch(chats[1])]
        add_question(store, chats[0], store.chat(chats[0]).leaf_id, "unmistakable, and still in the log")
        erase(store, path, chats[0])
        assert found(path) == []
        assert not store.has_to_erase() and not store.may_have_copies()
        assert [message.text for message in store.branch(chats[1])] == before
        store.set_unsent(chats[0], "unmistakable, but a moment late")
        assert found(path) == []
    assert found(path) == []  # the backup of the day was just made
    assert len(daily_backups(path)) == 1
    assert [file.name for ending in ("erasing", "copies") for file in path.parent.glob(f"*.{ending}")] == []


def write_at_random(store: ChatStore, chat_ids: list[str], chosen: random.Random) -> None:
    """Messages, answers, drafts and titles of all lengths, each with the name of its chat."""
    leaves: dict[str, str | None] = dict.fromkeys(chat_ids)
    for _ in range(400):
        place = chosen.randrange(len(chat_ids))
        chat_id, word, length = chat_ids[place], name_of(place), chosen.choice([1, 5, 20, 60, 100, 300, 900])
        if chosen.random() < 0.5:
            leaves[chat_id] = add_question(store, chat_id, leaves[chat_id], word * length).id
        else:
            answer = begin_answer(store, chat_id, leaves[chat_id], word, {"system_prompt": word})
            for _ in range(chosen.randrange(4)):
                store.update_answer(answer.id, word * chosen.randrange(1, length + 1), [], (), word * length)
            thinking = word * chosen.choice([0, 1, 100, 900])
            store.finish_answer(replace(answer, text=word * length, thinking=thinking, status="complete"))
            leaves[chat_id] = answer.id
        if chosen.random() < 0.1:
            store.set_unsent(chat_id, word * chosen.randrange(100))
        if chosen.random() < 0.03:
            store.rename_chat(chat_id, word * chosen.randrange(1, 200))


def name_of(place: int) -> str:
    return f"zq{place:03d}qz "


def test_what_sqlite_has_moved_within_the_file_is_gone_too(path: Path) -> None:
    with ChatStore(path) as store:
        store._connection.execute("PRAGMA synchronous = OFF")
        chat_ids = [store.create_chat(name_of(place)).id for place in range(12)]
        write_at_random(store, chat_ids, random.Random(6))  # secure_delete alone leaves three of chat 10 (SQLite 3.40)
        for chat_id in chat_ids[::2]:
            store.delete_chats([chat_id])
        store.erase_deleted()
        data = path.read_bytes()
    assert [data.count(name_of(place).strip().encode()) for place in range(0, 12, 2)] == [0] * 6
    assert all(name_of(place).encode() in data for place in range(1, 12, 2))


def test_only_the_chats_that_are_named_are_erased(path: Path, chats: tuple[str, str]) -> None:
    with ChatStore(path) as store:
        store.delete_chats([chats[1]])
        store.erase_deleted([chats[0]])
        store.restore_chats([chats[1]])
        assert [chat.title for chat in store.chats()] == [KEPT]
        store.erase_deleted([chats[1]])
        assert store.chats() != []  # it is not deleted
        store.restore_chats([chats[0]])
        assert [chat.id for chat in store.chats()] == [chats[1]]


def killed_at(place: int, work: Callable[[Callable[[ChatStore], None]], None]) -> bool:
    """Do ``work`` in a child that is killed at one of the places it may be killed at; False if there are less.

    The places: each file operation of ours, each statement of SQLite, and every few instructions within these.
    """
    child = os.fork()
    if child == 0:
        _work_and_die(place, work)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.WIFSIGNALED(status)


def _work_and_die(place: int, work: Callable[[Callable[[ChatStore], None]], None]) -> None:
    left = place

    def step(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(store: ChatStore) -> None:
        store._connection.set_trace_callback(step)
        store._connection.set_progress_handler(step, _INSTRUCTIONS)
        sys.addaudithook(lambda event, _: step() if event in _FILE_EVENTS else None)

    status = 1
    try:
        work(watch)
        status = 0
    finally:
        os._exit(status)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_kill_at_any_step_leaves_nothing_after_the_next_start(
    path: Path, chats: tuple[str, str], tmp_path: Path
) -> None:
    pristine = tmp_path / "pristine"
    shutil.copytree(path.parent, pristine)

    def end_of_the_app(watch: Callable[[ChatStore], None]) -> None:
        store = ChatStore(path)
        watch(store)
        erase(store, path, chats[0])
        store.close()

    place = again = 1
    while killed_at(place, end_of_the_app):
        worker = ChatWorker(path)
        if worker.opened.result().may_have_copies:
            erase_chat_caches(copies(path), ())  # as the window tells the engine
            worker.submit(ChatStore.finish_erasing).result()
            again += 1
        worker.close()
        assert found(path) == [], f"killed at {place}"
        assert texts(path, chats[1]).count(KEPT) > 400, f"killed at {place}"
        shutil.rmtree(path.parent)
        shutil.copytree(pristine, path.parent)
        place += 1
    assert again > 10  # it was killed in the middle of erasing, and not only after it
    assert place - again > 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_kill_of_the_start_that_erases_is_no_trouble_either(path: Path, chats: tuple[str, str]) -> None:
    def start(watch: Callable[[ChatStore], None]) -> None:
        store = ChatStore(path)
        watch(store)
        store.erase_deleted()
        os._exit(0)

    place = 1
    while killed_at(place, start):
        place += 5  # one start after the other, each killed a little later
    with ChatStore(path) as store:
        assert not store.has_to_erase()
        assert store.may_have_copies()  # nobody has said that there are none any more
        store.finish_erasing()
        assert not store.may_have_copies()
    assert [name for name in found(path) if name != "a.kept"] == []


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be opened")
def test_a_file_system_that_cannot_sync_folders_does_not_keep_chats(
    path: Path, chats: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    with ChatStore(path) as store:
        monkeypatch.setattr(os, "fsync", no_folders)
        store.erase_deleted()
        erase_chat_caches(copies(path), ())
        store.finish_erasing()
    assert found(path) == []


def test_what_could_not_be_erased_is_tried_again(path: Path, chats: tuple[str, str]) -> None:
    with ChatStore(path) as store:
        store._connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK
        )  # as if there were no room for the file to be written anew
        with pytest.raises(KnownError, match=r"couldn't be erased .* yet.* next time it starts"):
            store.erase_deleted()
        store.finish_erasing()
        assert store.has_to_erase()
    worker = ChatWorker(path)
    assert worker.opened.result().may_have_copies
    worker.submit(ChatStore.finish_erasing).result()
    worker.close()
    assert found(path) == ["a.kept"]  # there was no engine here


def backup_of(path: Path, day: datetime, kind: str = "") -> Path:
    backup_folder(path).mkdir(mode=0o700, exist_ok=True)
    stamp = "-101112" if kind else ""
    backup = backup_folder(path) / f"{path.stem}-{kind}{day:%Y-%m-%d}{stamp}{path.suffix}"
    backup.write_bytes(SECRET)
    return backup


def test_no_backup_grows_older_than_a_month(path: Path, chats: tuple[str, str]) -> None:
    today = datetime(2026, 11, 22, 12)
    at_last, a_day = today - timedelta(days=MOST_DAYS), timedelta(days=1)
    left = [backup_of(path, at_last), backup_of(path, at_last, "before-version-2-"), backup_of(path, today - a_day)]
    old = [backup_of(path, at_last - a_day), backup_of(path, at_last - a_day, "before-version-2-")]
    half = backup_folder(path) / "chats-2026-11-21.sqlite.part"
    half.write_bytes(SECRET)
    theirs = backup_folder(path) / "chats-of-mine.sqlite"
    theirs.touch()
    with ChatStore(path, clock=today.timestamp) as store:
        store.remove_old_backups()
    assert [backup for backup in [*left, *old, half] if backup.exists()] == left
    assert theirs.exists()
    assert len(daily_backups(path)) == 2  # none was made: the one of yesterday is enough


def test_before_the_last_backup_goes_a_new_one_is_made(path: Path, chats: tuple[str, str]) -> None:
    today = datetime(2026, 11, 22, 12)
    old = backup_of(path, today - timedelta(days=300))
    with ChatStore(path, clock=today.timestamp) as store:
        store.erase_deleted()
        store.remove_old_backups()
    assert not old.exists()
    (new,) = daily_backups(path)
    assert KEPT.encode() in new.read_bytes()
    assert SECRET not in new.read_bytes()


@pytest.mark.allow_logs
def test_without_room_for_a_new_backup_the_last_one_stays(
    path: Path, chats: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no room")

    today = datetime(2026, 11, 22, 12)
    old = backup_of(path, today - timedelta(days=300))
    monkeypatch.setattr("app.chats.database.back_up", full)
    with ChatStore(path, clock=today.timestamp) as store:
        store.remove_old_backups()
    assert old.exists()
