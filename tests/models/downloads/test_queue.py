"""The queue: order, what the user does, restarts, and other processes."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from app.models.downloads.item import FILE_NAME, Item, ItemState, SavedItem, has_work
from app.models.downloads.queue import SpeedMeter
from app.system import KnownError
from tests.models.downloads.fetching import MIB
from tests.models.downloads.watched import WAIT_S, Watched
from tests.support.hub_faults import Fault
from tests.support.hub_server import HubServer
from tests.support.saved_queue import write_queue

TARGET, DRAFT, NOTES = "target.bin", "draft.bin", "notes.txt"
SIZES = {TARGET: 3 * MIB, DRAFT: MIB, NOTES: 1000}

Opens = Callable[..., Watched]


@pytest.fixture
def files(hub: HubServer) -> dict[str, bytes]:
    contents = {name: bytes([number + 1]) * size for number, (name, size) in enumerate(SIZES.items())}
    hub.add("maker/pair", contents)
    return contents


@pytest.fixture
def pair(hub: HubServer, files: dict[str, bytes]) -> Item:
    target, draft = (hub.remote_file("maker/pair", name) for name in (TARGET, DRAFT))
    return Item(id="pair", title="Target with draft", target=(target,), draft=(draft,), license="mit")


def item(hub: HubServer, name: str) -> Item:
    return Item(id=name, title=name, target=(hub.remote_file("maker/pair", name),))


def models(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "data" / "models").rglob("*") if path.is_file())


def test_a_target_with_its_draft(
    hub: HubServer, pair: Item, opens: Opens, files: dict[str, bytes], tmp_path: Path
) -> None:
    watched = opens()
    watched.queue.add(pair)
    progress = watched.wait_for("pair", ItemState.DONE)
    assert (progress.done, progress.item, progress.message) == (4 * MIB, pair, "")
    target, draft = watched.queue.paths("pair")
    assert draft is not None
    assert (target.read_bytes(), draft.read_bytes()) == (files[TARGET], files[DRAFT])
    assert target == tmp_path / "data" / "models" / "maker" / "pair" / TARGET
    assert models(tmp_path) == [DRAFT, TARGET]
    origin = watched.queue.origins.get(target)
    assert origin is not None and origin.license == "mit"
    draft.unlink()
    watched.queue.add(pair)  # what was deleted can be had again
    watched.wait(draft.exists)
    watched.wait_for("pair", ItemState.DONE)
    assert (len(hub.bodies(TARGET)), len(hub.bodies(DRAFT))) == (1, 2)
    watched.queue.remove("pair")
    assert watched.queue.progress() == [] and target.exists()


def test_several_at_once_and_not_more(hub: HubServer, pair: Item, opens: Opens) -> None:
    for name in (TARGET, DRAFT):
        hub.faults.add(name, Fault(stall_at=1000))
    watched = opens(parallel=2)
    watched.queue.add(pair)
    watched.queue.add(item(hub, NOTES))
    hub.wait_for(lambda: bool(hub.bodies(TARGET)) and bool(hub.bodies(DRAFT)))
    assert watched.of(NOTES).state is ItemState.QUEUED
    assert watched.of("pair").state is ItemState.RUNNING
    watched.queue.set_parallel(3)
    watched.wait_for(NOTES, ItemState.DONE)
    hub.release()
    watched.wait_for("pair", ItemState.DONE)


def test_pause_and_resume(hub: HubServer, pair: Item, opens: Opens) -> None:
    hub.faults.add(TARGET, Fault(stall_at=MIB))
    watched = opens(parallel=1)
    watched.queue.add(pair)
    watched.queue.add(item(hub, NOTES))
    watched.wait(lambda: watched.of("pair").done == MIB)
    watched.queue.pause_all()
    assert {progress.state for progress in watched.queue.progress()} == {ItemState.PAUSED}
    progress = watched.of("pair")
    assert (progress.speed, progress.done) == (None, MIB)
    watched.queue.resume_all()
    for id in ("pair", NOTES):
        watched.wait_for(id, ItemState.DONE)
    assert [request.start for request in hub.bodies(TARGET)] == [0, MIB]


def test_cancel_keeps_and_discard_deletes(hub: HubServer, pair: Item, opens: Opens, tmp_path: Path) -> None:
    hub.faults.add(TARGET, Fault(stall_at=MIB))
    watched = opens(parallel=1)
    watched.queue.add(pair)
    watched.wait(lambda: watched.of("pair").done == MIB)
    watched.queue.cancel("pair")
    assert watched.of("pair").state is ItemState.CANCELED
    assert f"{TARGET}.part" in models(tmp_path)
    before = len(watched.changes)
    watched.queue.discard("pair")
    assert watched.queue.progress() == []
    watched.wait(lambda: len(watched.changes) > before and models(tmp_path) == [])


def test_a_restart_goes_on(hub: HubServer, pair: Item, opens: Opens) -> None:
    hub.faults.add(TARGET, Fault(stall_at=MIB))
    watched = opens(parallel=1)
    watched.queue.add(pair)
    watched.queue.add(item(hub, NOTES))
    watched.queue.pause(NOTES)
    watched.wait(lambda: watched.of("pair").done == MIB)
    watched.queue.close()
    again = opens(parallel=1)
    assert [progress.item.id for progress in again.queue.progress()] == ["pair", NOTES]
    again.wait_for("pair", ItemState.DONE)
    assert again.of(NOTES).state is ItemState.PAUSED
    assert [request.start for request in hub.bodies(TARGET)] == [0, MIB]
    again.queue.close()
    third = opens()
    assert third.of("pair").state is ItemState.DONE and third.of("pair").done == 4 * MIB


def test_after_a_move_of_the_folder_old_items_stay(hub: HubServer, pair: Item, opens: Opens, tmp_path: Path) -> None:
    hub.faults.add(TARGET, Fault(stall_at=MIB))
    watched = opens(parallel=1)
    watched.queue.add(pair)
    watched.wait(lambda: watched.of("pair").done == MIB)
    watched.queue.models_folder = tmp_path / "other"
    watched.queue.add(item(hub, NOTES))
    hub.release()
    watched.wait_for(NOTES, ItemState.DONE)
    assert watched.queue.paths("pair")[0].exists()
    assert watched.queue.paths(NOTES)[0] == tmp_path / "other" / "maker" / "pair" / NOTES


def test_a_broken_queue_is_kept(pair: Item, opens: Opens, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(b'{"version": 1}')
    watched = opens()
    assert watched.queue.notice is not None and "saved as downloads.broken-" in watched.queue.notice
    assert [path.read_bytes() for path in folder.glob("downloads.broken-*")] == [b'{"version": 1}']
    watched.queue.add(pair)
    watched.wait_for("pair", ItemState.DONE)


def test_one_process_at_a_time(opens: Opens) -> None:
    opens()
    with pytest.raises(KnownError, match="Another Slipstream"):
        opens()


def test_room_for_the_whole_queue(hub: HubServer, pair: Item, opens: Opens, tmp_path: Path) -> None:
    hub.faults.add(TARGET, Fault(stall_at=0))
    room = shutil.disk_usage(tmp_path).free
    large = msgspec.structs.replace(hub.remote_file("maker/pair", NOTES), size=room - MIB)
    watched = opens()
    watched.queue.add(pair)
    watched.queue.add(Item(id="large", title="Too large", target=(large,)))
    progress = watched.wait_for("large", ItemState.PAUSED)
    assert "still to be downloaded" in progress.message and "Free up some space" in progress.message
    assert watched.of("pair").state is ItemState.RUNNING
    hub.release()
    watched.wait_for("pair", ItemState.DONE)


def test_what_the_user_must_do_is_said(hub: HubServer, pair: Item, opens: Opens) -> None:
    hub.repositories["maker/pair"].gated = "auto"
    hub.tokens.clear()
    hub.strangers.add("hf_good")
    watched = opens()
    watched.queue.add(pair)
    progress = watched.wait_for("pair", ItemState.FAILED)
    assert "gated" in progress.message and progress.page == f"{hub.endpoint}/maker/pair"
    hub.tokens.add("hf_good")
    watched.queue.resume("pair")
    assert watched.wait_for("pair", ItemState.DONE).message == ""


def test_unsafe_names_are_not_taken(hub: HubServer, pair: Item, opens: Opens, tmp_path: Path) -> None:
    file = msgspec.structs.replace(hub.remote_file("maker/pair", NOTES), path="../../evil.gguf")
    evil = Item(id="evil", title="evil", target=(file,))
    saved = tmp_path / "data" / FILE_NAME
    write_queue(saved, [SavedItem(item=evil, folder=str(tmp_path), state=ItemState.PAUSED)])
    with pytest.raises(KnownError, match="isn't a safe file name") as caught:
        opens()
    saved.unlink()
    watched = opens()  # that one has left no lock
    assert caught.value.__traceback__ is not None  # the failed queue is not collected yet
    with pytest.raises(KnownError, match="isn't a safe file name"):
        watched.queue.add(evil)
    assert watched.queue.progress() == []


def test_closing_is_quick_and_leaves_no_thread(hub: HubServer, pair: Item, opens: Opens) -> None:
    for name in (TARGET, DRAFT):
        hub.faults.add(name, Fault(stall_at=1000))
    before = set(threading.enumerate())
    watched = opens()
    watched.queue.add(pair)
    watched.wait(lambda: watched.of("pair").done == 2000)
    watched.queue.close()
    mine = {thread for thread in set(threading.enumerate()) - before if "process_request" not in thread.name}
    assert not mine
    hub.release()


def test_discarding_leaves_what_another_item_has_in_common(
    hub: HubServer, pair: Item, opens: Opens, tmp_path: Path
) -> None:
    other = msgspec.structs.replace(pair, id="other", target=(hub.remote_file("maker/pair", NOTES),))
    hub.faults.add(DRAFT, Fault(stall_at=MIB // 2))
    watched = opens(parallel=4)
    watched.queue.add(pair)
    watched.wait(lambda: watched.of("pair").done == 3 * MIB + MIB // 2)
    watched.queue.pause("pair")
    watched.queue.add(other)
    watched.queue.pause("other")
    watched.queue.discard("pair")
    watched.wait(lambda: f"{TARGET}.part" not in models(tmp_path))
    watched.queue.resume("other")
    watched.wait_for("other", ItemState.DONE)
    assert [request.start for request in hub.bodies(DRAFT)] == [0, MIB // 2]


# ---------------------------------------------------------------- the disk


class SlowFile:
    """Stands before the queue's file like a disk that does not answer for a while."""

    def __init__(self, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_writing, self.go_on = threading.Event(), threading.Event()
        self._write = watched.queue._file.write
        monkeypatch.setattr(watched.queue._file, "write", self.write)

    def write(self, items: list[SavedItem]) -> None:
        self.is_writing.set()
        assert self.go_on.wait(WAIT_S)
        self._write(items)


def test_nobody_waits_for_the_disk(
    hub: HubServer, pair: Item, opens: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.faults.always(TARGET, Fault(stall_at=MIB))
    watched = opens(parallel=1)
    disk, queue = SlowFile(watched, monkeypatch), watched.queue
    queue.add(pair)
    assert disk.is_writing.wait(WAIT_S)
    queue.add(item(hub, NOTES))
    queue.pause("pair")
    queue.resume("pair")
    queue.cancel("pair")
    queue.set_parallel(2)
    assert [(one.item.id, one.state) for one in queue.progress()] == [
        ("pair", ItemState.CANCELED),
        (NOTES, ItemState.QUEUED),
    ]
    disk.go_on.set()
    watched.wait_for(NOTES, ItemState.DONE)
    hub.release()
    queue.close()
    again = opens()
    assert [(one.item.id, one.state) for one in again.queue.progress()] == [
        ("pair", ItemState.CANCELED),
        (NOTES, ItemState.DONE),
    ]


def test_nothing_is_written_after_closing(
    hub: HubServer, opens: Opens, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's queue is in a folder that is deleted as soon as the queue is closed."""
    before = set(threading.enumerate())
    watched = opens()
    disk = SlowFile(watched, monkeypatch)
    watched.queue.add(item(hub, NOTES))
    assert disk.is_writing.wait(WAIT_S)
    closing = threading.Thread(target=watched.queue.close)
    closing.start()
    disk.go_on.set()
    closing.join()
    own = {thread for thread in set(threading.enumerate()) - before if "process_request" not in thread.name}
    assert not own
    shutil.rmtree(tmp_path / "data")
    watched.queue.resume(NOTES)
    watched.queue.close()
    assert not (tmp_path / "data").exists()


def test_what_is_discarded_just_before_closing_is_deleted(
    hub: HubServer, pair: Item, opens: Opens, tmp_path: Path
) -> None:
    hub.faults.add(TARGET, Fault(stall_at=MIB))
    watched = opens(parallel=1)
    watched.queue.add(pair)
    watched.wait(lambda: watched.of("pair").done == MIB)
    watched.queue.discard("pair")
    watched.queue.close()
    assert models(tmp_path) == []
    hub.release()


def test_a_queue_of_a_newer_version_is_left_alone(opens: Opens, tmp_path: Path) -> None:
    file = tmp_path / "data" / FILE_NAME
    file.parent.mkdir()
    file.write_bytes(b'{"version": 9, "items": "of another kind"}')
    before = file.read_bytes()
    assert has_work(file), "so that the window says it"
    for _ in range(2):
        with pytest.raises(KnownError, match=r"written by a newer version of Slipstream, so it is left as it is"):
            opens()
    assert file.read_bytes() == before
    assert not list(file.parent.glob("*.broken-*"))


def test_speed_is_that_of_the_last_seconds() -> None:
    now = 1000.0
    meter = SpeedMeter(lambda: now)
    assert meter.speed() is None
    for _ in range(100):
        meter.add(1000)
        now += 0.1
    speed = meter.speed()
    assert speed is not None and 9_500 <= speed <= 11_000
    now += 60
    assert meter.speed() is None
