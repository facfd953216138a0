"""How many threads compute the next pass, and which number is quickest for a model.

llama.cpp's threads wait for each other after every operation, so that one without a core of its own delays all: beside
one busy program, two threads on two cores take four times as long for a pass as one thread does. What is tried is only
kept if passes became quicker. Seconds are passed in as numbers: nothing here uses a clock.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import psutil
from msgspec import Meta

from app.engine.llama.backend import allowed_processors, default_threads, other_threads
from app.protocol.options import MAX_THREADS
from app.storage.json_file import KeyedFile, cache_file, key_of

LOOK_SECONDS = 0.25
"""Between two looks at what other programs use."""
_BUSY, _BUSY_SHARE = 0.25, 0.05
"""Cores that others may use unnoticed, or this share of many: a window that draws an answer needs as much."""
_TRIED, _LEAST_TRIED, _TRIED_SECONDS = 8, 2, 2.0
"""Passes of a trial; if they are slow, those of so many seconds, but at least two."""
_MORE_QUICKER, _FEWER_QUICKER = 0.98, 0.9
"""A trial succeeds if its passes take at most this share of the time. Where fewer threads help, they help a lot; on a
virtual machine, the passes before may have been slow by chance."""
_SLOW = 1.3
"""Passes that take so many times as long as on a quiet computer are slow, whatever the reason."""
_QUIET_GAIN = 0.05
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 16.0
"""Seconds before the next trial after one that failed; each failure doubles them."""


class Usage(NamedTuple):
    """Seconds so far, of all cores this process may use together."""

    all: float
    own: float
    time: float


def current_usage() -> Usage:
    """What all programs and this one have used. Takes about 0.1 ms."""
    allowed = allowed_processors()
    each = psutil.cpu_times(percpu=True)
    times = [one for number, one in enumerate(each) if number in allowed] or each
    idle = sum(one.idle + getattr(one, "iowait", 0.0) for one in times)
    own = os.times()
    now = time.monotonic()
    return Usage(len(times) * now - idle, own.user + own.system, now)


def others_use(before: Usage, now: Usage) -> float:
    """How many cores other programs used between two looks."""
    seconds = now.time - before.time
    return max((now.all - before.all) - (now.own - before.own), 0.0) / seconds if seconds > 0 else 0.0


def are_busy(others: float, cores: int) -> bool:
    """Whether other programs that use so many of the ``cores`` are in the way."""
    return others > max(_BUSY, _BUSY_SHARE * cores)


@dataclass
class _Trial:
    """Another number of threads that is being tried."""

    before: int
    for_others: bool
    """Whether threads had been taken away for others before."""
    took: float
    """What passes took before, relative to what was expected."""
    begun: float


class ThreadControl:
    """Chooses the number of threads of a pair's passes, at most ``most``."""

    def __init__(self, most: int, usage: Callable[[], Usage] = current_usage) -> None:
        self.most = self.count = most
        """How many compute now."""
        self._usage = usage
        self._seen: Usage | None = None
        self._others = 0.0
        self._passes: deque[float] = deque(maxlen=_TRIED)
        """What the last passes took with `count` threads, relative to what was expected."""
        self._quiet = 1.0
        """The same on a quiet computer."""
        self._trial: _Trial | None = None
        self._for_others = False
        """Whether threads were taken away because other programs need the cores."""
        self._pause, self._next_trial = _FIRST_PAUSE, 0.0

    @property
    def slowdown(self) -> float:
        """How many times as long passes take now as on a quiet computer; 1 if nothing is in the way."""
        if not self._passes or not (self.is_reduced or self.is_crowded):
            return 1.0
        return max(statistics.median(self._passes) / self._quiet, 1.0)

    @property
    def is_reduced(self) -> bool:
        """Whether fewer threads compute than could."""
        return self.count < self.most

    def begin(self) -> None:
        """A prompt or an answer begins."""
        now = self._usage()
        if self._seen is None or now.time - self._seen.time > 2 * LOOK_SECONDS:
            self._seen, self._trial = now, None
            self._passes.clear()

    def processed(self, now: float) -> int:
        """A part of a prompt was processed; returns the threads for the next. Nothing is tried: a part takes long."""
        if self._look_if_due(now):
            self._trial = None
            if self.is_crowded and self._free() != self.count:
                self._use(self._free(), for_others=True)
            elif not self.is_crowded and self.is_reduced:
                self._use(self.most)
        return self.count

    def passed(self, now: float, seconds: float, expected: float) -> int:
        """A pass took so many ``seconds`` instead of the ``expected`` ones; returns the threads for the next one."""
        self._passes.append(seconds / expected)
        has_looked = self._look_if_due(now)
        if has_looked and not self.is_crowded and self.is_reduced and self._for_others:
            self._trial = None
            self._use(self.most)  # needs no trial
        elif self._trial:
            self._judge(self._trial, now)
        elif now >= self._next_trial and len(self._passes) >= _LEAST_TRIED and (wanted := self._other()) != self.count:
            self._trial = _Trial(self.count, self._for_others, statistics.median(self._passes), now)
            self._use(wanted, for_others=self.is_crowded)
        return self.count

    @property
    def is_crowded(self) -> bool:
        """Whether other programs keep cores busy."""
        return are_busy(self._others, self.most)

    def _look_if_due(self, now: float) -> bool:
        if self._seen is not None and now - self._seen.time < LOOK_SECONDS:
            return False
        usage, was_crowded = self._usage(), self.is_crowded
        self._others = others_use(self._seen, usage) if self._seen else 0.0
        self._seen = usage
        if self.is_crowded != was_crowded and not self._trial:
            self._passes.clear()  # those from before say nothing about now
        if self._passes and not self.is_crowded and not self.is_reduced:
            self._quiet += _QUIET_GAIN * (statistics.median(self._passes) - self._quiet)
        return True

    def _free(self) -> int:
        """The cores that others leave, at most all threads."""
        return min(max(self.most - round(self._others), 1), self.most)

    def _other(self) -> int:
        """The number of threads to try, or the current one."""
        if self.is_crowded and self._free() > self.count:
            return self._free()
        if self.is_reduced and not self.is_crowded:  # they were slow for another reason, which may be over
            return self.count + 1
        if self._free() < self.count:
            return self._free()
        if statistics.median(self._passes) <= _SLOW * self._quiet:
            return self.count
        return max(self.count - 1, 1) if self.is_crowded else (self.count + 1) // 2  # as a quota may need

    def _judge(self, trial: _Trial, now: float) -> None:
        count = len(self._passes)
        if count < _TRIED and (count < _LEAST_TRIED or now - trial.begun < _TRIED_SECONDS):
            return
        self._trial = None
        quicker = _MORE_QUICKER if self.count > trial.before else _FEWER_QUICKER
        if statistics.median(self._passes) <= quicker * trial.took:
            self._pause = _FIRST_PAUSE
            self._next_trial = now + (LOOK_SECONDS if self._for_others else _FIRST_PAUSE)
            return
        self._use(trial.before, for_others=trial.for_others)
        self._next_trial = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _use(self, count: int, *, for_others: bool = False) -> None:
        self.count, self._for_others = count, for_others
        self._passes.clear()


_Number = Annotated[int, Meta(ge=1, le=MAX_THREADS)]


def remembered_threads(stamp: Sequence[int]) -> int | None:
    """For the model whose files have this ``stamp``; ``None`` if nothing was timed."""
    return _store().get(_key(stamp))


def remember_threads(stamp: Sequence[int], threads: int) -> None:
    """Use so many from the next load on."""
    _store().put(_key(stamp), threads)


def _store() -> KeyedFile[int]:
    return KeyedFile(cache_file("threads.json"), _Number)


def _key(stamp: Sequence[int]) -> str:
    machine = (platform.node(), platform.machine(), platform.processor())
    return key_of({"target": stamp, "machine": machine, "threads": (default_threads(), other_threads())})
