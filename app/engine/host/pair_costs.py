"""What is known of a loaded pair: the costs of its passes, whether they are exact, its threads and drafters."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.drafting import Drafting
from app.engine.decoding.sampling import Floats
from app.engine.drafters import Drafter
from app.engine.drafters.medusa import MedusaHeads
from app.engine.drafters.model import LoadedDraft
from app.engine.drafters.table import Loaded, drafters_of
from app.engine.host.loading import LoadedModel, Target, cost_facts
from app.engine.host.model_files import default_draft_length
from app.engine.host.threads import (
    ThreadControl,
    are_busy,
    current_usage,
    others_use,
    remember_threads,
    remembered_threads,
)
from app.engine.llama.backend import default_threads, driver_name, engine_name, gpu_devices, other_threads
from app.engine.llama.context import Context
from app.engine.policy.acceptance import PairHistory, history_file
from app.engine.policy.calibration import Build, MeasuredCosts, costs_file, measure, time_plain, up_to_date
from app.engine.policy.costs import CostModel, Costs
from app.protocol.events import Round, SpeedChange
from app.protocol.options import DEFAULT_DRAFT_LENGTH, EXACT_WIDTH, TARGET_OUTPUTS, DrafterName, LoadSettings
from app.storage.json_file import KeyedFile, cache_file, key_of
from app.system import Canceled

log = logging.getLogger("slipstream.engine")

_THREADS_BUDGET = 0.2
"""In seconds."""
_QUICKER = 0.95
"""The other number of threads is used if a pass takes at most this share of the time."""


@dataclass
class PairCosts:
    """The costs of a pair's passes here, what was learned in its answers, and where that is stored."""

    costs: Costs
    written: MeasuredCosts
    store: KeyedFile[MeasuredCosts]
    key: str
    history: PairHistory
    """The results of drafting in earlier answers of this pair on this machine, at any context length."""
    slower: SpeedChange | None = None
    """Set if the engine or a driver has changed and the pair has become slower."""
    is_stored: bool = True
    """Not if other programs were busy while they were measured: the next load measures them again."""

    def save(self) -> None:
        """Store what is known now, including what was learned in answers."""
        if self.is_stored and self.costs != self.written.costs:
            self.written = replace(self.written, costs=self.costs)
            self.store.put(self.key, self.written)
        self.history.save()


def measured_costs(
    target: Target, draft: LoadedModel | None, drafters: Sequence[Drafter], is_canceled: Callable[[], bool]
) -> PairCosts:
    """The costs of this pair's passes here, from the last time if nothing has changed, and its history.

    When they are measured, another number of threads is timed, too, if it never was for this target. Raises `Canceled`.
    """
    pair = {
        "target": target.files.stamp,
        "draft": draft.files.stamp if draft else None,
        "threads": target.settings.threads or default_threads(),  # whatever was timed
        "machine": (platform.node(), platform.machine(), platform.processor()),
    }
    settings = cost_facts(target.settings)
    layers = (target.settings.target_gpu_layers, target.settings.draft_gpu_layers)
    settings["kept_cache_mib"] = settings.pop("chat_cache_mib")  # the name under which older versions stored it
    if target.head:
        pair["head"] = target.head_stamp
    key = key_of({**pair, "settings": settings, "snapshots": target.context.checkpoints.snapshots})
    store = costs_file(cache_file("costs.json"))
    written = store.get(key)
    build = Build(engine_name(), driver_name(gpu_devices()))

    caches = {drafter.name: drafter.cache for drafter in drafters if drafter.cache}

    def measured() -> Costs:
        target.switcher.before_measuring()
        target.context.clear()
        return measure(target.context, caches, is_canceled)

    before = current_usage()
    latest, slower = up_to_date(written, build, measured, caches)
    is_quiet = latest is written or not are_busy(others_use(before, current_usage()), target.context.threads)
    if latest is not written and is_quiet:
        latest = _with_quicker_threads(target, latest, is_canceled)
        store.put(key, latest)
    for drafter in drafters:
        drafter.one_by_one = drafter.name in caches and latest.costs.drafts[drafter.name].one_by_one
    history_key = key_of({**pair, "layers": layers, "kv": target.settings.kv_type})
    history = PairHistory(history_file(cache_file("history.json")), history_key)
    return PairCosts(latest.costs, latest, store, key, history, slower if is_quiet else None, is_quiet)


def _with_quicker_threads(target: Target, measured: MeasuredCosts, is_canceled: Callable[[], bool]) -> MeasuredCosts:
    """Time plain passes with the other number of threads, unless the user has chosen one or that was done before, and
    use it from now on if it is clearly quicker. Returns ``measured`` with the time of what is used.

    Passes over more tokens keep the usual number: reading the weights, for which a few cores are enough, is a smaller
    part of their time. Raises `Canceled`.
    """
    stamp, other = target.files.stamp, other_threads()
    if target.settings.threads or other is None or remembered_threads(stamp) or not target.computes_on_cpu:
        return measured
    usual, before = target.context.threads, measured.costs.verify[1]
    batch = target.context.batch_threads
    target.context.use_threads(other, batch)
    seconds = time_plain(target.context, is_canceled, _THREADS_BUDGET)
    log.info("a pass takes %.2f ms with %d threads, %.2f ms with %d", 1e3 * before, usual, 1e3 * seconds, other)
    if seconds > _QUICKER * before:
        target.context.use_threads(usual, batch)
        remember_threads(stamp, usual)
        return measured
    remember_threads(stamp, other)
    if target.head:
        target.head.cache.use_threads(other, batch)  # as from the next load on
    costs = replace(measured.costs, verify={**measured.costs.verify, 1: seconds})
    return replace(measured, costs=costs, plain=seconds)


# Which passes of a target give the same logits on this machine: tried when a file is new, then remembered.
#
# Text is the same with and without a draft if a token's logits don't depend on how many others are in its pass. On
# processors the kernels are chosen so that they don't (`app.engine.llama.backend`), except with weights in F16, BF16
# or F32; GPUs choose their kernels by the width of a pass. The accept rule ``exact`` pads passes to a multiple of some
# width for which all of them use one kernel.

_UNITS = (1, 2, 4, 8, EXACT_WIDTH)
_BETWEEN, _SLOW_PASS = (3, 6, 12), 0.05
"""Widths that are tried as well, unless a pass over one token takes so many seconds: an 8B model needs five seconds for
the others."""
_BEHIND = 1000
"""Tokens of context: llama.cpp uses other kernels of attention from about 500 on."""


class Exactness(msgspec.Struct, frozen=True):
    """Which passes give the same logits."""

    unit: Annotated[int, msgspec.Meta(ge=1, le=EXACT_WIDTH)]
    """Those over a multiple of so many tokens, up to `EXACT_WIDTH`; 1: all."""
    behind: int
    """At how many tokens of context this was tried."""


def exactness(cache: Context, stamp: Sequence[int], settings: LoadSettings, canceled: Callable[[], bool]) -> Exactness:
    """Of the target whose files have this ``stamp``; its ``cache`` is empty before and after. Raises `Canceled`."""
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
        bits = {width: row.view(np.uint32) for width, row in rows.items()}  # a damaged model has no numbers, every time
        return Exactness(next(unit for unit in _UNITS if _agree(bits, unit)), behind)
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


def _agree(rows: dict[int, NDArray[np.uint32]], unit: int) -> bool:
    return all(np.array_equal(rows[width][:unit], rows[unit]) for width in rows if width % unit == 0)


def _begin(cache: Context) -> int:
    """Begin with a long context, if the memory can be made to look like one; returns its length."""
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


class PairThreads:
    """Applies what a `ThreadControl` chooses.

    A projector keeps its own number: fewer don't help (benchmarks/notes/real-models.md).
    """

    def __init__(self, target: Target, draft: LoadedModel | None, costs: Costs) -> None:
        """``costs``: those on a quiet computer, with which passes are compared."""
        head = target.head.cache if target.head else None
        contexts = filter(None, (target.context, draft.context if draft else None, head))
        self._usual = [(one, one.threads, one.batch_threads) for one in contexts]
        self._costs = CostModel(costs, TARGET_OUTPUTS)
        self.control = ThreadControl(max(target.context.threads, target.context.batch_threads))

    def after_chunk(self) -> None:
        """A chunk of a prompt was processed."""
        self._use(self.control.processed(time.monotonic()))

    def after_round(self, round_: Round, length: int, drafting: Drafting | None) -> Round:
        """``round_``, which ended after ``length`` tokens, with the number of its threads if it was reduced."""
        control, self._costs.length = self.control, length
        count, width = control.count if control.is_reduced else 0, min(round_.tested + 1, TARGET_OUTPUTS)
        if not count:
            self._costs.look_far(width, round_.verify_seconds)
        expected = self._costs.verify(width)
        self._use(control.passed(time.monotonic(), round_.verify_seconds, expected))
        if drafting:
            drafting.slowdown = control.slowdown
        return msgspec.structs.replace(round_, threads=count) if count else round_

    def restore(self) -> None:
        """Use all threads, as after loading."""
        self._use(self.control.most)

    def _use(self, count: int) -> None:
        for context, one, batch in self._usual:
            context.use_threads(min(one, count), min(batch, count))


def pair_threads(target: Target, draft: LoadedModel | None, costs: Costs | None) -> PairThreads | None:
    """``None`` if the user has chosen a number, there is one thread only, or the processor computes no layer."""
    settings, context = target.settings, target.context
    is_fixed = settings.threads or settings.batch_threads or max(context.threads, context.batch_threads) == 1
    return None if is_fixed or costs is None or not target.computes_on_cpu else PairThreads(target, draft, costs)


def pair_drafters(
    target: Target, draft: LoadedModel | None, medusa: MedusaHeads | None, should_stop: Callable[[], bool]
) -> list[Drafter]:
    """All that can draft for ``target``; ``should_stop`` is asked while they decode."""
    loaded: dict[DrafterName, Loaded] = {"medusa": medusa} if medusa else {}
    ends, size = target.model.is_end, target.model.vocabulary_size
    if draft:
        vocabulary = min(draft.model.vocabulary_size, size)
        loaded["model"] = LoadedDraft(draft.context, vocabulary, draft.model.is_end, should_stop, draft.switcher)
    if head := target.head:
        vocabulary = min(head.cache.model.vocabulary_size, size)
        longest = head.cache.longest_draft
        loaded[head.drafter] = LoadedDraft(head.cache, vocabulary, ends, should_stop, longest=longest)
    decoding = next((one for one in loaded.values() if isinstance(one, LoadedDraft)), None)
    if decoding and target.context.branches:
        loaded["tree"] = decoding
    drafters = drafters_of(ends, loaded)
    return [one for one in drafters if one.needs != "logits" or target.context.branches]


def usual_draft_length(target: Target, draft: LoadedModel | None) -> int:
    """The fixed draft length that is proposed for a pair; for a head as others have measured it."""
    if draft:
        return default_draft_length(draft.model)
    if not target.head:
        return DEFAULT_DRAFT_LENGTH
    return min(2 if target.info.gpu_layers else 3, target.head.cache.longest_draft)
