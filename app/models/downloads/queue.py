"""The download queue: order, transfer threads, and persistence across restarts."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.models.downloads import part
from app.models.downloads.item import Item, ItemProgress, ItemState, QueueFile, SavedItem
from app.models.downloads.part import RESERVE_BYTES, DiskFullError, bytes_on_disk, check_space, destinations
from app.models.downloads.transfer import Backoff, Transfer
from app.models.hub.network import Network
from app.models.hub.repository import NoAccessError
from app.models.origins import Origins, origins_file
from app.storage.json_file import NotSavedError
from app.system import Canceled, KnownError

_NOTIFY_SECONDS = 0.25
_CLOSE_SECONDS = 5.0

_log = logging.getLogger(__name__)
_WINDOW_SECONDS = 5.0
_SAMPLE_SECONDS = 0.25
_WANTED = (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING)


class SpeedMeter:
    """Measures bytes per second over the last five seconds."""

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
        """``None`` if nothing arrives, or not for long enough to tell."""
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
    """The models folder it is downloaded to."""
    state: ItemState = ItemState.QUEUED
    message: str = ""
    page: str = ""
    transfers: dict[int, Transfer] = field(default_factory=dict)
    """Running transfers, by the index of their file in the item; also the indexes of ``finished``."""
    finished: set[int] = field(default_factory=set)
    """Indexes of the complete files."""
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
        """An item in its saved state."""
        entry = cls(saved.item, Path(saved.folder), saved.state, saved.message, saved.page)
        if saved.state is ItemState.DONE:
            entry.finished = set(range(len(saved.item.files)))
            entry.file_done = [file.size for file in saved.item.files]
            entry.has_looked = True
        return entry

    def look(self) -> None:
        """Find out what is on disk already. Blocks on the disk."""
        if not self.has_looked:
            files = zip(self.destinations, self.item.files, strict=True)
            self.file_done, self.has_looked = [bytes_on_disk(path, file) for path, file in files], True

    @property
    def destinations(self) -> list[Path]:
        """The paths of its files, in order."""
        return destinations(self.folder, self.item)

    @property
    def is_wanted(self) -> bool:
        """Whether it should continue, because neither the user nor a failure has stopped it."""
        return self.state in _WANTED

    @property
    def done(self) -> int:
        """Bytes on disk, of all files."""
        running = {index: transfer.done for index, transfer in self.transfers.copy().items()}
        return sum(running.get(index, count) for index, count in enumerate(self.file_done))

    def set(self, state: ItemState, message: str = "", page: str = "") -> None:
        self.state, self.message, self.page = state, message, page

    def cancel(self, *, only_waiting: bool = False) -> None:
        """End all transfers soon; the queue starts new ones."""
        for transfer in list(self.transfers.values()):
            if transfer.retry_at is not None or not only_waiting:
                transfer.cancelled.set()

    def waiting_files(self) -> list[int]:
        """The incomplete files without a transfer."""
        return [index for index in range(len(self.item.files)) if index not in self.finished | self.transfers.keys()]

    def has_visible_change(self) -> bool:
        """Whether anything but the byte counts has changed since the last call."""
        before = self._shown
        self._shown = [
            (transfer.message, transfer.notice, transfer.retry_at) for transfer in list(self.transfers.values())
        ]
        return before != self._shown

    def saved(self) -> SavedItem:
        return SavedItem(
            item=self.item, folder=str(self.folder), state=self.state, message=self.message, page=self.page
        )

    def progress(self) -> ItemProgress:
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


class DownloadQueue:
    """All downloads of the application. Every method except `close` returns at once and can be called from any thread.

    Files are downloaded in the queue's order, ``parallel`` at a time. Disk work, such as storing the queue, runs in a
    separate thread, outside the lock.
    """

    def __init__(
        self,
        network: Network,
        data_folder: Path,
        models_folder: Path,
        *,
        parallel: int = 2,
        reserve: int = RESERVE_BYTES,
        backoff: Backoff | None = None,
        origins: Origins | None = None,
        on_change: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Read the queue of ``data_folder`` and continue what was running.

        ``reserve`` is how many bytes stay free on the disk. ``origins`` are by default those of ``data_folder``.
        ``on_change`` is called with an item's id, from any thread, at each change of its state and ten times a second
        while it is running. Raises `KnownError` if another process has this queue or its file can't be read.
        """
        self.models_folder = models_folder
        """The folder for new items."""
        self.origins = origins or origins_file(data_folder)
        self._network = network
        self._parallel = parallel
        self._reserve = reserve
        self._backoff = backoff or Backoff()
        self._on_change = on_change
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._closed = False
        self._file = QueueFile(data_folder)
        try:
            saved, self.notice = self._file.read()
            self._entries = {one.item.id: QueuedItem.restored(one) for one in saved}
        except BaseException:
            self._file.release()
            raise
        self._leaving: list[QueuedItem] = []
        """Removed items with transfers still running, or files still to be deleted."""
        self._changed = set(self._entries)
        """Items for the worker thread to check."""
        self._saving = threading.Lock()
        self._is_over = False
        """Whether another process may be using the file now."""
        self._threads: list[threading.Thread] = []
        """All running transfers, and those whose end hasn't been handled."""
        self._worker = threading.Thread(target=self._work, name="downloads", daemon=True)
        self._worker.start()

    # --- user actions

    def add(self, item: Item, folder: Path | None = None) -> None:
        """Add an item at the end; an unfinished item with the same files is resumed instead.

        ``folder`` overrides the models folder. An item with the same id but other files (of an older commit, for
        example) is replaced. Raises `KnownError` for unsafe file names.
        """
        folder = folder or self.models_folder
        destinations(folder, item)
        with self._lock:
            there = self._entries.get(item.id)
            if there is not None and (there.state is ItemState.DONE or there.item.files != item.files):
                self._remove(item.id)
            if item.id not in self._entries:
                self._entries[item.id] = QueuedItem(item, folder)
        self.resume(item.id)

    def pause(self, id: str) -> None:
        """Pause an item; `resume` continues it."""
        self._stop(id, ItemState.PAUSED)

    def cancel(self, id: str) -> None:
        """Cancel an item; what has been downloaded is kept until `discard`."""
        self._stop(id, ItemState.CANCELED)

    def resume(self, id: str) -> None:
        """Continue a paused, canceled or failed item, or retry a waiting one at once."""
        with self._lock:
            entry = self._entries[id]
            if entry.state is ItemState.DONE:
                return
            entry.cancel(only_waiting=True)
            entry.set(ItemState.QUEUED)
            self._look_after(id)

    def discard(self, id: str) -> None:
        """Remove an item from the queue and delete its incomplete files. Finished files stay."""
        with self._lock:
            entry = self._remove(id)
            entry.set(ItemState.CANCELED)
            entry.discarded = True
            self._look_after(id)

    def remove(self, id: str) -> None:
        """Remove an item from the queue; its files stay, complete or not."""
        with self._lock:
            self._remove(id)
            self._look_after(id)

    def pause_all(self) -> None:
        """Pause all items that are running, waiting or queued."""
        for progress in self.progress():
            if progress.state in (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING):
                self.pause(progress.item.id)

    def resume_all(self) -> None:
        """Continue everything that is paused."""
        for progress in self.progress():
            if progress.state is ItemState.PAUSED:
                self.resume(progress.item.id)

    def progress(self) -> list[ItemProgress]:
        """The progress of all items, in the queue's order. Cheap."""
        with self._lock:
            return [entry.progress() for entry in self._entries.values()]

    def paths(self, id: str) -> tuple[Path, Path | None]:
        """The paths, now or later, of an item's target and of its draft or head file; for a split model, its first
        file.
        """
        with self._lock:
            entry = self._entries[id]
            item, places = entry.item, entry.destinations
        if item.model:
            return entry.folder / item.model, None
        return places[0], places[len(item.target)] if item.draft or item.head else None

    # --- settings

    def set_parallel(self, parallel: int) -> None:
        """Set the number of simultaneous files; running transfers continue."""
        with self._lock:
            self._parallel = parallel
            self._look_after(*self._entries)

    def close(self) -> None:
        """Stop all threads and save the queue; running items continue at the next start. Writes nothing afterwards."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for entry in (*self._entries.values(), *self._leaving):
                entry.cancel()
            threads = [*self._threads, self._worker]
            self._wake.notify()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._delete_discarded()
        with self._saving:
            self._save()
            self._is_over = True
            self._file.release()

    # --- inside

    def _stop(self, id: str, state: ItemState) -> None:
        with self._lock:
            entry = self._entries[id]
            if entry.state is ItemState.DONE:
                return
            entry.set(state)
            entry.cancel()
            self._look_after(id)

    def _remove(self, id: str) -> QueuedItem:
        entry = self._entries.pop(id)
        entry.cancel()
        self._leaving.append(entry)
        return entry

    def _transferring(self) -> list[Path]:
        """The destinations of all transfers, including canceled ones that haven't ended."""
        entries = (*self._entries.values(), *self._leaving)
        return [transfer.destination for entry in entries for transfer in entry.transfers.values()]

    def _look_after(self, *ids: str) -> None:
        """Have the thread check these changed items."""
        with self._lock:
            self._changed.update(ids)
            self._wake.notify()

    def _work(self) -> None:
        """After each change: delete discarded files, start transfers, store the queue, report."""
        while True:
            with self._lock:
                self._wake.wait_for(lambda: self._changed or self._closed)
                if self._closed:
                    return
                changed, self._changed = self._changed, set()
            try:
                self._delete_discarded()
                changed |= self._start_some()
                with self._saving:
                    self._save()
                for id in changed:
                    self._on_change(id)
            except Exception:
                _log.exception("the downloads could not be handled")  # a bug, which must not stop all downloads

    def _save(self) -> None:
        if self._is_over:
            return  # an unresponsive disk blocked us for longer than `close` waits
        with self._lock:
            items = [entry.saved() for entry in self._entries.values()]
        try:
            self._file.write(items)
        except NotSavedError as error:
            _log.warning("%s", error)

    def _start_some(self) -> set[str]:
        """Start the next transfers; returns the ids of items that were paused because the disk is full."""
        paused: set[str] = set()
        needed: dict[Path, int] = {}
        with self._lock:
            entries = list(self._entries.items())
        for id, entry in entries:
            entry.look()
            if not entry.is_wanted:
                continue
            needed[entry.folder] = needed.get(entry.folder, 0) + entry.item.size - entry.done
            problem = ""
            try:
                check_space(entry.folder, needed[entry.folder], self._reserve)
            except KnownError as error:  # the files up to this item don't all fit on the disk
                problem = str(error)
            with self._lock:
                if self._closed or not entry.is_wanted or self._entries.get(id) is not entry:
                    continue
                if problem:
                    entry.set(ItemState.PAUSED, problem)
                    entry.cancel()
                    paused.add(id)
                else:
                    self._start_files(entry)
        return paused

    def _start_files(self, entry: QueuedItem) -> None:
        running = self._transferring()
        for index in entry.waiting_files():
            path = entry.destinations[index]
            # Two items may share a file, such as a draft.
            if len(running) < self._parallel and path not in running:
                self._start(entry, index, path)
                running.append(path)

    def _start(self, entry: QueuedItem, index: int, path: Path) -> None:
        transfer = Transfer(
            self._network,
            entry.item.files[index],
            path,
            origins=self.origins,
            license=entry.item.license,
            backoff=self._backoff,
            reserve=self._reserve,
            on_bytes=entry.meter.add,
            on_change=lambda: self._moved(entry),
        )
        transfer.done = entry.file_done[index]
        thread = threading.Thread(target=self._run, args=(entry, index, transfer), daemon=True)
        entry.transfers[index] = transfer
        entry.state = ItemState.RUNNING
        self._threads = [one for one in self._threads if one.is_alive()]
        thread.start()
        self._threads.append(thread)

    def _run(self, entry: QueuedItem, index: int, transfer: Transfer) -> None:
        outcome, message, page = ItemState.FAILED, "This download ended because of a bug in Slipstream.", ""
        try:
            transfer.run()
            outcome, message = ItemState.DONE, ""
        except Canceled:
            outcome, message = ItemState.CANCELED, ""
        except KnownError as error:
            message = str(error)
            if isinstance(error, DiskFullError):
                outcome = ItemState.PAUSED
            elif isinstance(error, NoAccessError):
                page = error.page
        finally:
            self._ended(entry, index, transfer, outcome, message, page)

    def _ended(
        self, entry: QueuedItem, index: int, transfer: Transfer, outcome: ItemState, message: str, page: str
    ) -> None:
        with self._lock:
            del entry.transfers[index]
            entry.file_done[index] = transfer.done
            if outcome is ItemState.DONE:
                entry.finished.add(index)
                if len(entry.finished) == len(entry.item.files):
                    entry.set(ItemState.DONE)
            elif entry.is_wanted and not transfer.cancelled.is_set():
                entry.set(outcome, message, page)
                entry.cancel()
            self._look_after(entry.item.id)

    def _delete_discarded(self) -> None:
        """Delete incomplete files that no other item needs; those of transfers still stopping are deleted later."""
        with self._lock:
            left = [entry for entry in self._leaving if not entry.transfers]
            self._leaving = [entry for entry in self._leaving if entry.transfers]
            wanted = {path for other in self._entries.values() for path in other.destinations}
            wanted.update(self._transferring())
        for path in {path for entry in left if entry.discarded for path in entry.destinations} - wanted:
            try:
                part.discard(path)
            except KnownError as error:
                _log.warning("%s", error)

    def _moved(self, entry: QueuedItem) -> None:
        now = time.monotonic()
        if self._closed:
            return
        if entry.has_visible_change() or now - entry.notified_at >= _NOTIFY_SECONDS:
            entry.notified_at = now
            self._on_change(entry.item.id)
