"""The Speed panel as a widget: what it shows, what it tells, and that it rests while nobody looks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QCheckBox,
    QLabel,
    QPushButton,
    QSlider,
    QToolButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.engine.protocol import DraftFigures, Figures, ModelInfo, PairLoaded
from app.ui import theme
from app.ui.speed.drawings import PositionBars, RoundBar, Sparkline
from app.ui.speed.panel import SpeedPanel
from tests.ui.speed.rounds import steady

PAIR = PairLoaded(
    request=1,
    target=ModelInfo(path="target.gguf", name="Target"),
    draft=ModelInfo(path="draft.gguf", name="Draft"),
    default_draft_length=6,
)
FIGURES = Figures(
    completion_tokens=262,
    decode_tokens_per_second=74.2,
    draft=DraftFigures(
        drafted=252,
        tested=252,
        accepted=172,
        acceptance_rate=172 / 252,
        verify_passes=90,
        mean_acceptance_length=1 + 172 / 90,
        accepted_per_position=[80, 60, 32],
    ),
)


@pytest.fixture
def panel(qtbot: QtBot, qapp: QApplication) -> Iterator[SpeedPanel]:
    theme.override(theme.LIGHT)
    theme.apply(qapp)
    made = SpeedPanel()
    qtbot.addWidget(made)
    made.resize(280, 720)
    made.show()
    yield made
    theme.override(None)
    qapp.setStyleSheet("")


def texts(panel: SpeedPanel) -> list[str]:
    return [label.text().replace("\u00a0", " ") for label in panel.findChildren(QLabel) if label.isVisible()]


def button(panel: SpeedPanel, text: str) -> QPushButton:
    return next(found for found in panel.findChildren(QPushButton) if found.text() == text)


def test_shows_an_answer_while_it_is_written_and_after(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    panel.begin_generation()
    panel.add_rounds(steady(30, seconds=0.1, accepted=3))
    qtbot.waitUntil(lambda: "75 % kept" in panel.status_text())
    assert {"40 tok/s", "75 %"} <= set(texts(panel))
    panel.end_generation(FIGURES)
    qtbot.waitUntil(lambda: "68 % kept" in panel.status_text())
    assert panel.status_text() == "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s"
    assert {"74 tok/s", "68 %"} <= set(texts(panel))
    bars, times = panel.findChild(PositionBars), panel.findChild(RoundBar)
    assert isinstance(bars, PositionBars)
    assert isinstance(times, RoundBar)
    assert bars.accessibleDescription().replace("\u00a0", " ") == "1: 89 %, 2: 67 %, 3: 36 %"
    assert times.accessibleDescription().replace("\u00a0", " ") == "draft 20.0 ms, verify 70.0 ms, rest 10.0 ms"


def test_unknown_figures_are_a_dash_not_a_nought(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    qtbot.waitUntil(lambda: panel.status_text().startswith("Draft on"))
    shown = texts(panel)
    assert shown.count("–") == 3
    assert not any(text.startswith("0") for text in shown)


def test_rests_while_hidden_and_is_right_when_shown_again(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    qtbot.waitUntil(lambda: panel.status_text().startswith("Draft on"))
    panel.hide()
    before = panel.status_text(), texts(panel)
    panel.begin_generation()
    panel.add_rounds(steady(30, seconds=0.1, accepted=3))
    panel.set_plain_speed(20.0)
    assert not panel.is_refreshing()
    assert (panel.status_text(), texts(panel)) == before
    panel.end_generation(FIGURES)
    panel.show()
    assert panel.status_text() == "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s · 3.7× plain"


def test_rests_when_nothing_changes(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    assert panel.is_refreshing()
    qtbot.waitUntil(lambda: not panel.is_refreshing())
    panel.begin_generation()
    qtbot.waitUntil(lambda: not panel.is_refreshing())  # no token yet: nothing moves
    panel.add_rounds(steady(5, seconds=0.1, accepted=1))
    assert panel.is_refreshing()
    panel.end_generation(None)
    qtbot.waitUntil(lambda: not panel.is_refreshing())


def test_failed_answer_leaves_what_was_counted(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    panel.begin_generation()
    panel.add_rounds(steady(30, seconds=0.1, accepted=3))
    panel.end_generation(None)
    panel.set_failure("It was ended by the system.")
    qtbot.waitUntil(lambda: panel.status_text() == "Engine stopped · It was ended by the system.")
    assert "75 %" in texts(panel)
    panel.set_failure(None)
    qtbot.waitUntil(lambda: "75 % kept" in panel.status_text())


def test_plain_speed_button_gives_way_to_the_factor(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    panel.end_generation(None)
    measure = button(panel, "Measure plain speed")
    qtbot.waitUntil(measure.isEnabled)
    with qtbot.waitSignal(panel.measure_plain_requested):
        QTest.mouseClick(measure, Qt.MouseButton.LeftButton)
    panel.set_measuring(True)
    assert measure.text() == "Measuring plain speed …"
    assert not measure.isEnabled()
    panel.set_measuring(False)
    panel.set_plain_speed(37.1)
    panel.begin_generation()
    panel.end_generation(FIGURES)
    qtbot.waitUntil(lambda: "2.0× plain" in texts(panel))
    assert "Plain 37 tok/s" in texts(panel)
    assert not measure.isVisible()
    again = next(tool for tool in panel.findChildren(QToolButton) if tool.isVisible())
    with qtbot.waitSignal(panel.measure_plain_requested):
        QTest.mouseClick(again, Qt.MouseButton.LeftButton)


def test_plain_speed_cannot_be_measured_without_models_or_while_answering(panel: SpeedPanel, qtbot: QtBot) -> None:
    measure = button(panel, "Measure plain speed")
    assert not measure.isEnabled()
    panel.set_pair(PAIR)
    qtbot.waitUntil(measure.isEnabled)
    panel.begin_generation()
    qtbot.waitUntil(lambda: not measure.isEnabled())


def test_another_pair_forgets_figures_and_baseline(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    panel.set_plain_speed(37.1)
    panel.begin_generation()
    panel.end_generation(FIGURES)
    qtbot.waitUntil(lambda: "2.0× plain" in texts(panel))
    panel.set_pair(PairLoaded(request=2, target=PAIR.target))
    qtbot.waitUntil(lambda: panel.status_text().startswith("No draft"))
    assert "74 tok/s" not in texts(panel)
    assert button(panel, "Measure plain speed").isVisible()


def test_draft_length_control(panel: SpeedPanel, qtbot: QtBot) -> None:
    slider = panel.findChild(QSlider)
    assert isinstance(slider, QSlider)
    qtbot.waitUntil(lambda: not slider.isEnabled())
    panel.set_pair(PAIR)
    qtbot.waitUntil(slider.isEnabled)
    assert panel.draft_length() == 6
    with qtbot.waitSignal(panel.draft_length_changed) as told:
        QTest.keyClick(slider, Qt.Key.Key_Right)
    assert told.args == [7]
    with qtbot.waitSignal(panel.draft_length_changed) as told:
        QTest.keyClick(slider, Qt.Key.Key_Home)
    assert told.args == [0]
    assert "Off" in texts(panel)
    qtbot.waitUntil(lambda: panel.status_text().startswith("Draft off"))
    with qtbot.assertNotEmitted(panel.draft_length_changed):
        panel.set_draft_length(16)
    assert panel.draft_length() == 16
    assert "16 tokens" in texts(panel)


def test_moving_the_slider_does_not_move_it_away(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    qtbot.waitUntil(lambda: not panel.is_refreshing())
    slider, bars = panel.findChild(QSlider), panel.findChild(PositionBars)
    assert isinstance(slider, QSlider)
    assert isinstance(bars, PositionBars)
    rows = bars.rows()
    slider.setValue(16)
    qtbot.waitUntil(lambda: not panel.is_refreshing())
    assert bars.rows() == rows == 6
    panel.begin_generation()
    qtbot.waitUntil(lambda: bars.rows() == 16)


def test_show_drafted(panel: SpeedPanel, qtbot: QtBot) -> None:
    box = panel.findChild(QCheckBox)
    assert isinstance(box, QCheckBox)
    with qtbot.waitSignal(panel.show_drafted_changed) as told:
        QTest.keyClick(box, Qt.Key.Key_Space)
    assert told.args == [True]
    with qtbot.assertNotEmitted(panel.show_drafted_changed):
        panel.set_show_drafted(False)
    assert not box.isChecked()


@pytest.mark.parametrize("width", [240, 360])
def test_fits_its_width(panel: SpeedPanel, qtbot: QtBot, width: int) -> None:
    panel.set_pair(PAIR)
    panel.set_plain_speed(1042.0)
    panel.begin_generation()
    panel.add_rounds(steady(30, seconds=0.003, accepted=3))
    panel.end_generation(None)
    qtbot.waitUntil(lambda: not panel.is_refreshing())
    panel.resize(width, 720)
    content = panel.findChild(QWidget, "speed-content")
    assert isinstance(content, QWidget)
    assert content.minimumSizeHint().width() <= width
    for child in content.findChildren(QWidget):
        if child.isVisible():
            right = child.mapTo(content, child.rect().topRight()).x()
            assert right < width, child


def test_everything_is_named_explained_and_reachable(panel: SpeedPanel) -> None:
    for kind in (Sparkline, PositionBars, RoundBar, QSlider):
        for widget in panel.findChildren(kind):
            assert isinstance(widget, QWidget)
            assert widget.accessibleName()
    for control in (*panel.findChildren(QAbstractButton), *panel.findChildren(QSlider)):
        if control.parent() is not None and not control.objectName().startswith("qt_"):
            assert control.focusPolicy() & Qt.FocusPolicy.TabFocus
    lines = list(panel.findChildren(Sparkline))
    assert len(lines) == 2
    assert all(line.accessibleDescription().startswith("Now ") for line in lines)


def test_follows_the_theme(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    qtbot.waitUntil(lambda: not panel.is_refreshing())
    theme.override(theme.DARK)
    corner = panel.grab().toImage().pixelColor(3, panel.height() - 3)
    assert corner == theme.DARK.raised
