"""The side panel of the window, the context in the top bar, and both with the bundled pair."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from app.ui.chat.context_meter import ContextUse
from app.ui.engine import EngineState
from app.ui.shell.all_actions import all_actions
from app.ui.shell.top_bar import TopBar
from tests.ui.shell.running import WAIT_MS, Running

USE = ContextUse(100, 13_000, 0, 32_768, "drop_oldest")


@pytest.mark.usefixtures("dressed")
def test_in_a_narrow_window_the_settings_have_room_and_pages_icons(open_window: Callable[[], Running]) -> None:
    running = open_window()
    running.window.resize(640, 480)
    running.choose("chat_settings")
    tab = running.window.settings_tab
    assert tab.isVisible() and not running.window.chat_list.isVisible()
    assert tab.save_button.visibleRegion().boundingRect() == tab.save_button.rect()
    assert running.window.width() == 640
    bar = running.window._side.tabBar()
    names = ["Speed", "Chat settings"]

    def shown() -> list[tuple[str, bool, str]]:
        places = range(bar.count())
        return [(bar.tabText(place), bar.tabIcon(place).isNull(), bar.tabToolTip(place)) for place in places]

    assert shown() == [(name, True, "") for name in names]
    running.app.zoom.set(200)
    assert shown() == [("", False, name) for name in names]
    assert [bar.accessibleTabName(place) for place in range(bar.count())] == names
    assert bar.tabRect(1).right() < running.window._side.width()
    running.app.zoom.set(100)
    assert shown() == [(name, True, "") for name in names]


def test_who_hides_a_panel_goes_on_writing(open_window: Callable[[], Running]) -> None:
    running = open_window()
    window = running.window
    window.activateWindow()
    for panel, inside in (("toggle_chats", window.chat_list.search_field), ("toggle_speed", window._side.tabBar())):
        inside.setFocus()
        assert inside.hasFocus()
        running.choose(panel)
        assert not inside.isVisible() and window.composer.editor.hasFocus()
    window.transcript.column.setFocus()
    running.choose("toggle_chats")
    running.choose("toggle_chats")
    assert window.transcript.column.hasFocus()  # which was in no panel


def test_the_page_its_width_and_the_last_keys_are_kept(qtbot: QtBot, open_window: Callable[[], Running]) -> None:
    running = open_window()
    chat = running.make_chat("One")
    running.ctx.chats.open(chat.id)
    qtbot.waitUntil(lambda: running.model.knows_settings, timeout=WAIT_MS)
    running.choose("chat_settings")
    splitter = running.window._splitter
    running.choose("toggle_chats")
    running.window.resize(780, 560)
    splitter.setSizes([0, 440, 340])
    width = splitter.sizes()[2]
    assert width > 300
    qtbot.waitUntil(running.window.settings_tab.isEnabled, timeout=WAIT_MS)
    QTest.keyClicks(running.window.settings_tab.by_key["system_prompt"], "Be brief.")
    running.window.close()
    again = open_window()
    assert again.window.settings_tab.isVisible()
    assert again.window.top_bar.settings.isChecked()
    qtbot.waitUntil(lambda: abs(again.window._splitter.sizes()[2] - width) <= 2)
    assert again.model.id == chat.id
    qtbot.waitUntil(lambda: again.model.knows_settings, timeout=WAIT_MS)
    assert again.model.settings == ChatSettings(system_prompt="Be brief.", sampling=SamplingChoice())


@pytest.mark.usefixtures("dressed")
def test_the_context_makes_room_for_the_name(qtbot: QtBot) -> None:
    bar = TopBar(all_actions())
    qtbot.addWidget(bar)
    bar.set_pair("A model with quite a long name · and its draft", "")
    bar.setMinimumSize(1, 1)  # as in the window, which may be narrower
    bar.show_context(USE)
    bar.resize(1100, 48)
    bar.show()
    for state in (EngineState.READY, EngineState.MEASURING, EngineState.LOADING):
        bar.set_state(state, 0.5)
        assert bar.context._words.text() == "40% of 32K context" and bar.context.isVisible()
        for width in range(1100, 639, -20):
            bar.resize(width, 48)
            QCoreApplication.processEvents()
            assert bar.minimumSizeHint().width() <= width
            assert len(bar.pair.text()) > 12
        bar.resize(1100, 48)
    assert bar.context._words.text() == "40% of 32K context" and bar.context.isVisible()


# ---------------------------------------------------------------- with the bundled pair
