"""The main window's layout. `app.ui.app` makes what is behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from PySide6.QtCore import QByteArray, QEvent, QObject, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QCloseEvent, QIcon, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QMainWindow, QSplitter, QTabWidget, QWidget
from shiboken6 import isValid

from app.settings import Settings
from app.ui.actions import Actions
from app.ui.chat.chat_list import ChatList
from app.ui.chat.composer import Composer
from app.ui.chat.drop_area import DropArea
from app.ui.chat.find_bar import FindBar
from app.ui.chat.transcript import Transcript, introduction
from app.ui.engine import EngineState
from app.ui.engine.pair_names import GUIDE_NAME, recent_title
from app.ui.server.bar import ServingBar
from app.ui.shell.top_bar import NoticeBar, TopBar, UndoBar
from app.ui.speed.panel import SpeedPanel
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import column
from app.ui.widgets.focus import next_in_focus_order

if TYPE_CHECKING:
    from app.ui.chat.settings_tab import ChatSettingsTab
    from app.ui.context import AppContext

FIRST_SIZE = QSize(1100, 720)
MINIMUM_SIZE = QSize(640, 480)
CHATS_WIDTH = 200
CENTER_WIDTH = 360
SIDE_WIDTH = 264

Panel = Literal["chats", "side"]


class MainWindow(QMainWindow):
    """Lays out the parts and decides which panels have room.

    Attributes:
        top_bar, chat_list, drop_area, transcript, find_bar, composer, speed_panel, settings_tab, serving_bar, undo_bar,
            notice_bar: The parts.
        panes: The stops of F6.
        edit_menu: Depends on the focus.

    Signals:
        panels_changed: The user showed or hid a panel or a section of it, or rearranged the list of chats.
        first_painted: The window is on the screen for the first time.
        closed: The window is closed.
    """

    panels_changed = Signal()
    closed = Signal()
    first_painted = Signal()

    def __init__(self, settings: Settings, actions: Actions) -> None:
        """``actions`` become children of the window."""
        super().__init__()
        self._actions = actions
        actions.setParent(self)
        self.setWindowTitle("Slipstream")
        self.setMinimumSize(MINIMUM_SIZE)
        self.edit_menu = actions.fill_menu_bar(self.menuBar())["Edit"]
        self.top_bar = TopBar(actions)
        self.chat_list = ChatList(actions)
        self.chat_list.view.arrange(settings.chat_sort, settings.collapsed_folders)
        self.transcript = Transcript(actions)
        self.find_bar = FindBar(self.transcript)
        self.composer = Composer()
        self.speed_panel = SpeedPanel()
        self._settings_page = QWidget()
        """Contains the settings tab, once that is made."""
        pages = Page("Speed", "speed", self.speed_panel), Page("Chat settings", "settings", self._settings_page)
        self._side = SidePanel(pages)
        self.serving_bar = ServingBar()
        self.undo_bar = UndoBar(actions)
        self.notice_bar = NoticeBar(actions)
        self._wanted: dict[Panel, bool] = {"chats": settings.chats_visible, "side": settings.speed_visible}
        self._latest: Panel = "chats"
        self._open_sections = settings.open_sections
        """Of the settings tab."""
        self._was_painted = False
        self._splitter = self._make_splitter()
        everything = QWidget()
        column(self.top_bar, (self._splitter, 1), gap=0, on=everything)
        self.setCentralWidget(everything)
        if settings.side_page == "chat_settings":
            self._side.setCurrentWidget(self._settings_page)
        self._restore(settings)
        self.panes = self._make_panes()
        theme.follow_zoom(self, self._set_widths)
        self._connect()
        self.composer.setFocus()

    def _connect(self) -> None:
        self._side.currentChanged.connect(self._show_states)
        self._side.currentChanged.connect(self.panels_changed)
        self.notice_bar.focus_lost.connect(self.composer.setFocus)
        self.chat_list.view.arranged.connect(self.panels_changed)

    def begin(self, ctx: AppContext) -> None:
        """Called when the rest of the app exists."""
        from app.ui.chat.markdown.code_blocks import code_wrap

        ctx.settings.saving.connect(lambda: self.store(ctx.settings.values))
        self.panels_changed.connect(ctx.settings.save_soon)
        ctx.notices.changed.connect(self.notice_bar.set_notices)
        self.closed.connect(ctx.closing.close)
        code_wrap().set_on(ctx.settings.values.code_wrap)

    @cached_property
    def settings_tab(self) -> ChatSettingsTab:
        """Made on demand: the first picture doesn't need it."""
        from app.ui.chat.settings_tab import ChatSettingsTab

        tab = ChatSettingsTab()
        tab.set_open_sections(self._open_sections)
        tab.sections_changed.connect(self._on_sections_changed)
        column(tab, on=self._settings_page)
        return tab

    # ------------------------------------------------------------ panels

    def toggle_panel(self, panel: Panel) -> None:
        """Show or hide a panel. In a narrow window the other one makes room, and stays hidden afterwards."""
        self._wanted[panel] = self._widget(panel).isHidden()
        if self._wanted[panel]:
            self._latest = panel
            self._fit_panels()
        else:
            self._show_panel(panel, False)
            self._show_states()
        self.panels_changed.emit()

    def toggle_speed(self) -> None:
        self._toggle_page(self.speed_panel)

    def toggle_settings(self) -> None:
        self._toggle_page(self._settings_page)

    def _toggle_page(self, page: QWidget) -> None:
        """Show a page of the side panel; hide the panel if the page is already shown."""
        is_shown = not self._side.isHidden() and self._side.currentWidget() is page
        self._side.setCurrentWidget(page)
        if is_shown or self._side.isHidden():
            self.toggle_panel("side")
        self._show_states()

    def show_panel(self, panel: Panel) -> None:
        if self._widget(panel).isHidden():
            self.toggle_panel(panel)

    def store(self, settings: Settings) -> None:
        """Write size, splitter and panels into the settings."""
        settings.window_geometry = _text(self.saveGeometry())
        settings.splitter_state = _text(self._splitter.saveState())
        settings.chats_visible = self._wanted["chats"]
        settings.speed_visible = self._wanted["side"]
        settings.side_page = "chat_settings" if self._side.currentWidget() is self._settings_page else "speed"
        settings.chat_sort = self.chat_list.view.chats.order
        settings.collapsed_folders = sorted(self.chat_list.view.chats.collapsed)
        settings.open_sections = self._open_sections

    def _widget(self, panel: Panel) -> QWidget:
        return self.chat_list if panel == "chats" else self._side

    def _make_splitter(self) -> QSplitter:
        self.drop_area = center = DropArea()
        theme.set_role(center, "reading")
        center.setMinimumWidth(CENTER_WIDTH)
        column(self.find_bar, (self.transcript, 1), *self._bars(), self.composer, gap=0, on=center)
        splitter = QSplitter(Qt.Orientation.Horizontal, childrenCollapsible=False)
        for place, (part, stretch) in enumerate(((self.chat_list, 0), (center, 1), (self._side, 0))):
            splitter.addWidget(part)
            splitter.setStretchFactor(place, stretch)
        splitter.setSizes([CHATS_WIDTH, FIRST_SIZE.width() - CHATS_WIDTH - SIDE_WIDTH, SIDE_WIDTH])
        return splitter

    def _bars(self) -> tuple[QWidget, ...]:
        return self.notice_bar, self.serving_bar, self.undo_bar

    def _make_panes(self) -> Panes:
        def first_chat() -> QWidget:
            view = self.chat_list.view
            return view if view.isVisible() else self.chat_list.new_button

        return Panes(
            (
                (self.top_bar, lambda: self.top_bar.chats),
                (self.chat_list, first_chat),
                (self.transcript, lambda: self.transcript.column),
                (self.notice_bar, lambda: first_stop(self.notice_bar)),
                (self.serving_bar, lambda: self.serving_bar.stop),
                (self.undo_bar, lambda: self.undo_bar.undo),
                (self.composer, lambda: self.composer.editor),
                (self._side, self._side.tabBar),
            ),
            self,
        )

    def _set_widths(self) -> None:
        """Set how narrow the panels can be, so that each has room beside the chat, also with large text."""
        most = max(self.width(), MINIMUM_SIZE.width()) - CENTER_WIDTH
        self.chat_list.setMinimumWidth(min(theme.px(CHATS_WIDTH - 20), most))
        self._side.setMinimumWidth(min(theme.px(SIDE_WIDTH - 24), most))
        self._fit_panels()

    def _restore(self, settings: Settings) -> None:
        if not (settings.window_geometry and self.restoreGeometry(_bytes(settings.window_geometry))):
            self.resize(FIRST_SIZE)
        if settings.splitter_state:
            self._splitter.restoreState(_bytes(settings.splitter_state))
        # Show what is known before the engine and the chats come, so that nothing jumps.
        self.top_bar.set_pair(recent_title(settings.last_pair) if settings.last_pair else GUIDE_NAME, "")
        self.speed_panel.set_engine_state(EngineState.STARTING.value)
        self.transcript.introduce(introduction(settings, settings.last_pair))
        if settings.last_chat_id is None:
            self.transcript.show_welcome()
        self._fit_panels()

    def _fit_panels(self) -> None:
        """Show the wanted panels that have room, the one requested last first."""
        space = self.width() - CENTER_WIDTH
        other: Panel = "side" if self._latest == "chats" else "chats"
        for panel in (self._latest, other):
            width = self._widget(panel).minimumWidth()
            fits = self._wanted[panel] and width <= space
            space -= width if fits else 0
            self._show_panel(panel, fits)
        self._show_states()

    def _show_panel(self, panel: Panel, shown: bool) -> None:
        """The composer takes the focus from a panel that is hidden; Qt would give it to whatever comes next."""
        widget = self._widget(panel)
        if not shown and widget.isVisible() and widget.isAncestorOf(self.focusWidget() or self):
            self.composer.setFocus()
        widget.setVisible(shown)

    @Slot(list)
    def _on_sections_changed(self, names: list[str]) -> None:
        self._open_sections = names
        self.panels_changed.emit()

    @Slot()
    def _show_states(self) -> None:
        self._actions.qaction("toggle_chats").setChecked(not self.chat_list.isHidden())
        page = None if self._side.isHidden() else self._side.currentWidget()
        self._actions.qaction("toggle_speed").setChecked(page is self.speed_panel)
        self._actions.qaction("chat_settings").setChecked(page is self._settings_page)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._set_widths()
        self.notice_bar.fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._was_painted:
            self._was_painted = True
            QTimer.singleShot(0, self, self.first_painted.emit)

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self.hide()  # closing takes a moment, and nobody should have to watch it
        self.closed.emit()


def _text(data: QByteArray) -> str:
    return bytes(data.toBase64().data()).decode("ascii")


def _bytes(text: str) -> QByteArray:
    return QByteArray.fromBase64(text.encode("utf-8"))


class Page(NamedTuple):
    """A page of the panel."""

    title: str
    icon: str
    """Replaces the title if large text leaves no room for titles."""
    widget: QWidget


class SidePanel(QTabWidget):
    """Shows one of several named pages."""

    def __init__(self, pages: tuple[Page, ...]) -> None:
        super().__init__(documentMode=True, usesScrollButtons=False)
        theme.set_role(self, "side")
        self._pages = pages
        self.tabBar().setDrawBase(False)
        self.tabBar().setExpanding(True)
        self.setAccessibleName("Side panel")
        self.tabBar().setAccessibleName("Side panel")
        for page in pages:
            place = self.addTab(page.widget, page.title)
            self.tabBar().setAccessibleTabName(place, page.title)
        theme.follow(self, self._name_tabs)

    def minimumSizeHint(self) -> QSize:
        """A page never widens the window."""
        return QSize(0, 0)

    @Slot()
    def _name_tabs(self) -> None:
        """Show titles, or icons if titles have no room."""
        for place, page in enumerate(self._pages):
            self.setTabText(place, page.title)
            self.setTabIcon(place, QIcon())
            self.setTabToolTip(place, "")
        if self.tabBar().sizeHint().width() <= self.width():
            return
        for place, page in enumerate(self._pages):
            self.setTabText(place, "")
            self.setTabIcon(place, icons.themed(page.icon, theme.current()))
            self.setTabToolTip(place, page.title)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._name_tabs()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._name_tabs()


class Panes(QObject):
    """F6 and Shift+F6 move between the parts of the window, in reading order. The focus goes to what had it there last,
    else to the first control.
    """

    def __init__(self, panes: Sequence[tuple[QWidget, Callable[[], QWidget | None]]], parent: QObject) -> None:
        """``panes`` in order, each with the widget to focus the first time."""
        super().__init__(parent)
        self._panes = panes
        self._last: dict[QWidget, QWidget] = {}
        cast(QApplication, QApplication.instance()).focusChanged.connect(self._on_focus_changed)

    def go(self, step: int) -> None:
        """Move by this many panes; skips hidden ones and ones without anything to focus."""
        here = self.pane_of(QApplication.focusWidget())
        place = next((at for at, (pane, _first) in enumerate(self._panes) if pane is here), -1 if step > 0 else 0)
        for distance in range(1, len(self._panes) + 1):
            pane, first = self._panes[(place + step * distance) % len(self._panes)]
            wanted = self._last.get(pane)
            if wanted is None or not takes_keyboard(wanted):
                wanted = first()
            if pane.isVisible() and wanted is not None and takes_keyboard(wanted):
                wanted.setFocus(Qt.FocusReason.ShortcutFocusReason)
                return

    def pane_of(self, widget: QWidget | None) -> QWidget | None:
        """The pane that contains a widget."""
        return next((pane for pane, _first in self._panes if widget and pane.isAncestorOf(widget)), None)

    @Slot("QWidget*", "QWidget*")
    def _on_focus_changed(self, _old: QWidget | None, now: QWidget | None) -> None:
        if (pane := self.pane_of(now)) is not None and now is not None:
            self._last[pane] = now


def takes_keyboard(widget: QWidget) -> bool:
    """Whether the widget still exists, is visible and can have the focus."""
    return isValid(widget) and widget.isVisible() and widget.isEnabled()


def first_stop(pane: QWidget) -> QWidget | None:
    """The first stop of the Tab key in a pane."""
    widget = next_in_focus_order(pane)
    while widget is not pane:
        if pane.isAncestorOf(widget) and widget.focusPolicy() & Qt.FocusPolicy.TabFocus and takes_keyboard(widget):
            return widget
        widget = next_in_focus_order(widget)
    return None
