"""Settings → General: what is set is in force at once."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QCheckBox, QComboBox, QRadioButton, QWidget
from pytestqt.qtbot import QtBot

from app.settings import Settings
from app.ui.chat.send_key import send_key
from app.ui.settings.general_page import ZOOM_STEPS, GeneralPage, apply, zoom_beside
from app.ui.widgets import theme
from tests.ui.models.windows import Windows


@pytest.fixture
def page(qtbot: QtBot) -> GeneralPage:
    made = GeneralPage()
    qtbot.addWidget(made)
    made.show_settings(Settings())
    made.show()
    return made


def test_it_shows_the_settings_and_gives_them_back(page: GeneralPage, qtbot: QtBot) -> None:
    values = Settings(theme="dark", zoom=150, send_with="ctrl_enter", notify_finished=False)
    with qtbot.assertNotEmitted(page.changed):
        page.show_settings(values)
    assert page.values() == {"theme": "dark", "zoom": 150, "send_with": "ctrl_enter", "notify_finished": False}
    with qtbot.assertNotEmitted(page.changed):
        page.show_settings(Settings())
    assert page.values() == {"theme": "system", "zoom": 100, "send_with": "enter", "notify_finished": True}


def test_a_zoom_between_the_steps_stays(page: GeneralPage) -> None:
    page.show_settings(Settings(zoom=133))
    assert page.values()["zoom"] == 133


def test_every_change_is_told_once(page: GeneralPage, qtbot: QtBot) -> None:
    told: list[dict[str, object]] = []
    page.changed.connect(lambda: told.append(page.values()))
    QTest.keyClick(page._theme, Qt.Key.Key_Down)
    assert told[-1]["theme"] == "light"
    QTest.keyClick(page._zoom, Qt.Key.Key_Down)
    assert told[-1]["zoom"] == 110
    QTest.mouseClick(page._ctrl_enter, Qt.MouseButton.LeftButton)
    assert told[-1]["send_with"] == "ctrl_enter"
    QTest.keyClick(page._notify, Qt.Key.Key_Space)
    assert told[-1]["notify_finished"] is False
    assert len(told) == 4


def test_everything_has_a_name_and_can_be_reached_with_the_keyboard(page: GeneralPage) -> None:
    fields: list[QWidget] = [one for kind in (QComboBox, QRadioButton, QCheckBox) for one in page.findChildren(kind)]
    assert len(fields) == 5
    for field in fields:
        assert field.accessibleName() or field.property("text")
        assert field.focusPolicy() & Qt.FocusPolicy.TabFocus


def test_steps_of_the_zoom() -> None:
    assert zoom_beside(100, 1) == 110
    assert zoom_beside(100, -1) == 90
    assert zoom_beside(105, 1) == 110
    assert zoom_beside(105, -1) == 100
    assert zoom_beside(ZOOM_STEPS[-1], 1) == ZOOM_STEPS[-1] == 200
    assert zoom_beside(ZOOM_STEPS[0], -1) == ZOOM_STEPS[0] == 50


@pytest.mark.usefixtures("usual_settings_later")
def test_a_change_in_the_window_is_saved_and_in_force(windows: Windows, qtbot: QtBot, qapp: QApplication) -> None:
    size = qapp.font().pointSizeF()
    presenter = windows.settings_presenter
    presenter.show_general()
    page = presenter.window.general
    assert presenter.window.tabs.currentIndex() == 0
    with qtbot.waitSignal(windows.commands.settings_changed):
        page._theme.setCurrentIndex(page._theme.findData("dark"))
    assert windows.values.theme == "dark"
    assert theme.current() is theme.DARK
    # The menu changes the zoom, and the page shows it.
    windows.values.zoom, windows.values.send_with = 200, "ctrl_enter"
    apply(windows.values)
    assert page.values()["zoom"] == 200
    assert qapp.font().pointSizeF() == pytest.approx(2 * size)
    assert send_key().needs_ctrl
    apply(Settings(theme="light"))
    assert theme.current() is theme.LIGHT
    assert qapp.font().pointSizeF() == pytest.approx(size)
    assert not send_key().needs_ctrl
    apply(Settings(theme="system"))
    assert theme.notifier().forced is None
