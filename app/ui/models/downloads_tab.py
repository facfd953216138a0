"""Models → Downloads: the downloads, their progress, and what can be done about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from PySide6.QtWidgets import QFrame, QProgressBar, QWidget

from app.models.downloads import wording
from app.models.downloads.item import ItemProgress, ItemState
from app.models.text import printable
from app.ui.widgets import theme
from app.ui.widgets.controls import label, scrolling, show_text, small_button
from app.ui.widgets.layouts import CARD_MARGINS, MIDDLE, PAGE_MARGINS, column, row
from app.ui.widgets.theme import SPACING

_STEPS = 1000
_CAN_PAUSE = (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING)
_CAN_RESUME = (ItemState.PAUSED, ItemState.CANCELED, ItemState.FAILED)
_SHOWN: dict[str, tuple[ItemState, ...] | None] = {
    "Pause": _CAN_PAUSE,
    "Resume": _CAN_RESUME,
    "Open page": None,
    "Enter token…": None,
    "Cancel": (*_CAN_PAUSE, ItemState.PAUSED),
    "Discard": _CAN_RESUME,
    "Open…": (ItemState.DONE,),
    "Remove from list": (ItemState.DONE,),
}
"""The buttons of a card and the states of its item in which each is visible; ``None``: while there is a page."""


class DownloadsTab(QWidget):
    """A card for each download, newest last.

    Attributes:
        pause_all, resume_all: The buttons above the list.
    """

    def __init__(self, actions: Mapping[str, Callable[[str], object]]) -> None:
        """``actions``: for each button's text, what it does with the id of its item."""
        super().__init__()
        self._actions = actions
        self._cards: dict[str, _Card] = {}
        self._summary = label(role="quiet", figures=True)
        self.pause_all = small_button("Pause all")
        self.resume_all = small_button("Resume all")
        self._problem = label(role="warning", wraps=True)
        self._empty = label(
            "No downloads yet. Get models under Recommended or Search; they appear here and continue after a restart.",
            "quiet",
            wraps=True,
        )
        self._list = column(gap=3 * SPACING)
        inside = QWidget()
        column(
            row((self._summary, 1), self.pause_all, self.resume_all),
            self._problem,
            self._empty,
            self._list,
            None,
            gap=3 * SPACING,
            margins=PAGE_MARGINS,
            on=inside,
        )
        column(scrolling(inside), on=self)
        self.show_problem("")
        self.show_progress([])

    def show_problem(self, text: str) -> None:
        """Why the queue can't be used, or what to tell the user about it."""
        show_text(self._problem, text)

    def show_progress(self, items: Sequence[ItemProgress]) -> None:
        """Update the list; called several times a second."""
        ids = [progress.item.id for progress in items]
        for gone in [key for key in self._cards if key not in ids]:
            card = self._cards.pop(gone)
            card.hide()
            card.deleteLater()
        for progress in items:
            key = progress.item.id
            if key not in self._cards:
                self._cards[key] = _Card(key, self._actions)
                self._list.addWidget(self._cards[key])
            self._cards[key].show_progress(progress)
        self._empty.setVisible(not items)
        self._summary.setText(wording.summary(items))
        self.pause_all.setVisible(sum(one.state in _CAN_PAUSE for one in items) > 1)
        self.resume_all.setVisible(sum(one.state is ItemState.PAUSED for one in items) > 1)


class _Card(QFrame):
    """One item: title, bar, a line of figures, buttons."""

    def __init__(self, item_id: str, actions: Mapping[str, Callable[[str], object]]) -> None:
        super().__init__()
        theme.set_role(self, "card")
        self._title = label(role="heading", wraps=True)
        self._bar = QProgressBar(textVisible=False, maximum=_STEPS)
        self._figures = label(role="quiet", figures=True, wraps=True)
        self._message = label(role="warning", wraps=True)
        self._buttons = {text: small_button(text) for text in _SHOWN}
        for text, button in self._buttons.items():
            button.clicked.connect(lambda _checked=False, action=actions[text]: action(item_id))
        self._buttons["Cancel"].setToolTip("Stops the download and keeps what has been downloaded")
        self._buttons["Discard"].setToolTip("Deletes what has been downloaded")
        figures = row((self._figures, 1), *self._buttons.values())
        figures.setAlignment(self._figures, MIDDLE)
        column(self._title, self._bar, self._message, figures, margins=CARD_MARGINS, on=self)

    def show_progress(self, progress: ItemProgress) -> None:
        item, state = progress.item, progress.state
        self._title.setText(printable(item.title, 200))
        self._bar.setValue(round(_STEPS * progress.done / max(item.size, 1)))
        self._bar.setVisible(state is not ItemState.DONE)
        self._bar.setAccessibleName(f"Download progress: {self._title.text()}")
        self._figures.setText(wording.figures(progress))
        show_text(self._message, progress.message, "bad" if state is ItemState.FAILED else "warning")
        self._buttons["Resume"].setText("Try again" if state is ItemState.FAILED else "Resume")
        for name, button in self._buttons.items():
            states = _SHOWN[name]
            button.setVisible(bool(progress.page) if states is None else state in states)
            button.setAccessibleName(f"{button.text()}: {self._title.text()}")
