"""Measures what a verify pass and a draft token cost on this machine, once per pair: kept for the next time."""

from __future__ import annotations

import hashlib
import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from app.engine.cache import Cache
from app.engine.costs import Costs
from app.errors import Cancelled
from app.files import write_whole

log = logging.getLogger("slipstream.calibration")

_FIRST = (1, 2, 6)
_THEN = (8, 9, 17, 4, 3, 5, 12, 7, 10, 14)
"""Widths in the order in which they tell most: a cliff of GPU kernels lies between 8 and 9."""
_DRAFT_STEPS = 8
_BUDGET_SECONDS = 0.3
_KEPT = 64
_LEAST_SECONDS = 1e-7


def measure(
    target: Cache, draft: Cache | None, cancelled: Callable[[], bool], budget: float = _BUDGET_SECONDS
) -> Costs:
    """Time passes over the empty caches, which are empty again afterwards.

    The widths of ``_FIRST`` are always measured, the others while ``budget`` (seconds) lasts. Raises `Cancelled`.
    """
    end = time.perf_counter() + budget
    verify: dict[int, float] = {}
    for width in (*_FIRST, *_THEN):
        if width not in _FIRST and time.perf_counter() > end:
            break
        verify[width] = _pass_seconds(target, width, cancelled)
        if time.perf_counter() < end:  # else the model is so slow that what only a first pass costs does not matter
            verify[width] = _pass_seconds(target, width, cancelled)
    while time.perf_counter() < end:  # the least of several: whatever else runs only ever adds
        for width in verify:
            verify[width] = min(verify[width], _pass_seconds(target, width, cancelled))
    return Costs(verify=verify, draft=_draft_seconds(draft, cancelled) if draft else None)


def _pass_seconds(cache: Cache, width: int, cancelled: Callable[[], bool]) -> float:
    if cancelled():
        raise Cancelled
    begun = time.perf_counter()
    cache.decode([0] * width, width)
    seconds = time.perf_counter() - begun
    cache.roll_back(0)
    return seconds


def _draft_seconds(cache: Cache, cancelled: Callable[[], bool]) -> float:
    seconds = []
    for _ in range(_DRAFT_STEPS):
        if cancelled():
            raise Cancelled
        begun = time.perf_counter()
        cache.decode([0], 1)
        seconds.append(time.perf_counter() - begun)
    cache.roll_back(0)
    return statistics.median(seconds)


class CostStore:
    """Measured costs by what they depend on, in one JSON file.

    A file that cannot be read or written costs a new measurement and nothing else.
    """

    def __init__(self, path: Path | None) -> None:
        """Without a ``path`` nothing is kept."""
        self._path = path

    def get(self, key: str) -> Costs | None:
        """The costs kept for ``key``, if they make sense."""
        costs = self._read().get(key)
        if costs is None or 1 not in costs.verify:
            return None
        draft = costs.draft if costs.draft is not None else math.inf
        return costs if min(draft, *costs.verify.values()) > _LEAST_SECONDS else None

    def put(self, key: str, costs: Costs) -> None:
        """Keep ``costs``; of the oldest entries only so many stay."""
        if self._path is None:
            return
        entries = self._read()
        entries.pop(key, None)
        entries[key] = costs
        latest = dict(list(entries.items())[-_KEPT:])
        try:
            write_whole(self._path, msgspec.json.encode(latest))
        except OSError as error:
            log.info("the costs cannot be kept: %s", error)

    def _read(self) -> dict[str, Costs]:
        if self._path is None:
            return {}
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Costs])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            log.info("the costs in %s are not used: %s", self._path.name, error)
            return {}


def key_of(facts: Mapping[str, object]) -> str:
    """A short name for what a measurement depends on: files, threads, offload, versions."""
    return hashlib.sha256(msgspec.json.encode(dict(facts), order="sorted")).hexdigest()[:24]
