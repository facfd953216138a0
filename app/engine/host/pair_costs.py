"""The costs of a pair's passes on this machine, and what was learned in its earlier answers: measured once, then
stored.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.engine.decoding.kv_cache import MeasurableCache
from app.engine.host.load_options import cost_facts
from app.engine.host.loading import LoadedModel, Target
from app.engine.host.thread_control import are_busy, current_usage, others_use
from app.engine.host.threads import remember_threads, remembered_threads
from app.engine.llama.backend import driver_name, engine_name, gpu_devices
from app.engine.llama.thread_count import default_threads, other_threads
from app.engine.policy.calibration import Build, MeasuredCosts, costs_file, measure, time_plain, up_to_date
from app.engine.policy.costs import Costs
from app.engine.policy.history import PairHistory, history_file
from app.protocol.events import SpeedChange
from app.protocol.options import DrafterName
from app.storage.keyed_file import KeyedFile, cache_file, key_of

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


def measured_costs(target: Target, draft: LoadedModel | None, is_canceled: Callable[[], bool]) -> PairCosts:
    """The costs of this pair's passes here, from the last time if nothing has changed, and its history.

    When they are measured, another number of threads is timed, too, if that was never done for this target.

    Raises `Canceled`.
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

    caches: dict[DrafterName, MeasurableCache] = {}
    if draft:
        caches["model"] = draft.context
    if target.head:
        caches["mtp"] = target.head.cache

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
    history_key = key_of({**pair, "layers": layers, "kv": target.settings.kv_type})
    history = PairHistory(history_file(cache_file("history.json")), history_key)
    return PairCosts(latest.costs, latest, store, key, history, slower if is_quiet else None, is_quiet)


def _with_quicker_threads(target: Target, measured: MeasuredCosts, is_canceled: Callable[[], bool]) -> MeasuredCosts:
    """Time plain passes with the other number of threads, unless the user has chosen one, or they were timed before for
    this target, and use it from now on if it is clearly quicker. Returns ``measured`` with the time of what is used.

    It takes one pass, or a few within ``_THREADS_BUDGET``. Passes over more tokens keep the usual number: reading the
    weights, which a few cores can do as quickly, is a smaller part of their time. Raises `Canceled`.
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
