"""The bars above the composer: the current notices, and the offer to undo a deletion."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QPushButton, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app.models.text import visible
from app.ui.actions import Actions
from app.ui.chat.parts import Card
from app.ui.notices import DISMISSING, Notice
from app.ui.widgets import icons, theme
from app.ui.widgets.announcing import announce
from app.ui.widgets.controls import ElidedLabel, plain_tooltip
from app.ui.widgets.entries import Widths, prose_margin, prose_width
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

_MOST_OF_THE_HEIGHT = 0.4
"""How much of the height of what it stands in it may take; more notices are scrolled."""
UNDO_MS = 8000


class NoticeBar(QScrollArea):
    """Hidden while there are no notices; in line with the messages above it. The newest stands at the bottom.

    Signals:
        focus_lost: A notice that had the keyboard is about to go.
    """

    focus_lost = Signal()

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent, widgetResizable=True)
        self._actions = actions
        self.cards: dict[str, Card] = {}
        self._notices: dict[str, Notice] = {}
        content = QWidget()
        theme.set_role(content, "reading")
        # Qt puts something in the focus order only behind what can have the focus. Hidden, it never gets it.
        self._place_in_focus = QWidget(content)
        self._place_in_focus.setAccessibleName("Notices")
        self._place_in_focus.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._place_in_focus.hide()
        self._column = column(gap=SPACING, on=content)
        self.setWidget(content)
        self.setAccessibleName("Notices")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # Whenever there is more or less to see, the newest is what one sees.
        self.verticalScrollBar().rangeChanged.connect(lambda _least, most: self.verticalScrollBar().setValue(most))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        theme.follow_zoom(self, self.fit)
        self.hide()

    def set_notices(self, notices: Mapping[str, Notice]) -> None:
        """Show these, by subject, oldest first. A notice that is there already keeps its place and its focus."""
        for subject in [one for one, notice in self._notices.items() if notices.get(one) != notice]:
            card = self.cards.pop(subject)
            if (focused := self.window().focusWidget()) is not None and card.isAncestorOf(focused):
                self.focus_lost.emit()
            self._column.removeWidget(card)
            card.hide()
            card.deleteLater()
        for subject, notice in notices.items():
            if subject not in self.cards:
                self._add(subject, notice)
        self._order_focus()
        self._notices = dict(notices)
        self.setVisible(bool(notices))
        self.fit()

    def _order_focus(self) -> None:
        """Buttons that came later than the rest of the window have their turn here, too."""
        last: QWidget = self._place_in_focus
        for button in (button for card in self.cards.values() for button in card.buttons):
            QWidget.setTabOrder(last, button)
            last = button

    def _add(self, subject: str, notice: Notice) -> None:
        run = self._actions.run
        buttons = [
            (self._actions.text(name), partial(run, name, *([subject] if name in DISMISSING else notice.values)))
            for name in notice.actions
        ]
        card = self.cards[subject] = Card(notice.text, buttons, role=notice.kind)
        card.setAccessibleName(notice.text)
        self._column.addWidget(card)

    def fit(self) -> None:
        """Fit into the available space: as wide as the messages, as high as the notices, up to a limit."""
        side = prose_margin(self.font(), self.width())
        prose = prose_width(self.font(), self.width())
        heights = [card.fit(Widths(prose, prose)) for card in self.cards.values()]
        for card, height in zip(self.cards.values(), heights, strict=True):
            card.setFixedHeight(height)
        wanted = sum(heights) + SPACING * (len(heights) + 1)
        parent = self.parentWidget()
        space = round(parent.height() * _MOST_OF_THE_HEIGHT) if parent is not None else wanted
        # A scroll bar takes its room from the margin, so that the cards stay in line.
        right = side - (self.verticalScrollBar().sizeHint().width() if wanted > space else 0)
        self._column.setContentsMargins(side, SPACING, max(0, right), SPACING)
        self.setFixedHeight(max(1, min(wanted, space)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.fit()

    def sizeHint(self) -> QSize:
        return QSize(200, self.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(80, 0)


class UndoBar(QWidget):
    """Hidden until `offer` and again some seconds later; in line with the messages above it.

    What it offers to undo can still be undone when it has gone: from the menus, or with the usual keys.

    Attributes:
        undo: Its button.
    """

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._label = ElidedLabel(keeps_end=True)  # what happened stands behind the title of the chat
        self.undo = QPushButton(actions.text("undo_chat"))
        actions.connect_button(self.undo, "undo_chat")
        icons.set_icon(self.undo, "undo")
        theme.set_role(self.undo, "flat")
        card = QFrame()
        theme.set_role(card, "card")
        row((self._label, 1), self.undo, gap=-1, margins=(3 * SPACING, SPACING, SPACING, SPACING), on=card)
        self._column = QVBoxLayout(self)
        self._column.addWidget(card)
        theme.follow_zoom(self, self._align)
        self._timer = QTimer(self, singleShot=True, interval=UNDO_MS)
        self._timer.timeout.connect(self._on_timeout)
        self.hide()

    def offer(self, text: str) -> None:
        """Say what happened and that it can be undone."""
        self._label.setText(visible(text))
        self._label.setToolTip(plain_tooltip(text))
        self.show()
        self._timer.start()
        announce(self, self._label.text())

    @Slot()
    def withdraw(self) -> None:
        """Withdraw the offer, because what it named may have been erased."""
        self._timer.stop()
        self.hide()
        self._label.setText("")
        self._label.setToolTip("")

    @Slot()
    def _on_timeout(self) -> None:
        """Not while the keyboard is at the button."""
        if self.undo.hasFocus():
            self._timer.start()
        else:
            self.withdraw()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._align()

    def _align(self) -> None:
        side = prose_margin(self.font(), self.width())
        self._column.setContentsMargins(side, SPACING, side, 0)
