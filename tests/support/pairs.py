"""What the engine's tests load and ask with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.protocol.events import PairLoaded
from app.protocol.options import Sampling

Loader = Callable[..., PairLoaded]
"""Loads a pair; keyword arguments are `LoadSettings`."""
Pair = tuple[Path, Path]
WARM = Sampling(temperature=0.8)
HOT = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)
PENALIZED = Sampling(
    temperature=0.9, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.3, penalty_window=32
)
