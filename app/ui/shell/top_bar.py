"""The bar above everything: list of chats, the pair in use, what the engine does, the Speed panel."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QPushButton, QToolButton, QVBoxLayout, QWidget

from app.ui.engine.interface import EngineState
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import label, plain_tooltip

_DOTS = {
    EngineState.READY: "good",
    EngineState.STARTING: "warning",
    EngineState.LOADING: "warning",
    EngineState.ANSWERING: "good",
    EngineState.MEASURING: "good",
    EngineState.COMPARING: "good",
    EngineState.STOPPED: "quiet",
    EngineState.EMPTY: "quiet",
    EngineState.DIED: "bad",
}
_TOOLTIPS = {
    EngineState.STARTING: "The engine, a process of its own, is starting.",
    EngineState.LOADING: "The models are being read from disk.",
    EngineState.READY: "The engine waits for a message.",
    EngineState.ANSWERING: "The engine is writing an answer.",
    EngineState.MEASURING: "The engine is measuring its speed without a draft.",
    EngineState.COMPARING: "The engine is writing answers plain and with draft, for the Compare window.",
    EngineState.EMPTY: "The engine runs, but no model is loaded.",
    EngineState.STOPPED: "The engine is not running.",
    EngineState.DIED: "The engine ended unexpectedly.",
}


def state_text(state: EngineState, progress: float) -> str:
    """``ready``, ``loading 40 %``; ``progress`` is 0 to 1."""
    if state is EngineState.LOADING:
        return f"loading {progress * 100:.0f} %"
    return "stopped" if state is EngineState.DIED else state.value


class TopBar(QFrame):
    """Signals tell what was pressed."""

    chats_toggled = Signal()
    speed_toggled = Signal()
    pair_pressed = Signal()
    cancel_load_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        theme.set_role(self, "bar")
        self._state = EngineState.STARTING
        self._progress = 0.0
        self._title = ""
        self._chats = self._tool("menu", "Show or hide the chats", "Ctrl+B")
        self._chats.clicked.connect(self.chats_toggled)
        self._pair = self._pair_button()
        self._dot = label("●")
        self._label = label(role="quiet", figures=True)
        self._cancel = QPushButton("Cancel")
        self._cancel.setAccessibleName("Cancel loading")
        theme.set_role(self._cancel, "link")
        self._cancel.clicked.connect(self.cancel_load_requested)
        self._speed = QPushButton("Speed")
        self._speed.setAccessibleName("Show or hide the Speed panel")
        self._speed.setToolTip("Show or hide the Speed panel (Ctrl+.)")
        self._speed.setCheckable(True)
        icons.set_icon(self._speed, "speed")
        theme.set_role(self._speed, "flat")
        self._speed.clicked.connect(self.speed_toggled)
        self._bar = QProgressBar()
        self._bar.setRange(0, 1000)
        self._bar.setTextVisible(False)
        self._bar.setFixedHeight(3)
        self._bar.setAccessibleName("Loading progress")
        self._lay_out()
        self.set_pair("", "")
        self._show_state()

    # ------------------------------------------------------------ what is shown

    def set_pair(self, title: str, details: str) -> None:
        """Name the pair in use; ``details`` is its tool tip, plain text."""
        self._title = title or "No model"
        self._pair.setToolTip(plain_tooltip(f"{details}\n\nOpen models… (Ctrl+O)".strip()))
        self._pair.setAccessibleName(f"Pair in use: {self._title}. Opens the dialog for models.")
        self._elide()

    def set_state(self, state: EngineState) -> None:
        self._state = state
        self._show_state()

    def set_progress(self, share: float) -> None:
        """Share of a load that is done, 0 to 1."""
        self._progress = share
        self._show_state()

    def set_chats_shown(self, shown: bool) -> None:
        self._chats.setChecked(shown)

    def set_speed_shown(self, shown: bool) -> None:
        self._speed.setChecked(shown)

    def state_text(self) -> str:
        return self._label.text()

    def pair_text(self) -> str:
        """The whole name of the pair, also where the button has no room for it."""
        return self._title

    # ------------------------------------------------------------ inside

    def _tool(self, icon: str, name: str, keys: str) -> QToolButton:
        button = QToolButton()
        icons.set_icon(button, icon)
        button.setIconSize(QSize(20, 20))
        button.setCheckable(True)
        button.setAccessibleName(name)
        button.setToolTip(f"{name} ({keys})")
        return button

    def _pair_button(self) -> QPushButton:
        button = QPushButton()
        theme.set_role(button, "flat")
        icons.set_icon(button, "chevron-down")
        button.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # puts the icon behind the text
        button.clicked.connect(self.pair_pressed)
        return button

    def _lay_out(self) -> None:
        gap = theme.SPACING
        row = QHBoxLayout()
        row.setContentsMargins(2 * gap, gap, 2 * gap, gap)
        row.setSpacing(2 * gap)
        row.addWidget(self._chats)
        row.addWidget(self._pair)
        row.addStretch(1)
        state = QHBoxLayout()
        state.setSpacing(gap)
        state.addWidget(self._dot)
        state.addWidget(self._label)
        row.addLayout(state)
        row.addWidget(self._cancel)
        row.addSpacing(gap)
        row.addWidget(self._speed)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(row)
        column.addWidget(self._bar)

    def _show_state(self) -> None:
        is_loading = self._state is EngineState.LOADING
        text = state_text(self._state, self._progress)
        self._label.setText(text)
        for part in (self._dot, self._label):
            part.setAccessibleName(f"Engine: {text}")
            part.setToolTip(_TOOLTIPS[self._state])
        theme.set_role(self._dot, _DOTS[self._state])
        self._cancel.setVisible(is_loading)
        self._bar.setValue(round(self._progress * 1000) if is_loading else 0)
        # It keeps its place, so that nothing moves when a load ends.
        policy = self._bar.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self._bar.setSizePolicy(policy)
        self._bar.setVisible(is_loading)
        self._elide()

    @Slot()
    def _elide(self) -> None:
        others = sum(
            widget.sizeHint().width()
            for widget in (self._chats, self._dot, self._label, self._speed, self._cancel)
            if not widget.isHidden()
        )
        room = max(self.width() - others - 26 * theme.SPACING, 80)
        metrics = QFontMetrics(self._pair.font())
        self._pair.setText(metrics.elidedText(self._title, Qt.TextElideMode.ElideRight, room).replace("&", "&&"))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()
