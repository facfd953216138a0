"""What is on a GPU, and what it can't compute with, checked before llama.cpp is asked: it would end the process."""

from __future__ import annotations

from bisect import bisect

from app.engine.llama.backend import can_compute_with, offload_handles
from app.errors import KnownError
from app.models.gguf import GgufHeader
from app.models.memory_shape import Layer, ModelShape, shape_of
from app.models.model_memory import KV_BLOCKS, rounded_cells
from app.protocol.limits import KvType

_STEP = 256


def has_state_on_gpu(header: GgufHeader, gpu_layers: int) -> bool:
    """Whether a running state, or a part of it, is in a GPU's memory."""
    return bool(offload_handles()) and any(layer.state for layer in _layers_on_gpu(shape_of(header), gpu_layers))


def _layers_on_gpu(shape: ModelShape, gpu_layers: int) -> list[Layer]:
    """The repeating ones. The output counts as a layer and is the first to be there."""
    on_gpu = shape.gpu_slots if gpu_layers < 0 else min(gpu_layers, shape.gpu_slots)
    return shape.layers[shape.gpu_slots - on_gpu :]


def check_cache(header: GgufHeader, length: int, kv_type: KvType, gpu_layers: int) -> None:
    """Raise `KnownError` if a layer's keys or values of ``length`` tokens are more than a GPU takes as one tensor.

    Vulkan has a limit for that: 4 GiB on most cards, 128 MiB on some small ones.
    """
    shape = shape_of(header)
    layers = _layers_on_gpu(shape, gpu_layers)
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
