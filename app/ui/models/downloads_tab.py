"""Models → Downloads: the queue, with a card for each download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFrame, QProgressBar, QWidget

from app import system, words
from app.models.downloads import item as wording
from app.models.downloads.item import Item, ItemProgress, ItemState
from app.models.downloads.queue import DownloadQueue
from app.models.hub.network import Network
from app.settings import Pair
from app.system import KnownError
from app.ui import notices
from app.ui.context import AppContext
from app.ui.models.library_service import models_folder
from app.ui.widgets import theme
from app.ui.widgets.controls import (
    CARD_MARGINS,
    MIDDLE,
    PAGE_MARGINS,
    column,
    label,
    row,
    scrolling,
    show_text,
    small_button,
)
from app.ui.widgets.questions import ask, warn
from app.ui.widgets.tasks import Results
from app.ui.widgets.theme import SPACING
from app.words import printable

_STEPS = 1000
_COUNTDOWN_MS = 1000
_ACTIVE = (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING)
_CAN_RESUME = (ItemState.PAUSED, ItemState.CANCELED, ItemState.FAILED)
_BUTTONS: dict[str, tuple[Callable[[DownloadsTab, ItemProgress], object], tuple[ItemState, ...] | None]] = {
    "Pause": (lambda tab, one: tab.change(lambda queue: queue.pause(one.item.id)), _ACTIVE),
    "Resume": (lambda tab, one: tab.change(lambda queue: queue.resume(one.item.id)), _CAN_RESUME),
    "Open page": (lambda _tab, one: QDesktopServices.openUrl(QUrl(one.page)), None),
    "Enter token…": (lambda tab, _one: tab.ctx.actions.run("ask_for_token"), None),
    "Cancel": (lambda tab, one: tab.change(lambda queue: queue.cancel(one.item.id)), (*_ACTIVE, ItemState.PAUSED)),
    "Discard": (lambda tab, one: tab.ask_to_discard(one), _CAN_RESUME),
    "Open…": (lambda tab, one: tab.open(one.item), (ItemState.DONE,)),
    "Remove from list": (lambda tab, one: tab.change(lambda queue: queue.remove(one.item.id)), (ItemState.DONE,)),
}
"""The buttons of a card: action, and the states in which it is visible; ``None``: while there is a page to open."""


class DownloadsTab(QWidget):
    """A card for each download, newest last. The queue reports changes.

    Signals:
        show_requested: Something was added, or a notification clicked.
        finished: An item is complete.
        active_changed: The number of active items.
    """

    show_requested = Signal()
    finished = Signal()
    active_changed = Signal(int)

    def __init__(self, ctx: AppContext, network: Network) -> None:
        super().__init__()
        self.ctx: AppContext = ctx
        self._values = ctx.settings.values
        self._network = network
        self._queue: DownloadQueue | None = None
        self._results = Results(self)
        self._is_stale = False
        """An update is already scheduled; set in the queue's threads."""
        self._states: dict[str, ItemState] = {}
        self._active = -1
        self._countdown = QTimer(self, singleShot=True, interval=_COUNTDOWN_MS)
        """Runs while an item waits, to update its countdown."""
        self._countdown.timeout.connect(self.refresh)
        self._cards: dict[str, _Card] = {}
        self._lay_out()
        self.show_progress([])

    def _lay_out(self) -> None:
        self._summary = label(role="quiet", figures=True)
        self._pause_all = small_button("Pause all", lambda: self.change(DownloadQueue.pause_all))
        self._resume_all = small_button("Resume all", lambda: self.change(DownloadQueue.resume_all))
        self._problem = label(role="warning", wraps=True)
        self._problem.hide()
        self._empty = label(
            "No downloads yet. Get models under Recommended or Search; they appear here and continue after a restart.",
            "quiet",
            wraps=True,
        )
        self._list = column(gap=3 * SPACING)
        inside = QWidget()
        column(
            row((self._summary, 1), self._pause_all, self._resume_all),
            self._problem,
            self._empty,
            self._list,
            None,
            gap=3 * SPACING,
            margins=PAGE_MARGINS,
            on=inside,
        )
        column(scrolling(inside), on=self)

    # ------------------------------------------------------------ the queue

    def begin(self) -> None:
        """Open the queue, unless another process has it; unfinished downloads continue."""
        if self._queue is None:
            values = self._values
            try:
                self._queue = DownloadQueue(
                    self._network,
                    system.data_dir(),
                    models_folder(values),
                    parallel=values.parallel_downloads,
                    on_change=self._on_queue_changed,
                )
            except KnownError as error:  # another process, such as the command line, has the queue
                show_text(self._problem, str(error))
                return
            show_text(self._problem, self._queue.notice or "")
            self._states = {one.item.id: one.state for one in self._queue.progress()}
        self.refresh()

    def add(self, item: Item, folder: Path | None = None, *, shows: bool = True) -> None:
        """Download this, or continue it if it is already queued. ``folder`` overrides the models folder. ``shows``:
        bring the tab to the front.
        """
        self.begin()
        self.change(lambda queue: queue.add(item, folder))
        if shows:
            self.show_requested.emit()

    def apply_settings(self) -> None:
        """The settings of downloads have changed."""
        if self._queue is not None:
            self._queue.models_folder = models_folder(self._values)
            self._queue.set_parallel(self._values.parallel_downloads)

    def progress(self) -> list[ItemProgress]:
        """All items, in the queue's order."""
        return self._queue.progress() if self._queue is not None else []

    def pair_of(self, item: Item) -> Pair:
        """The paths of its models, now or later; a file with the target's head takes the draft's place."""
        assert self._queue is not None
        target, beside = self._queue.paths(item.id)
        return Pair(str(target), str(beside) if beside is not None else None)

    def shut_down(self) -> None:
        """Stop everything; it continues at the next start."""
        self._countdown.stop()
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def _on_queue_changed(self, _id: str) -> None:
        """Called in other threads; several changes in a row are shown together."""
        if not self._is_stale:
            self._is_stale = True
            self._results.post(self.refresh)

    # ------------------------------------------------------------ display

    @Slot()
    def refresh(self) -> None:
        """Update the list, and report what changed."""
        self._is_stale = False
        items = self.progress()
        self.show_progress(items)
        before, self._states = self._states, {one.item.id: one.state for one in items}
        for one in items:
            if before.get(one.item.id) is one.state:
                continue
            if one.state is ItemState.DONE:
                self._tell_done(one.item)
            elif one.state is ItemState.FAILED or (one.state is ItemState.PAUSED and one.message):
                self.tell_stopped(one.item.title, one.message)
        if (active := sum(one.state in _ACTIVE for one in items)) != self._active:
            self._active = active
            self.active_changed.emit(active)
        if any(one.state is ItemState.WAITING for one in items):
            self._countdown.start()

    def _tell_done(self, item: Item) -> None:
        self.ctx.notifier.tell("Download complete", printable(item.title, 120), self.show_requested.emit)
        self.ctx.notices.remove("download")
        self.ctx.notices.show("downloaded", notices.downloaded(item.title, self.pair_of(item)))
        self.finished.emit()

    def tell_stopped(self, title: str, message: str) -> None:
        """Tell the user that this download needs their attention."""
        self.ctx.notifier.tell("Download stopped", f"{printable(title, 120)}: {message}", self.show_requested.emit)
        self.ctx.notices.show("download", notices.download_stopped(title, message))

    def show_progress(self, items: Sequence[ItemProgress]) -> None:
        ids = [progress.item.id for progress in items]
        for gone in [key for key in self._cards if key not in ids]:
            card = self._cards.pop(gone)
            card.hide()
            card.deleteLater()
        for progress in items:
            key = progress.item.id
            if key not in self._cards:
                self._cards[key] = _Card(self)
                self._list.addWidget(self._cards[key])
            self._cards[key].show_progress(progress)
        self._empty.setVisible(not items)
        self._summary.setText(wording.summary(items))
        self._pause_all.setVisible(sum(one.state in _ACTIVE for one in items) > 1)
        self._resume_all.setVisible(sum(one.state is ItemState.PAUSED for one in items) > 1)

    # ------------------------------------------------------------ actions

    def change(self, function: Callable[[DownloadQueue], object]) -> None:
        """Change something in the queue, if it could be opened."""
        if self._queue is None:
            return
        try:
            function(self._queue)
        except KnownError as error:
            warn(self, "Downloads", str(error))
        self.refresh()

    def open(self, item: Item) -> None:
        pair = self.pair_of(item)
        self.ctx.actions.run("open_pair", pair.target, pair.draft or "")

    def ask_to_discard(self, progress: ItemProgress) -> None:
        title, arrived = printable(progress.item.title, 120), words.size(progress.done)
        ask(
            self,
            "Discard download",
            f"Discard {title}? The {arrived} downloaded so far will be deleted.",
            lossy={"Discard": lambda: self.change(lambda queue: queue.discard(progress.item.id))},
        )


class _Card(QFrame):
    """One item: title, bar, a line of figures, buttons."""

    def __init__(self, tab: DownloadsTab) -> None:
        super().__init__()
        theme.set_role(self, "card")
        self._title = label(role="heading", wraps=True)
        self._bar = QProgressBar(textVisible=False, maximum=_STEPS)
        self._figures = label(role="quiet", figures=True, wraps=True)
        self._message = label(role="warning", wraps=True)
        self._buttons = {text: small_button(text) for text in _BUTTONS}
        for text, button in self._buttons.items():
            button.clicked.connect(lambda _checked=False, act=_BUTTONS[text][0]: act(tab, self._progress))
        self._buttons["Cancel"].setToolTip("Stops the download and keeps what has been downloaded")
        self._buttons["Discard"].setToolTip("Deletes what has been downloaded")
        figures = row((self._figures, 1), *self._buttons.values())
        figures.setAlignment(self._figures, MIDDLE)
        column(self._title, self._bar, self._message, figures, margins=CARD_MARGINS, on=self)

    def show_progress(self, progress: ItemProgress) -> None:
        self._progress = progress
        item, state = progress.item, progress.state
        self._title.setText(printable(item.title, 200))
        self._bar.setValue(round(_STEPS * progress.done / max(item.size, 1)))
        self._bar.setVisible(state is not ItemState.DONE)
        self._bar.setAccessibleName(f"Download progress: {self._title.text()}")
        self._figures.setText(wording.figures(progress))
        show_text(self._message, progress.message, "bad" if state is ItemState.FAILED else "warning")
        self._buttons["Resume"].setText("Try again" if state is ItemState.FAILED else "Resume")
        for name, button in self._buttons.items():
            states = _BUTTONS[name][1]
            button.setVisible(bool(progress.page) if states is None else state in states)
            button.setAccessibleName(f"{button.text()}: {self._title.text()}")
