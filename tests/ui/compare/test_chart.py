"""The chart of a prompt set: where marks are, what they look like, what it says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from PySide6.QtCore import QRectF
from pytestqt.qtbot import QtBot

from app.compare.results import Comparison, summarize
from app.ui.compare.prompt_set import ChartView, speed_ticks
from app.ui.widgets import theme
from app.ui.widgets.theme import DARK, LIGHT, Theme
from tests.ui.compare.samples import comparison


def set_of() -> list[Comparison]:
    return [
        comparison("code", speeds=(40.0, 88.0), kept=0.8),
        comparison("code", speeds=(40.0, 80.0), kept=0.7, text="Another"),
        comparison("story", speeds=(40.0, 32.0), kept=0.2),
        comparison("story", speeds=(None, None), kept=0.3),
        comparison("prose", speeds=(40.0, 40.0), kept=None),
    ]


@pytest.fixture
def chart(qtbot: QtBot) -> Iterator[ChartView]:
    view = ChartView()
    qtbot.addWidget(view)
    view.resize(800, 360)
    yield view
    theme.override(None)


def show(chart: ChartView, comparisons: list[Comparison]) -> None:
    chart.show_results(comparisons, summarize(comparisons))


@pytest.mark.parametrize("values", [[], [1.0], [0.82, 1.9], [0.3, 2.4], [4.0, 9.7], [0.1, 30.0]])
def test_the_ticks_enclose_all_speed_ups_and_one(values: list[float]) -> None:
    ticks = speed_ticks(values)
    assert min(ticks) <= min([1.0, *values])
    assert max(ticks) >= max([1.0, *values])
    assert 3 <= len(ticks) <= 8
    assert any(abs(tick - 1.0) < 1e-9 for tick in ticks) or ticks[1] - ticks[0] > 1


def test_points_stand_where_their_figures_say(chart: ChartView) -> None:
    assert "twice with the same seed" in chart.accessibleDescription()
    show(chart, set_of())
    plot = chart.plot()
    assert QRectF(chart.rect()).contains(plot)
    places = [chart.place(point) for point in chart.points]  # none for what is too short to time
    assert [round((place.x() - plot.left()) / plot.width(), 6) for place in places] == [0.8, 0.7, 0.2, 0.0]
    heights = [place.y() for place in places]
    assert heights[0] < heights[1] < heights[3] < heights[2]
    assert all(plot.contains(place) for place in places)
    assert [point.kind for point in chart.medians] == ["code", "story", "prose"]
    assert chart.accessibleDescription() == (
        "code: 75% accepted, 2.1× faster; story: 25% accepted, 0.8× as fast; prose: – accepted, same speed"
    )


@pytest.mark.parametrize("chosen", [LIGHT, DARK], ids=["light", "dark"])
def test_medians_are_drawn_in_the_color_of_their_kind(chart: ChartView, chosen: Theme) -> None:
    theme.override(chosen)
    show(chart, set_of())
    image = chart.grab().toImage()
    for number, median in enumerate(chart.medians[:2]):
        assert image.pixelColor(chart.place(median).toPoint()) == chosen.series[number]
    hollow = chart.place(chart.points[3])
    assert image.pixelColor(hollow.toPoint()) == chosen.surface


def test_names_lie_on_no_other_name_and_no_median(chart: ChartView) -> None:
    show(chart, [comparison(f"kind {number}", speeds=(40.0, 48.0), kept=0.3 + number * 0.06) for number in range(7)])
    taken = [QRectF(-6, -6, 12, 12).translated(chart.place(one)) for one in chart.medians]
    boxes = chart.name_boxes()
    assert not any(first.intersects(second) for first, second in combinations(boxes, 2))
    assert not any(box.intersects(median) for box in boxes for median in taken)
