"""What the newest rounds say, calmed down: pauses that do not flicker and a draft length that does not jump."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from app.protocol.messages import Pause, Round
from app.ui.speed.recent import Recent

PAUSE = Pause(acceptance_rate=0.22, break_even_rate=0.41)


class Rounds:
    """Feeds rounds of one length after each other and remembers what was shown after each."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.recent = Recent()
        self.seconds = seconds
        self.time = 0.5
        self.shown: list[bool] = []
        self.lengths: list[int | None] = []
        self.recent.add(Round(index=0, verify_passes=0, tokens=1, time=self.time))

    def add(self, *, paused: Pause | None = None, drafted: int = 0, tested: int | None = None, count: int = 1) -> None:
        for _ in range(count):
            self.time += self.seconds
            self.recent.add(
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
            self.shown.append(self.recent.pause is not None)
            self.lengths.append(self.recent.draft_length)

    def pause(self) -> Pause | None:
        return self.recent.pause

    def length(self) -> int | None:
        return self.recent.draft_length

    def changes(self) -> int:
        return sum(before != after for before, after in pairwise(self.shown))


def test_a_pause_is_shown_after_half_a_second_and_ends_after_another() -> None:
    rounds = Rounds()
    rounds.add(drafted=4, count=100)
    rounds.add(paused=PAUSE, count=48)
    assert rounds.pause() is None
    rounds.add(paused=PAUSE, count=4)
    assert rounds.pause() == PAUSE
    rounds.add(drafted=4, count=48)
    assert rounds.pause() == PAUSE
    rounds.add(drafted=4, count=4)
    assert rounds.pause() is None


def test_probes_do_not_end_a_pause_nor_keep_it_from_being_shown() -> None:
    rounds = Rounds()
    for _ in range(12):
        rounds.add(paused=PAUSE, count=24)
        rounds.add(drafted=2)
    assert rounds.pause() == PAUSE
    assert rounds.changes() == 1


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


def test_one_long_round_decides_nothing() -> None:
    rounds = Rounds(seconds=5.0)
    rounds.add(drafted=4, count=3)
    rounds.add(paused=PAUSE)
    assert rounds.pause() is None
    rounds.add(paused=PAUSE)
    assert rounds.pause() == PAUSE
    rounds.add(drafted=2)
    assert rounds.pause() == PAUSE


def test_at_the_end_a_short_pause_counts_and_a_last_probe_does_not() -> None:
    short = Rounds()
    short.add(drafted=4, count=20)
    short.add(paused=PAUSE, count=4)
    assert short.pause() is None
    short.recent.end()
    assert short.pause() == PAUSE
    probed = Rounds()
    probed.add(paused=PAUSE, count=100)
    probed.add(drafted=2)
    probed.recent.end()
    assert probed.pause() == PAUSE
    resumed = Rounds()
    resumed.add(paused=PAUSE, count=100)
    resumed.add(drafted=4, count=6)
    assert resumed.pause() == PAUSE
    resumed.recent.end()
    assert resumed.pause() is None
    empty = Rounds()
    empty.recent.end()
    assert empty.pause() is None


def test_the_figures_of_a_pause_change_once_a_second() -> None:
    rounds = Rounds()
    seen: list[float] = []
    for step in range(300):
        rounds.add(paused=Pause(acceptance_rate=0.001 * step, break_even_rate=0.41))
        if rounds.recent.pause is not None and (not seen or seen[-1] != rounds.recent.pause.acceptance_rate):
            seen.append(rounds.recent.pause.acceptance_rate)
    assert len(seen) == 3


def test_the_length_in_use_is_the_mean_of_the_drafts_of_late() -> None:
    rounds = Rounds()
    assert rounds.length() is None
    rounds.add(drafted=4, count=100)
    rounds.add(count=50)  # n-grams without a match draft nothing
    assert rounds.length() == 4
    rounds.add(drafted=12, count=400)
    assert rounds.length() == 12
    rounds.add(count=250)
    assert rounds.length() is None


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


def test_a_draft_beyond_every_bound_is_cut() -> None:
    rounds = Rounds()
    rounds.add(drafted=1000)
    assert rounds.length() == 16
    rounds.recent.add(Round(index=1, verify_passes=1, drafted=-9, time=rounds.time))
    assert rounds.length() == 16


def test_what_passes_take_with_and_without_guesses() -> None:
    rounds = Rounds()
    assert rounds.recent.plain.mean() is None
    rounds.add(drafted=4, count=3)
    rounds.add(paused=PAUSE, count=5)
    rounds.add(paused=PAUSE, drafted=2, tested=0, count=7)  # guessed, and not tested: neither
    assert (rounds.recent.plain.passes, rounds.recent.drafted.passes) == (5, 3)
    assert rounds.recent.plain.mean() == pytest.approx(0.008)
    assert rounds.recent.drafted.mean() == pytest.approx(0.012)
