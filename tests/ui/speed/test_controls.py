"""What one can change in the Speed panel: draft length, drafter, tints, a pause."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QLabel, QSlider, QToolTip
from pytestqt.qtbot import QtBot

from app.ui.speed.drawings import PositionBars, Swatch
from app.ui.speed.panel import SpeedPanel
from app.ui.widgets import theme
from tests.ui.speed.parts import (
    ALONE,
    FIGURES,
    HEAD,
    OFF,
    PAIR,
    PAUSE,
    PAUSED,
    box,
    button,
    is_refreshing,
    of_kind,
    status_of,
    texts,
)
from tests.ui.speed.rounds import paused_rounds, steady


def test_draft_length_control(panel: SpeedPanel, qtbot: QtBot) -> None:
    slider, auto = of_kind(panel, QSlider), box(panel, "Auto")
    qtbot.waitUntil(lambda: not auto.isEnabled())
    panel.set_pair(PAIR)
    qtbot.waitUntil(auto.isEnabled)
    assert panel.draft_length.value() == "auto"
    assert not slider.isEnabled()
    assert texts(panel).count("Auto") == 1
    with qtbot.waitSignal(panel.draft_length.value_changed) as told:
        QTest.keyClick(auto, Qt.Key.Key_Space)
    assert told.args == [6]
    assert slider.isEnabled()
    with qtbot.waitSignal(panel.draft_length.value_changed) as told:
        QTest.keyClick(slider, Qt.Key.Key_Right)
    assert told.args == [7]
    with qtbot.waitSignal(panel.draft_length.value_changed) as told:
        QTest.keyClick(slider, Qt.Key.Key_Home)
    assert told.args == [0]
    assert "Off" in texts(panel)
    qtbot.waitUntil(lambda: status_of(panel).startswith("Drafting is off"))
    with qtbot.assertNotEmitted(panel.draft_length.value_changed):
        panel.set_draft_length(16)
    assert panel.draft_length.value() == 16
    assert "16 tokens" in texts(panel)
    with qtbot.waitSignal(panel.draft_length.value_changed) as told:
        QTest.keyClick(auto, Qt.Key.Key_Space)
    assert told.args == ["auto"]
    assert not slider.isEnabled()
    with qtbot.waitSignal(panel.draft_length.value_changed) as told:
        auto.click()
    assert told.args == [6]  # again the pair's own, not the 16 of before


def test_the_wheel_over_a_control_changes_nothing(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_draft_length(5)
    panel.set_pair(PAIR)  # a stored length survives that
    qtbot.waitUntil(of_kind(panel, QSlider).isEnabled)
    for control in (of_kind(panel, QSlider), of_kind(panel, QComboBox)):
        middle = QPointF(control.rect().center())
        turn = QWheelEvent(
            middle,
            control.mapToGlobal(middle),
            QPoint(),
            QPoint(0, -120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(control, turn)
    assert (panel.draft_length.value(), panel.drafter.choice()) == (5, "auto")
    panel.set_draft_length("auto")
    assert panel.draft_length.value() == "auto"
    assert of_kind(panel, QSlider).value() == 6


def test_nothing_can_be_chosen_where_nothing_can_draft(panel: SpeedPanel, qtbot: QtBot) -> None:
    drafter, auto = of_kind(panel, QComboBox), box(panel, "Auto")
    for pair, is_shown in ((PAIR, True), (ALONE, False), (PAIR, True)):
        panel.set_pair(pair)
        qtbot.waitUntil(auto.isEnabled)
        assert drafter.isVisible() is is_shown
        panel.set_pair(None)
        assert drafter.isVisible() is is_shown  # it stays while a pair is loaded
        qtbot.waitUntil(lambda: not drafter.isEnabled())
    panel.set_pair(OFF)
    qtbot.waitUntil(lambda: status_of(panel) == "No drafting · The target cannot be rolled back.")
    assert not auto.isEnabled() and not drafter.isEnabled()
    panel.set_pair(PAIR)
    qtbot.waitUntil(auto.isEnabled)


def test_a_pause_is_told_and_can_be_ended(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    panel.begin_generation()
    keep_on = button(panel, "Always draft")
    panel.add_rounds(paused_rounds(3, PAUSE))
    qtbot.waitUntil(lambda: not is_refreshing(panel) or status_of(panel).startswith("Drafting · "))
    assert not keep_on.isVisible()
    panel.add_rounds(paused_rounds(8, PAUSE)[3:])
    qtbot.waitUntil(lambda: status_of(panel) == PAUSED)
    assert keep_on.isVisible()
    for words in ("fixed draft length of 6", "every chat", "until you set the draft length to Auto"):
        assert words in keep_on.whatsThis()
    assert {"Drafting is paused", "Auto · paused"} <= set(texts(panel))
    with qtbot.waitSignal(panel.draft_length.value_changed) as told:
        QTest.keyClick(keep_on, Qt.Key.Key_Space)
    assert told.args == [6]
    qtbot.waitUntil(
        lambda: status_of(panel) == "Drafting is paused · Starting with the next answer: up to 6 draft tokens per pass."
    )
    assert not keep_on.isVisible()
    panel.begin_generation()
    qtbot.waitUntil(lambda: status_of(panel).startswith("Drafting · "))


def test_the_keyboard_goes_to_the_draft_length_when_a_pause_ends(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    panel.begin_generation()
    panel.add_rounds(paused_rounds(20, PAUSE))
    panel.end_generation(FIGURES)
    for name in ("Always draft", "Why?"):
        at_pause = button(panel, name)
        qtbot.waitUntil(at_pause.isVisible)
        qtbot.waitUntil(button(panel, "Measure without a draft").isEnabled)
        at_pause.setFocus()
        assert panel.focusWidget() is at_pause
        panel.set_drafter("ngram")
        qtbot.waitUntil(lambda at_pause=at_pause: not at_pause.isVisible())  # type: ignore[misc]
        assert panel.focusWidget() is box(panel, "Auto")
        panel.set_drafter("auto")


@pytest.mark.qt_log_ignore("does not support raise", extend=True)  # the offscreen platform, at a tool tip
def test_why_shows_its_explanation_also_without_a_pointer(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    panel.begin_generation()
    panel.add_rounds(steady(5, seconds=0.1, accepted=0))
    panel.add_rounds(paused_rounds(20, PAUSE)[9:])
    panel.end_generation(FIGURES)
    why = button(panel, "Why?")
    qtbot.waitUntil(why.isVisible)
    QTest.keyClick(why, Qt.Key.Key_Space)
    shown = " ".join(QToolTip.text().replace("\u00a0", " ").split())
    assert "22% of the draft tokens are accepted" in shown
    assert "once about 41% of the draft tokens" in shown
    assert "90.0 ms with a draft and 80.0 ms without one" in shown
    assert why.accessibleName() == "Why is drafting paused?"
    assert "about 41%" in why.accessibleDescription()
    QToolTip.hideText()


def test_moving_the_slider_does_not_move_it_away(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    qtbot.waitUntil(box(panel, "Auto").isEnabled)
    box(panel, "Auto").click()
    qtbot.waitUntil(lambda: not is_refreshing(panel))
    slider, bars = of_kind(panel, QSlider), of_kind(panel, PositionBars)
    rows = len(bars.places)
    slider.setValue(16)
    qtbot.waitUntil(lambda: not is_refreshing(panel))
    assert len(bars.places) == rows == 6
    panel.begin_generation()
    qtbot.waitUntil(lambda: bars.places[-1] == 16)


def test_the_legend_has_the_tints_of_the_transcript(panel: SpeedPanel, qtbot: QtBot) -> None:
    assert legend(panel) == {}
    with qtbot.waitSignal(panel.show_drafted.box.clicked):
        QTest.keyClick(box(panel, "Show drafted tokens"), Qt.Key.Key_Space)
    for chosen in (theme.LIGHT, theme.DARK):
        theme.override(chosen)
        assert legend(panel) == {"Draft model": chosen.tint_model, "n-grams": chosen.tint_ngram}
        panel.set_pair(HEAD)
        assert legend(panel) == {"MTP head": chosen.tint_head, "n-grams": chosen.tint_ngram}
        panel.set_pair(None)  # another one is being loaded
        assert set(legend(panel)) == {"MTP head", "n-grams"}
        panel.set_pair(PAIR)
    theme.override(None)
    with qtbot.assertNotEmitted(panel.show_drafted.box.clicked):
        panel.show_drafted.box.setChecked(False)
    assert legend(panel) == {}


def legend(panel: SpeedPanel) -> dict[str, QColor]:
    """The tints that are explained, by their names."""
    QApplication.processEvents()  # the layout
    image = panel.grab().toImage()
    found = {}
    for swatch in panel.findChildren(Swatch):
        line = swatch.parentWidget()
        name = line.findChild(QLabel) if line else None
        if swatch.isVisible() and name is not None:
            place = swatch.mapTo(panel, QPoint(3, 6))
            found[name.text()] = image.pixelColor(place)
    return found
