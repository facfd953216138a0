"""The costs of a pair's passes on this machine, and what was learned in its earlier answers: measured once, then
stored.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from app.engine.host.loading import LoadedModel, Target
from app.engine.llama.backend import driver_name, engine_name, gpu_devices
from app.engine.policy.calibration import Build, MeasuredCosts, measure, up_to_date
from app.engine.policy.costs import Costs
from app.engine.policy.history import PairHistory, history_file
from app.protocol.messages import SpeedChange
from app.storage.keyed_file import KeyedFile, cache_file, key_of


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

    def save(self) -> None:
        """Store what is known now, including what was learned in answers."""
        if self.costs != self.written.costs:
            self.written = replace(self.written, costs=self.costs)
            self.store.put(self.key, self.written)
        self.history.save()


def measured_costs(
    target: Target, draft: LoadedModel | None, threads: int, is_canceled: Callable[[], bool]
) -> PairCosts:
    """The costs of this pair's passes here, from the last time if nothing has changed, and its history.

    Raises `Canceled`.
    """
    pair = {
        "target": target.files.stamp,
        "draft": draft.files.stamp if draft else None,
        "threads": threads,
        "machine": (platform.node(), platform.machine(), platform.processor()),
    }
    settings = msgspec.to_builtins(target.settings)
    layers = (settings["target_gpu_layers"], settings["draft_gpu_layers"])
    settings["kept_cache_mib"] = settings.pop("chat_cache_mib")  # the name under which older versions stored it
    if target.head:
        pair["head"] = target.head_stamp
    key = key_of({**pair, "settings": settings, "snapshots": target.context.checkpoints.snapshots})
    store = KeyedFile(cache_file("costs.json"), MeasuredCosts)
    written = store.get(key)
    build = Build(engine_name(), driver_name(gpu_devices()))

    def measured() -> Costs:
        target.switcher.before_measuring()
        target.context.clear()
        head = target.head.cache if target.head else None
        return measure(target.context, draft.context if draft else head, is_canceled)

    latest, slower = up_to_date(written, build, measured)
    if latest is not written:
        store.put(key, latest)
    history_key = key_of({**pair, "layers": layers, "kv": target.settings.kv_type})
    history = PairHistory(history_file(cache_file("history.json")), history_key)
    return PairCosts(latest.costs, latest, store, key, history, slower)
