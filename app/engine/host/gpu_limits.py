"""What a GPU can't compute with, checked before llama.cpp is asked, because it would end the process."""

from __future__ import annotations

from bisect import bisect

from app.engine.llama.backend import can_compute_with
from app.errors import KnownError
from app.models.gguf import GgufHeader
from app.models.memory_shape import shape_of
from app.models.model_memory import KV_BLOCKS, rounded_cells
from app.protocol.limits import KvType

_STEP = 256


def check_cache(header: GgufHeader, length: int, kv_type: KvType, gpu_layers: int) -> None:
    """Raise `KnownError` if a layer's keys or values of ``length`` tokens are more than a GPU takes as one tensor.

    Vulkan has a limit for that: 4 GiB on most cards, 128 MiB on some small ones.
    """
    shape = shape_of(header)
    on_gpu = shape.gpu_slots if gpu_layers < 0 else min(gpu_layers, shape.gpu_slots)
    layers = shape.layers[shape.gpu_slots - on_gpu :]
    # Windows are kept completely only where there is a running state, too.
    whole = [layer for layer in layers if not layer.window or shape.running_state]
    numbers = max((max(layer.keys, layer.values) for layer in whole), default=0)
    block, size = KV_BLOCKS[kv_type]

    def is_too_long(tokens: int) -> bool:
        return not can_compute_with(rounded_cells(tokens) * numbers * size // block)

    if not numbers or not is_too_long(length):
        return
    most = _STEP * bisect(range(1, length // _STEP + 1), False, key=lambda steps: is_too_long(steps * _STEP))
    raise KnownError(
        f"A KV cache for {length:,} tokens is too large for this computer's GPU. Choose a context of at most {most:,} "
        "tokens, or set the layers on the GPU to 0."
    )
