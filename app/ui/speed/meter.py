"""Computes what the Speed panel shows from rounds. It has no widgets and no clock: times are passed in as seconds.

The figures of an answer are defined in `app.protocol.statistics`. The live ones are defined here: live speed is the
tokens of the last 3 s ÷ that time, live acceptance the accepted ÷ tested tokens of the last 3 s.

Rounds arrive up to a hundred times a second and the policy may decide differently in each; a sentence that followed
every one of them could not be read. So `PauseWatch` (is drafting paused?) and `LengthInUse` (how far does it draft?)
change slowly.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from app.protocol.events import Figures, Pause, Round
from app.protocol.options import MAX_DRAFT_LENGTH
from app.protocol.statistics import Statistics, acceptance_by_position, acceptance_rate

LIVE_SECONDS = 3.0
"""The window of live speed and live acceptance."""
HISTORY_SECONDS = 60.0
BUCKET_SECONDS = 0.25
POINTS = int(HISTORY_SECONDS / BUCKET_SECONDS)
_WINDOW = int(LIVE_SECONDS / BUCKET_SECONDS)
_STALLED_SECONDS = 0.5
PAUSE_SECONDS = 0.5
"""Seconds for which rounds must agree before what is shown changes."""
_LONGEST_STEP = PAUSE_SECONDS / 2
"""No single round, however long, decides alone."""
_LAST_ROUNDS = 5
"""The majority of this many rounds decides at the end of an answer, because one of them may be a probe."""
PAUSE_FIGURES_SECONDS = 1.0
LENGTH_SECONDS = 2.0
"""The draft length in use is the mean over this window."""
_LENGTH_HOLD_SECONDS = 1.0
_LENGTH_STEP = 0.75
"""How far the mean must be from what is shown before that changes: over a half, or it would flip back and forth."""


class _Span(NamedTuple):
    """A round on the engine's clock: from the end of the one before to its own end."""

    start: float
    end: float
    tokens: int
    tested: int
    accepted: int


@dataclass
class _Bucket:
    """A quarter of a second of history, and how much of it an answer was being written."""

    seconds: float = 0.0
    tokens: float = 0.0
    tested: int = 0
    accepted: int = 0


_EMPTY = _Bucket()


@dataclass
class RoundTime:
    """Seconds spent in rounds with a verify pass, summed."""

    passes: int = 0
    draft: float = 0.0
    verify: float = 0.0
    rest: float = 0.0

    def add(self, round_: Round) -> None:
        self.passes += round_.verify_passes
        self.draft += round_.draft_seconds
        self.verify += round_.verify_seconds
        self.rest += round_.other_seconds

    def mean(self) -> tuple[float, float, float] | None:
        """Mean seconds of draft, verify and the rest in one round; ``None`` before the first verify pass."""
        if not self.passes:
            return None
        return self.draft / self.passes, self.verify / self.passes, self.rest / self.passes

    def mean_pass(self) -> float | None:
        """Mean seconds of drafting and verifying together."""
        return (self.draft + self.verify) / self.passes if self.passes else None


class PauseWatch:
    """Whether drafting is paused, as it is shown.

    Time spent paused speaks for it, time spent drafting against it; what is shown changes when one of them is ahead by
    half a second. So the short drafts by which a pause is probed do not end it.
    """

    def __init__(self) -> None:
        self.pause: Pause | None = None
        """What is shown; its figures change once a second."""
        self._newest: Pause | None = None
        self._balance = 0.0
        self._figures_at = 0.0
        self._last: deque[bool] = deque(maxlen=_LAST_ROUNDS)

    def add(self, pause: Pause | None, seconds: float, time: float) -> None:
        """Count a round that took ``seconds`` and ended at ``time``."""
        self._last.append(pause is not None)
        self._newest = pause or self._newest
        step = min(seconds, _LONGEST_STEP)
        self._balance += step if pause is not None else -step
        self._balance = min(max(self._balance, 0.0), PAUSE_SECONDS)
        if self.pause is None and self._balance >= PAUSE_SECONDS:
            self.pause, self._figures_at = self._newest, time
        elif self.pause is not None and self._balance <= 0.0:
            self.pause = None
        elif self.pause is not None and pause is not None and time - self._figures_at >= PAUSE_FIGURES_SECONDS:
            self.pause, self._figures_at = pause, time

    def end(self) -> None:
        """The answer ends: the state up to here counts, however short it was."""
        if self._last:
            self.pause = self._newest if 2 * sum(self._last) > len(self._last) else None


class LengthInUse:
    """How many tokens were drafted at a time recently, as a whole number that doesn't jump around."""

    def __init__(self) -> None:
        self.length: int | None = None
        """``None`` if nothing was drafted."""
        self._drafts: deque[tuple[float, int]] = deque()
        self._sum = 0
        self._changed_at = 0.0

    def add(self, drafted: int, time: float) -> None:
        """Count a round that ended at ``time``; one without a draft only lets time pass."""
        if drafted > 0:
            self._drafts.append((time, min(drafted, MAX_DRAFT_LENGTH)))
            self._sum += self._drafts[-1][1]
        while self._drafts and self._drafts[0][0] <= time - LENGTH_SECONDS:
            self._sum -= self._drafts.popleft()[1]
        if not self._drafts:
            self.length = None
            return
        mean = self._sum / len(self._drafts)
        is_due = time - self._changed_at >= _LENGTH_HOLD_SECONDS and abs(mean - (self.length or 0)) >= _LENGTH_STEP
        if self.length is None or is_due:
            self.length, self._changed_at = max(1, round(mean)), time


_MOST_PASSES = 100
"""A server may report several passes at once."""


def _is_plausible(round_: Round) -> bool:
    """The engine is another process: what it sends must not be able to break the panel."""
    times = (round_.time, round_.draft_seconds, round_.verify_seconds, round_.other_seconds)
    return (
        0 <= round_.accepted <= round_.tested <= MAX_DRAFT_LENGTH * min(max(round_.verify_passes, 1), _MOST_PASSES)
        and round_.tokens >= 0
        and all(math.isfinite(time) and 0 <= time < 1e9 for time in times)
    )


class Meter:
    """Takes rounds as they come and answers what the panel asks."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        """For each quarter of a second; those of the last minute, and perhaps older ones."""
        self.begin()

    # ------------------------------------------------------------ taking rounds

    def begin(self) -> None:
        """A new answer starts; the history of the last minute stays."""
        self.round_time = RoundTime()
        self.plain = RoundTime()
        """For passes without a draft."""
        self.drafted = RoundTime()
        self.pauses = PauseWatch()
        self.lengths = LengthInUse()
        self._statistics = Statistics()
        self._final: Figures | None = None
        self._spans: deque[_Span] = deque()
        self.threads = 0
        """How many compute, if fewer than usual."""
        self._last_token: float | None = None
        self._last_round: float | None = None
        self._offset = math.inf

    def add(self, rounds: Iterable[Round], now: float) -> None:
        """Count rounds that arrived at ``now`` (seconds on any monotonic clock)."""
        plausible = [round_ for round_ in rounds if _is_plausible(round_)]
        if plausible:
            # The fastest delivery so far shows how the engine's clock relates to ours.
            self._offset = min(self._offset, now - plausible[-1].time)
        for round_ in plausible:
            self._statistics.add(round_)
            self.threads = round_.threads
            start, self._last_round = self._last_round, max(round_.time, self._last_round or 0.0)
            if round_.verify_passes:
                self._add_pass(round_, 0.0 if start is None else self._last_round - start, self._last_round)
            if round_.tokens:
                self._add_span(round_)

    def rest(self) -> None:
        """Nothing is written for some time, which doesn't count: a tool runs, or waits for the user."""
        self._offset = math.inf

    def finish(self, figures: Figures) -> None:
        """Take the engine's own figures for the whole answer."""
        self._final = figures

    def _add_pass(self, round_: Round, seconds: float, end: float) -> None:
        self.round_time.add(round_)
        if round_.tested:
            self.drafted.add(round_)
        elif not round_.drafted:
            self.plain.add(round_)  # a draft that wasn't worth testing is neither
        self.pauses.add(round_.paused, seconds, end)
        self.lengths.add(round_.drafted, end)

    def _add_span(self, round_: Round) -> None:
        start, self._last_token = self._last_token, max(round_.time, self._last_token or 0.0)
        if start is None:
            return  # the first token: speed is counted from here
        span = _Span(start, self._last_token, round_.tokens, round_.tested, round_.accepted)
        self._spans.append(span)
        while self._spans[0].end <= span.end - LIVE_SECONDS:
            self._spans.popleft()
        self._record(span)

    # ------------------------------------------------------------ figures

    @property
    def is_writing(self) -> bool:
        """Whether tokens have arrived since `begin`, so that the live figures keep changing with time."""
        return bool(self._spans) and self._final is None

    def figures(self) -> Figures:
        """The figures of the answer: the engine's once it is finished, until then based on the rounds so far."""
        return self._final if self._final is not None else self._statistics.figures(0.0)

    def acceptance_by_position(self) -> list[float]:
        """Of the drafts with a token at position 1, 2, …, the share whose tokens up to it were all accepted."""
        draft = self.figures().draft
        return acceptance_by_position(draft.accepted_per_position, draft.tested_per_position)[:MAX_DRAFT_LENGTH]

    def live_acceptance_by_position(self) -> list[float]:
        """The same over the last 3 s of writing, as `live_acceptance`."""
        tested, accepted = [0] * MAX_DRAFT_LENGTH, [0] * MAX_DRAFT_LENGTH
        for span in self._spans:
            for position in range(min(span.tested, MAX_DRAFT_LENGTH)):
                tested[position] += 1
                accepted[position] += position < span.accepted
        return acceptance_by_position(accepted, tested)

    def live_speed(self, now: float) -> float | None:
        """Tokens per second over the last 3 s; falls while no round arrives. ``None`` before the second token."""
        if not self._spans:
            return None
        end = self._spans[-1].end
        if now - self._offset - end > _STALLED_SECONDS:
            end = now - self._offset
        start = max(self._spans[0].start, end - LIVE_SECONDS)
        # A round that began before the window counts by the share of it that is inside.
        tokens = sum(
            span.tokens * (min(1.0, (span.end - start) / (span.end - span.start)) if span.end > span.start else 1.0)
            for span in self._spans
            if span.end > start
        )
        return tokens / (end - start) if end > start else None

    def live_acceptance(self) -> float | None:
        """Accepted ÷ tested over the last 3 s of writing; ``None`` if nothing was tested."""
        return acceptance_rate(sum(span.accepted for span in self._spans), sum(span.tested for span in self._spans))

    # ------------------------------------------------------------ the last minute

    def speed_history(self) -> list[float | None]:
        """Live speed at each quarter second of the last minute, oldest first; ``None`` if nothing was written."""
        buckets = self._last_minute()
        return _rolling(buckets, [(bucket.tokens, bucket.seconds) for bucket in buckets])

    def acceptance_history(self) -> list[float | None]:
        """Live acceptance, as `speed_history`."""
        buckets = self._last_minute()
        return _rolling(buckets, [(bucket.accepted, bucket.tested) for bucket in buckets])

    def _last_minute(self) -> list[_Bucket]:
        newest = max(self._buckets, default=0)
        return [self._buckets.get(index, _EMPTY) for index in range(newest - POINTS + 1, newest + 1)]

    def _record(self, span: _Span) -> None:
        start, end = span.start + self._offset, span.end + self._offset
        last = math.ceil(end / BUCKET_SECONDS) - 1
        oldest = max(self._buckets, default=last) - POINTS + 1
        for index in range(max(int(start / BUCKET_SECONDS), oldest, last - POINTS + 1), last + 1):
            bucket = self._buckets.setdefault(index, _Bucket())
            inside = min(end, (index + 1) * BUCKET_SECONDS) - max(start, index * BUCKET_SECONDS)
            bucket.seconds += max(inside, 0.0)
            bucket.tokens += span.tokens * (max(inside, 0.0) / (end - start) if end > start else 1.0)
            if index == last:
                bucket.tested += span.tested
                bucket.accepted += span.accepted
        while len(self._buckets) > POINTS:
            del self._buckets[min(self._buckets)]


def _rolling(buckets: Sequence[_Bucket], parts: Sequence[tuple[float, float]]) -> list[float | None]:
    above = list(accumulate((part[0] for part in parts), initial=0.0))
    below = list(accumulate((part[1] for part in parts), initial=0.0))
    points: list[float | None] = []
    for end, bucket in enumerate(buckets, start=1):
        start = max(0, end - _WINDOW)
        amount = below[end] - below[start]
        points.append((above[end] - above[start]) / amount if bucket.seconds > 0 and amount > 1e-9 else None)
    return points
