"""The bar above everything."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton
from pytestqt.qtbot import QtBot

from app.ui.engine import EngineState
from app.ui.shell.all_actions import all_actions
from app.ui.shell.top_bar import TopBar, state_text
from app.ui.widgets import stylesheet, theme


@pytest.fixture
def bar(qtbot: QtBot) -> TopBar:
    widget = TopBar(all_actions())
    qtbot.addWidget(widget)
    widget.resize(640, 48)
    widget.show()
    return widget


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (EngineState.STARTING, "starting"),
        (EngineState.LOADING, "loading 40%"),
        (EngineState.READY, "ready"),
        (EngineState.ANSWERING, "answering"),
        (EngineState.DIED, "stopped"),
        (EngineState.STOPPED, "stopped"),
        (EngineState.EMPTY, "no model"),
    ],
)
def test_states_in_words(state: EngineState, text: str) -> None:
    assert state_text(state, 0.4) == text


def test_a_load_shows_its_progress_and_can_be_canceled(qtbot: QtBot, bar: TopBar) -> None:
    bar.set_state(EngineState.LOADING, 0.25)
    assert bar._label.text() == "loading 25%"
    cancel = next(one for one in bar.findChildren(QPushButton) if one.text() == "Cancel")
    assert cancel.isVisible()
    with qtbot.waitSignal(bar.cancel.clicked):
        QTest.mouseClick(cancel, Qt.MouseButton.LeftButton)
    bar.set_state(EngineState.READY, 0.0)
    assert not cancel.isVisible()


def test_where_there_is_no_room_the_buttons_of_the_panels_have_icons_only(
    qtbot: QtBot, qapp: QApplication, bar: TopBar, usual_settings_later: None
) -> None:
    stylesheet.apply(qapp)
    bar.resize(640, bar.height())
    bar.set_state(EngineState.READY, 0.0)
    assert (bar.speed.text(), bar.settings.text()) == ("Speed", "Settings")
    theme.notifier().set_zoom(200)
    qtbot.waitUntil(lambda: bar.settings.text() == "")
    assert bar.settings.accessibleName() and not bar.settings.icon().isNull()
    bar._line.activate()
    assert bar.settings.geometry().right() <= bar.width()
    theme.notifier().set_zoom(100)
    qtbot.waitUntil(lambda: bar.settings.text() == "Settings")


def test_names_are_plain_text_and_the_dot_says_what_its_color_means(bar: TopBar) -> None:
    bar.set_pair("<b>bold</b> & co", "<img src='file:///etc/hostname'>")
    button = bar.findChildren(QPushButton)[0]
    assert "<img" not in button.toolTip()
    assert "&&" in button.text()
    bar.set_state(EngineState.DIED, 0.0)
    dot = next(label for label in bar.findChildren(QLabel) if label.text() == "●")
    assert dot.accessibleName() == "Engine: stopped"


def test_the_buttons_follow_their_actions(qtbot: QtBot) -> None:
    actions = all_actions()
    bar = TopBar(actions)
    qtbot.addWidget(bar)
    actions.qaction("toggle_chats").setChecked(True)
    assert bar.chats.isChecked() and not bar.speed.isChecked()
    assert bar.chats.toolTip() == "Show or hide the chats (Ctrl+B)"
    actions.qaction("toggle_speed").setEnabled(True)
    with qtbot.waitSignal(actions.qaction("toggle_speed").triggered):
        bar.speed.click()
    assert actions.qaction("toggle_speed").isChecked() and bar.speed.isChecked()
