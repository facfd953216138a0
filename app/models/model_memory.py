"""What one model of a pair takes, in system memory and on each GPU.

What is counted was taken from llama.cpp of October 2026 and then measured: ``benchmarks/notes/memory.md``.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from app.models.architectures import KEEPS_FLASH_ATTENTION, LARGE_GRAPHS
from app.models.gpu_split import first_gpu, gpus_of_layers
from app.models.memory_shape import Layer, ModelShape
from app.protocol.limits import LEAST_PICKED_VOCABULARY, KvType

KV_BLOCKS: dict[KvType, tuple[int, int]] = {"f16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18)}
"""Numbers that are stored together, and the bytes they take."""
CELLS = 256
"""llama.cpp rounds a cache up to a multiple of this many tokens."""
_FLOAT, _HALF = 4, 2
_BYTES_PER_TOKEN, _BYTES_PER_MERGE = 240, 140
"""For a vocabulary in memory, llama.cpp's and the engine's copy together: six real ones were within a tenth of this."""
_BYTES_PER_NODE = 1255
"""llama.cpp reserves space for three graphs: a tensor (368 bytes), pointers and hash tables for each possible node."""
_LEAST_NODES, _NODES_PER_TENSOR = 1024, 8
_MORE_NODES_PER_TOKEN, _MORE_NODES_PER_TENSOR = 40, 32
_MORE_COPIES = 3
"""``GGML_SCHED_MAX_COPIES`` less the one that is always there."""
_REPACKED_X86 = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"})
_REPACKED_ARM = _REPACKED_X86 | {"Q5_K", "Q6_K", "Q8_0"}


class Place(msgspec.Struct):
    """What one model takes in one place."""

    weights: int = 0
    kv: int = 0
    compute: int = 0
    largest_tensor: int = 0
    """Of the KV cache: all keys or all values of a layer."""

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.compute


@dataclass
class ModelMemory:
    """One model of the pair as it would be loaded."""

    shape: ModelShape
    cells: int
    batch_size: int
    kv_type: KvType
    outputs: int
    gpu_layers: int
    snapshots: int = 0
    expert_layers_on_cpu: int = 0
    is_head: bool = False
    """It is the MTP head of another one, with whose file it shares the vocabulary if it isn't alone in its own."""

    def __post_init__(self) -> None:
        self.batch = min(self.batch_size, self.cells)
        slots = self.shape.gpu_slots
        self._on_gpu = slots if self.gpu_layers < 0 else min(self.gpu_layers, slots)
        first = slots - self._on_gpu
        self._layers_in_system, self._layers_on_gpu = self.shape.layers[:first], self.shape.layers[first:]
        apart = self.shape.layers[first : max(self.expert_layers_on_cpu, first)]
        self._apart = [layer.experts for layer in apart]
        """Of the first layers on a GPU, bytes that are in system memory nevertheless."""
        self._weights_in_system = sum(layer.weights for layer in self._layers_in_system) + sum(self._apart)
        """Of the layers."""

    def system(self) -> Place:
        """What it takes in system memory."""
        shape = self.shape
        output = 0 if self._on_gpu else shape.output_weights
        weights = shape.input_weights + output + self._weights_in_system
        return Place(weights, self._kv(self._layers_in_system), self._buffers() + self._tables())

    def on_gpus(self, shares: Sequence[float], rows: Sequence[float] = ()) -> list[Place]:
        """What it takes on each GPU, if its layers are spread by ``shares`` and, if given, each matrix by ``rows``."""
        places = [Place() for _ in shares]
        if not self._on_gpu:
            return places
        where = gpus_of_layers(shares, self._on_gpu)
        weights, kv = self._weights_by_layer(), self._kv_by_layer()
        for number, size in zip(where, weights, strict=True):
            places[number].weights += size
        for number, size in zip(where, kv, strict=False):  # the output, which is the last, has none
            places[number].kv += size
        for number, layer in zip(where, self._layers_on_gpu, strict=False):
            places[number].largest_tensor = max(places[number].largest_tensor, self._largest_tensor(layer))
        for number, share in enumerate(rows):
            places[number].weights = round(sum(weights) * share)
        ahead = self._inputs_ahead() if sum(share > 0 for share in shares) > 1 and not rows else 0
        for number in self._computing(where):
            places[number].compute = self._graph() + ahead
        if self._copied():
            places[first_gpu(shares)].compute = self._copying_graph() + ahead
        return places

    def by_layer(self) -> list[int]:
        """Bytes of each layer that is on a GPU, the output last."""
        kv = [*self._kv_by_layer(), 0]
        return [sum(pair) for pair in zip(self._weights_by_layer(), kv, strict=True)] if self._on_gpu else []

    def _kv_by_layer(self) -> list[int]:
        sizes = {layer: self._kv([layer]) for layer in set(self._layers_on_gpu)}  # most layers are the same
        return [sizes[layer] for layer in self._layers_on_gpu]

    def besides(self, gpus: int) -> list[int]:
        """Bytes that each of several GPUs needs besides its layers."""
        each, ahead = self._graph(), self._inputs_ahead()
        return [self._copying_graph() + ahead, *[each + ahead] * (gpus - 1)]

    def _copying_graph(self) -> int:
        """On the first GPU, which also computes long batches with what is in system memory, and gets copies of it, one
        layer at a time.
        """
        cache = max(map(self._cache, self._layers_in_system), default=0)
        return max(self._graph(self._copied()), self._scores()) + cache

    def _copied(self) -> int:
        """Bytes of the largest weights that are copied."""
        if any(layer.weights for layer in self._layers_in_system):
            return self.shape.largest_matrix
        return self.shape.largest_experts if sum(self._apart) else 0

    def _scores(self) -> int:
        """The graph's buffer if llama.cpp turns flash attention off: where the last layer in system memory attends, and
        the first one on a GPU has a running state, it computes that attention on the GPU.
        """
        shape = self.shape
        if not self._layers_in_system or not self._layers_on_gpu or shape.architecture in KEEPS_FLASH_ATTENTION:
            return 0
        last, first = self._layers_in_system[-1], self._layers_on_gpu[0]
        if not (last.keys and first.state) or self.kv_type != "f16":  # other types need flash attention
            return 0
        return (shape.heads * self._cells_of(last) + 8 * shape.width) * self.batch * _FLOAT + self._masks()

    def _weights_by_layer(self) -> list[int]:
        """Bytes of each layer that is on a GPU, and of the output."""
        apart = [*self._apart, *[0] * len(self._layers_on_gpu)]
        layers = [layer.weights - away for layer, away in zip(self._layers_on_gpu, apart, strict=False)]
        return [*layers, self.shape.output_weights + self.shape.tied_weights]

    def _computing(self, where: Sequence[int]) -> set[int]:
        """The GPUs that compute any of it: those with the output or a layer that isn't empty."""
        layers = zip(where, self._layers_on_gpu, strict=False)
        return {number for number, layer in layers if layer.weights} | {where[-1]}

    def _inputs_ahead(self) -> int:
        """If several GPUs share whole layers, llama.cpp prepares the inputs of more batches (pipeline parallelism)."""
        is_whole = self._on_gpu == self.shape.gpu_slots and not self.expert_layers_on_cpu
        return _MORE_COPIES * (self._masks() + self.batch * self.shape.width * _FLOAT) if is_whole else 0

    def repacked(self) -> int:
        """Bytes of weights that are rearranged for the processor; the file's pages of them stay mapped."""
        kinds = _REPACKED_X86 if platform.machine().lower() in ("x86_64", "amd64") else _REPACKED_ARM
        found = sum(size for kind, size in self.shape.by_type.items() if kind in kinds)
        return found * self._weights_in_system // max(sum(layer.weights for layer in self.shape.layers), 1)

    def _kv(self, layers: list[Layer]) -> int:
        cached = states = 0
        for layer, count in Counter(layers).items():  # most are the same
            cached += count * self._cache(layer)
            states += count * layer.state
        return cached + (1 + self.snapshots) * states

    def _cache(self, layer: Layer) -> int:
        numbers, size = KV_BLOCKS[self.kv_type]
        return self._cells_of(layer) * (layer.keys + layer.values) * size // numbers

    def _largest_tensor(self, layer: Layer) -> int:
        numbers, size = KV_BLOCKS[self.kv_type]
        return self._cells_of(layer) * max(layer.keys, layer.values) * size // numbers

    def _cells_of(self, layer: Layer) -> int:
        """Tokens kept. With a running state, windows are kept completely, because otherwise rolling back wouldn't be
        possible.
        """
        if not layer.window or self.shape.running_state:
            return self.cells
        return rounded_cells(min(self.cells, layer.window + self.batch))

    def _buffers(self) -> int:
        """Compute buffers in system memory: the whole graph if layers are there, otherwise what goes to the GPU."""
        if self._weights_in_system:
            graph = max(self._graph(), self._scores())
            return graph + self._outputs() + self.batch * self.shape.feed_forward * _HALF
        return self._masks() + self.batch * self.shape.width * _FLOAT + self._outputs()

    def _graph(self, copied: int = 0) -> int:
        """llama.cpp's buffer for a graph over a whole batch: its widest point, where ``copied`` bytes of weights may be
        as well, and the attention masks.
        """
        shape = self.shape
        row = self.batch * _FLOAT
        width, hidden = shape.width * row, shape.feed_forward * row
        beside = (4 if hidden >= 2 * width else 3) * width
        has_experts = any(layer.experts for layer in shape.layers)
        routed = shape.experts_used * width if has_experts else 0
        # What the experts return takes the place of what it was computed from, if there is room for it.
        widest = beside + 3 * hidden + (routed if routed > 2 * hidden else 0)
        if copied < hidden:
            widest += copied
        else:  # what is computed next takes the place of the copy
            widest = max(widest, beside + hidden + copied + max(hidden, routed))
        inner = shape.inner * row
        recurrent = 9 * inner if self._on_gpu else 15 * inner // 2  # Vulkan computes in another order
        widest = max(widest, 6 * width, recurrent)
        rows = 2 if self._is_picked() else 1  # picking copies them once
        return max(widest + self._masks(), rows * self._logits())

    def _masks(self) -> int:
        # a head without keys reads those of its target
        layers = (layer for layer in set(self.shape.layers) if layer.keys or (self.is_head and layer.weights))
        sizes = {self._cells_of(layer) for layer in layers}
        return sum(sizes) * self.batch * _HALF

    def _logits(self) -> int:
        return self.outputs * self.shape.vocabulary * _FLOAT

    def _is_picked(self) -> bool:
        """Whether the GPU picks the largest logits of each row, see `app.engine.llama.top_k`."""
        return bool(self._on_gpu) and self.shape.vocabulary >= LEAST_PICKED_VOCABULARY

    def _outputs(self) -> int:
        """llama.cpp's output buffer: with picked logits it has room for logits, probabilities and tokens, too."""
        return self._logits() * (4 if self._is_picked() else 1)

    def _tables(self) -> int:
        shape = self.shape
        if shape.architecture in LARGE_GRAPHS:
            nodes = max(self.batch * _MORE_NODES_PER_TOKEN, shape.tensors * _MORE_NODES_PER_TENSOR)
        else:
            nodes = max(_LEAST_NODES, shape.tensors * _NODES_PER_TENSOR)
        texts = shape.vocabulary * _BYTES_PER_TOKEN + shape.merges * _BYTES_PER_MERGE
        return nodes * _BYTES_PER_NODE + (0 if self.is_head and not shape.is_head_only else texts)


def takes_kv_type(shape: ModelShape, kv_type: KvType) -> bool:
    """Whether llama.cpp can store this model's keys and values in this type: heads must consist of whole blocks."""
    block = KV_BLOCKS[kv_type][0]
    return shape.key_length % block == 0 and shape.value_length % block == 0


def cells_for(shape: ModelShape, tokens: int) -> int:
    """Tokens of cache that the model gets if so many are requested."""
    return rounded_cells(max(min(tokens, shape.longest_context), 1))


def rounded_cells(tokens: int) -> int:
    """How many cells a KV cache for so many tokens has."""
    return -(-tokens // CELLS) * CELLS
