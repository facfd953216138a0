"""Pins, folders, the trash, and chats that are in memory only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chats.database import MEMORY
from app.chats.store import TRASH_DAYS, ChatStore
from app.chats.worker import ChatWorker
from tests.support.chats import add_question
from tests.support.matrix import in_proof

DAY = 86400.0


class Clock:
    """Seconds since 1970, as told."""

    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["file", *in_proof(["memory"])])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[ChatStore]:
    with ChatStore(MEMORY if request.param == "memory" else tmp_path / "chats.sqlite", clock=clock) as store:
        yield store


def titles(store: ChatStore) -> list[str]:
    return [chat.title for chat in store.chats()]


def test_folders_come_in_the_order_of_their_names(store: ChatStore) -> None:
    names = ["beta", "Ähre", "Alpha", "alpha", "  two   words "]
    folders = [store.create_folder(name) for name in names]
    assert [one.name for one in store.folders()] == ["Ähre", "Alpha", "alpha", "beta", "two words"]
    store.rename_folder(folders[0].id, " Zeta ")
    store.rename_folder(folders[1].id, "  ")
    assert [one.name for one in store.folders()][-2:] == ["two words", "Zeta"]


def test_a_deleted_folder_leaves_its_chats_at_the_top_level(store: ChatStore) -> None:
    folder, other = store.create_folder("F"), store.create_folder("G")
    chats = [store.create_chat(str(number)).id for number in range(3)]
    store.move_chats(chats[:2], folder.id)
    store.move_chats(chats[2:], other.id)
    store.delete_chats(chats[:1])
    store.delete_folder(folder.id)
    assert [store.chat(one).folder_id for one in chats] == [None, None, other.id]
    assert [one.id for one in store.folders()] == [other.id]
    store.move_chats(chats, None)
    assert {store.chat(one).folder_id for one in chats} == {None}
    with pytest.raises(LookupError):
        store.move_chats(chats, folder.id)


def test_pins(store: ChatStore, clock: Clock) -> None:
    chats = [store.create_chat(str(number)).id for number in range(3)]
    store.pin_chats(chats[:2], True)
    assert [store.chat(one).pinned_at for one in chats] == [clock.now, clock.now, None]
    store.pin_chats(chats[1:], False)
    assert [store.chat(one).pinned_at for one in chats] == [clock.now, None, None]


def test_the_trash_has_what_was_deleted_and_gives_it_back_as_it_was(store: ChatStore, clock: Clock) -> None:
    folder = store.create_folder("F")
    first, second, third = (store.create_chat(name).id for name in ("first", "second", "third"))
    add_question(store, first, None, "words")
    store.move_chats([first], folder.id)
    store.pin_chats([first], True)
    store.set_unsent(first, "half")
    before = store.chat(first)
    clock.now += 5
    store.delete_chats([first])
    clock.now += 5
    store.delete_chats([second, first])
    assert (titles(store), [chat.title for chat in store.trash()]) == (["third"], ["second", "first"])
    assert [chat.deleted_at for chat in store.trash()] == [clock.now, clock.now - 5]
    store.restore_chats([first, third])
    assert store.chat(first) == before
    assert (store.unsent(first), [one.text for one in store.branch(first)]) == ("half", ["words"])


def test_only_what_was_in_the_trash_for_thirty_days_is_erased_by_itself(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "chats.sqlite"
    with ChatStore(path, clock=clock) as store:
        long_ago, lately, kept = (store.create_chat(name).id for name in ("long ago", "lately", "kept"))
        store.delete_chats([long_ago])
        clock.now += 1
        store.delete_chats([lately])
        assert not store.has_to_erase()
        clock.now += TRASH_DAYS * DAY - 1
        assert store.expired() == [long_ago]
        assert store.has_to_erase()
        store.erase_deleted(store.expired())
        assert [chat.id for chat in store.trash()] == [lately]
        store.erase_deleted()
        assert (store.trash(), [chat.id for chat in store.chats()]) == ([], [kept])


def test_opening_keeps_what_is_in_the_trash(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    with ChatStore(path) as store:
        store.delete_chats([store.create_chat("c").id])
    worker = ChatWorker(path)
    assert worker.opened.result().may_have_copies  # nobody said that the engine has erased them
    worker.submit(ChatStore.finish_erasing)
    assert [chat.title for chat in worker.submit(ChatStore.trash).result()] == ["c"]
    worker.close()
    worker = ChatWorker(path)
    assert not worker.opened.result().may_have_copies
    worker.close()


def test_chats_in_memory_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    worker = ChatWorker(MEMORY)
    assert worker.opened.result().notice is None
    chat = worker.submit(lambda store: store.create_chat("temporary")).result()
    asked = worker.submit(lambda store: add_question(store, chat.id, None, "nothing of this is kept")).result()
    assert [one.chat.id for one in worker.submit(lambda store: store.search("kept")).result()] == [chat.id]
    worker.submit(lambda store: store.delete_message(asked.id, True)).result()
    worker.submit(lambda store: store.delete_chats([chat.id])).result()
    worker.submit(ChatStore.erase_deleted).result()
    worker.submit(ChatStore.finish_erasing).result()
    worker.submit(ChatStore.remove_old_backups).result()
    worker.close()
    assert list(tmp_path.iterdir()) == []


def test_the_index_is_made_while_nothing_else_is_to_be_done(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    with ChatStore(path) as store:
        chat, parent = store.create_chat("c"), None
        for number in range(400):
            parent = add_question(store, chat.id, parent, f"message {number} " * 30).id
    worker = ChatWorker(path)
    # The worker goes on with tasks between the steps, and has done all of them when it waits for the next task.
    lows: list[int] = []

    def note(store: ChatStore) -> int:
        index = store._upkeep.opened()
        assert index is not None
        lows.append(index.low)
        return index.low

    while worker.submit(note).result() > 0:
        pass
    assert lows == sorted(lows, reverse=True)
    assert len(worker.submit(lambda store: store.search("message 399")).result()) == 1
    worker.close()
