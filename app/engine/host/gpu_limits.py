"""What is on a GPU, and what it can't compute with, checked before llama.cpp is asked: it would end the process."""

from __future__ import annotations

from app.engine.host.load_options import ModelOptions
from app.engine.llama.backend import largest_tensor, offload_handles
from app.errors import KnownError
from app.models.gguf import GgufHeader
from app.models.memory_shape import Layer, ModelShape, shape_of
from app.models.model_memory import CELLS, KV_BLOCKS, rounded_cells


def has_state_on_gpu(header: GgufHeader, gpu_layers: int) -> bool:
    """Whether a running state, or a part of it, is in a GPU's memory."""
    return bool(offload_handles()) and any(layer.state for layer in _layers_on_gpu(shape_of(header), gpu_layers))


def _layers_on_gpu(shape: ModelShape, gpu_layers: int) -> list[Layer]:
    """The repeating ones. The output counts as a layer and is the first to be there."""
    on_gpu = shape.gpu_slots if gpu_layers < 0 else min(gpu_layers, shape.gpu_slots)
    return shape.layers[shape.gpu_slots - on_gpu :]


def check_cache(header: GgufHeader, length: int, options: ModelOptions) -> None:
    """Raise `KnownError` if a layer's keys or values of ``length`` tokens are more than its GPUs take as one tensor.

    Vulkan has a limit for that: 4 GiB on most cards, 128 MiB on some small ones.
    """
    shape = shape_of(header)
    layers = _layers_on_gpu(shape, options.gpu_layers)
    # Windows are kept completely only where there is a running state, too.
    whole = [layer for layer in layers if not layer.window or shape.running_state]
    numbers = max((max(layer.keys, layer.values) for layer in whole), default=0)
    limits = filter(None, map(largest_tensor, options.own_placement.gpus().values()))
    limit = min(limits, default=0)
    block, size = KV_BLOCKS[options.settings.kv_type]
    if not limit or rounded_cells(length) * numbers * size // block <= limit:
        return
    most = limit * block // (numbers * size) // CELLS * CELLS
    raise KnownError(
        f"A KV cache for {length:,} tokens is too large for this computer's GPU. Choose a context of at most {most:,} "
        "tokens, or set the layers on the GPU to 0."
    )
