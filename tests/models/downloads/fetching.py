"""Downloading one file from the test's hub."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.models.downloads.part import destination, part_path
from app.models.downloads.transfer import Backoff, Transfer
from app.models.hub.network import Network
from app.models.hub.repository import RemoteFile
from app.models.origins import Origins
from app.system import Canceled
from tests.support.hub_faults import Fault
from tests.support.hub_server import HubServer

REPOSITORY = "maker/model-GGUF"
FILE = "model-Q4_K_M.gguf"
MIB = 1024 * 1024


@dataclass
class Fetching:
    """What a `Transfer` needs, and where its file is."""

    hub: HubServer
    network: Network
    models: Path
    origins: Origins
    backoff: Backoff

    @property
    def file(self) -> RemoteFile:
        return self.hub.remote_file(REPOSITORY, FILE)

    @property
    def content(self) -> bytes:
        content = self.hub.repositories[REPOSITORY].files[FILE].content
        assert isinstance(content, bytes)
        return content

    @property
    def destination(self) -> Path:
        return destination(self.models, self.file)

    @property
    def part(self) -> Path:
        return part_path(self.destination)

    def transfer(self, file: RemoteFile | None = None, **changes: Any) -> Transfer:
        file = file or self.file
        options: dict[str, Any] = {"backoff": self.backoff, "reserve": 0} | changes
        return Transfer(self.network, file, destination(self.models, file), origins=self.origins, **options)

    def left(self) -> list[str]:
        """The names of all files in the models folder."""
        return sorted(path.name for path in self.models.rglob("*") if path.is_file())

    def sent(self) -> int:
        """Bytes of content that the hub sent."""
        return sum(request.sent for request in self.hub.bodies(FILE))


def is_complete(fetching: Fetching) -> bool:
    return fetching.destination.read_bytes() == fetching.content and fetching.left() == [FILE]


def interrupted(fetching: Fetching, at: int) -> None:
    """Leave a part of ``at`` bytes, as a download does that is stopped there."""
    fetching.hub.faults.always(FILE, Fault(stall_at=at))  # also if a busy machine makes it try again
    transfer = fetching.transfer()

    def stop_there() -> None:
        if transfer.done == at:
            transfer.cancelled.set()

    transfer.on_change = stop_there
    with pytest.raises(Canceled):
        transfer.run()
    fetching.hub.faults.clear()
    assert fetching.part.stat().st_size == at


class Waits(threading.Event):
    """Notes how long a transfer would wait, and does not."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return super().wait(0)
