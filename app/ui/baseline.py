"""The plain speed of the pair in use: looked up, measured, remembered."""

from __future__ import annotations

import logging

import msgspec

from app.engine.protocol import LoadSettings, PairLoaded, Sampling
from app.errors import KnownError
from app.models.measurements import Measurements, PlainKey

_log = logging.getLogger(__name__)


class Baseline:
    """Finds the plain speed that belongs to a pair and a sampler."""

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements

    def speed(self, pair: PairLoaded | None, load: LoadSettings, sampling: Sampling) -> float | None:
        """Tokens per second, or ``None`` where it was not measured."""
        key = _key(pair, load, sampling)
        return self._measurements.plain_speed(key) if key else None

    def record(self, pair: PairLoaded | None, load: LoadSettings, sampling: Sampling, tokens_per_second: float) -> None:
        """Keep a measurement; one that cannot be kept still counts until the end."""
        key = _key(pair, load, sampling)
        if key is None or not tokens_per_second > 0:
            return
        try:
            self._measurements.record_plain_speed(key, tokens_per_second)
        except KnownError as error:
            _log.warning("%s", error)


def _key(pair: PairLoaded | None, load: LoadSettings, sampling: Sampling) -> PlainKey | None:
    if pair is None:
        return None
    try:
        return PlainKey.of(
            pair.target.path,
            context_length=pair.context_length,
            threads=pair.threads,
            gpu_layers=pair.target.gpu_layers,
            kv_type=load.kv_type,
            sampler=msgspec.json.encode(sampling).decode(),
        )
    except KnownError:
        return None
