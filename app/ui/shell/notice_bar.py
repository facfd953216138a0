"""The notices in force, above the composer: each says what happened, and offers what one can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app.ui.chat.parts import Card
from app.ui.notices import Action, Notice
from app.ui.widgets import theme
from app.ui.widgets.column import Widths, prose_margin, prose_width

_MOST_OF_THE_HEIGHT = 0.4
"""How much of the height of what it stands in it may take; more notices are scrolled."""


class NoticeBar(QScrollArea):
    """Hidden while there are no notices; in line with the messages above it. The newest stands at the bottom.

    Signals:
        action_triggered: The `Action` of a button and the subject of its notice.
    """

    action_triggered = Signal(Action, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.cards: dict[str, Card] = {}
        self._notices: dict[str, Notice] = {}
        self._content = QWidget()
        theme.set_role(self._content, "reading")
        self._column = QVBoxLayout(self._content)
        self._column.setSpacing(theme.SPACING)
        self.setWidget(self._content)
        self.setAccessibleName("Notices")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        # Whenever there is more or less to see, the newest is what one sees.
        self.verticalScrollBar().rangeChanged.connect(lambda _least, most: self.verticalScrollBar().setValue(most))
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.hide()

    def set_notices(self, notices: Mapping[str, Notice]) -> None:
        """Show these, by subject, oldest first. A notice that is there already keeps its place and its focus."""
        for subject in [one for one, notice in self._notices.items() if notices.get(one) != notice]:
            card = self.cards.pop(subject)
            self._column.removeWidget(card)
            card.hide()
            card.deleteLater()
        for subject, notice in notices.items():
            if subject not in self.cards:
                self._add(subject, notice)
        self._notices = dict(notices)
        self.setVisible(bool(notices))
        self.fit()

    def _add(self, subject: str, notice: Notice) -> None:
        actions = [(action.value, partial(self.action_triggered.emit, action, subject)) for action in notice.actions]
        card = self.cards[subject] = Card(notice.text, actions, role=notice.kind)
        card.setAccessibleName(notice.text)
        self._column.addWidget(card)

    def fit(self) -> None:
        """Take the room there is: as wide as the messages, as high as the notices, up to a share of it."""
        side = prose_margin(self.font(), self.width())
        prose = prose_width(self.font(), self.width())
        heights = [card.fit(Widths(prose, prose)) for card in self.cards.values()]
        for card, height in zip(self.cards.values(), heights, strict=True):
            card.setFixedHeight(height)
        wanted = sum(heights) + theme.SPACING * (len(heights) + 1)
        parent = self.parentWidget()
        space = round(parent.height() * _MOST_OF_THE_HEIGHT) if parent is not None else wanted
        # A scroll bar takes its room from the margin, so that the cards stay in line.
        right = side - (self.verticalScrollBar().sizeHint().width() if wanted > space else 0)
        self._column.setContentsMargins(side, theme.SPACING, max(0, right), theme.SPACING)
        self.setFixedHeight(max(1, min(wanted, space)))

    # -- Qt

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.fit()

    def sizeHint(self) -> QSize:
        return QSize(200, self.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(80, 0)
