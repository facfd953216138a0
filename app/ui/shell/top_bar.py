"""The bar at the top: buttons for the chat list and the side panels, the loaded models, the state of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Slot
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QFrame, QProgressBar, QPushButton, QToolButton, QWidget

from app.ui.actions import Actions
from app.ui.chat.context_gauge import ContextGauge
from app.ui.engine import EngineState
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import label, plain_tooltip
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

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
"""How much of a long name can be read at least, in pixels, before the context gauge gives way."""
_SHORTEST_NAME = 80
"""Below this, the buttons of the panels lose their words."""


_REMOTE_STATES = {
    EngineState.LOADING: "Slipstream is connecting to the server, or waiting for it to load its model.",
    EngineState.READY: "The model on the server is ready for your message.",
    EngineState.EMPTY: "There is no connection to a server.",
    EngineState.DIED: "The process that talks to the server stopped unexpectedly.",
}
"""Other tooltips, with a model on a server."""


def state_text(state: EngineState, progress: float, *, is_remote: bool = False) -> str:
    """``ready``, ``loading 40%``, with a server ``connecting``; ``progress`` is 0 to 1."""
    if state is EngineState.LOADING:
        if is_remote:
            return "connecting"
        return f"loading {progress * 100:.0f}%"
    return "stopped" if state is EngineState.DIED else state.value


class TopBar(QFrame):
    """Shows the pair in use and what the engine does.

    Attributes:
        chats, pair, speed, settings, cancel: Its buttons.
        context: How full the context of the chat is.
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
        """Name the pair in use; ``details`` is its tool tip, plain text."""
        self._title = title or "No model"
        opens = f"{self._actions.text('open_models')} ({self._actions.keys('open_models')})"
        self.pair.setToolTip(plain_tooltip(f"{details}\n\n{opens}".strip()))
        self.pair.setAccessibleName(f"Loaded: {self._title}. Opens the model dialog.")
        self._elide()

    def set_state(self, state: EngineState, progress: float, *, is_remote: bool = False) -> None:
        """``progress``: the share of a load that is done, 0 to 1. ``is_remote``: it is about a model on a server."""
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
        """How full the context of the chat is; ``None`` where that is not known."""
        self.context.show_use(use)
        self._elide()

    @Slot()
    def _elide(self) -> None:
        """Divide the space: the context gauge is shortened or hidden before the name becomes too short, then the
        buttons of the panels only have icons."""
        metrics = QFontMetrics(self.pair.font())
        wanted = min(metrics.horizontalAdvance(self._title), theme.px(_NAME_WIDTH))
        for words in (("Speed", "Settings"), ("", "")):
            for button, text in zip((self.speed, self.settings), words, strict=True):
                button.setText(text)
            self.context.fit(self._room(metrics) + self.context.taken() - wanted)
            if self._room(metrics) >= _SHORTEST_NAME:
                break
        room = max(self._room(metrics), _SHORTEST_NAME)
        elided = metrics.elidedText(self._title, Qt.TextElideMode.ElideRight, room)
        self.pair.setText(elided.replace("&", "&&"))

    def _room(self, metrics: QFontMetrics) -> int:
        """Pixels that are free for the name."""
        for layout in (self._state, self._line):
            layout.invalidate()  # it would find out later
        taken = self._line.minimumSize().width() - metrics.horizontalAdvance(self.pair.text().replace("&&", "&"))
        return self.width() - taken - 3 * SPACING

    def _follow(self, button: QAbstractButton, name: str, icon: str) -> None:
        """Connect a button to an action of the menus; only that stores whether it is checked."""
        icons.set_icon(button, icon)
        button.setCheckable(True)
        self._actions.connect_button(button, name)
        self._actions.qaction(name).toggled.connect(button.setChecked)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()
