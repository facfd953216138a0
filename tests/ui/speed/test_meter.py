"""The figures of the Speed panel, from rounds whose figures are known; and what the newest rounds say, calmed down."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from app.protocol.events import Pause, Round
from app.ui.speed.meter import Meter
from tests.ui.speed.rounds import steady

PAUSE = Pause(acceptance_rate=0.22, break_even_rate=0.41)


def fed(rounds: list[Round]) -> Meter:
    """Each round arrives when it is made, on a clock that stands at 1000 when the request goes out."""
    meter = Meter()
    meter.begin()
    for round_ in rounds:
        meter.add([round_], 1000 + round_.time)
    return meter


def test_live_speed_is_tokens_over_time_without_the_first() -> None:
    rounds = steady(26, seconds=0.1, accepted=2)
    assert fed(rounds).live_speed(1000.0 + rounds[-1].time) == pytest.approx(3 / 0.1)


def test_live_speed_falls_when_nothing_comes() -> None:
    rounds = steady(40, seconds=0.1, accepted=0)
    meter, end = fed(rounds), 1000.0 + rounds[-1].time
    assert meter.live_speed(end + 1.5) == pytest.approx(10 / 2)
    assert meter.live_speed(end + 60) == 0


def test_live_speed_stays_while_tools_run_and_is_right_behind_them() -> None:
    rounds = steady(40, seconds=0.1, accepted=0)
    meter, end = fed(rounds[:30]), 1000.0 + rounds[29].time
    meter.rest()
    assert meter.live_speed(end + 600) == pytest.approx(10)
    for round_ in rounds[30:]:
        meter.add([round_], 1600 + round_.time)
    assert meter.live_speed(1600 + rounds[-1].time) == pytest.approx(10)


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


class Rounds:
    """Feeds rounds of one length after each other and remembers what was shown after each."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.meter = Meter()
        self.seconds = seconds
        self.time = 0.5
        self.shown: list[bool] = []
        self.lengths: list[int | None] = []
        self.add_round(Round(index=0, verify_passes=0, tokens=1, time=self.time))

    def add(self, *, paused: Pause | None = None, drafted: int = 0, tested: int | None = None, count: int = 1) -> None:
        for _ in range(count):
            self.time += self.seconds
            self.add_round(
                Round(
                    index=1,
                    verify_passes=1,
                    tokens=1,
                    drafted=drafted,
                    tested=drafted if tested is None else tested,
                    paused=paused,
                    draft_seconds=0.001 * drafted,
                    verify_seconds=0.008,
                    time=self.time,
                )
            )
            self.shown.append(self.meter.pauses.pause is not None)
            self.lengths.append(self.meter.lengths.length)

    def add_round(self, round_: Round) -> None:
        self.meter.add([round_], round_.time)

    def pause(self) -> Pause | None:
        return self.meter.pauses.pause

    def length(self) -> int | None:
        return self.meter.lengths.length

    def changes(self) -> int:
        return sum(before != after for before, after in pairwise(self.shown))


@pytest.mark.parametrize("seconds", [0.004, 0.01, 0.1, 0.3, 1.0])
def test_turns_of_every_kind_never_flicker(seconds: float) -> None:
    """However the controller goes to and fro, half a second or two rounds lie between two changes."""
    chance = random.Random(7)
    rounds = Rounds(seconds)
    for _ in range(2000):
        is_paused = chance.random() < 0.5
        rounds.add(paused=PAUSE if is_paused else None, drafted=0 if is_paused else 3, count=chance.choice((1, 2, 9)))
    places = [at for at, (before, after) in enumerate(pairwise(rounds.shown)) if before != after]
    least = max(2, round(0.5 / seconds) - 1)
    assert places
    assert all(after - before >= least for before, after in pairwise(places))


def test_at_the_end_a_short_pause_counts_and_a_last_probe_does_not() -> None:
    short = Rounds()
    short.add(drafted=4, count=20)
    short.add(paused=PAUSE, count=4)
    assert short.pause() is None
    short.meter.pauses.end()
    assert short.pause() == PAUSE
    probed = Rounds()
    probed.add(paused=PAUSE, count=100)
    probed.add(drafted=2)
    probed.meter.pauses.end()
    assert probed.pause() == PAUSE
    resumed = Rounds()
    resumed.add(paused=PAUSE, count=100)
    resumed.add(drafted=4, count=6)
    assert resumed.pause() == PAUSE
    resumed.meter.pauses.end()
    assert resumed.pause() is None
    empty = Rounds()
    empty.meter.pauses.end()
    assert empty.pause() is None


def test_the_length_in_use_does_not_jump() -> None:
    chance = random.Random(3)
    rounds = Rounds()
    for _ in range(600):
        rounds.add(drafted=chance.choice((2, 3, 4, 5, 6)))
    settled = rounds.lengths[200:]
    assert sum(before != after for before, after in pairwise(settled)) == 0
    moving = Rounds()
    for step in range(600):
        moving.add(drafted=1 + step // 40)
    places = [at for at, (before, after) in enumerate(pairwise(moving.lengths)) if before != after]
    assert all(after - before >= 99 for before, after in pairwise(places))
    assert moving.lengths[-1] in range(10, 16)
