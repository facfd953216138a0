"""Downloads in a process of their own, which is killed again and again."""

from __future__ import annotations

import hashlib
import multiprocessing
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerContext
from pathlib import Path

from app.models.downloads.item import Item, ItemState
from app.models.downloads.part import destination, part_path
from app.models.downloads.queue import DownloadQueue
from app.models.hub.network import Network, NetworkSettings
from tests.models.downloads.fetching import MIB
from tests.support.hub_faults import Fault
from tests.support.hub_server import HubServer

REPOSITORY, FILE = "maker/large", "large.bin"
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


@dataclass
class Killed:
    """What came of one download.

    Attributes:
        again: The most bytes that were sent once more after a kill; they had left the server, but weren't written.
        kept: Bytes on disk after the last kill.
    """

    again: int = 0
    kept: int = 0


def processes() -> ForkServerContext:
    """Makes processes that start in no time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def killed_at(hub: HubServer, folder: Path, content: bytes, points: Iterable[int]) -> Killed:
    """Download a file to ``folder``, killed each time the server has sent so many bytes more; checks what comes out."""
    context, found = processes(), Killed()
    folder.mkdir()
    hub.requests.clear()
    hub.add(REPOSITORY, {FILE: content})
    hub.faults.always(FILE, Fault(bytes_per_second=LINE))
    file = hub.remote_file(REPOSITORY, FILE)
    item = Item(id="large", title="Large", target=(file,))
    path = destination(folder / "models", file)
    for point in points:
        before = len(hub.bodies(FILE))
        child = context.Process(target=download, args=(hub.endpoint, folder, item))
        child.start()
        hub.wait_for(partial(_has_sent, hub, before, point))
        child.kill()
        child.join()
        if path.exists():
            found.kept = file.size
            continue
        if len(hub.bodies(FILE)) == before:
            continue  # everything had been sent, and was being checked
        request = hub.bodies(FILE)[before]
        assert request.start == found.kept, "it did not go on where it was"
        found.kept = part_path(path).stat().st_size
        assert request.start <= found.kept <= request.start + request.sent
        found.again = max(found.again, request.start + request.sent - found.kept)
    child = context.Process(target=download, args=(hub.endpoint, folder, item))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    assert [one.name for one in path.parent.iterdir()] == [FILE]
    return found


def _has_sent(hub: HubServer, before: int, point: int) -> bool:
    """Whether the request after so many others got so far, or nothing is left to be sent."""
    bodies = hub.bodies(FILE)
    size = hub.remote_file(REPOSITORY, FILE).size
    is_sent = any(one.start + one.sent == size for one in bodies)
    return (len(bodies) > before and bodies[before].sent >= point) or is_sent
