"""A download queue that tests can wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.models.downloads.item import ItemProgress, ItemState
from app.models.downloads.queue import DownloadQueue
from app.models.downloads.transfer import Backoff
from app.models.hub.network import Network

WAIT_S = 30


class Watched:
    """A queue whose changes wake who waits for them."""

    def __init__(self, network: Network, folder: Path, **options: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.changed = threading.Condition()
        self.changes: list[str] = []
        chosen: dict[str, Any] = {"reserve": 0, "backoff": Backoff(first_seconds=0.001, cap_seconds=0.002)} | options
        self.queue = DownloadQueue(network, folder, folder / "models", on_change=self._on_change, **chosen)

    def _on_change(self, id: str) -> None:
        with self.changed:
            self.changes.append(id)
            self.changed.notify_all()

    def of(self, id: str) -> ItemProgress:
        return next(progress for progress in self.queue.progress() if progress.item.id == id)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until the condition is true; it is looked at after each change."""
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S), [
                (one.item.id, one.state, one.message) for one in self.queue.progress()
            ]

    def wait_for(self, id: str, state: ItemState) -> ItemProgress:
        self.wait(lambda: self.of(id).state is state)
        return self.of(id)
