"""Theme and zoom of the whole window: what follows them, where they are set, and that one does not lose one's place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from PySide6.QtCore import QPoint, QPointF, QSize, Qt
from PySide6.QtGui import QImage, QTextCursor, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton, QTextEdit, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from app import system
from app.chats.model import StoredMessage
from app.settings import Settings, SettingsFile
from app.ui.actions import Actions
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.markdown.code_blocks import CodeHeader
from app.ui.chat.messages import UserMessage
from app.ui.context import AppContext, WindowSettings
from app.ui.notices import NoticeList
from app.ui.settings.general_page import apply
from app.ui.shell.all_actions import ELSEWHERE, MENUS
from app.ui.shell.main_window import MainWindow, Panel
from app.ui.shell.menus import Zoom
from app.ui.widgets import stylesheet
from app.ui.widgets.tabbed_window import TabbedWindow

pytestmark = pytest.mark.usefixtures("usual_settings_later")
TEXT = "\n\n".join(f"Paragraph {number} of a long answer. {'Many words follow here. ' * 12}" for number in range(32))


class Rig:
    def __init__(self, qtbot: QtBot, qapp: QApplication) -> None:
        stylesheet.apply(qapp)
        self.qtbot = qtbot
        self.settings = WindowSettings(SettingsFile(system.settings_file()), NoticeList())
        self.values = self.settings.values
        self.actions = actions_of_zoom()
        self.window = MainWindow(self.values, self.actions)
        qtbot.addWidget(self.window)
        self.zoom = Zoom(self.context(), self.window)
        self.actions.begin(self)
        self.window.resize(1000, 700)
        self.window.show()
        qtbot.waitExposed(self.window)

    def context(self) -> AppContext:
        """As much of it as matters here."""
        return cast(AppContext, SimpleNamespace(actions=self.actions, settings=self.settings))

    def choose(self, name: str) -> None:
        self.actions.qaction(name).trigger()

    def another(self) -> MainWindow:
        """A new window of the same size."""
        window = MainWindow(self.values, actions_of_zoom())
        self.qtbot.addWidget(window)
        window.resize(self.window.size())
        window.show()
        self.qtbot.waitExposed(window)
        return window


def actions_of_zoom() -> Actions:
    """Those that the rest of the app isn't needed for."""
    menus = {
        title: [
            one if one is None or "zoom" in one.name else replace(one, enabled=None, choices=None, checked=None)
            for one in menu
        ]
        for title, menu in MENUS.items()
    }
    return Actions(menus, ELSEWHERE)


@pytest.fixture
def rig(qtbot: QtBot, qapp: QApplication, usual_settings_later: None) -> Iterator[Rig]:
    made = Rig(qtbot, qapp)
    yield made
    made.settings.close()


def sizes(window: QWidget) -> Counter[tuple[str, float]]:
    """Of the text of all widgets."""
    return Counter((type(one).__name__, round(one.font().pointSizeF(), 2)) for one in window.findChildren(QWidget))


def fill(window: MainWindow) -> None:
    """With messages, and with the focus where nothing is drawn for it."""
    window.transcript.clear()
    text = "So:\n\n1. `one`\n2. [two](https://a.example)\n\n```python\nprint(1)\n```\n\n"
    text += "| a | b |\n|---|---|\n| 1 | 2 |\n\n> A quote"
    window.transcript.add_all([StoredMessage("q", "c", None, "user", "How?", "complete", 0.0)])
    window.transcript.add_all([StoredMessage("a", "c", "q", "assistant", text, "complete", 0.0)])
    window.transcript.column.setFocus()


def picture(window: MainWindow) -> QImage:
    """The window without a ring or a cursor, which only the one in front has."""
    if (focused := window.focusWidget()) is not None:
        focused.clearFocus()
    return window.grab().toImage()


def has_code(window: MainWindow) -> bool:
    """Whether the last message is drawn."""
    return any(one.isVisible() for one in window.findChildren(CodeHeader))


def test_all_text_has_the_size_it_would_have_in_a_new_window(qtbot: QtBot, rig: Rig) -> None:
    fill(rig.window)
    qtbot.waitUntil(lambda: has_code(rig.window))
    for percent in (200, 67, 125):  # from wherever it comes
        rig.zoom.set(percent)
    fresh = rig.another()
    Zoom(rig.context(), fresh)
    fill(fresh)
    qtbot.waitUntil(lambda: has_code(fresh))
    qtbot.waitUntil(lambda: sizes(rig.window) == sizes(fresh))
    assert len(sizes(fresh)) > 20
    assert fresh.composer.editor.font().pointSizeF() == pytest.approx(1.25 * 9)


def test_a_change_of_theme_reaches_everything(qtbot: QtBot, rig: Rig) -> None:
    """The window looks like one that was made in this theme."""
    fill(rig.window)
    apply(Settings(theme="dark", zoom=150))
    fresh = rig.another()
    fresh._splitter.setSizes(rig.window._splitter.sizes())  # how wide the panels are is the user's
    fill(fresh)
    qtbot.waitUntil(lambda: picture(rig.window) == picture(fresh))


def turn(widget: QWidget, angle: int, modifiers: Qt.KeyboardModifier) -> None:
    place = QPointF(widget.rect().center())
    event = QWheelEvent(
        place,
        widget.mapToGlobal(place),
        QPoint(),
        QPoint(0, angle),
        Qt.MouseButton.NoButton,
        modifiers,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(widget, event)


def test_from_the_menu_by_keys_of_any_window_and_with_the_wheel(qtbot: QtBot, rig: Rig) -> None:
    sign, ctrl = rig.zoom.sign, Qt.KeyboardModifier.ControlModifier
    viewport = rig.window.transcript.column.viewport()
    other = TabbedWindow("Other", QSize(300, 200), QSize(100, 100))
    qtbot.addWidget(other)
    other.tabs.addTab(QPushButton("page"), "Page")
    assert sign.isHidden() and rig.actions.qaction("zoom_in").shortcuts()[1].toString() == "Ctrl+="
    rig.choose("zoom_in")
    assert (rig.values.zoom, rig.settings._delay.isActive()) == (110, True)
    assert sign.isVisible() and sign.text.text() == "110%" and rig.window.rect().contains(sign.geometry())
    sign._timer.start(0)
    qtbot.waitUntil(sign.isHidden)
    turn(viewport, -240, ctrl)  # a fast turn is one step, so that nobody gets lost
    assert rig.values.zoom == 100
    for _ in range(3):
        turn(viewport, 40, ctrl)  # a touchpad
    assert rig.values.zoom == 110
    turn(viewport, 120, Qt.KeyboardModifier.NoModifier)
    rig.choose("zoom_out")
    rig.choose("zoom_out")
    assert rig.values.zoom == 90
    other.show()
    other.activateWindow()
    qtbot.waitUntil(other.isActiveWindow)
    QTest.keyClick(other.tabs, Qt.Key.Key_Plus, ctrl)
    QTest.keyClick(other.tabs, Qt.Key.Key_Plus, ctrl)
    assert rig.values.zoom == 110
    QTest.keyClick(other.tabs, Qt.Key.Key_0, ctrl)
    assert rig.values.zoom == 100
    rig.zoom.set(200)
    assert not rig.actions.qaction("zoom_in").isEnabled()
    rig.zoom.set(50)
    assert not rig.actions.qaction("zoom_out").isEnabled() and rig.actions.qaction("zoom_in").isEnabled()


def paragraph(rig: Rig) -> str:
    viewport = rig.window.transcript.column.viewport()
    for view in viewport.findChildren(QTextEdit):
        inside = view.mapFrom(viewport, QPoint(0, 0)).y()
        if view.isVisible() and 0 <= inside < view.height():
            cursor = view.cursorForPosition(QPoint(0, inside))
            cursor.movePosition(QTextCursor.MoveOperation.StartOfBlock)
            return cursor.block().text()[:14]
    raise AssertionError("there is no text at the upper edge")


def test_the_line_one_reads_and_the_end_stay_where_they_are(qtbot: QtBot, rig: Rig) -> None:
    transcript = rig.window.transcript
    transcript.clear()
    transcript.add_all([StoredMessage("q", "c", None, "user", "Write", "complete", 0.0)])
    transcript.add_all([StoredMessage("a", "c", "q", "assistant", TEXT, "complete", 0.0)])
    bar = transcript.column.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 2000)
    bar.setValue(bar.maximum() // 2)
    qtbot.waitUntil(lambda: not transcript.column.follows)
    qtbot.waitUntil(lambda: transcript.column.is_complete() and bool(paragraph(rig)))
    before = paragraph(rig)
    for percent in (200, 50, 125):
        rig.zoom.set(percent)
        qtbot.waitUntil(lambda: paragraph(rig) == before)
    assert not transcript.column.follows
    transcript.column.go_to_end()
    for percent in (200, 50):
        rig.zoom.set(percent)
        qtbot.waitUntil(lambda: bar.maximum() > 500 and bar.value() == bar.maximum())
    assert transcript.column.follows


def test_the_smallest_window_holds_it(qtbot: QtBot, rig: Rig) -> None:
    panels: tuple[tuple[Panel, QWidget], ...] = (("side", rig.window.speed_panel), ("chats", rig.window.chat_list))
    rig.window.resize(640, 480)
    for percent in (50, 200):
        rig.zoom.set(percent)
        for panel, widget in panels:
            rig.window.show_panel(panel)
            assert widget.isVisible()
            assert rig.window.width() == 640 and rig.window.composer.width() >= 360
    fill(rig.window)
    column = rig.window.transcript.column
    for entry, name in zip(column.entries, ("You", "Answer"), strict=True):
        message = rig.window.transcript.show_message(entry.key)
        assert isinstance(message, UserMessage | AnswerMessage)
        qtbot.waitUntil(lambda shown=message: shown._buttons is not None)  # type: ignore[misc]
        heading, actions = message.heading, message.buttons
        qtbot.waitUntil(column.is_complete)
        assert heading.text() == name and heading.width() >= heading.fontMetrics().horizontalAdvance(name)
        assert not heading.geometry().intersects(actions.geometry())
        buttons = [one for one in actions.findChildren(QToolButton) if one.isVisible()]
        assert len(buttons) >= 3
        assert all(one.width() >= one.sizeHint().width() and one.accessibleName() for one in buttons)
