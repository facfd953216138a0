"""An item of the queue while the process runs: its files, their transfers and their progress."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.models.downloads.disk import destinations
from app.models.downloads.item import Item, ItemProgress, ItemState
from app.models.downloads.part import bytes_on_disk
from app.models.downloads.queue_file import SavedItem
from app.models.downloads.transfer import Transfer

_WINDOW_SECONDS = 5.0
_SAMPLE_SECONDS = 0.25
_WANTED = (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING)


class SpeedMeter:
    """Bytes per second over the last five seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        """``count`` bytes have just arrived."""
        now = self._clock()
        with self._lock:
            if self._samples and now - self._samples[-1][0] < _SAMPLE_SECONDS:
                at, before = self._samples[-1]
                self._samples[-1] = at, before + count
            else:
                self._samples.append((now, count))
            self._forget(now)

    def speed(self) -> float | None:
        """``None`` while nothing arrives, or not for long enough to tell."""
        now = self._clock()
        with self._lock:
            self._forget(now)
            if not self._samples or now - self._samples[0][0] < _SAMPLE_SECONDS:
                return None
            return sum(count for _, count in self._samples) / (now - self._samples[0][0])

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] > _WINDOW_SECONDS:
            self._samples.popleft()


@dataclass(eq=False)
class QueuedItem:
    """Protected by the queue's lock, except for what `progress` reads from the transfers.

    Raises `KnownError` for unsafe file names.
    """

    item: Item
    folder: Path
    """The models folder the item is downloaded to."""
    state: ItemState = ItemState.QUEUED
    message: str = ""
    page: str = ""
    transfers: dict[int, Transfer] = field(default_factory=dict)
    """Running transfers, by the index of their file in the item, as in ``finished``."""
    finished: set[int] = field(default_factory=set)
    """The files that are complete."""
    file_done: list[int] = field(init=False)
    """Bytes on disk of each file, once `look` was called."""
    has_looked: bool = False
    discarded: bool = False
    meter: SpeedMeter = field(default_factory=SpeedMeter)
    notified_at: float = 0.0
    _shown: object = None

    def __post_init__(self) -> None:
        self.file_done = [0] * len(self.destinations)

    @classmethod
    def restored(cls, saved: SavedItem) -> QueuedItem:
        """In the state in which it was saved."""
        entry = cls(saved.item, Path(saved.folder), saved.state, saved.message, saved.page)
        if saved.state is ItemState.DONE:
            entry.finished = set(range(len(saved.item.files)))
            entry.file_done = [file.size for file in saved.item.files]
            entry.has_looked = True
        return entry

    def look(self) -> None:
        """Find out what is on disk already, before anything is downloaded. Waits for the disk."""
        if not self.has_looked:
            files = zip(self.destinations, self.item.files, strict=True)
            self.file_done, self.has_looked = [bytes_on_disk(path, file) for path, file in files], True

    @property
    def destinations(self) -> list[Path]:
        """The destinations of its files, in the item's order."""
        return destinations(self.folder, self.item)

    @property
    def is_wanted(self) -> bool:
        """Whether it should continue: neither the user nor a failure has stopped it."""
        return self.state in _WANTED

    @property
    def done(self) -> int:
        """Bytes on disk, of all files."""
        running = {index: transfer.done for index, transfer in self.transfers.copy().items()}
        return sum(running.get(index, count) for index, count in enumerate(self.file_done))

    def set(self, state: ItemState, message: str = "", page: str = "") -> None:
        """Set the state and the reason for it."""
        self.state, self.message, self.page = state, message, page

    def cancel(self, *, only_waiting: bool = False) -> None:
        """End all running and waiting transfers soon: the queue starts new ones."""
        for transfer in list(self.transfers.values()):
            if transfer.retry_at is not None or not only_waiting:
                transfer.cancelled.set()

    def waiting_files(self) -> list[int]:
        """The incomplete files that have no transfer."""
        return [index for index in range(len(self.item.files)) if index not in self.finished | self.transfers.keys()]

    def changed_what_shows(self) -> bool:
        """Whether anything but the number of bytes has changed since the last call."""
        before = self._shown
        self._shown = [
            (transfer.message, transfer.notice, transfer.retry_at) for transfer in list(self.transfers.values())
        ]
        return before != self._shown

    def saved(self) -> SavedItem:
        """What is stored."""
        return SavedItem(
            item=self.item, folder=str(self.folder), state=self.state, message=self.message, page=self.page
        )

    def progress(self) -> ItemProgress:
        """Its progress."""
        state = self.state
        transfers = list(self.transfers.values()) if self.is_wanted else []
        waiting = [transfer for transfer in transfers if transfer.retry_at is not None]
        if transfers:
            state = ItemState.RUNNING if len(waiting) < len(transfers) else ItemState.WAITING
        elif self.is_wanted:
            state = ItemState.QUEUED
        speed = self.meter.speed() if state is ItemState.RUNNING else None
        messages = [transfer.message for transfer in waiting] + [transfer.notice for transfer in transfers]
        now = time.monotonic()
        return ItemProgress(
            item=self.item,
            state=state,
            done=self.done,
            speed=speed,
            seconds_left=(self.item.size - self.done) / speed if speed else None,
            attempt=max((transfer.failures for transfer in waiting), default=0),
            retry_in=min((max(0.0, (one.retry_at or now) - now) for one in waiting), default=None),
            message=self.message or next(filter(None, messages), ""),
            page=self.page,
        )
