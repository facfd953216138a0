"""The Speed panel as a widget: what it shows, what it tells, and that it rests while nobody looks."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QLabel, QSlider, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from app.protocol.events import PairLoaded
from app.ui.speed.drawings import PositionBars, RoundBar
from app.ui.speed.panel import SpeedPanel
from app.ui.widgets import theme
from tests.ui.speed.parts import (
    CURVE,
    FIGURES,
    HISTORY,
    PAIR,
    PAUSE,
    button,
    is_refreshing,
    of_kind,
    status_of,
    texts,
)
from tests.ui.speed.rounds import paused_rounds, steady


def test_shows_an_answer_while_it_is_written_and_after(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    panel.begin_generation()
    panel.add_rounds(steady(30, seconds=0.1, accepted=3))
    qtbot.waitUntil(lambda: "75% accepted" in status_of(panel))
    assert {"40 tok/s", "75%"} <= set(texts(panel))
    panel.end_generation(FIGURES)
    qtbot.waitUntil(lambda: "68% accepted" in status_of(panel))
    assert status_of(panel) == "Drafting · 68% accepted · 2.9 tokens per pass · 74 tok/s"
    assert {"74 tok/s", "68%"} <= set(texts(panel))
    bars, times = panel.findChild(PositionBars), panel.findChild(RoundBar)
    assert isinstance(bars, PositionBars)
    assert isinstance(times, RoundBar)
    assert bars.accessibleDescription().replace("\u00a0", " ") == "1: 89%, 2: 67%, 3: 36%"
    assert times.accessibleDescription().replace("\u00a0", " ") == "draft 20.0 ms, verify 70.0 ms, other 10.0 ms"
    panel.begin_generation()
    panel.add_rounds(steady(30, seconds=0.1, accepted=3))
    panel.end_generation(None)  # one that failed leaves what was counted
    panel.set_failure("It was ended by the system.")
    qtbot.waitUntil(lambda: status_of(panel) == "Engine stopped · It was ended by the system.")
    assert "75%" in texts(panel)
    panel.set_failure(None)
    qtbot.waitUntil(lambda: "75% accepted" in status_of(panel))


def test_rests_while_hidden_and_is_right_when_shown_again(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    qtbot.waitUntil(lambda: status_of(panel).startswith("Drafting · "))
    panel.hide()
    before = status_of(panel), texts(panel)
    panel.begin_generation()
    panel.add_rounds(steady(30, seconds=0.1, accepted=3))
    panel.set_plain_speed(20.0)
    assert not is_refreshing(panel)
    assert (status_of(panel), texts(panel)) == before
    panel.end_generation(FIGURES)
    panel.show()
    assert status_of(panel) == "Drafting · 68% accepted · 2.9 tokens per pass · 74 tok/s · 3.7× faster"


def test_plain_speed_button_gives_way_to_the_factor(panel: SpeedPanel, qtbot: QtBot) -> None:
    measure = button(panel, "Measure without a draft")
    assert not measure.isEnabled()
    panel.set_pair(PAIR)
    qtbot.waitUntil(measure.isEnabled)
    panel.begin_generation()
    qtbot.waitUntil(lambda: not measure.isEnabled())
    panel.end_generation(None)
    qtbot.waitUntil(measure.isEnabled)
    with qtbot.waitSignal(panel.plain_speed.buttons[0].clicked):
        QTest.mouseClick(measure, Qt.MouseButton.LeftButton)
    panel.plain_speed.set_measuring(True)
    assert measure.text() == "Measuring…"
    assert not measure.isEnabled()
    panel.plain_speed.set_measuring(False)
    panel.set_plain_speed(37.1)
    panel.begin_generation()
    panel.end_generation(FIGURES)
    qtbot.waitUntil(lambda: "2.0× faster" in texts(panel))
    assert "37 tok/s without a draft" in texts(panel)
    assert not measure.isVisible()
    again = next(tool for tool in panel.findChildren(QToolButton) if tool.isVisible())
    with qtbot.waitSignal(panel.plain_speed.buttons[1].clicked):
        QTest.mouseClick(again, Qt.MouseButton.LeftButton)
    panel.set_pair(PairLoaded(request=2, target=PAIR.target))  # which has its own figures and baseline
    qtbot.waitUntil(lambda: status_of(panel).startswith("Drafting with n-grams"))
    assert "74 tok/s" not in texts(panel)
    assert measure.isVisible()


def test_it_fits_and_its_controls_need_no_scrolling(dressed: None, panel: SpeedPanel, qtbot: QtBot) -> None:
    """In a window of 720 pixels, of which menu and top bar take some."""
    panel.set_pair(msgspec.structs.replace(PAIR, history=HISTORY))
    panel.show_drafted.box.setChecked(True)
    panel.set_plain_speed(1042.0)
    content, slider = panel.findChild(QWidget, "speed-content"), of_kind(panel, QSlider)
    assert isinstance(content, QWidget)
    for paused in (False, True):
        for accepted in (3, 16):
            panel.begin_generation()
            panel.add_rounds(steady(30, seconds=0.003, accepted=accepted, tested=16))
            panel.add_rounds(paused_rounds(60, PAUSE)[9:] if paused else [])
            panel.end_generation(None)
            panel.set_curve(CURVE)
            qtbot.waitUntil(lambda: not is_refreshing(panel))
            assert button(panel, "Why?").isVisible() is paused
            panel.resize(280, 640)
            panel.show_drafted.box.setChecked(False)
            qtbot.waitUntil(lambda: slider.mapTo(panel, slider.rect().bottomLeft()).y() < 640)
            panel.show_drafted.box.setChecked(True)
            for width in (240, 360):
                panel.resize(width, 720)
                assert_content_fits(content, width)
    theme.override(theme.DARK)
    assert panel.grab().toImage().pixelColor(3, panel.height() - 3) == theme.DARK.raised


def assert_content_fits(content: QWidget, width: int) -> None:
    assert content.minimumSizeHint().width() <= width
    for child in content.findChildren(QWidget):
        if child.isVisible():
            right = child.mapTo(content, child.rect().topRight()).x()
            assert right < width, child
            if isinstance(child, QLabel | QAbstractButton) and not (isinstance(child, QLabel) and child.wordWrap()):
                assert child.width() >= child.minimumSizeHint().width(), child
