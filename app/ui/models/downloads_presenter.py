"""Connects the tab "Downloads" with the queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices

from app import paths
from app.errors import KnownError
from app.models.downloads.item import Item, ItemProgress, ItemState
from app.models.downloads.queue import DownloadQueue
from app.models.hub.network import Network
from app.models.text import printable, size_text
from app.settings import Pair, Settings
from app.ui.models.commands import ModelCommands
from app.ui.models.downloads_tab import DownloadsTab
from app.ui.models.library_service import models_folder
from app.ui.widgets.questions import ask, warn

REFRESH_MS = 250
_ACTIVE = (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING)


class DownloadsPresenter(QObject):
    """Shows the queue, about four times a second while something moves, and says when an item is done.

    Attributes:
        tab: What shows it.

    Signals:
        finished: The `Item` that is complete.
        failed: The `ItemProgress` of one that needs the user.
        active_changed: How many items are on their way.
    """

    finished = Signal(object)
    failed = Signal(object)
    active_changed = Signal(int)

    def __init__(
        self, values: Settings, network: Network, commands: ModelCommands, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._values = values
        self._network = network
        self._commands = commands
        self._queue: DownloadQueue | None = None
        self._states: dict[str, ItemState] = {}
        self._active = -1
        self._timer = QTimer(self, interval=REFRESH_MS)
        self._timer.timeout.connect(self.refresh)
        self.tab = DownloadsTab(
            {
                "Pause": lambda item: self._change(lambda queue: queue.pause(item)),
                "Resume": lambda item: self._change(lambda queue: queue.resume(item)),
                "Open page": self._open_page,
                "Enter token…": lambda _item: commands.ask_for_token(),
                "Cancel": lambda item: self._change(lambda queue: queue.cancel(item)),
                "Discard": self._on_discard,
                "Open…": self._on_open,
                "Remove from list": lambda item: self._change(lambda queue: queue.remove(item)),
            }
        )
        self.tab.pause_all.clicked.connect(lambda: self._change(DownloadQueue.pause_all))
        self.tab.resume_all.clicked.connect(lambda: self._change(DownloadQueue.resume_all))

    def begin(self) -> None:
        """Open the queue, unless another process has it; unfinished downloads continue."""
        if self._queue is None:
            values = self._values
            try:
                self._queue = DownloadQueue(
                    self._network,
                    paths.data_dir(),
                    models_folder(values),
                    parallel=values.parallel_downloads,
                )
            except KnownError as error:  # another process, such as the command line, has the queue
                self.tab.show_problem(str(error))
                return
            self.tab.show_problem(self._queue.notice or "")
            self._states = {one.item.id: one.state for one in self._queue.progress()}
        self.refresh()

    def add(self, item: Item, folder: Path | None = None) -> None:
        """Download this; if it is in the queue already, it continues. ``folder``: unless it is the models folder."""
        self.begin()
        self._change(lambda queue: queue.add(item, folder))

    def apply_settings(self) -> None:
        """The settings of downloads have changed."""
        if self._queue is not None:
            self._queue.models_folder = models_folder(self._values)
            self._queue.set_parallel(self._values.parallel_downloads)

    def progress(self) -> list[ItemProgress]:
        """All items, in the order of the queue."""
        return self._queue.progress() if self._queue is not None else []

    def pair_of(self, item: Item) -> Pair:
        """Where its models are, or will be; a file with the target's head stands in the draft's place."""
        assert self._queue is not None
        target, beside = self._queue.paths(item.id)
        return Pair(str(target), str(beside) if beside is not None else None)

    def close(self) -> None:
        """Stop everything; it continues at the next start."""
        self._timer.stop()
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    @Slot()
    def refresh(self) -> None:
        """Update the tab, and report what has changed."""
        items = self.progress()
        self.tab.show_progress(items)
        before, self._states = self._states, {one.item.id: one.state for one in items}
        for one in items:
            if before.get(one.item.id) is not one.state:
                self._tell(one)
        active = sum(one.state in _ACTIVE for one in items)
        if active != self._active:
            self._active = active
            self.active_changed.emit(active)
        if not active and (self._queue is None or not self._queue.is_settling()):
            self._timer.stop()
        elif not self._timer.isActive():
            self._timer.start()

    # ------------------------------------------------------------ inside

    def _tell(self, progress: ItemProgress) -> None:
        if progress.state is ItemState.DONE:
            self.finished.emit(progress.item)
        elif progress.state is ItemState.FAILED or (progress.state is ItemState.PAUSED and progress.message):
            self.failed.emit(progress)

    def _change(self, function: Callable[[DownloadQueue], object]) -> None:
        if self._queue is None:
            return
        try:
            function(self._queue)
        except KnownError as error:
            warn(self.tab, "Downloads", str(error))
        self.refresh()

    def _progress_of(self, item_id: str) -> ItemProgress | None:
        """``None`` for an item that has just been removed from the list."""
        return next((one for one in self.progress() if one.item.id == item_id), None)

    def _open_page(self, item_id: str) -> None:
        if progress := self._progress_of(item_id):
            QDesktopServices.openUrl(QUrl(progress.page))

    def _on_open(self, item_id: str) -> None:
        if progress := self._progress_of(item_id):
            pair = self.pair_of(progress.item)
            self._commands.open_pair(pair.target, pair.draft or "")

    def _on_discard(self, item_id: str) -> None:
        if (progress := self._progress_of(item_id)) is None:
            return
        title, arrived = printable(progress.item.title, 120), size_text(progress.done)
        ask(
            self.tab,
            "Discard download",
            f"Discard {title}? The {arrived} downloaded so far will be deleted.",
            lossy={"Discard": lambda: self._change(lambda queue: queue.discard(item_id))},
        )
