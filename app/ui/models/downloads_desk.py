"""Connects the tab "Downloads" with the queue."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QMessageBox

from app.errors import KnownError
from app.models.downloads.item import Item, ItemProgress, ItemState
from app.models.downloads.queue import DownloadQueue
from app.models.text import printable, size_text
from app.ui.models.downloads_tab import DownloadsTab

REFRESH_MS = 250
_ACTIVE = (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING)


class DownloadsDesk(QObject):
    """Shows the queue, about four times a second while something moves, and says when an item is done.

    Signals:
        finished: The `Item` that is complete.
        failed: The `ItemProgress` of one that needs the user.
        active_changed: How many items are on their way.
        open_requested: Open this finished `Item`.
        token_requested: The user wants to enter an access token.
    """

    finished = Signal(object)
    failed = Signal(object)
    active_changed = Signal(int)
    open_requested = Signal(object)
    token_requested = Signal()

    def __init__(self, tab: DownloadsTab, queue: DownloadQueue, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tab = tab
        self._queue = queue
        self._states: dict[str, ItemState] = {one.item.id: one.state for one in queue.progress()}
        self._active = -1
        self._timer = QTimer(self, interval=REFRESH_MS)
        self._timer.timeout.connect(self.refresh)
        tab.pause_requested.connect(self._calling(queue.pause))
        tab.resume_requested.connect(self._calling(queue.resume))
        tab.cancel_requested.connect(self._calling(queue.cancel))
        tab.removal_requested.connect(self._calling(queue.remove))
        tab.discard_requested.connect(self._on_discard)
        tab.open_requested.connect(self._on_open)
        tab.page_requested.connect(lambda page: QDesktopServices.openUrl(QUrl(page)))
        tab.token_requested.connect(self.token_requested)
        tab.all_paused.connect(lambda: self._change(queue.pause_all))
        tab.all_resumed.connect(lambda: self._change(queue.resume_all))
        self.refresh()

    def add(self, item: Item) -> None:
        """Download this; what is in the queue already goes on."""
        self._change(lambda: self._queue.add(item))

    def is_active(self) -> bool:
        """Whether anything is on its way."""
        return self._active > 0

    def state_of(self, item_id: str) -> ItemState | None:
        return self._states.get(item_id)

    @Slot()
    def refresh(self) -> None:
        """Bring the tab up to date, and tell what has changed."""
        items = self._queue.progress()
        self._tab.show_progress(items)
        before, self._states = self._states, {one.item.id: one.state for one in items}
        for one in items:
            if before.get(one.item.id) is not one.state:
                self._tell(one)
        active = sum(one.state in _ACTIVE for one in items)
        if active != self._active:
            self._active = active
            self.active_changed.emit(active)
        if active and not self._timer.isActive():
            self._timer.start()
        elif not active:
            self._timer.stop()

    # ------------------------------------------------------------ inside

    def _tell(self, progress: ItemProgress) -> None:
        if progress.state is ItemState.DONE:
            self.finished.emit(progress.item)
        elif progress.state is ItemState.FAILED or (progress.state is ItemState.PAUSED and progress.message):
            self.failed.emit(progress)

    def _calling(self, function: Callable[[str], object]) -> Callable[[str], None]:
        return lambda item_id: self._change(lambda: function(item_id))

    def _change(self, function: Callable[[], object]) -> None:
        try:
            function()
        except KnownError as error:
            box = QMessageBox(QMessageBox.Icon.Warning, "Downloads", str(error), parent=self._tab)
            box.setTextFormat(Qt.TextFormat.PlainText)
            box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            box.open()
        self.refresh()

    @Slot(str)
    def _on_open(self, item_id: str) -> None:
        item = next((one.item for one in self._queue.progress() if one.item.id == item_id), None)
        if item is not None:
            self.open_requested.emit(item)

    @Slot(str)
    def _on_discard(self, item_id: str) -> None:
        progress = next((one for one in self._queue.progress() if one.item.id == item_id), None)
        if progress is None:
            return
        box = QMessageBox(
            QMessageBox.Icon.Question,
            "Discard download",
            f"Discard {printable(progress.item.title, 120)}? The {size_text(progress.done)} that have arrived are "
            "deleted.",
            QMessageBox.StandardButton.Cancel,
            self._tab,
        )
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        discard = box.addButton("Discard", QMessageBox.ButtonRole.DestructiveRole)
        discard.clicked.connect(lambda: self._change(lambda: self._queue.discard(item_id)))
        box.open()
