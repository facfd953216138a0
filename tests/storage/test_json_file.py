"""JSON files of our own: locked, versioned, atomic."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import filelock
import pytest

from app.storage.files import Lock
from app.storage.json_file import JsonFile, NotSavedError, OtherVersionError, Versioned

SOON_S = 30
NAME = "counts.json"


class Counts(Versioned):
    counts: dict[str, int]


def a_file(folder: Path, *, is_cache: bool = False, patience: float = SOON_S) -> JsonFile[Counts]:
    empty = Counts(version=2, counts={})
    return JsonFile(folder / NAME, empty, version=2, what="The count", is_cache=is_cache, patience=patience)


def counted(content: Counts, key: str = "a") -> Counts:
    return Counts(version=2, counts={**content.counts, key: content.counts.get(key, 0) + 1})


def count(folder: Path, times: int) -> None:
    for _ in range(times):
        a_file(folder).update(counted)


def test_processes_and_threads_that_count_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=count, args=(tmp_path, 5)) for _ in range(2)]
    for child in children:
        child.start()
    shared = a_file(tmp_path)
    threads = [threading.Thread(target=shared.update, args=(counted,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for child in children:
        child.join()
    for thread in threads:
        thread.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert a_file(tmp_path).read().counts == {"a": 15}
    assert shared.read().counts == {"a": 15}
    assert sorted(file.name for file in tmp_path.iterdir()) == [NAME, f"{NAME}.lock"]


@pytest.mark.parametrize("is_cache", [True, False])
@pytest.mark.allow_logs
def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path, is_cache: bool) -> None:
    newer = b'{"version": 3, "counts": "of another kind"}'
    (tmp_path / NAME).write_bytes(newer)
    file = a_file(tmp_path, is_cache=is_cache)
    assert file.read().counts == {}
    assert file.problem == "counts.json was written by a newer version of Slipstream and is left as it is"
    with pytest.raises(OtherVersionError):
        file.load()
    with pytest.raises(NotSavedError, match=r"^The count couldn't be saved: counts\.json was written by a newer"):
        file.update(counted)
    assert file.read().counts == {"a": 1}, "it counts until the end"
    assert (tmp_path / NAME).read_bytes() == newer
    assert sorted(one.name for one in tmp_path.iterdir()) == [NAME, f"{NAME}.lock"]


@pytest.mark.allow_logs
def test_a_file_of_an_older_version_is_left_alone_but_a_cache_written_over(tmp_path: Path) -> None:
    older = b'{"version": 1, "counts": {"a": 7}}'
    (tmp_path / NAME).write_bytes(older)
    file = a_file(tmp_path)
    assert file.read().counts == {}
    with pytest.raises(NotSavedError, match="by a version of Slipstream from before its first release and is left"):
        file.update(counted)
    assert (tmp_path / NAME).read_bytes() == older
    a_file(tmp_path, is_cache=True).update(counted)
    assert a_file(tmp_path).read().counts == {"a": 1}


@pytest.mark.allow_logs
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"counts": {}}', b'{"version": 2}', b"[" * 9999])
def test_what_is_not_understood_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    file = a_file(tmp_path)
    assert file.read().counts == {}
    assert file.aside is not None and file.aside.read_bytes() == content
    assert not (tmp_path / NAME).exists()


def test_a_sound_file_is_not_moved_aside_for_the_broken_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody mends the file between our look at it and our turn."""
    path = tmp_path / NAME
    path.write_bytes(b"{")
    file = a_file(tmp_path)
    acquire = file.lock.acquire

    def mended(seconds: float = 0.0) -> None:
        path.write_bytes(b'{"version": 2, "counts": {"a": 1}}')
        acquire(seconds)

    monkeypatch.setattr(file.lock, "acquire", mended)
    assert file.read().counts == {"a": 1}
    assert not list(tmp_path.glob("*.broken-*"))


def test_somebody_who_does_not_let_go(tmp_path: Path) -> None:
    a_file(tmp_path).update(counted)
    file = a_file(tmp_path, patience=0.0)
    with (
        filelock.FileLock(tmp_path / f"{NAME}.lock"),
        pytest.raises(NotSavedError, match=r"saved: another Slipstream window is using it\.$"),
    ):
        file.update(counted)
    assert file.read().counts == {"a": 2}
    assert a_file(tmp_path).read().counts == {"a": 1}
    file.update(counted)
    assert a_file(tmp_path).read().counts == {"a": 3}, "what could not be written then is written now"


@pytest.mark.parametrize("obstacle", ["folder", "link", "loop"])
@pytest.mark.allow_logs
def test_a_lock_file_that_cannot_be_had_does_not_end_the_feature(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, obstacle: str
) -> None:
    lock = tmp_path / f"{NAME}.lock"
    if obstacle == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(lock if obstacle == "loop" else tmp_path / "elsewhere")
    file = a_file(tmp_path)
    file.update(counted)
    file.update(counted)
    assert a_file(tmp_path).read().counts == {"a": 2}
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "counts.json can't be locked and is used without a lock"
    ]


def test_what_a_killed_process_left_goes_at_the_first_look(tmp_path: Path) -> None:
    stray = tmp_path / f"{NAME}.01234567.part"
    stray.write_bytes(b"half")
    file = a_file(tmp_path)
    with Lock(tmp_path / NAME).held(0.0):  # as while another process is writing it
        file.read()
    assert stray.exists()
    file.read()
    assert not stray.exists()


def test_a_change_that_raises_changes_nothing_and_lets_go(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.update(counted)

    def fails(_: Counts) -> Counts:
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        file.update(fails)
    a_file(tmp_path, patience=0.0).update(counted)
    assert file.read().counts == {"a": 2}


def test_names_that_are_no_text_survive(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.update(lambda content: counted(content, "caf\udce9 ü"))
    assert a_file(tmp_path).read().counts == {"caf\udce9 ü": 1}
