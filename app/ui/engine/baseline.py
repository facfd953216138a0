"""The speed without a draft of the pair in use: looked up, measured, stored."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
from PySide6.QtCore import QObject

from app.models.measurements import Measurements, PlainKey
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings, Sampling, chosen_options
from app.protocol.remote import RemoteModel
from app.ui.widgets.tasks import Lane

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0


class Baseline:
    """Finds the plain speed for a pair and a sampler. The files are read in a lane."""

    def __init__(self, measurements: Measurements, owner: QObject) -> None:
        self._measurements = measurements
        self._lane = Lane(owner, "plain speeds")
        self._asked = 0
        self._of_servers: dict[tuple[str, str], float] = {}
        """By address and model, until Slipstream ends: what such a server runs on may be something else tomorrow."""

    def find(
        self,
        pair: PairLoaded | None,
        load: LoadSettings,
        sampling: Sampling,
        done: Callable[[float | None], None],
    ) -> None:
        """``done`` gets tokens per second, or ``None`` if it wasn't measured; unless something newer is known."""
        self._asked += 1
        number = self._asked
        if pair is None or pair.remote is not None:
            done(self._of_servers.get(_served(pair.remote)) if pair and pair.remote else None)
        else:
            self._lane.submit(
                lambda: self._measurements.plain_speed(_key(pair, load, sampling)),
                lambda speed: done(speed) if number == self._asked else None,
                lambda _error: done(None) if number == self._asked else None,
            )

    def record(self, pair: PairLoaded | None, load: LoadSettings, sampling: Sampling, tokens_per_second: float) -> None:
        """Store a measurement; if that fails, it still applies until the process ends."""
        self._asked += 1
        if pair is not None and pair.remote is not None:
            self._of_servers[_served(pair.remote)] = tokens_per_second
        elif pair is not None and tokens_per_second > 0:
            self._lane.submit(
                lambda: self._measurements.record_plain_speed(_key(pair, load, sampling), tokens_per_second),
                None,
                lambda error: _log.warning("%s", error),
            )

    def close(self) -> None:
        """Write what was recorded, if the disk allows it."""
        self._lane.close(_PATIENCE_SECONDS, finish=True)


def _served(remote: RemoteModel) -> tuple[str, str]:
    return remote.server.address, remote.model


def _key(pair: PairLoaded, load: LoadSettings, sampling: Sampling) -> PlainKey:
    """Raises `KnownError` if the file is gone."""
    options = {name: value for name, value in chosen_options(load).items() if not name.startswith("draft_")}
    return PlainKey.of(
        pair.target.path,
        context_length=pair.context_length,
        threads=pair.threads,
        gpu_layers=pair.target.gpu_layers,
        kv_type=load.kv_type,
        sampler=msgspec.json.encode(sampling).decode(),
        options=msgspec.json.encode(options).decode() if options else "",
    )
