"""Models → Downloads: what is on its way, how far it is, and what one can do about it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.models.downloads import wording
from app.models.downloads.item import ItemProgress, ItemState
from app.models.text import printable
from app.ui.widgets import theme
from app.ui.widgets.controls import label, scrolling, small_button
from app.ui.widgets.theme import SPACING

_STEPS = 1000
_CAN_PAUSE = (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING)
_CAN_RESUME = (ItemState.PAUSED, ItemState.CANCELLED, ItemState.FAILED)


class DownloadsTab(QWidget):
    """A card for each download, newest last.

    Signals carry the id of the item, but for those with a page or none.

    Signals:
        pause_requested, resume_requested, cancel_requested, discard_requested, removal_requested, open_requested:
            What the buttons of an item say.
        page_requested: Open this address in the browser.
        token_requested: The user wants to enter an access token.
        all_paused, all_resumed: The buttons above the list.
    """

    pause_requested = Signal(str)
    resume_requested = Signal(str)
    cancel_requested = Signal(str)
    discard_requested = Signal(str)
    removal_requested = Signal(str)
    open_requested = Signal(str)
    page_requested = Signal(str)
    token_requested = Signal()
    all_paused = Signal()
    all_resumed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._cards: dict[str, _Card] = {}
        self._summary = label(role="quiet", figures=True)
        self._pause_all = small_button("Pause all")
        self._resume_all = small_button("Resume all")
        self._pause_all.clicked.connect(self.all_paused)
        self._resume_all.clicked.connect(self.all_resumed)
        self._problem = label(role="warning", wraps=True)
        self._empty = label(
            "No downloads. Get models under Recommended or Search; they appear here and survive a restart.",
            "quiet",
            wraps=True,
        )
        self._column = QVBoxLayout()
        self._column.setSpacing(3 * SPACING)
        self._lay_out()
        self.show_problem("")
        self.show_progress([])

    def show_problem(self, text: str) -> None:
        """Why the queue cannot be used, or what the user should know about it."""
        self._problem.setText(text)
        self._problem.setVisible(bool(text))

    def show_progress(self, items: Sequence[ItemProgress]) -> None:
        """Bring the list up to date; called several times a second."""
        ids = [progress.item.id for progress in items]
        for gone in [key for key in self._cards if key not in ids]:
            card = self._cards.pop(gone)
            card.hide()
            card.deleteLater()
        for progress in items:
            card = self._cards.get(progress.item.id) or self._new_card(progress.item.id)
            card.show_progress(progress)
        self._empty.setVisible(not items)
        self._summary.setText(wording.summary(items))
        self._pause_all.setVisible(sum(one.state in _CAN_PAUSE for one in items) > 1)
        self._resume_all.setVisible(sum(one.state is ItemState.PAUSED for one in items) > 1)

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(2 * SPACING)
        top.addWidget(self._summary, 1)
        top.addWidget(self._pause_all)
        top.addWidget(self._resume_all)
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(5 * SPACING, 4 * SPACING, 5 * SPACING, 5 * SPACING)
        column.setSpacing(3 * SPACING)
        column.addLayout(top)
        column.addWidget(self._problem)
        column.addWidget(self._empty)
        column.addLayout(self._column)
        column.addStretch(1)
        area = scrolling(inside)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(area)

    def _new_card(self, item_id: str) -> _Card:
        card = _Card(self, item_id)
        self._cards[item_id] = card
        self._column.addWidget(card)
        return card


class _Card(QFrame):
    """One item: title, bar, a line of figures, buttons."""

    def __init__(self, tab: DownloadsTab, item_id: str) -> None:
        super().__init__()
        theme.set_role(self, "card")
        self._page = ""
        self._title = label(role="heading", wraps=True)
        self._bar = QProgressBar(textVisible=False)
        self._bar.setRange(0, _STEPS)
        self._figures = label(role="quiet", figures=True, wraps=True)
        self._message = label(role="warning", wraps=True)
        self._buttons = {
            "pause": self._button("Pause", lambda: tab.pause_requested.emit(item_id)),
            "resume": self._button("Resume", lambda: tab.resume_requested.emit(item_id)),
            "page": self._button("Open its page", lambda: tab.page_requested.emit(self._page)),
            "token": self._button("Enter a token…", tab.token_requested),
            "cancel": self._button("Cancel", lambda: tab.cancel_requested.emit(item_id)),
            "discard": self._button("Discard", lambda: tab.discard_requested.emit(item_id)),
            "open": self._button("Open…", lambda: tab.open_requested.emit(item_id)),
            "remove": self._button("Remove from list", lambda: tab.removal_requested.emit(item_id)),
        }
        self._buttons["cancel"].setToolTip("Stops the download and keeps what has arrived")
        self._buttons["discard"].setToolTip("Deletes what has arrived")
        self._lay_out()

    def show_progress(self, progress: ItemProgress) -> None:
        item, state = progress.item, progress.state
        _set(self._title, printable(item.title, 200))
        self._bar.setValue(round(_STEPS * progress.done / max(item.size, 1)))
        self._bar.setVisible(state is not ItemState.DONE)
        self._bar.setAccessibleName(f"Progress of {self._title.text()}")
        _set(self._figures, wording.figures(progress))
        _set(self._message, progress.message)
        self._message.setVisible(bool(progress.message))
        theme.set_role(self._message, "bad" if state is ItemState.FAILED else "warning")
        self._page = progress.page
        shown = {
            "pause": state in _CAN_PAUSE,
            "resume": state in _CAN_RESUME,
            "page": bool(progress.page),
            "token": bool(progress.page),
            "cancel": state in (*_CAN_PAUSE, ItemState.PAUSED),
            "discard": state in _CAN_RESUME,
            "open": state is ItemState.DONE,
            "remove": state is ItemState.DONE,
        }
        self._buttons["resume"].setText("Try again" if state is ItemState.FAILED else "Resume")
        for name, button in self._buttons.items():
            button.setVisible(shown[name])
            button.setAccessibleName(f"{button.text()}: {self._title.text()}")

    def _button(self, text: str, slot: object) -> QPushButton:
        button = small_button(text)
        button.clicked.connect(slot)
        return button

    def _lay_out(self) -> None:
        row = QHBoxLayout()
        row.setSpacing(2 * SPACING)
        row.addWidget(self._figures, 1, Qt.AlignmentFlag.AlignVCenter)
        for button in self._buttons.values():
            row.addWidget(button)
        column = QVBoxLayout(self)
        column.setContentsMargins(4 * SPACING, 3 * SPACING, 4 * SPACING, 3 * SPACING)
        column.setSpacing(2 * SPACING)
        column.addWidget(self._title)
        column.addWidget(self._bar)
        column.addWidget(self._message)
        column.addLayout(row)


def _set(target: QWidget, text: str) -> None:
    """Without a repaint where nothing changed."""
    if target.text() != text:  # type: ignore[attr-defined]
        target.setText(text)  # type: ignore[attr-defined]
