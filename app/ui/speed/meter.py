"""What the Speed panel shows, worked out from rounds. No widgets, no clock of its own: times come in as seconds.

The figures of an answer are defined in `app.protocol.statistics`. Here are those that move: live speed is the
tokens of the last 3 s ÷ that time, live acceptance the accepted ÷ tested tokens of the last 3 s.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import NamedTuple

from app.protocol.limits import MAX_DRAFT_LENGTH
from app.protocol.messages import Figures, Round
from app.protocol.statistics import Statistics, acceptance_by_position, acceptance_rate
from app.ui.speed.recent import Recent

LIVE_SECONDS = 3.0
"""The window of live speed and live acceptance."""
HISTORY_SECONDS = 60.0
BUCKET_SECONDS = 0.25
POINTS = int(HISTORY_SECONDS / BUCKET_SECONDS)
_WINDOW = int(LIVE_SECONDS / BUCKET_SECONDS)
_STALLED_SECONDS = 0.5


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


@dataclass
class RoundTime:
    """Seconds spent in rounds that made a verify pass, summed."""

    passes: int = 0
    draft: float = 0.0
    verify: float = 0.0
    rest: float = 0.0

    def mean(self) -> tuple[float, float, float] | None:
        """Mean seconds of draft, verify and the rest in one round; ``None`` before the first verify pass."""
        if not self.passes:
            return None
        return self.draft / self.passes, self.verify / self.passes, self.rest / self.passes


def _is_plausible(round_: Round) -> bool:
    """The engine is another process: what it sends must not be able to break the panel."""
    times = (round_.time, round_.draft_seconds, round_.verify_seconds, round_.other_seconds)
    return (
        0 <= round_.accepted <= round_.tested <= MAX_DRAFT_LENGTH
        and round_.tokens >= 0
        and all(math.isfinite(time) and 0 <= time < 1e9 for time in times)
    )


class Meter:
    """Takes rounds as they come and answers what the panel asks."""

    def __init__(self) -> None:
        self.round_time = RoundTime()
        self.recent = Recent()
        self._statistics = Statistics()
        self._final: Figures | None = None
        self._spans: deque[_Span] = deque()
        self._last_time: float | None = None
        self._offset = math.inf
        self._buckets: deque[_Bucket] = deque((_Bucket() for _ in range(POINTS)), maxlen=POINTS)
        self._newest: int | None = None
        """Which quarter of a second the last bucket stands for."""

    # ------------------------------------------------------------ taking rounds

    def begin(self) -> None:
        """A new answer starts; the history of the last minute stays."""
        self.round_time = RoundTime()
        self.recent = Recent()
        self._statistics = Statistics()
        self._final = None
        self._spans.clear()
        self._last_time = None
        self._offset = math.inf

    def add(self, rounds: Iterable[Round], now: float) -> None:
        """Count rounds that arrived at ``now`` (seconds on any clock that only goes forward)."""
        plausible = [round_ for round_ in rounds if _is_plausible(round_)]
        if plausible:
            # The quickest delivery so far tells how the engine's clock stands to ours.
            self._offset = min(self._offset, now - plausible[-1].time)
        for round_ in plausible:
            self._statistics.add(round_)
            self.recent.add(round_)
            if round_.verify_passes:
                self.round_time.passes += round_.verify_passes
                self.round_time.draft += round_.draft_seconds
                self.round_time.verify += round_.verify_seconds
                self.round_time.rest += round_.other_seconds
            if round_.tokens:
                self._add_span(round_)

    def finish(self, figures: Figures) -> None:
        """Take the engine's own figures for the whole answer."""
        self._final = figures

    def _add_span(self, round_: Round) -> None:
        start, self._last_time = self._last_time, max(round_.time, self._last_time or 0.0)
        if start is None:
            return  # the first token: speed is counted from here
        span = _Span(start, self._last_time, round_.tokens, round_.tested, round_.accepted)
        self._spans.append(span)
        while self._spans[0].end <= span.end - LIVE_SECONDS:
            self._spans.popleft()
        self._record(span)

    # ------------------------------------------------------------ figures

    @property
    def is_writing(self) -> bool:
        """Whether tokens have come since `begin`, so that the live figures go on changing with time."""
        return bool(self._spans) and self._final is None

    def figures(self) -> Figures:
        """The figures of the answer: the engine's once it is finished, until then from the rounds so far."""
        return self._final if self._final is not None else self._statistics.figures(0.0)

    def acceptance_by_position(self) -> list[float]:
        """Of the drafts with a token at position 1, 2, …, the share whose tokens up to it were all accepted."""
        draft = self.figures().draft
        return acceptance_by_position(draft.accepted_per_position, draft.tested_per_position)[:MAX_DRAFT_LENGTH]

    def live_acceptance_by_position(self) -> list[float]:
        """The same over the last 3 s of writing, as `live_acceptance`."""
        tested, accepted = [0] * MAX_DRAFT_LENGTH, [0] * MAX_DRAFT_LENGTH
        for span in self._spans:
            for position in range(span.tested):
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
        # A round that began before the window counts by the share of it that lies inside.
        tokens = sum(
            span.tokens * (min(1.0, (span.end - start) / (span.end - span.start)) if span.end > span.start else 1.0)
            for span in self._spans
            if span.end > start
        )
        return tokens / (end - start) if end > start else None

    def live_acceptance(self) -> float | None:
        """Accepted ÷ tested over the last 3 s of writing; ``None`` where nothing was tested."""
        return acceptance_rate(sum(span.accepted for span in self._spans), sum(span.tested for span in self._spans))

    # ------------------------------------------------------------ the last minute

    def speed_history(self) -> list[float | None]:
        """Live speed at each quarter second of the last minute, oldest first; ``None`` where nothing was written."""
        return self._rolling([(bucket.tokens, bucket.seconds) for bucket in self._buckets])

    def acceptance_history(self) -> list[float | None]:
        """Live acceptance, as `speed_history`."""
        return self._rolling([(bucket.accepted, bucket.tested) for bucket in self._buckets])

    def _rolling(self, parts: list[tuple[float, float]]) -> list[float | None]:
        above = list(accumulate((part[0] for part in parts), initial=0.0))
        below = list(accumulate((part[1] for part in parts), initial=0.0))
        points: list[float | None] = []
        for end, bucket in enumerate(self._buckets, start=1):
            start = max(0, end - _WINDOW)
            amount = below[end] - below[start]
            points.append((above[end] - above[start]) / amount if bucket.seconds > 0 and amount > 1e-9 else None)
        return points

    def _record(self, span: _Span) -> None:
        start, end = span.start + self._offset, span.end + self._offset
        last = math.ceil(end / BUCKET_SECONDS) - 1
        first = max(int(start / BUCKET_SECONDS), last - POINTS + 1)
        self._advance_to(last)
        for index, bucket in self._buckets_between(first, last):
            inside = min(end, (index + 1) * BUCKET_SECONDS) - max(start, index * BUCKET_SECONDS)
            bucket.seconds += max(inside, 0.0)
            bucket.tokens += span.tokens * (max(inside, 0.0) / (end - start) if end > start else 1.0)
            if index == last:
                bucket.tested += span.tested
                bucket.accepted += span.accepted

    def _advance_to(self, index: int) -> None:
        newest = index if self._newest is None else self._newest
        self._buckets.extend(_Bucket() for _ in range(min(index - newest, POINTS)))
        self._newest = max(index, newest)

    def _buckets_between(self, first: int, last: int) -> Iterable[tuple[int, _Bucket]]:
        if self._newest is None:
            return
        oldest = self._newest - POINTS + 1
        first = max(first, oldest)
        yield from enumerate(islice(self._buckets, first - oldest, last - oldest + 1), start=first)
