"""The main window: where things stand. What they do is wired in `app.ui.shell.controller`."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QByteArray, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QMainWindow, QSplitter, QWidget

from app.settings import Settings
from app.ui.chat.chat_list import ChatList
from app.ui.chat.composer import Composer
from app.ui.chat.transcript import Transcript
from app.ui.engine.interface import EngineState
from app.ui.engine.pair_files import GUIDE_NAME
from app.ui.engine.pair_names import recent_title
from app.ui.shell.bars import NoticeBar, UndoBar
from app.ui.shell.menus import Menus
from app.ui.shell.top_bar import TopBar
from app.ui.speed.panel import SpeedPanel
from app.ui.widgets import icons, theme
from app.ui.widgets.layouts import column

FIRST_SIZE = QSize(1100, 720)
MINIMUM_SIZE = QSize(640, 480)
CHATS_WIDTH = 200
CENTRE_WIDTH = 360
SPEED_WIDTH = 264

Panel = Literal["chats", "speed"]


class MainWindow(QMainWindow):
    """Lays out the parts and decides which panels have room.

    Attributes:
        top_bar, chat_list, transcript, composer, speed_panel, undo_bar, notice_bar, menus: The parts.

    Signals:
        panels_changed: The user showed or hid a panel, or arranged the list of chats otherwise.
        first_painted: The window is on the screen for the first time.
        closed: The window is closed.
    """

    panels_changed = Signal()
    closed = Signal()
    first_painted = Signal()

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.setWindowTitle("Slipstream")
        self.setWindowIcon(icons.application())
        self.setMinimumSize(MINIMUM_SIZE)
        self.menus = Menus(self.menuBar(), self)
        self.top_bar = TopBar(self.menus.action("toggle_chats"), self.menus.action("toggle_speed"))
        self.chat_list = ChatList()
        self.chat_list.view.arrange(settings.chat_sort, settings.collapsed_folders)
        self.transcript = Transcript()
        self.composer = Composer()
        self.speed_panel = SpeedPanel()
        self.undo_bar = UndoBar()
        self.notice_bar = NoticeBar()
        self._wanted: dict[Panel, bool] = {"chats": settings.chats_visible, "speed": settings.speed_visible}
        self._latest: Panel = "chats"
        self._was_painted = False
        self._splitter = self._make_splitter()
        everything = QWidget()
        column(self.top_bar, (self._splitter, 1), gap=0, on=everything)
        self.setCentralWidget(everything)
        self._restore(settings)
        self.menus.action("toggle_chats").triggered.connect(lambda: self.toggle_panel("chats"))
        self.menus.action("toggle_speed").triggered.connect(lambda: self.toggle_panel("speed"))
        self.chat_list.view.arranged.connect(self.panels_changed)
        self.composer.setFocus()

    # ------------------------------------------------------------ panels

    def toggle_panel(self, panel: Panel) -> None:
        """Show a panel or hide it. In a narrow window the other one makes room, and stays away afterwards."""
        self._wanted[panel] = self._widget(panel).isHidden()
        if self._wanted[panel]:
            self._latest = panel
            self._fit_panels()
        else:
            self._widget(panel).hide()
            self._show_states()
        self.panels_changed.emit()

    def show_panel(self, panel: Panel) -> None:
        if self._widget(panel).isHidden():
            self.toggle_panel(panel)

    def store(self, settings: Settings) -> None:
        """Put size, splitter and panels into the settings."""
        settings.window_geometry = _text(self.saveGeometry())
        settings.splitter_state = _text(self._splitter.saveState())
        settings.chats_visible = self._wanted["chats"]
        settings.speed_visible = self._wanted["speed"]
        settings.chat_sort = self.chat_list.view.chats.order
        settings.collapsed_folders = sorted(self.chat_list.view.chats.collapsed)

    # ------------------------------------------------------------ inside

    def _widget(self, panel: Panel) -> QWidget:
        return self.chat_list if panel == "chats" else self.speed_panel

    def _make_splitter(self) -> QSplitter:
        centre = QFrame()
        theme.set_role(centre, "reading")
        centre.setMinimumWidth(CENTRE_WIDTH)
        column((self.transcript, 1), self.notice_bar, self.undo_bar, self.composer, gap=0, on=centre)
        splitter = QSplitter(Qt.Orientation.Horizontal, childrenCollapsible=False)
        for place, (part, stretch) in enumerate(((self.chat_list, 0), (centre, 1), (self.speed_panel, 0))):
            splitter.addWidget(part)
            splitter.setStretchFactor(place, stretch)
        self.chat_list.setMinimumWidth(CHATS_WIDTH - 20)
        self.speed_panel.setMinimumWidth(SPEED_WIDTH - 24)
        splitter.setSizes([CHATS_WIDTH, FIRST_SIZE.width() - CHATS_WIDTH - SPEED_WIDTH, SPEED_WIDTH])
        return splitter

    def _restore(self, settings: Settings) -> None:
        if not (settings.window_geometry and self.restoreGeometry(_bytes(settings.window_geometry))):
            self.resize(FIRST_SIZE)
        if settings.splitter_state:
            self._splitter.restoreState(_bytes(settings.splitter_state))
        # What the first picture can say already, so that nothing jumps when the engine and the chats come.
        self.top_bar.set_pair(recent_title(settings.last_pair) if settings.last_pair else GUIDE_NAME, "")
        self.speed_panel.set_engine_state(EngineState.STARTING.value)
        self.transcript.set_guide(settings.last_pair is None and not settings.guide_introduced)
        if settings.last_chat_id is None:
            self.transcript.show_welcome()
        self._fit_panels()

    def _fit_panels(self) -> None:
        """Show the wanted panels that have room, the one asked for last first."""
        space = self.width() - CENTRE_WIDTH
        other: Panel = "speed" if self._latest == "chats" else "chats"
        for panel in (self._latest, other):
            width = self._widget(panel).minimumWidth()
            fits = self._wanted[panel] and width <= space
            space -= width if fits else 0
            self._widget(panel).setVisible(fits)
        self._show_states()

    def _show_states(self) -> None:
        self.menus.action("toggle_chats").setChecked(not self.chat_list.isHidden())
        self.menus.action("toggle_speed").setChecked(not self.speed_panel.isHidden())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_panels()
        self.notice_bar.fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._was_painted:
            self._was_painted = True
            QTimer.singleShot(0, self, self.first_painted.emit)

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self.hide()  # what is left to do takes a moment, and nobody should have to look at it
        self.closed.emit()


def _text(data: QByteArray) -> str:
    return bytes(data.toBase64().data()).decode("ascii")


def _bytes(text: str) -> QByteArray:
    return QByteArray.fromBase64(text.encode("utf-8"))
