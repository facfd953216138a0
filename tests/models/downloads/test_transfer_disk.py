"""One file, onto a disk that does everything wrong that a disk can."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.models.downloads import part
from app.models.downloads.part import DiskFullError
from app.models.downloads.transfer import Transfer
from app.system import KnownError
from tests.models.downloads.fetching import FILE, MIB, REPOSITORY, Fetching, is_complete
from tests.support.small_disk import remount, small_disk


def test_too_little_room_is_said_before_a_byte_comes(fetching: Fetching) -> None:
    with pytest.raises(DiskFullError, match=r"2\.6 MB is still to be downloaded .* is free\. Free up some space"):
        fetching.transfer(reserve=shutil.disk_usage("/").total).run()
    assert fetching.hub.requests == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB of its own."""
    with small_disk(tmp_path / "small", "size=2m") as folder:
        yield folder


def test_a_disk_that_fills_up(fetching: Fetching, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetching.models = disk / "models"
    # As if somebody else took the space after it was checked.
    monkeypatch.setattr("app.models.downloads.transfer.check_space", lambda *_: None)
    with pytest.raises(DiskFullError, match=r"The disk is full: .* Free up some space, then press Resume\."):
        fetching.transfer().run()
    there = fetching.part.stat().st_size
    assert there > MIB and not fetching.destination.exists()
    remount(disk, "size=8m")
    fetching.transfer().run()
    assert is_complete(fetching)
    assert [request.start for request in fetching.hub.bodies(FILE)] == [0, there]


def test_a_disk_that_fails_while_it_writes(fetching: Fetching, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells once; what was lost then is not called complete."""
    calls: list[int] = []

    def sync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(descriptor)

    monkeypatch.setattr(part, "_sync", sync)
    monkeypatch.setattr(part, "SYNC_BYTES", MIB)
    with pytest.raises(KnownError, match="can't be written"):
        fetching.transfer().run()
    assert not fetching.destination.exists() and fetching.part.stat().st_size == 0
    fetching.transfer().run()
    assert is_complete(fetching)


def test_a_file_too_large_for_the_file_system(fetching: Fetching, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("limits the size of files as only Linux does")
    import resource
    import signal

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, limits[1]))
    try:
        with pytest.raises(KnownError, match="too large for this disk's file system"):
            fetching.transfer().run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert fetching.part.stat().st_size == MIB


def test_the_checksum_of_a_file_from_disk(fetching: Fetching, guide_pair: tuple[Path, Path]) -> None:
    large = fetching.hub.remote_file(REPOSITORY, "large.gguf")
    transfer: Transfer = fetching.transfer(large)
    transfer.run()
    assert hashlib.sha256(transfer.destination.read_bytes()).hexdigest() == large.sha256
