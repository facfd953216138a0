"""The chart: where points are, what they look like, what it says."""

from __future__ import annotations

from itertools import combinations

import pytest
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.compare.results import Comparison, summarize
from app.ui.compare.chart import (
    SHAPES,
    Chart,
    ChartDrawing,
    ChartView,
    Point,
    chart_of,
    in_words,
    shape_path,
    speed_ticks,
)
from app.ui.widgets import theme
from app.ui.widgets.theme import DARK, LIGHT, Theme
from tests.ui.compare.samples import comparison

AREA = QRectF(0, 0, 800, 360)


def set_of() -> list[Comparison]:
    return [
        comparison("code", speeds=(40.0, 88.0), kept=0.8),
        comparison("code", speeds=(40.0, 80.0), kept=0.7, text="Another"),
        comparison("story", speeds=(40.0, 32.0), kept=0.2),
        comparison("story", speeds=(None, None), kept=0.3),
        comparison("prose", speeds=(40.0, 40.0), kept=None),
    ]


def drawing(qapp: QApplication, comparisons: list[Comparison]) -> ChartDrawing:
    chart = chart_of(comparisons, summarize(comparisons))
    return ChartDrawing(chart, AREA, qapp.font())


@pytest.mark.parametrize("values", [[], [1.0], [0.82, 1.9], [0.3, 2.4], [4.0, 9.7], [0.1, 30.0]])
def test_the_ticks_enclose_all_speed_ups_and_one(values: list[float]) -> None:
    ticks = speed_ticks(values)
    assert min(ticks) <= min([1.0, *values])
    assert max(ticks) >= max([1.0, *values])
    assert 3 <= len(ticks) <= 8
    assert any(abs(tick - 1.0) < 1e-9 for tick in ticks) or ticks[1] - ticks[0] > 1


def test_points_stand_where_their_figures_say(qapp: QApplication) -> None:
    shown = drawing(qapp, set_of())
    plot = shown.plot
    assert AREA.contains(plot)
    places = [shown.place(point) for point in shown.chart.points]
    assert [round((place.x() - plot.left()) / plot.width(), 6) for place in places] == [0.8, 0.7, 0.2, 0.0]
    heights = [place.y() for place in places]
    assert heights[0] < heights[1] < heights[3] < heights[2]
    assert all(plot.contains(place) for place in places)
    assert shown.point_at(places[2]) == 2
    assert shown.point_at(places[2] + QPointF(60, 0)) is None
    # What is too short to time has none.
    assert [point.number for point in shown.chart.points] == [0, 1, 2, 4]
    assert [point.kind for point in shown.chart.medians] == ["code", "story", "prose"]
    assert in_words(summarize(set_of())) == (
        "code: 75% accepted, 2.1× faster; story: 25% accepted, 0.8× as fast; prose: – accepted, same speed"
    )


def test_the_kinds_differ_in_shape_and_each_is_about_as_large() -> None:
    assert len(SHAPES) == 8
    images = [_shape_image(kind) for kind in range(8)]
    for first, second in combinations(range(8), 2):
        assert images[first] != images[second]
    sizes = [shape_path(kind, QPointF(0, 0), 10).boundingRect() for kind in range(8)]
    assert all(15 < max(size.width(), size.height()) < 25 for size in sizes)


def _shape_image(kind: int) -> QImage:
    image = QImage(32, 32, QImage.Format.Format_RGB32)
    image.fill(LIGHT.surface)
    painter = QPainter(image)
    painter.fillPath(shape_path(kind, QPointF(16, 16), 10), LIGHT.text)
    painter.end()
    return image


@pytest.mark.parametrize("chosen", [LIGHT, DARK], ids=["light", "dark"])
def test_medians_are_drawn_in_the_color_of_their_kind(qapp: QApplication, chosen: Theme) -> None:
    shown = drawing(qapp, set_of())
    image = QImage(800, 360, QImage.Format.Format_RGB32)
    image.fill(chosen.surface)
    painter = QPainter(image)
    shown.paint(painter, chosen)
    painter.end()
    for number, median in enumerate(shown.chart.medians[:2]):
        assert image.pixelColor(shown.place(median).toPoint()) == chosen.series[number]
    hollow = shown.place(shown.chart.points[3])
    assert image.pixelColor(hollow.toPoint()) == chosen.surface


def test_labels_lie_on_no_other_label_and_no_median(qapp: QApplication) -> None:
    kinds = tuple(f"kind {number}" for number in range(7))
    medians = tuple(Point(kind, 0.3 + number * 0.06, 1.2) for number, kind in enumerate(kinds))
    shown = ChartDrawing(Chart(kinds, medians, medians), AREA, qapp.font())
    taken = [QRectF(-6, -6, 12, 12).translated(shown.place(one)) for one in medians]
    boxes: list[QRectF] = []
    for median in medians:
        box = shown._label_box(median, [*taken, *boxes], [])
        boxes.append(box)
    assert not any(first.intersects(second) for first, second in combinations(boxes, 2))
    assert not any(box.intersects(median) for box in boxes for median in taken)


def test_a_double_click_opens_the_comparison_behind_a_point(qtbot: QtBot) -> None:
    view = ChartView()
    qtbot.addWidget(view)
    view.resize(800, 360)
    comparisons = set_of()
    view.show_results(comparisons, summarize(comparisons))
    view.show()
    assert view.accessibleDescription().startswith("code: 75% accepted")
    place = view.drawing().place(view.drawing().chart.points[3]).toPoint()
    with qtbot.waitSignal(view.opened) as opened:
        QTest.mouseDClick(view, Qt.MouseButton.LeftButton, pos=place)
    QTest.mouseRelease(view, Qt.MouseButton.LeftButton, pos=place)  # else it stays pressed for later tests
    assert opened.args == [4]  # number of the comparison, not of the point
    assert view.explanation(1).startswith("Another\ncode")


def test_an_empty_chart_says_what_will_be_there(qtbot: QtBot) -> None:
    view = ChartView()
    qtbot.addWidget(view)
    theme.override(LIGHT)
    view.resize(400, 200)
    view.show()
    assert "twice with the same seed" in view.accessibleDescription()
    assert view.drawing().point_at(QPointF(100, 100)) is None
    theme.override(None)
