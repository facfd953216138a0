"""What a GPU can't compute with, checked before llama.cpp is asked, because it would end the process."""

from __future__ import annotations

from app.engine.host.load_options import ModelOptions
from app.engine.llama.backend import largest_tensor
from app.errors import KnownError
from app.models.gguf import GgufHeader
from app.models.memory_shape import shape_of
from app.models.model_memory import CELLS, KV_BLOCKS, rounded_cells


def check_cache(header: GgufHeader, length: int, options: ModelOptions) -> None:
    """Raise `KnownError` if a layer's keys or values of ``length`` tokens are more than its GPUs take as one tensor.

    Vulkan has a limit for that: 4 GiB on most cards, 128 MiB on some small ones.
    """
    shape = shape_of(header)
    on_gpu = shape.gpu_slots if options.gpu_layers < 0 else min(options.gpu_layers, shape.gpu_slots)
    layers = shape.layers[shape.gpu_slots - on_gpu :]
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
