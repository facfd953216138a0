"""Saved KV caches on disk: nothing damaged or foreign is ever read, and a disk that fails costs nothing."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.engine.decoding.sequence import State
from app.engine.host import chat_cache_files
from app.engine.host.chat_cache_files import BadFileError, ChatCacheFiles, Header
from app.storage.files import chat_of

OWNER = "0123456789abcdef"
Usage = namedtuple("Usage", "total used free")


def state(seed: int = 0, tokens: int = 50, size: int = 10_000, least: int = 0) -> State:
    random = np.random.default_rng(seed)
    ids = random.integers(0, 50_000, tokens).astype(np.int32)
    return State(ids, random.integers(0, 256, size).astype(np.uint8), least)


def written(folder: Path, *states: State, owner: str = OWNER) -> list[Path]:
    """The files of ``states`` in that order."""
    folder.mkdir(exist_ok=True)
    files = ChatCacheFiles(folder)
    paths: list[Path] = []
    for one in states:
        before = set(folder.iterdir())
        files.put(owner, one)
        files.flush(20)
        paths += set(folder.iterdir()) - before
    return paths


def never() -> bool:
    return False


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    states = [state(1), state(2, least=50), state(3, tokens=1, size=1)]
    written(tmp_path, *states)
    files = ChatCacheFiles(tmp_path)
    for one in states:
        (file,) = (file for file in files.of(OWNER) if np.array_equal(file.tokens, one.tokens))
        assert (file.size, file.least) == (len(one.data), one.least)
        again = files.read(file, never)
        assert again is not None and again.least == one.least
        assert np.array_equal(again.tokens, one.tokens) and np.array_equal(again.data, one.data)
        assert again.data.dtype == np.uint8 and again.data.flags.c_contiguous


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX's")
def test_only_the_user_can_read_what_chats_said(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        files = ChatCacheFiles(tmp_path / "made")
        files.put(OWNER, state())
        files.flush(20)
    finally:
        os.umask(old)
    (path,) = (tmp_path / "made").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("place", [0, 9, 12, 20, 80, 200, 5000, -40, -1])
def test_a_single_wrong_bit_is_found_and_the_file_deleted(tmp_path: Path, place: int) -> None:
    (path,) = written(tmp_path, state())
    files = ChatCacheFiles(tmp_path)
    known = files.of(OWNER)
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)
    assert files.read(known[0], never) is None
    assert not path.exists() and files.of(OWNER) == []


@pytest.mark.parametrize("keep", [0, 5, 11, 40, 150, 300, 9_000, -1])
def test_a_file_cut_short_is_deleted(tmp_path: Path, keep: int) -> None:
    (path,) = written(tmp_path, state())
    path.write_bytes(path.read_bytes()[:keep])
    assert ChatCacheFiles(tmp_path).of(OWNER) == []
    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"SQLite format 3\x00" + bytes(5000),
        chat_cache_files._MAGIC + b"\xff\xff\xff\xff" + bytes(100),
        chat_cache_files._MAGIC + b"\x02\x00\x00\x00{}" + bytes(100),
        chat_cache_files._MAGIC + b"\x04\x00\x00\x00[[[[" + bytes(100),
        *(
            chat_cache_files._MAGIC + chat_cache_files._LENGTH.pack(len(header)) + header
            for header in (b'{"owner":"\xff"}', b'{"x":' + b"[" * 4000)
        ),
    ],
)
def test_a_file_that_is_none_of_ours_is_deleted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / f"{OWNER}-abcdef.kept"
    path.write_bytes(content)
    assert ChatCacheFiles(tmp_path).of(OWNER) == []
    assert not path.exists()


@pytest.mark.parametrize("header", [b'{"owner":"\xff"}', b'{"x":' + b"[" * 4000])
def test_a_header_that_is_no_text_or_nested_too_deep_is_a_bad_file(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / f"{OWNER}-1.kept"
    path.write_bytes(chat_cache_files._MAGIC + chat_cache_files._LENGTH.pack(len(header)) + header)
    with pytest.raises(BadFileError):
        chat_cache_files.look(path, OWNER)
    assert ChatCacheFiles(tmp_path).of(OWNER) == [] and not path.exists()


def test_a_header_that_promises_more_than_there_is_reserves_nothing(tmp_path: Path) -> None:
    for number, (tokens, size) in enumerate([(2**40, 10), (10, 2**50)]):
        front = next(chat_cache_files.chunks(Header(OWNER, tokens, size, 0), state()))
        (tmp_path / f"{OWNER}-{number}.kept").write_bytes(bytes(front) + bytes(1000))
    assert ChatCacheFiles(tmp_path).of(OWNER) == []


def test_another_owners_file_is_neither_offered_nor_read(tmp_path: Path) -> None:
    (path,) = written(tmp_path, state(), owner="somebody")
    files = ChatCacheFiles(tmp_path)
    assert files.of(OWNER) == [] and len(files.of("somebody")) == 1
    renamed = path.rename(tmp_path / f"{OWNER}-abcdef.kept")
    assert ChatCacheFiles(tmp_path).of(OWNER) == []
    assert not renamed.exists()


def test_a_longer_one_takes_the_place_of_its_beginning(tmp_path: Path) -> None:
    longer = state(1, tokens=100)
    beginning = State(longer.tokens[:60], longer.data[:5000], 0)
    written(tmp_path, beginning, state(2))
    files = ChatCacheFiles(tmp_path)
    assert sorted(len(file.tokens) for file in files.of(OWNER)) == [50, 60]
    files.put(OWNER, longer)
    files.flush(20)
    assert sorted(len(file.tokens) for file in files.of(OWNER)) == [50, 100]
    assert len(list(tmp_path.iterdir())) == 2


def test_the_least_recently_used_are_deleted_at_the_limit(tmp_path: Path) -> None:
    paths = written(tmp_path, *(state(number) for number in range(4)))
    for age, path in enumerate(paths):
        os.utime(path, (time.time() - 1000 + age, time.time() - 1000 + age))
    files = ChatCacheFiles(tmp_path, limit=35_000)
    (oldest,) = (file for file in files.of(OWNER) if file.path == paths[0])
    assert files.read(oldest, never) is not None  # now it is the one used last
    files.put(OWNER, state(9))
    files.flush(20)
    left = {path.name for path in tmp_path.iterdir()}
    assert paths[0].name in left and len(left) == 3
    assert {file.path.name for file in files.of(OWNER)} == left


def test_no_more_than_a_tenth_of_what_is_free_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 90_000))
    assert written(tmp_path, state(size=9_500)) == []
    assert len(written(tmp_path, state(size=8_500))) == 1


def full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(header: Header, state: State) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(chat_cache_files, "chunks", fails)


def no_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.rmdir()
    path.write_text("a file")


def no_space_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(shutil, "disk_usage", fails)


def no_renaming(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path, other: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "replace", fails)


@pytest.mark.parametrize("trouble", [full_disk, no_folder, no_space_found, no_renaming])
def test_a_disk_that_fails_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    files = ChatCacheFiles(folder)
    with monkeypatch.context() as troubled:
        trouble(folder, troubled)
        files.put(OWNER, state(1))
        files.flush(20)
        assert files.of(OWNER) == []
    assert folder.is_file() or list(folder.iterdir()) == []
    if folder.is_dir():
        files.put(OWNER, state(1))
        files.flush(20)
        assert len(files.of(OWNER)) == 1


def test_a_file_that_vanished_is_not_offered_again(tmp_path: Path) -> None:
    (path,) = written(tmp_path, state())
    files = ChatCacheFiles(tmp_path)
    (file,) = files.of(OWNER)
    path.unlink()
    assert files.read(file, never) is None
    assert files.of(OWNER) == []


class Held:
    """Holds the writing thread in the middle of a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        chunks = chat_cache_files.chunks

        def held(header: Header, state: State) -> object:
            for number, chunk in enumerate(chunks(header, state)):
                if number == 1:
                    self.reached.set()
                    assert self.go_on.wait(20)
                yield chunk

        monkeypatch.setattr(chat_cache_files, "chunks", held)


def test_what_is_being_written_of_another_chat_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ChatCacheFiles(tmp_path)
    held = Held(monkeypatch)
    files.put(OWNER, state(1), "kept")
    files.put(OWNER, state(2), "gone")
    assert held.reached.wait(20)
    files.forget(["gone"])
    held.go_on.set()
    files.flush(20)
    assert [chat_of(path) for path in tmp_path.iterdir()] == ["kept"]


def test_forgetting_in_the_middle_of_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, state(1))
    files = ChatCacheFiles(tmp_path)
    held = Held(monkeypatch)
    files.put(OWNER, state(2))
    files.put(OWNER, state(3))
    assert held.reached.wait(20)
    assert files.unwritten_bytes() == 20_000
    assert any(path.suffix == ".part" for path in tmp_path.iterdir())
    files.forget()
    held.go_on.set()
    files.flush(20)
    assert list(tmp_path.iterdir()) == [] and files.of(OWNER) == [] and files.unwritten_bytes() == 0


def test_ending_does_not_wait_for_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ChatCacheFiles(tmp_path)
    held = Held(monkeypatch)
    files.put(OWNER, state(2))
    files.put(OWNER, state(3))
    assert held.reached.wait(20)
    files.flush(0.01)
    held.go_on.set()
    files.flush(20)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_while_the_engine_computes(tmp_path: Path) -> None:
    files = ChatCacheFiles(tmp_path)
    files.wait(True)
    files.put(OWNER, state(1))
    assert files.unwritten_bytes() == 10_000 and list(tmp_path.iterdir()) == []
    files.wait(False)
    files.flush(20)
    assert len(list(tmp_path.iterdir())) == 1


def test_what_was_left_behind_is_tidied_away(tmp_path: Path) -> None:
    (old, new) = written(tmp_path, state(1), state(2))
    old.rename(old := tmp_path / "of-another-model.kept")
    left, being_written = tmp_path / "x.part", tmp_path / "y.part"
    for path in (left, being_written):
        path.write_bytes(b"what somebody said")
    month, hour = time.time() - 31 * 86400, time.time() - 3600
    os.utime(old, (month, month))
    os.utime(left, (hour, hour))
    assert len(ChatCacheFiles(tmp_path).of(OWNER)) == 1
    assert set(tmp_path.iterdir()) == {new, being_written}


def test_two_engines_on_one_folder_leave_only_whole_files(tmp_path: Path) -> None:
    """Each writes, reads and, past the limit, deletes what the other one may be reading."""
    script = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from app.engine.host.chat_cache_files import ChatCacheFiles\n"
        "from tests.engine.host.test_chat_cache_files import OWNER, never, state\n"
        "folder, me = Path(sys.argv[1]), int(sys.argv[2])\n"
        "read = 0\n"
        "for number in range(40):\n"
        "    files = ChatCacheFiles(folder, limit=100_000)\n"
        "    files.put(OWNER, state(1000 * me + number))\n"
        "    files.flush(20)\n"
        "    for file in files.of(OWNER):\n"
        "        read += files.read(file, never) is not None\n"
        "print(read)\n"
    )
    root = Path(__file__).parents[3]
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(me)], cwd=root, stdout=subprocess.PIPE)
        for me in (1, 2)
    ]
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert all(int(output) > 40 for output in outputs)
    files = ChatCacheFiles(tmp_path)
    assert all(files.read(file, never) is not None for file in files.of(OWNER))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 110_000
