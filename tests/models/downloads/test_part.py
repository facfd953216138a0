"""What is at the place of an incomplete file, and who else works there."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from app.errors import KnownError
from app.models.downloads.part import Part, bytes_on_disk, discard, part_path
from app.models.hub.repository import RemoteFile

FILE = RemoteFile(repository="owner/one", commit="0" * 40, path="one.gguf", size=5, sha256="1" * 64)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and pipes as POSIX has them")


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "models" / "one.gguf"


def in_the_way(destination: Path, kind: str) -> Path:
    """Makes something else of the part's name; returns a file of the user's that it may lead to."""
    destination.parent.mkdir()
    other, part = destination.parent.parent / "important", part_path(destination)
    other.write_bytes(b"important")
    if kind == "link":
        part.symlink_to(other)
    elif kind == "link to nothing":
        part.symlink_to(other.with_name("new"))
    elif kind == "second name":
        os.link(other, part)
    elif kind == "pipe":
        os.mkfifo(part)
    else:
        part.mkdir()
    return other


@pytest.mark.parametrize("kind", ["link", "link to nothing", "second name", "pipe", "folder"])
def test_only_a_file_of_ours_is_written_to(destination: Path, kind: str) -> None:
    other = in_the_way(destination, kind)
    with (
        pytest.raises(KnownError, match=r"^one\.gguf\.part in .* nothing is written to it\. Delete it"),
        Part(destination, FILE),
    ):
        pass
    assert other.read_bytes() == b"important"
    assert not other.with_name("new").exists()
    part_path(destination).rmdir() if kind == "folder" else part_path(destination).unlink()
    with Part(destination, FILE) as part:
        part.write(b"abc")
    assert part_path(destination).read_bytes() == b"abc"


def test_what_it_belongs_to_is_not_written_through_a_link_either(destination: Path, tmp_path: Path) -> None:
    destination.parent.mkdir()
    info = destination.with_name("one.gguf.part.json")
    (tmp_path / "important").write_bytes(b"important")
    info.symlink_to(tmp_path / "important")
    with Part(destination, FILE):
        pass
    assert (tmp_path / "important").read_bytes() == b"important"
    assert not info.is_symlink()


def test_what_a_newer_version_began_is_left_alone(destination: Path) -> None:
    with Part(destination, FILE) as part:
        part.write(b"abc")
    info = destination.with_name("one.gguf.part.json")
    info.write_bytes(b'{"version": 2, "pieces": []}')
    with (
        pytest.raises(KnownError, match=r"^A newer version of Slipstream started downloading one\.gguf\."),
        Part(destination, FILE),
    ):
        pass
    assert (bytes_on_disk(destination, FILE), info.read_bytes()) == (3, b'{"version": 2, "pieces": []}')
    discard(destination)
    assert list(destination.parent.iterdir()) == []


@pytest.mark.parametrize("fails", [True, False])
def test_no_thread_outlives_it(destination: Path, fails: bool) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError if fails else KeyError), Part(destination, FILE) as part:
        part.write(b"abc")
        part.sha256()
        raise ZeroDivisionError if fails else KeyError
    assert set(threading.enumerate()) == before
    assert part._descriptor == -1


def test_strays_of_a_killed_process_go(destination: Path) -> None:
    destination.parent.mkdir()
    stray = destination.with_name("one.gguf.part.json01234567.part")
    stray.write_bytes(b"{")
    os.utime(stray, (1, 1))
    with Part(destination, FILE):
        assert not stray.exists()
