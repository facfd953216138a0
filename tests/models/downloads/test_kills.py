"""A download that is killed again and again, and comes out right."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from app.models.downloads.disk import destination
from app.models.downloads.item import Item, ItemState
from app.models.downloads.part import part_path
from app.models.downloads.queue import DownloadQueue
from app.models.hub.network import Network, NetworkSettings
from tests.models.downloads.fetching import MIB
from tests.support.hub_faults import Fault
from tests.support.hub_server import HubServer

REPOSITORY, FILE = "maker/large", "large.bin"
KILLS = 50
SIZE = 48 * MIB
LINE = 48 * MIB
"""Bytes a second: slow enough to be killed in the middle."""


def download(endpoint: str, folder: Path, item: Item) -> None:
    """What the child does: the real queue, until the item is done."""
    done = threading.Event()
    network = Network(NetworkSettings(endpoint=endpoint))

    def look(_: str) -> None:
        if all(progress.state is ItemState.DONE for progress in queue.progress()):
            done.set()

    queue = DownloadQueue(network, folder, folder / "models", reserve=0)
    queue._on_change = look
    queue.add(item)
    look("")
    done.wait()
    queue.close()


@pytest.mark.skipif(sys.platform == "win32", reason="needs processes that start in no time")
def test_killed_at_fifty_points(tmp_path: Path) -> None:
    content = random.Random(4).randbytes(SIZE)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    folder = tmp_path / "data"
    folder.mkdir()
    rng = random.Random(5)
    with HubServer() as hub:
        hub.add(REPOSITORY, {FILE: content})
        hub.faults.always(FILE, Fault(bytes_per_second=LINE))
        file = hub.remote_file(REPOSITORY, FILE)
        item = Item(id="large", title="Large", target=(file,))
        path = destination(folder / "models", file)
        kept = 0
        for kill in range(KILLS):
            # The last one hits what comes after the last byte.
            point = SIZE if kill == KILLS - 1 else rng.randrange(3 * SIZE // KILLS // 2)
            before = len(hub.bodies(FILE))
            child = context.Process(target=download, args=(hub.endpoint, folder, item))
            child.start()
            hub.wait_for(partial(_has_sent, hub, before, point))
            child.kill()
            child.join()
            request = hub.bodies(FILE)[before]
            assert request.start == kept, "it did not go on where it was"
            kept = _bytes_of(path)
            assert request.start <= kept <= request.start + request.sent
        assert kept > 0, "nothing was kept of all that came"
        child = context.Process(target=download, args=(hub.endpoint, folder, item))
        child.start()
        child.join()
        assert child.exitcode == 0
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    assert [one.name for one in path.parent.iterdir()] == [FILE]


def _bytes_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else part_path(path).stat().st_size


def _has_sent(hub: HubServer, before: int, point: int) -> bool:
    bodies = hub.bodies(FILE)[before:]
    return bool(bodies) and (bodies[0].sent >= point or bodies[0].start + bodies[0].sent == SIZE)
