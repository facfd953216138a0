"""What is at the place of an incomplete file, and who else works there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.models.downloads.part import Part, bytes_on_disk, discard, part_path
from app.models.hub.repository import RemoteFile
from app.system import KnownError

FILE = RemoteFile(repository="owner/one", commit="0" * 40, path="one.gguf", size=5, sha256="1" * 64)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and pipes as POSIX has them")


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "models" / "one.gguf"


@pytest.mark.parametrize("kind", ["link", "link to nothing", "second name", "pipe", "folder"])
def test_only_a_file_of_ours_is_written_to(destination: Path, kind: str) -> None:
    destination.parent.mkdir()
    other, part = destination.parent.parent / "important", part_path(destination)
    other.write_bytes(b"important")
    make: dict[str, Callable[[], object]] = {
        "link": lambda: part.symlink_to(other),
        "link to nothing": lambda: part.symlink_to(other.with_name("new")),
        "second name": lambda: os.link(other, part),
        "pipe": lambda: os.mkfifo(part),
        "folder": part.mkdir,
    }
    make[kind]()
    with (
        pytest.raises(KnownError, match=r"^one\.gguf\.part in .* nothing is written to it\. Delete it"),
        Part(destination, FILE),
    ):
        pass
    assert other.read_bytes() == b"important"
    assert not other.with_name("new").exists()
    part.rmdir() if kind == "folder" else part.unlink()
    with Part(destination, FILE) as written:
        written.write(b"abc")
    assert part.read_bytes() == b"abc"


def test_what_it_belongs_to_is_not_written_through_a_link_either(destination: Path, tmp_path: Path) -> None:
    destination.parent.mkdir()
    info, stray = (destination.with_name(f"one.gguf.part.json{suffix}") for suffix in ("", ".01234567.part"))
    (tmp_path / "important").write_bytes(b"important")
    info.symlink_to(tmp_path / "important")
    stray.write_bytes(b"{")
    with Part(destination, FILE):
        assert not stray.exists(), "a killed process left it"
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
