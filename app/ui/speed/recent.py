"""What the newest rounds say about drafting, calm enough to be read: whether it is paused, and how far it drafts.

Rounds come up to a hundred times a second and the controller may decide anew in each; a sentence that followed every
one of them could not be read. All times are the rounds' own, in seconds. No widgets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from app.protocol.limits import MAX_DRAFT_LENGTH
from app.protocol.messages import Pause, Round

PAUSE_SECONDS = 0.5
"""For so long rounds must agree before what is shown changes."""
_LONGEST_STEP = PAUSE_SECONDS / 2
"""One round, however long, never decides alone."""
_LAST_ROUNDS = 5
"""Who decides at the end of an answer: most of so many, as one of them may be a probe."""
PAUSE_FIGURES_SECONDS = 1.0
LENGTH_SECONDS = 2.0
"""The window the draft length in use is the mean of."""
_LENGTH_HOLD_SECONDS = 1.0
_LENGTH_STEP = 0.75
"""How far the mean must be from what is shown before that changes: more than a half, else it would go to and fro."""


@dataclass
class PassTime:
    """Seconds of guessing and verifying, summed over passes."""

    passes: int = 0
    seconds: float = 0.0

    def add(self, round_: Round) -> None:
        self.passes += 1
        self.seconds += round_.draft_seconds + round_.verify_seconds

    def mean(self) -> float | None:
        return self.seconds / self.passes if self.passes else None


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
        """The answer ends: what held up to here counts, however short it was."""
        if self._last:
            self.pause = self._newest if 2 * sum(self._last) > len(self._last) else None


class LengthInUse:
    """How many tokens are drafted at a time lately, as a whole number that does not jump about."""

    def __init__(self) -> None:
        self.length: int | None = None
        """``None`` where nothing was drafted."""
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


class Recent:
    """Takes the rounds of one answer."""

    def __init__(self) -> None:
        self.plain = PassTime()
        """Passes without a draft."""
        self.drafted = PassTime()
        self._pauses = PauseWatch()
        self._lengths = LengthInUse()
        self._time: float | None = None

    def add(self, round_: Round) -> None:
        """Count a round; those without a verify pass say nothing about drafting."""
        start, self._time = self._time, max(round_.time, self._time or 0.0)
        if not round_.verify_passes:
            return
        seconds = 0.0 if start is None else self._time - start
        if round_.tested:
            self.drafted.add(round_)
        elif not round_.drafted:
            self.plain.add(round_)  # a draft that was not worth testing is neither
        self._pauses.add(round_.paused, seconds, self._time)
        self._lengths.add(round_.drafted, self._time)

    def end(self) -> None:
        """No more rounds come."""
        self._pauses.end()

    @property
    def pause(self) -> Pause | None:
        """Why drafting is paused, if it is."""
        return self._pauses.pause

    @property
    def draft_length(self) -> int | None:
        """Tokens drafted at a time over the last two seconds; ``None`` where nothing was."""
        return self._lengths.length
