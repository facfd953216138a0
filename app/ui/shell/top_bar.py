"""The bar at the top, and the bars above the composer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QFrame,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app import words
from app.ui.actions import Actions
from app.ui.chat.context_gauge import ContextGauge
from app.ui.chat.footer import Card
from app.ui.engine import EngineState
from app.ui.notices import DISMISSING, Notice
from app.ui.widgets import icons, theme
from app.ui.widgets.column import Widths, prose_margin, prose_width
from app.ui.widgets.controls import ElidedLabel, column, label, plain_tooltip, row
from app.ui.widgets.focus import announce
from app.ui.widgets.theme import SPACING
from app.words import visible

if TYPE_CHECKING:
    from app.ui.chat.context_meter import ContextUse


_STATES = {
    EngineState.STARTING: ("warning", "The engine is starting."),
    EngineState.LOADING: ("warning", "The models are being read from disk."),
    EngineState.READY: ("good", "The model is ready for your message."),
    EngineState.ANSWERING: ("good", "The model is writing an answer."),
    EngineState.MEASURING: ("good", "The engine is measuring the speed without a draft."),
    EngineState.COMPARING: ("good", "The engine is writing answers with and without a draft for the Compare window."),
    EngineState.SERVING: ("good", "The engine is writing an answer for another program."),
    EngineState.EMPTY: ("quiet", "The engine is running, but no model is loaded."),
    EngineState.STOPPED: ("quiet", "The engine is not running."),
    EngineState.DIED: ("bad", "The engine stopped unexpectedly."),
}
"""The role of the dot and the tooltip."""

_NAME_WIDTH = 160
"""The least width of a long name, in pixels, before the context gauge gives way."""
_SHORTEST_NAME = 80
"""Below this, the panel buttons show no text."""


_REMOTE_STATES = {
    EngineState.LOADING: "Slipstream is connecting to the server, or waiting for it to load its model.",
    EngineState.READY: "The model on the server is ready for your message.",
    EngineState.EMPTY: "There is no connection to a server.",
    EngineState.DIED: "The process that talks to the server stopped unexpectedly.",
}
"""Replacement tooltips for a model on a server."""


def state_text(state: EngineState, progress: float, *, is_remote: bool = False) -> str:
    """``ready``, ``loading 40%``, or ``connecting`` with a server; ``progress`` is 0 to 1."""
    if state is EngineState.LOADING:
        if is_remote:
            return "connecting"
        return f"loading {words.share(progress)}"
    return "stopped" if state is EngineState.DIED else state.value


class TopBar(QFrame):
    """Shows the pair in use and the engine's state. ``chats``, ``pair``, ``speed``, ``settings``, ``cancel``: its
    buttons. ``context``: how full the chat's context is.
    """

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._actions = actions
        theme.set_role(self, "bar")
        self._title = ""
        self._make_buttons()
        self._dot = label("●")
        self._label = label(role="quiet", figures=True)
        self.context = ContextGauge()
        self._bar = QProgressBar(maximum=1000, textVisible=False)
        self._bar.setAccessibleName("Loading progress")
        self._bar.setFixedHeight(3)
        policy = self._bar.sizePolicy()
        policy.setRetainSizeWhenHidden(True)  # so that nothing moves when a load ends
        self._bar.setSizePolicy(policy)
        self._state = row(self._dot, self._label, gap=SPACING)
        parts = (
            self.chats,
            self.pair,
            None,
            self.context,
            2 * SPACING,
            self._state,
            self.cancel,
            SPACING,
            self.speed,
            self.settings,
        )
        self._line = row(*parts, margins=(2 * SPACING, SPACING, 2 * SPACING, SPACING))
        column(self._line, self._bar, gap=0, on=self)
        self.set_pair("", "")
        self.set_state(EngineState.STARTING, 0.0)
        theme.follow_zoom(self, self._elide)

    def _make_buttons(self) -> None:
        self.chats, self.pair = QToolButton(), QPushButton()
        self.cancel = QPushButton(self._actions.text("cancel_loading"))
        self.speed, self.settings = QPushButton("Speed"), QPushButton("Settings")
        theme.follow_zoom(self.chats, lambda: self.chats.setIconSize(QSize(theme.px(20), theme.px(20))))
        self._follow(self.chats, "toggle_chats", "menu")
        self._follow(self.speed, "toggle_speed", "speed")
        self._follow(self.settings, "chat_settings", "settings")
        self._actions.connect_button(self.pair, "choose_models")
        self._actions.connect_button(self.cancel, "cancel_loading")
        self.pair.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # puts the icon behind the text
        icons.set_icon(self.pair, "chevron-down")
        theme.set_role(self.cancel, "link")
        for button in (self.pair, self.speed, self.settings):
            theme.set_role(button, "flat")

    def set_pair(self, title: str, details: str) -> None:
        """Show the pair in use; ``details`` is the plain text of its tooltip."""
        self._title = title or "No model"
        opens = f"{self._actions.text('open_models')} ({self._actions.keys('open_models')})"
        self.pair.setToolTip(plain_tooltip(f"{details}\n\n{opens}".strip()))
        self.pair.setAccessibleName(f"Loaded: {self._title}. Opens the model dialog.")
        self._elide()

    def set_state(self, state: EngineState, progress: float, *, is_remote: bool = False) -> None:
        """``progress``: the fraction of a load, 0 to 1. ``is_remote``: about a model on a server."""
        is_loading = state is EngineState.LOADING
        text = state_text(state, progress, is_remote=is_remote)
        role, tooltip = _STATES[state]
        if is_remote:
            tooltip = _REMOTE_STATES.get(state, tooltip)
        self._label.setText(text)
        for part in (self._dot, self._label):
            part.setAccessibleName(f"Engine: {text}")
            part.setToolTip(tooltip)
        theme.set_role(self._dot, role)
        self.cancel.setVisible(is_loading)
        self._bar.setValue(round(progress * 1000) if is_loading else 0)
        self._bar.setVisible(is_loading)
        self._elide()

    def show_context(self, use: ContextUse | None) -> None:
        """Show how full the chat's context is; ``None`` if unknown."""
        self.context.show_use(use)
        self._elide()

    @Slot()
    def _elide(self) -> None:
        """Divide the space: the context gauge is shortened or hidden before the name becomes too short, then the panel
        buttons only have icons.
        """
        metrics = QFontMetrics(self.pair.font())
        wanted = min(metrics.horizontalAdvance(self._title), theme.px(_NAME_WIDTH))
        for texts in (("Speed", "Settings"), ("", "")):
            for button, text in zip((self.speed, self.settings), texts, strict=True):
                button.setText(text)
            self.context.fit(self._room(metrics) + self.context.taken() - wanted)
            if self._room(metrics) >= _SHORTEST_NAME:
                break
        room = max(self._room(metrics), _SHORTEST_NAME)
        elided = metrics.elidedText(self._title, Qt.TextElideMode.ElideRight, room)
        self.pair.setText(elided.replace("&", "&&"))

    def _room(self, metrics: QFontMetrics) -> int:
        """Pixels available for the name."""
        for layout in (self._state, self._line):
            layout.invalidate()  # otherwise it would notice later
        taken = self._line.minimumSize().width() - metrics.horizontalAdvance(self.pair.text().replace("&&", "&"))
        return self.width() - taken - 3 * SPACING

    def _follow(self, button: QAbstractButton, name: str, icon: str) -> None:
        """Link a button to a menu action; only the action stores whether it is checked."""
        icons.set_icon(button, icon)
        button.setCheckable(True)
        self._actions.connect_button(button, name)
        self._actions.qaction(name).toggled.connect(button.setChecked)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()


_MOST_OF_THE_HEIGHT = 0.4
"""The most of the parent's height that notices take; more are scrolled."""
UNDO_MS = 8000


class NoticeBar(QScrollArea):
    """Hidden without notices; aligned with the messages above, the newest at the bottom. Signal ``focus_lost``: a
    focused notice is about to be removed.
    """

    focus_lost = Signal()

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent, widgetResizable=True)
        self._actions = actions
        self.cards: dict[str, Card] = {}
        self._notices: dict[str, Notice] = {}
        content = QWidget()
        theme.set_role(content, "reading")
        # Qt only inserts a widget into the focus order after one that can have the focus. This one is hidden and never
        # gets it.
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
        # Scroll to the newest notice whenever the content changes.
        self.verticalScrollBar().rangeChanged.connect(lambda _least, most: self.verticalScrollBar().setValue(most))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        theme.follow_zoom(self, self.fit)
        self.hide()

    def set_notices(self, notices: Mapping[str, Notice]) -> None:
        """Show these notices by subject, oldest first. Existing ones keep their place and focus."""
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
        """Put the notices' buttons, created later than the rest, into the focus order here."""
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
        # A scroll bar takes its room from the margin, so that the cards stay aligned.
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
    """Shown by `offer` for a few seconds; aligned with the messages above. ``undo`` is its button.

    Afterwards the same can still be undone from the menus or with the usual keys.
    """

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._label = ElidedLabel(keeps_end=True)  # what happened comes after the title of the chat
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
        """Tell what happened and offer to undo it."""
        self._label.setText(visible(text))
        self._label.setToolTip(plain_tooltip(text))
        self.show()
        self._timer.start()
        announce(self, self._label.text())

    @Slot()
    def withdraw(self) -> None:
        """Withdraw the offer, because its text may name something erased."""
        self._timer.stop()
        self.hide()
        self._label.setText("")
        self._label.setToolTip("")

    @Slot()
    def _on_timeout(self) -> None:
        """Stay while the button has the focus."""
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
