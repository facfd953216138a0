"""Settings → General: what is set is in force at once."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.settings import Settings, SettingsFile
from app.ui.chat.composer import send_key
from app.ui.context import WindowSettings
from app.ui.notices import NoticeList
from app.ui.settings.general_page import ZOOM_STEPS, GeneralPage, apply, zoom_beside
from app.ui.widgets import theme
from tests.ui.models.windows import WAIT_MS, Windows


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[WindowSettings]:
    settings = WindowSettings(SettingsFile(tmp_path / "settings.json"), NoticeList())
    yield settings
    settings.close()


@pytest.fixture
def page(usual_settings_later: None, qtbot: QtBot, settings: WindowSettings) -> GeneralPage:
    made = GeneralPage(settings)
    qtbot.addWidget(made)
    made.refresh()
    made.show()
    return made


def shown(page: GeneralPage) -> tuple[object, ...]:
    return page._theme.currentData(), page._zoom.currentData(), page._ctrl_enter.isChecked(), page._notify.isChecked()


def test_it_shows_the_settings_and_changes_none(page: GeneralPage, settings: WindowSettings) -> None:
    values = settings.values
    assert shown(page) == ("system", 100, False, True)
    values.theme, values.zoom, values.send_with, values.notify_finished = "dark", 150, "ctrl_enter", False
    before = copy.deepcopy(values)
    page.refresh()
    assert shown(page) == ("dark", 150, True, False)
    assert values == before


def test_a_zoom_between_the_steps_stays(page: GeneralPage, settings: WindowSettings) -> None:
    settings.values.zoom = 133
    page.refresh()
    QTest.keyClick(page._notify, Qt.Key.Key_Space)
    assert (settings.values.zoom, settings.values.notify_finished) == (133, False)


def test_every_change_is_saved(page: GeneralPage, settings: WindowSettings, qtbot: QtBot) -> None:
    values = settings.values
    QTest.keyClick(page._theme, Qt.Key.Key_Down)
    assert values.theme == "light"
    QTest.keyClick(page._zoom, Qt.Key.Key_Down)
    assert values.zoom == 110
    with qtbot.waitSignal(settings.saving, timeout=WAIT_MS):
        QTest.mouseClick(page._ctrl_enter, Qt.MouseButton.LeftButton)
    assert values.send_with == "ctrl_enter"


def test_steps_of_the_zoom() -> None:
    assert zoom_beside(100, 1) == 110
    assert zoom_beside(100, -1) == 90
    assert zoom_beside(105, 1) == 110
    assert zoom_beside(105, -1) == 100
    assert zoom_beside(ZOOM_STEPS[-1], 1) == ZOOM_STEPS[-1] == 200
    assert zoom_beside(ZOOM_STEPS[0], -1) == ZOOM_STEPS[0] == 50


@pytest.mark.usefixtures("usual_settings_later")
def test_a_change_in_the_window_is_in_force_at_once(windows: Windows, qapp: QApplication) -> None:
    size = qapp.font().pointSizeF()
    windows.settings.show_page("General")
    page = windows.settings.general
    assert windows.settings.tabs.currentIndex() == 0
    page._theme.setCurrentIndex(page._theme.findData("dark"))
    assert windows.values.theme == "dark"
    assert theme.current() is theme.DARK
    # The menu changes the zoom, and the page shows it.
    windows.values.zoom, windows.values.send_with = 200, "ctrl_enter"
    apply(windows.values)
    assert page._zoom.currentData() == 200
    assert qapp.font().pointSizeF() == pytest.approx(2 * size)
    assert send_key().needs_ctrl
    apply(Settings(theme="light"))
    assert theme.current() is theme.LIGHT
    assert qapp.font().pointSizeF() == pytest.approx(size)
    assert not send_key().needs_ctrl
    apply(Settings(theme="system"))
    assert theme.notifier().forced is None
