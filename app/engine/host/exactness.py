"""Which passes of a target give the same logits on this machine: tried when a file is new, then remembered.

Text is the same with and without a draft if a token's logits don't depend on how many others are in its pass. On
processors the kernels are chosen so that they don't (`app.engine.llama.kernels`), except with weights in F16, BF16 or
F32. GPUs choose their kernels by the width of a pass. Passes padded to a multiple of some width are all computed by one
kernel, which is what the accept rule ``exact`` uses.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
import numpy as np

from app.engine.decoding.sampling import Floats
from app.engine.host.load_options import cost_facts
from app.engine.llama.backend import driver_name, engine_name, gpu_devices
from app.engine.llama.context import Context
from app.errors import Canceled
from app.protocol.limits import EXACT_WIDTH
from app.protocol.options import LoadSettings
from app.storage.keyed_file import KeyedFile, cache_file, key_of

log = logging.getLogger("slipstream.engine")

_UNITS = (1, 2, 4, 8, EXACT_WIDTH)
_BETWEEN, _SLOW_PASS = (3, 6, 12), 0.05
"""Widths that are tried as well, unless a pass over one token takes so many seconds: on a model of 8 B, the others
already take five.
"""
_BEHIND = 1000
"""Tokens of context: llama.cpp uses other kernels of attention from about 500 on."""


class Exactness(msgspec.Struct, frozen=True):
    """Which passes give the same logits."""

    unit: Annotated[int, msgspec.Meta(ge=1, le=EXACT_WIDTH)]
    """Those over a multiple of so many tokens, up to `EXACT_WIDTH`; 1: all."""
    behind: int
    """At how many tokens of context this was tried."""


def exactness(cache: Context, stamp: Sequence[int], settings: LoadSettings, canceled: Callable[[], bool]) -> Exactness:
    """Of the target whose files have this ``stamp``, in its empty ``cache``, which is empty afterwards as well.

    Raises `Canceled`.
    """
    build = (engine_name(), driver_name(gpu_devices()), platform.node(), platform.machine(), platform.processor())
    key = key_of({"target": stamp, "build": build, "settings": cost_facts(settings)})
    store = KeyedFile(cache_file("exactness.json"), Exactness)
    known = store.get(key)
    if known is None:
        known = try_out(cache, canceled)
        store.put(key, known)
        log.info("passes give the same logits in multiples of %d tokens (%s)", known.unit, known)
    return known


def try_out(cache: Context, canceled: Callable[[], bool]) -> Exactness:
    """Compare logits of passes of several widths bit by bit. See `exactness`."""
    try:
        behind = _begin(cache)
        begun = time.perf_counter()
        rows = {1: _row(cache, canceled, 1)}
        is_quick = time.perf_counter() - begun < _SLOW_PASS
        rows |= {width: _row(cache, canceled, width) for width in (*_UNITS[1:], *_BETWEEN * is_quick)}
        return Exactness(next(unit for unit in _UNITS if _agree(rows, unit)), behind)
    finally:
        cache.roll_back(0)


def _row(cache: Context, canceled: Callable[[], bool], width: int) -> Floats:
    """The logits of a pass of this ``width``, which is rolled back."""
    if canceled():
        raise Canceled
    before = len(cache.tokens)
    cache.hold(EXACT_WIDTH)
    logits = cache.decode(_tokens(width), width).copy()
    cache.roll_back(before)
    return logits


def _agree(rows: dict[int, Floats], unit: int) -> bool:
    return all(_are_equal(rows[width][:unit], rows[unit]) for width in rows if width % unit == 0)


def _are_equal(one: Floats, other: Floats) -> bool:
    """Bit by bit; a damaged model computes what is no number, every time."""
    return np.array_equal(one.view(np.uint32), other.view(np.uint32))


def _begin(cache: Context) -> int:
    """A long context, if the memory can be made to look like one; returns its length."""
    cache.roll_back(0)
    cache.decode([0], 0)
    length = min(_BEHIND, cache.length - 2 * EXACT_WIDTH)
    if length > 1 and cache.lengthen(length):
        return length
    cache.decode(_tokens(EXACT_WIDTH - 1), 0)
    return EXACT_WIDTH


def _tokens(count: int) -> list[int]:
    """The same beginning for every ``count``; any vocabulary has them."""
    return [3 + 5 * i % 97 for i in range(count)]
