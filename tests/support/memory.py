"""What a pair takes in memory, by its shapes."""

from __future__ import annotations

from typing import Any

from app.models.model_memory import ONE_GPU, GpuSplit, MemoryEstimate, ModelShape, PairMemory


def estimate(
    target: ModelShape, draft: ModelShape | None = None, *, gpus: GpuSplit = ONE_GPU, **options: Any
) -> MemoryEstimate:
    """``options`` as for `PairMemory`."""
    return PairMemory(target, draft, **options).estimate(gpus)
