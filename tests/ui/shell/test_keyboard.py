"""The main window by keyboard alone: where the keys lead, in which order, and that one sees and hears where one is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
from PySide6.QtCore import QCoreApplication, QPoint, Qt
from PySide6.QtGui import QAccessible, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QWhatsThis, QWidget
from pytestqt.qtbot import QtBot

from app.ui import notices
from app.ui.chat.messages import MessageWidget
from app.ui.engine.client import EngineClient
from tests.ui.shell.running import WAIT_MS, Running, named

pytestmark = pytest.mark.usefixtures("guide_pair", "dressed")
_Key = Qt.Key
_Mod = Qt.KeyboardModifier


class Window(Running):
    """A window with a chat of several messages, a notice, and an offer to undo."""

    def __init__(self, qtbot: QtBot) -> None:
        super().__init__(qtbot, EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", "echo"]))
        self.begin()
        self.ready()
        self.window.activateWindow()
        for text in ("One", "Two"):
            self.ask(text)
        self.window.resize(1100, 1000)
        self.settle()

    def settle(self) -> None:
        """Until every message on the screen has its buttons."""
        column = self.window.transcript.column
        QCoreApplication.processEvents()
        self.qtbot.waitUntil(column.is_complete, timeout=WAIT_MS)
        QCoreApplication.processEvents()

    def press(self, key: Qt.Key, modifiers: Qt.KeyboardModifier = _Mod.NoModifier) -> QWidget:
        """Press a key where the focus is; gives back where it is then."""
        QTest.keyClick(self.focused(), key, modifiers)
        return self.focused()

    def focused(self) -> QWidget:
        focused = QApplication.focusWidget()
        assert focused is not None
        return focused

    def stops(self) -> list[QWidget]:
        """Where the Tab key leads, from the first button of the window on until it comes back there."""
        self.window.top_bar.chats.setFocus()
        found = [self.focused()]
        while (after := self.press(_Key.Key_Tab)) is not found[0]:
            assert after not in found
            found.append(after)
        return found

    def panes(self) -> list[QWidget]:
        return [pane for pane, _first in self.window.panes._panes]


@pytest.fixture
def running(qtbot: QtBot) -> Iterator[Window]:
    window = Window(qtbot)
    yield window
    window.close()


def corner(widget: QWidget) -> QPoint:
    return widget.mapTo(widget.window(), QPoint(0, 0))


def is_on_screen(widget: QWidget) -> bool:
    seen = widget.viewport() if isinstance(widget, QAbstractScrollArea) else widget
    return not seen.visibleRegion().isEmpty()


def test_tab_goes_through_the_window_as_one_reads_and_each_stop_is_seen_and_named(running: Window) -> None:
    running.ctx.notices.show("file", notices.not_opened("It is no model."))
    running.window.serving_bar._show_answer("Answering for Zed", "214 tokens", is_written=True)
    running.window.undo_bar.offer("A chat was moved to the trash.")
    running.settle()
    stops = running.stops()
    order = [running.window.panes.pane_of(one) for one in stops]
    panes = [pane for at, pane in enumerate(order) if at == 0 or pane is not order[at - 1]]
    assert panes == running.panes()
    top = [corner(one).x() for one in stops if order[stops.index(one)] is running.window.top_bar]
    assert top == sorted(top)
    assert len(top) >= 4
    messages = [one for one in stops if order[stops.index(one)] is running.window.transcript][1:]
    every = running.window.transcript.findChildren(MessageWidget)
    owners = [owner for one in messages for owner in every if owner.isAncestorOf(one)]
    assert len(owners) == len(messages)
    assert all(corner(a).y() <= corner(b).y() for a, b in pairwise(owners))
    assert len({corner(one).y() for one in owners}) == 4
    assert len(stops) > 25
    assert [one for one in stops if not is_on_screen(one)] == []
    assert [one for one in stops if not named(one)] == []
    role = QAccessible.Role
    roles = {one: QAccessible.queryAccessibleInterface(one).role() for one in stops}
    assert [one for one, its in roles.items() if its in (role.NoRole, role.Window)] == []

    def picture(pane: QWidget, focused: QWidget) -> QImage:
        focused.setFocus(Qt.FocusReason.TabFocusReason)
        QCoreApplication.processEvents()
        return pane.grab().toImage()

    unseen = []
    for one in stops:
        pane = running.window.panes.pane_of(one)
        assert pane is not None
        elsewhere = next(other for other in stops if running.window.panes.pane_of(other) is not pane)
        if picture(pane, elsewhere) == picture(pane, one):
            unseen.append(one)
    assert unseen == []


def test_f6_goes_from_pane_to_pane_and_finds_back_in_every_chat(running: Window) -> None:
    window = running.window
    running.ctx.notices.show("file", notices.not_opened("It is no model."))
    window.composer.setFocus()
    assert window._side.isAncestorOf(running.press(_Key.Key_F6))
    assert window.top_bar.isAncestorOf(running.press(_Key.Key_F6))
    assert running.press(_Key.Key_F6) is window.chat_list.view
    assert running.press(_Key.Key_F6) is window.transcript.column
    assert running.press(_Key.Key_F6).accessibleName() == "Open models…"
    assert running.press(_Key.Key_F6) is window.composer.editor
    assert window.notice_bar.isAncestorOf(running.press(_Key.Key_F6, _Mod.ShiftModifier))
    assert running.press(_Key.Key_F6, _Mod.ShiftModifier) is window.transcript.column
    running.press(_Key.Key_Tab)
    message = running.focused()
    assert running.press(_Key.Key_Escape, _Mod.ShiftModifier) is window.composer.editor
    for _pane in range(2):
        running.press(_Key.Key_F6, _Mod.ShiftModifier)
    assert running.focused() is message
    running.choose("toggle_chats")
    assert window.top_bar.isAncestorOf(running.press(_Key.Key_F6, _Mod.ShiftModifier))
    running.choose("toggle_chats")
    running.ctx.notices.remove("file")

    first = running.model.id  # the order stays after switching chats and scrolling
    running.choose("new_chat")
    QCoreApplication.processEvents()
    welcome = running.stops()
    panes = [running.window.panes.pane_of(one) for one in welcome]
    assert panes == sorted(panes, key=lambda pane: running.panes().index(pane) if pane else -1)
    running.ask("word " * 600)
    for _ in range(3):
        running.ask("more")
    running.chats.open(first)
    running.qtbot.waitUntil(lambda: len(running.model.messages) == 4, timeout=WAIT_MS)
    running.settle()
    panes = [running.window.panes.pane_of(one) for one in running.stops()]
    assert panes == sorted(panes, key=lambda pane: running.panes().index(pane) if pane else -1)


def test_shift_f1_explains_what_has_the_focus(running: Window) -> None:
    window = running.window
    running.qtbot.waitUntil(window.top_bar.context.isVisible)
    use = running.app.context_meter.use
    assert use is not None and window.top_bar.context.whatsThis() == use.details()
    draft_length = window.speed_panel.draft_length._auto
    running.qtbot.waitUntil(draft_length.isEnabled)  # the panel lags a little behind
    window.activateWindow()
    for widget, is_explained in ((window.top_bar.context, True), (draft_length, True), (window.chat_list.view, False)):
        widget.setFocus()
        running.qtbot.waitUntil(widget.hasFocus)
        QTest.keyClick(widget, _Key.Key_F1, _Mod.ShiftModifier)
        popup = QApplication.activePopupWidget()
        assert (popup is not None) is is_explained
        if popup is not None:
            assert popup.metaObject().className() == "QWhatsThat"
            QTest.keyClick(popup, _Key.Key_Escape)
        assert running.focused() is widget
    running.choose("explain")
    assert QWhatsThis.inWhatsThisMode()
    QWhatsThis.leaveWhatsThisMode()
