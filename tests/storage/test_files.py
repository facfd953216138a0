"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.storage.files import broken_name, remove_strays, sync_folder, write_export, write_whole

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes and links")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def full(_descriptor: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("write", [write_whole, write_export])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], None]
) -> None:
    path = tmp_path / "a.json"
    write(path, b"before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@posix
def test_our_own_files_are_the_users_alone_and_no_link_is_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"somebody's")
    link = tmp_path / "new folder" / "a.json"
    write_whole(link, b"first")
    assert (mode(link), mode(link.parent)) == (0o600, 0o700)
    link.unlink()
    link.symlink_to(other)
    write_whole(link, b"ours")
    assert (link.read_bytes(), link.is_symlink(), other.read_bytes()) == (b"ours", False, b"somebody's")


@posix
def test_an_export_follows_a_link_and_keeps_the_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = tmp_path / "folder" / "chat.md"
        with pytest.raises(FileNotFoundError):
            write_export(path, b"one")
        path.parent.mkdir()
        write_export(path, b"one")
        assert mode(path) == 0o640
    finally:
        os.umask(before)
    path.chmod(0o604)
    link = tmp_path / "link.md"
    link.symlink_to(path)
    write_export(link, b"two")
    assert link.is_symlink()
    assert (path.read_bytes(), mode(path)) == (b"two", 0o604)
    assert sorted(one.name for one in path.parent.iterdir()) == ["chat.md"]


@posix
def test_an_export_to_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        write_export(tmp_path, b"")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        write_export(loop, b"")
    write_export(Path(os.devnull), b"nothing of it stays")
    assert not Path(os.devnull).is_file()


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    others = [
        "settings.json.part",
        "settings.json01234567.part",
        "trials.json.01234567.part",
        "settings.json.0123.part",
    ]
    for name in ("settings.json.01234567.part", "settings.json.fedcba98.part", *others):
        (tmp_path / name).write_bytes(b"half")
    remove_strays(path)
    assert {file.name for file in tmp_path.iterdir()} == set(others)
    remove_strays(tmp_path / "not there" / "settings.json")


_KILLED = """
import os, sys
from pathlib import Path
from app.storage.files import write_whole
write_whole(Path(sys.argv[1]), (os._exit(9) for _ in range(1)))
"""


def test_what_a_process_leaves_that_is_killed_while_it_writes_is_removed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    child = subprocess.run([sys.executable, "-c", _KILLED, str(path)], cwd=Path(__file__).parents[2], check=False)
    assert child.returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    remove_strays(path)
    assert not list(tmp_path.iterdir())


@posix
def test_a_folder_that_cannot_be_brought_to_the_disk_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some network drives; the file has its new name by then."""

    def refused(_descriptor: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refused)
    sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        sync_folder(tmp_path)


def test_two_broken_files_in_one_second(tmp_path: Path) -> None:
    names = set()
    for _ in range(3):
        name = broken_name(tmp_path / "a.json")
        name.touch()
        names.add(name)
    assert len(names) == 3
