"""The figures of the Speed panel, from rounds whose figures are known."""

from __future__ import annotations

import math

import pytest

from app.protocol.messages import DraftFigures, Figures, Round
from app.ui.speed.meter import BUCKET_SECONDS, POINTS, Meter
from tests.ui.speed.rounds import steady


def fed(rounds: list[Round], start: float = 1000.0) -> Meter:
    """Each round arrives when it is made, on a clock that stands at ``start`` when the request goes out."""
    meter = Meter()
    meter.begin()
    for round_ in rounds:
        meter.add([round_], start + round_.time)
    return meter


def test_live_speed_is_tokens_over_time_without_the_first() -> None:
    rounds = steady(26, seconds=0.1, accepted=2)
    assert fed(rounds).live_speed(1000.0 + rounds[-1].time) == pytest.approx(3 / 0.1)


def test_live_speed_forgets_what_is_older_than_three_seconds() -> None:
    slow = steady(40, seconds=0.2, accepted=0)
    fast = steady(31, seconds=0.1, accepted=4, after=slow[-1].time)[1:]
    meter = fed(slow + fast)
    assert meter.live_speed(1000.0 + fast[-1].time) == pytest.approx(5 / 0.1)


def test_live_speed_falls_when_nothing_comes() -> None:
    rounds = steady(40, seconds=0.1, accepted=0)
    meter, end = fed(rounds), 1000.0 + rounds[-1].time
    assert meter.live_speed(end + 1.5) == pytest.approx(10 / 2)
    assert meter.live_speed(end + 60) == 0


def test_late_delivery_does_not_distort_speed() -> None:
    rounds = steady(20, seconds=0.1, accepted=1)
    meter = Meter()
    meter.begin()
    meter.add(rounds[:2], 1000.0 + rounds[1].time)
    meter.add(rounds[2:], 1000.0 + rounds[-1].time + 0.4)
    assert meter.live_speed(1000.0 + rounds[-1].time + 0.4) == pytest.approx(2 / 0.1)


def test_acceptance_live_and_by_position() -> None:
    rounds = [
        Round(index=0, verify_passes=0, tokens=1, time=0.5),
        Round(index=1, verify_passes=1, tokens=4, drafted=4, tested=4, accepted=3, time=0.6),
        Round(index=2, verify_passes=1, tokens=2, drafted=4, tested=4, accepted=1, time=0.7),
        Round(index=3, verify_passes=1, tokens=1, time=0.8),
        Round(index=4, verify_passes=1, tokens=1, drafted=2, tested=2, accepted=0, time=0.9),
    ]
    meter = fed(rounds)
    assert meter.live_acceptance() == pytest.approx(4 / 10)
    assert meter.acceptance_by_position() == pytest.approx([2 / 3, 1 / 3, 1 / 2, 0])
    assert meter.live_acceptance_by_position() == meter.acceptance_by_position()
    figures = meter.figures()
    assert figures.draft.mean_acceptance_length == pytest.approx(1 + 4 / 4)
    assert figures.decode_tokens_per_second == pytest.approx(8 / 0.4)
    assert figures.completion_tokens == 9


def test_where_everything_was_accepted_every_position_says_so() -> None:
    """Some passes went without a draft, and drafts differ in length: "100 %" above bars of 93 % is a contradiction."""
    rounds = [
        Round(index=0, verify_passes=0, tokens=1, time=0.5),
        Round(index=1, verify_passes=1, tokens=4, drafted=3, tested=3, accepted=3, time=0.6),
        Round(index=2, verify_passes=1, tokens=2, drafted=1, tested=1, accepted=1, time=0.7),
        Round(index=3, verify_passes=1, tokens=1, time=0.8),
    ]
    meter = fed(rounds)
    assert meter.live_acceptance() == meter.figures().draft.acceptance_rate == 1.0
    assert meter.acceptance_by_position() == meter.live_acceptance_by_position() == [1.0, 1.0, 1.0]


def test_positions_while_an_answer_is_written_are_of_the_same_seconds_as_the_figure_above() -> None:
    bad = steady(40, seconds=0.1, accepted=0)
    later = [
        Round(index=index, verify_passes=1, tokens=3, drafted=2, tested=2, accepted=2, time=bad[-1].time + 0.1 * index)
        for index in range(1, 40)
    ]
    meter = fed([*bad, *later])
    assert meter.live_acceptance() == 1.0
    assert meter.live_acceptance_by_position() == [1.0, 1.0]
    assert meter.acceptance_by_position()[0] < 0.6


def test_round_time_leaves_prompt_processing_out() -> None:
    first = Round(index=0, verify_passes=0, tokens=1, verify_seconds=9.0, time=9.0)
    later = [
        Round(
            index=i, verify_passes=1, tokens=1, draft_seconds=0.002, verify_seconds=0.006, other_seconds=d, time=9 + i
        )
        for i, d in ((1, 0.001), (2, 0.003))
    ]
    assert fed([first, *later]).round_time.mean() == pytest.approx((0.002, 0.006, 0.002))
    assert fed([first]).round_time.mean() is None


def test_nothing_is_known_before_the_second_token() -> None:
    meter = fed([Round(index=0, verify_passes=0, tokens=1, time=0.5)])
    assert meter.live_speed(1000.5) is None
    assert meter.live_acceptance() is None
    assert meter.acceptance_by_position() == []
    assert not meter.is_writing
    assert set(meter.speed_history()) == {None}


def test_history_covers_one_minute_with_gaps_between_answers() -> None:
    meter = fed(steady(101, seconds=0.1, accepted=1, first=0.0), start=1000.0)
    meter.begin()
    for round_ in steady(101, seconds=0.1, accepted=3, first=0.0):
        meter.add([round_], 1030.0 + round_.time)
    history = meter.speed_history()
    assert len(history) == POINTS
    second = history[-int(8 / BUCKET_SECONDS) :]
    assert [value for value in second if value is not None] == pytest.approx([40.0] * len(second), rel=0.02)
    gap = history[-int(28 / BUCKET_SECONDS) : -int(12 / BUCKET_SECONDS)]
    assert set(gap) == {None}
    first = [value for value in history[: -int(31 / BUCKET_SECONDS)] if value is not None]
    assert len(first) >= 8 / BUCKET_SECONDS
    assert first == pytest.approx([20.0] * len(first), rel=0.02)
    assert [value for value in meter.acceptance_history()[-20:] if value is not None] == pytest.approx([0.75] * 20)


def test_history_forgets_after_a_minute() -> None:
    meter = fed(steady(20, seconds=0.1, accepted=1))
    meter.begin()
    for round_ in steady(3, seconds=0.1, accepted=1):
        meter.add([round_], 1100.0 + round_.time)
    assert len([value for value in meter.speed_history() if value is not None]) <= 2


def test_final_figures_replace_the_running_ones_until_the_next_answer() -> None:
    meter = fed(steady(10, seconds=0.1, accepted=1))
    final = Figures(
        completion_tokens=7,
        decode_tokens_per_second=12.5,
        draft=DraftFigures(verify_passes=8, accepted_per_position=[3, 1], tested_per_position=[4, 4]),
    )
    meter.finish(final)
    assert meter.figures() is final
    assert meter.acceptance_by_position() == [0.75, 0.25]
    assert not meter.is_writing
    meter.begin()
    assert meter.figures().decode_tokens_per_second is None


@pytest.mark.parametrize(
    "broken",
    [
        Round(index=1, verify_passes=1, tokens=1, tested=2, accepted=3, time=1.0),
        Round(index=1, verify_passes=1, tokens=1, tested=400, accepted=300, time=1.0),
        Round(index=1, verify_passes=1, tokens=-5, time=1.0),
        Round(index=1, verify_passes=1, tokens=1, time=math.inf),
        Round(index=1, verify_passes=1, tokens=1, time=math.nan),
        Round(index=1, verify_passes=1, tokens=1, time=1e300),
        Round(index=1, verify_passes=1, tokens=1, verify_seconds=-1.0, time=1.0),
    ],
)
def test_impossible_rounds_are_left_out(broken: Round) -> None:
    good = steady(5, seconds=0.1, accepted=2)
    meter, expected = fed([*good[:3], broken, *good[3:]]), fed(good)
    assert meter.figures() == expected.figures()
    assert meter.live_speed(1001.0) == expected.live_speed(1001.0)


def test_rounds_out_of_order_do_not_break_it() -> None:
    rounds = steady(5, seconds=0.1, accepted=2)
    meter = fed([rounds[0], rounds[3], rounds[1], rounds[4]])
    speed = meter.live_speed(1000.0 + rounds[4].time)
    assert speed is not None
    assert math.isfinite(speed)
    assert len(meter.speed_history()) == POINTS
