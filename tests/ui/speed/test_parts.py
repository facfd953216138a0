"""What the panel says of more than one answer: speed by draft length, and what drafting pays on."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from app.protocol.events import DrafterFigures, Figures, KindFigures
from app.ui.speed import wording
from app.ui.speed.drawings import LengthCurve, PositionBars
from app.ui.speed.panel import SpeedPanel
from app.ui.speed.parts import KindsSection
from app.ui.widgets import theme
from tests.ui.speed.parts import CURVE, FIGURES, HISTORY, PAIR, box, is_refreshing, of_kind, rows_of
from tests.ui.speed.rounds import steady

LEARNED = msgspec.structs.replace(PAIR, history=HISTORY)


def answer(panel: SpeedPanel, figures: Figures | None = FIGURES) -> None:
    panel.begin_generation()
    panel.add_rounds(steady(30, seconds=0.1, accepted=3))
    panel.end_generation(figures)


def settled(panel: SpeedPanel, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: not is_refreshing(panel))


def test_answers_are_added_when_they_are_there(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(LEARNED)
    answer(panel)
    settled(panel, qtbot)
    assert "Code · 78% accepted · 97 tok/s" in rows_of(panel)  # (880 + 172) of 1,352; 1,261 tokens in 13 s
    assert "Prose · 50% accepted · 50 tok/s" in rows_of(panel)
    answer(panel, None)  # one that failed has no figures
    panel.set_draft_length(0)
    answer(panel)  # and one without a draft says nothing about drafting
    settled(panel, qtbot)
    assert "Code · 78% accepted · 97 tok/s" in rows_of(panel)


def test_nothing_is_shown_where_nothing_is_known(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(LEARNED)
    answer(panel)
    panel.set_curve(CURVE)
    settled(panel, qtbot)
    assert of_kind(panel, KindsSection).isVisible() and of_kind(panel, LengthCurve).isVisible()
    panel.set_pair(PAIR)
    settled(panel, qtbot)
    assert not of_kind(panel, KindsSection).isVisible()
    assert not of_kind(panel, LengthCurve).isVisible()
    panel.set_curve([41.0, 30.0, 20.0])
    settled(panel, qtbot)
    assert described(panel).endswith("best: 0")  # drafting never helps
    few = KindFigures(kind="list", tokens=9, seconds=0.1, tested=9, accepted=9, verify_passes=2)
    panel.set_pair(msgspec.structs.replace(PAIR, history=[few, HISTORY[1]]))
    settled(panel, qtbot)
    assert rows_of(panel) == ["Prose · 50% accepted · 50 tok/s"]


def described(panel: SpeedPanel) -> str:
    return of_kind(panel, LengthCurve).accessibleDescription().replace("\u00a0", " ")


def test_the_curve_marks_the_length_in_use_and_the_one_chosen(panel: SpeedPanel, qtbot: QtBot) -> None:
    panel.set_pair(PAIR)
    answer(panel)
    panel.set_curve(CURVE)
    settled(panel, qtbot)
    assert of_kind(panel, LengthCurve).isVisible()
    assert described(panel).startswith("without a draft: 41 tok/s, 1: 55 tok/s")
    assert described(panel).endswith("16: 62 tok/s, best: 6, in use: 3")
    box(panel, "Auto").click()  # the pair's default is then chosen
    settled(panel, qtbot)
    assert described(panel).endswith("in use: 3, chosen: 6")
    answer(panel)
    settled(panel, qtbot)
    assert described(panel).endswith("in use: 6, chosen: 6")


@pytest.mark.parametrize(("passes", "drafted", "expected"), [(90, 252, 3), (45, 90, 2), (44, 90, 0), (0, 0, 0)])
def test_length_used_by_auto_is_its_mean_or_none_at_all(passes: int, drafted: int, expected: int) -> None:
    model = DrafterFigures(name="model", drafted=drafted, verify_passes=passes)
    ngram = DrafterFigures(name="ngram", drafted=99, verify_passes=30)
    draft = msgspec.structs.replace(FIGURES.draft, verify_passes=120, drafters=[model, ngram])
    asked = wording.Asked("auto", ("ngram", "model"))
    assert wording.length_used(asked, msgspec.structs.replace(FIGURES, draft=draft)) == expected


def painted(curve: LengthCurve) -> QImage:
    curve.resize(260, curve.sizeHint().height())
    return curve.grab().toImage()


def test_the_column_in_use_is_filled(qtbot: QtBot, panel: SpeedPanel) -> None:
    def filled(in_use: int | None) -> list[int]:
        """Columns whose foot has the accent color."""
        curve = LengthCurve()
        qtbot.addWidget(curve)
        curve.show_curve(CURVE, in_use, None)
        image = painted(curve)
        feet = [curve._column(length) for length in range(len(CURVE))]
        accent = QColor(theme.current().accent)
        return [
            length
            for length, foot in enumerate(feet)
            if image.pixelColor(round(foot.center().x()), round(foot.bottom()) - 3) == accent
        ]

    assert filled(5) == [5]
    assert filled(0) == [0]
    assert filled(None) == []
    assert filled(40) == []


def test_of_a_long_draft_some_positions_stand_for_all(qtbot: QtBot) -> None:
    bars = PositionBars()
    qtbot.addWidget(bars)
    for length in range(1, 17):
        bars.show_shares([1.0] * length, 1)
        places = bars.places
        assert len(places) == min(length, 8) == len(set(places))
        assert places[0] == 1 and places[-1] == length
        assert list(places) == sorted(places)
        assert bars.accessibleDescription().count(":") == length
    bars.show_shares([0.5], 16)
    assert bars.places[-1] == 16
