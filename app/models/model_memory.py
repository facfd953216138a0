"""Estimates a pair's memory from its headers: system memory, and each GPU.

Follows llama.cpp of October 2026, checked by measurements: ``benchmarks/notes/memory.md``.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import msgspec

from app.models.gguf import EAGLE3, KEEPS_FLASH_ATTENTION, KEEPS_STATES, LARGE_GRAPHS
from app.models.heads import LAYERS_READ
from app.models.memory_shape import Layer, ModelShape, shape_of
from app.protocol.options import (
    DEFAULT_BATCH_SIZE,
    DRAFT_OUTPUTS,
    HEAD_PASS,
    LEAST_PICKED_VOCABULARY,
    TARGET_OUTPUTS,
    WAITING_STATES_BYTES,
    KvType,
    snapshots_for,
)

# Assigns layers to GPUs as llama.cpp does (``llama_model_base::load_tensors``).


@dataclass(frozen=True)
class GpuSplit:
    """How a pair is spread over the GPUs in use. Tuples have one item per GPU, in llama.cpp's order."""

    free: tuple[int, ...] = (1,)
    """Bytes; llama.cpp spreads layers in proportion if no shares are given."""
    total: tuple[int, ...] = (1,)
    """Bytes; CUDA spreads rows in proportion if no shares are given."""
    shares: tuple[float, ...] = ()
    """Shares for the target, and for a second model without a GPU of its own, in any unit; empty if not given."""
    draft_gpu: int | None = None
    """The index of the GPU reserved for a draft model."""
    by_rows: bool = False
    """The rows of each matrix are spread, rather than whole layers."""

    def target(self) -> tuple[float, ...]:
        """The shares of the target."""
        return self.shares or self.free

    def second(self, taken: Sequence[int]) -> tuple[float, ...]:
        """The shares of a second model without a GPU of its own, loaded after the target has taken ``taken`` bytes."""
        if self.shares:
            return self.shares
        return tuple(max(free - used, 0) for free, used in zip(self.free, taken, strict=True))

    def draft(self, taken: Sequence[int]) -> tuple[float, ...]:
        """The shares of a draft model, which may have its own GPU."""
        if self.draft_gpu is None:
            return self.second(taken)
        return tuple(float(number == self.draft_gpu) for number in range(len(self.free)))

    def rows(self) -> tuple[float, ...]:
        """The fraction of each matrix on each GPU; adds up to 1."""
        shares = self.shares or self.total
        return tuple(share / (sum(shares) or 1) for share in shares)


ONE_GPU = GpuSplit()


def first_gpu(shares: Sequence[float]) -> int:
    """The index of the first GPU that gets a part of a model."""
    return next((number for number, share in enumerate(shares) if share), 0)


def gpus_of_layers(shares: Sequence[float], count: int) -> list[int]:
    """The GPU of each of ``count`` consecutive layers, the last of which is the output."""
    ends = list(accumulate(shares))
    whole = ends[-1] if ends else 0.0
    if not whole:
        return [0] * count  # llama.cpp would have nothing to go by
    ends = [end / whole for end in ends]
    return [min(bisect(ends, layer / count), len(ends) - 1) for layer in range(count)]


def filled(layers: Sequence[int], spaces: Sequence[int]) -> tuple[float, ...]:
    """How many of these ``layers`` (bytes, the output last) each GPU gets so that none exceeds its space, if possible.
    Fills GPUs from the last to the first; the first gets the rest.
    """
    left = list(layers)
    counts = [0] * len(spaces)
    for number in range(len(spaces) - 1, 0, -1):
        space = spaces[number]
        while left and left[-1] <= space:
            space -= left.pop()
            counts[number] += 1
    counts[0] += len(left)
    return tuple(map(float, counts))


KV_BLOCKS: dict[KvType, tuple[int, int]] = {"f16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18)}
"""Numbers stored together, and their bytes."""
CELLS = 256
"""llama.cpp rounds a cache up to a multiple of this many tokens."""
_FLOAT, _HALF = 4, 2
_BYTES_PER_TOKEN, _BYTES_PER_MERGE = 240, 140
"""For a vocabulary in memory, llama.cpp's and the engine's copy together: within a tenth for six real ones."""
_BYTES_PER_NODE = 1255
"""llama.cpp reserves space for three graphs: a tensor (368 bytes), pointers and hash tables for each possible node."""
_LEAST_NODES, _NODES_PER_TENSOR = 1024, 8
_MORE_NODES_PER_TOKEN, _MORE_NODES_PER_TENSOR = 40, 32
_MORE_COPIES = 3
"""``GGML_SCHED_MAX_COPIES`` without the one that always exists."""


class Place(msgspec.Struct):
    """A model's memory in one place."""

    weights: int = 0
    kv: int = 0
    compute: int = 0
    largest_tensor: int = 0
    """The largest tensor of the KV cache: all keys or all values of a layer."""

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
    """It is another model's head, and shares that file's vocabulary unless it is in a file of its own."""
    layers_read: int = 0
    """Layers whose inputs are kept until the end of a pass, for a head."""

    def __post_init__(self) -> None:
        self.batch = min(self.batch_size, self.cells)
        slots = self.shape.gpu_slots
        self._on_gpu = slots if self.gpu_layers < 0 else min(self.gpu_layers, slots)
        first = slots - self._on_gpu
        self._layers_in_system, self._layers_on_gpu = self.shape.layers[:first], self.shape.layers[first:]
        apart = self.shape.layers[first : max(self.expert_layers_on_cpu, first)]
        self._apart = [layer.experts for layer in apart]
        """Of the first layers on a GPU, bytes that stay in system memory nevertheless."""
        self._weights_in_system = sum(layer.weights for layer in self._layers_in_system) + sum(self._apart)
        """Of the layers."""

    def system(self) -> Place:
        shape = self.shape
        output = 0 if self._on_gpu else shape.output_weights
        weights = shape.input_weights + output + self._weights_in_system
        return Place(weights, self._kv(self._layers_in_system), self._buffers() + self._tables())

    def on_gpus(self, shares: Sequence[float], rows: Sequence[float] = ()) -> list[Place]:
        """Its memory on each GPU, if layers are spread by ``shares`` and matrices by ``rows``, if given."""
        places = [Place() for _ in shares]
        if not self._on_gpu:
            return places
        where = gpus_of_layers(shares, self._on_gpu)
        weights, kv = self._weights_by_layer(), self._kv_by_layer()
        for number, size in zip(where, weights, strict=True):
            places[number].weights += size
        for number, size in zip(where, kv, strict=False):  # the output, which is last, has no cache
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
        """Bytes of each layer on a GPU, the output last."""
        kv = [*self._kv_by_layer(), 0]
        return [sum(pair) for pair in zip(self._weights_by_layer(), kv, strict=True)] if self._on_gpu else []

    def _kv_by_layer(self) -> list[int]:
        sizes = {layer: self._kv([layer]) for layer in set(self._layers_on_gpu)}  # most layers are the same
        return [sizes[layer] for layer in self._layers_on_gpu]

    def besides(self, gpus: int) -> list[int]:
        """Bytes that each of several GPUs needs in addition to its layers."""
        each, ahead = self._graph(), self._inputs_ahead()
        return [self._copying_graph() + ahead, *[each + ahead] * (gpus - 1)]

    def _copying_graph(self) -> int:
        """The graph of the first GPU, which also computes long batches with the weights in system memory, copying one
        layer at a time.
        """
        cache = max(map(self._cache, self._layers_in_system), default=0)
        return max(self._graph(self._copied()), self._scores()) + cache

    def _copied(self) -> int:
        """The largest weights that are copied, in bytes."""
        if any(layer.weights for layer in self._layers_in_system):
            return self.shape.largest_matrix
        return self.shape.largest_experts if sum(self._apart) else 0

    def _scores(self) -> int:
        """The attention buffer if llama.cpp turns flash attention off: if the last layer in system memory has attention
        and the first one on a GPU a recurrent state, it computes that attention on the GPU.
        """
        shape = self.shape
        if not self._layers_in_system or not self._layers_on_gpu or shape.architecture in KEEPS_FLASH_ATTENTION:
            return 0
        last, first = self._layers_in_system[-1], self._layers_on_gpu[0]
        if not (last.keys and first.state) or self.kv_type != "f16":  # other types need flash attention
            return 0
        return (shape.heads * self._cells_of(last) + 8 * shape.width) * self.batch * _FLOAT + self._masks()

    def _weights_by_layer(self) -> list[int]:
        """Bytes of each layer on a GPU, and of the output."""
        apart = [*self._apart, *[0] * len(self._layers_on_gpu)]
        layers = [layer.weights - away for layer, away in zip(self._layers_on_gpu, apart, strict=False)]
        return [*layers, self.shape.output_weights + self.shape.tied_weights]

    def _computing(self, where: Sequence[int]) -> set[int]:
        """The GPUs with something to compute: the output, or a layer that isn't empty."""
        layers = zip(where, self._layers_on_gpu, strict=False)
        return {number for number, layer in layers if layer.weights} | {where[-1]}

    def _inputs_ahead(self) -> int:
        """If several GPUs share whole layers, llama.cpp prepares the inputs of more batches (pipeline parallelism)."""
        is_whole = self._on_gpu == self.shape.gpu_slots and not self.expert_layers_on_cpu
        return _MORE_COPIES * (self._masks() + self.batch * self.shape.width * _FLOAT) if is_whole else 0

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
        """Cells of the cache. With a recurrent state, sliding windows are stored completely, because rolling back would
        otherwise be impossible.
        """
        if not layer.window or self.shape.running_state:
            return self.cells
        return rounded_cells(min(self.cells, layer.window + self.batch))

    def _buffers(self) -> int:
        """Compute buffers in system memory: the whole graph if layers are there, otherwise the GPU's inputs."""
        if self._weights_in_system:
            graph = max(self._graph(), self._scores())
            return graph + self._outputs() + self.batch * self.shape.feed_forward * _HALF
        return self._masks() + self.batch * self.shape.width * _FLOAT + self._outputs()

    def _graph(self, copied: int = 0) -> int:
        """llama.cpp's buffer for the graph of a full batch: its widest point, where ``copied`` bytes of weights may
        also be, and the attention masks.
        """
        shape = self.shape
        row = self.batch * _FLOAT
        width, hidden = shape.width * row, shape.feed_forward * row
        beside = (4 if hidden >= 2 * width else 3) * width
        has_experts = any(layer.experts for layer in shape.layers)
        routed = shape.experts_used * width if has_experts else 0
        # The experts' results reuse the memory of their inputs, if it is large enough.
        widest = beside + 3 * hidden + (routed if routed > 2 * hidden else 0)
        if copied < hidden:
            widest += copied
        else:  # the next results reuse the memory of the copy
            widest = max(widest, beside + hidden + copied + max(hidden, routed))
        inner = shape.inner * row
        recurrent = 9 * inner if self._on_gpu else 15 * inner // 2  # Vulkan computes in a different order
        widest = max(widest, 6 * width, recurrent)
        # Picking copies them once; those of a draft vocabulary are spread over the whole one.
        rows = 3 if shape.architecture == EAGLE3 else 2 if self._is_picked() else 1
        return max(widest + self._masks(), rows * self._logits()) + self.layers_read * width

    def _masks(self) -> int:
        # a head without keys reads those of its target
        layers = (layer for layer in set(self.shape.layers) if layer.keys or (self.is_head and layer.weights))
        sizes = {self._cells_of(layer) for layer in layers}
        return sum(sizes) * self.batch * _HALF

    def _logits(self) -> int:
        return self.outputs * self.shape.vocabulary * _FLOAT

    def _is_picked(self) -> bool:
        """Whether the GPU picks the largest logits of each row, see `app.engine.llama.context`."""
        return bool(self._on_gpu) and self.shape.vocabulary >= LEAST_PICKED_VOCABULARY

    def _outputs(self) -> int:
        """llama.cpp's output buffer, which with picked logits also holds probabilities and tokens."""
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
    """Whether llama.cpp can store this model's KV cache in this type: heads must consist of whole blocks."""
    block = KV_BLOCKS[kv_type][0]
    return shape.key_length % block == 0 and shape.value_length % block == 0


def cells_for(shape: ModelShape, tokens: int) -> int:
    """The number of cache cells for this many requested tokens."""
    return rounded_cells(max(min(tokens, shape.longest_context), 1))


def rounded_cells(tokens: int) -> int:
    """The cell count of a KV cache for this many tokens."""
    return -(-tokens // CELLS) * CELLS


# Estimates the memory of a loaded pair from its headers. The draft follows the same rules as the target; its context is
# as long as the target's. So does an MTP head, which has its own context, but usually shares the target's file.

__all__ = ["MemoryEstimate", "ModelShape", "Parts", "shape_of"]

_FLOAT_BYTES = 4
_PROCESS_BYTES = 4 * 1024 * 1024
"""What the engine process itself needs once a model is loaded: threads, arrays, libraries."""
_MARKS = 2
"""Copies of a recurrent state in system memory: one during verification of a draft, one of an earlier question."""
_KEPT_STATES = 64
"""Hidden states that a head keeps, besides waiting ones (`app.engine.llama.head`)."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Memory in one place, by purpose. Bytes."""

    target_weights: int = 0
    target_kv: int = 0
    """KV cache or recurrent state, with copies."""
    draft_weights: int = 0
    draft_kv: int = 0
    head: int = 0
    """An MTP or EAGLE-3 head: its weights, KV cache, and hidden states (waiting and kept)."""
    projector: int = 0
    """The projector for images, with its buffers."""
    compute: int = 0
    """Buffers and tables of both models, the head and the engine."""

    @property
    def total(self) -> int:
        weights, kept = self.target_weights + self.draft_weights, self.target_kv + self.draft_kv
        return weights + kept + self.head + self.projector + self.compute


class MemoryEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a loaded pair. Bytes."""

    system: Parts
    gpu: Parts = Parts()
    """Of all GPUs together."""
    gpus: list[Parts] = []
    """Of each GPU."""
    largest_tensors: list[int] = []
    """The largest KV cache tensor on each GPU: all keys or all values of a layer."""


class PairMemory:
    """The memory of a pair, for any distribution over GPUs."""

    def __init__(
        self,
        target: ModelShape,
        draft: ModelShape | None = None,
        *,
        head: ModelShape | None = None,
        context_length: int,
        kv_type: KvType = "f16",
        draft_context_length: int | None = None,
        draft_kv_type: KvType | None = None,
        target_gpu_layers: int = 0,
        draft_gpu_layers: int = 0,
        expert_layers_on_cpu: int = 0,
        projector_bytes: int = 0,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        """``context_length`` (at least 1) is for each model, unless ``draft_context_length`` gives the draft less or a
        model can't have as much.

        ``head`` is the file with the head to load: the target's own, or a separate one. GPU layers are counted as
        in llama.cpp: the output first, then layers from the last to the first; `ALL_LAYERS` means all. The experts of
        the target's first ``expert_layers_on_cpu`` layers stay in system memory. ``projector_bytes``:
        `Parts.projector`. ``batch_size`` is `LoadSettings.micro_batch_size`.
        """
        cells = cells_for(target, context_length)
        self._projector, self._sees_on_gpu = projector_bytes, target_gpu_layers != 0
        self._has_own_head = head is not None and not head.is_head_only
        place = partial(
            ModelMemory,
            cells=cells,
            batch_size=batch_size,
            kv_type=kv_type,
            outputs=DRAFT_OUTPUTS,
            gpu_layers=draft_gpu_layers,
        )
        self._target = place(
            target,
            outputs=TARGET_OUTPUTS,
            gpu_layers=target_gpu_layers,
            snapshots=_snapshots(target, has_head=head is not None and draft is None) or _copies(target),
            expert_layers_on_cpu=expert_layers_on_cpu,
            layers_read=LAYERS_READ if head is not None and head.architecture == EAGLE3 else 0,
        )
        self._draft = self._head = None
        if draft is not None:
            own = min(cells, cells_for(draft, draft_context_length or cells))
            self._draft = place(draft, cells=own, kv_type=draft_kv_type or kv_type, snapshots=_copies(draft))
        if head is not None:
            is_short = head.architecture == EAGLE3
            self._head = place(
                _head_shape(head),
                batch_size=1 if _reads_target(head) else min(batch_size, HEAD_PASS) if is_short else batch_size,
                outputs=HEAD_PASS if is_short else DRAFT_OUTPUTS,
                gpu_layers=target_gpu_layers if self._has_own_head else draft_gpu_layers,
                expert_layers_on_cpu=expert_layers_on_cpu,
                is_head=True,
            )

    def estimate(self, gpus: GpuSplit = ONE_GPU) -> MemoryEstimate:
        """The memory with this distribution."""
        target, draft, head = self._target, self._draft, self._head
        shape = target.shape
        width = shape.width * max(target.layers_read, 1)
        states = _hidden_states(head, width, target.batch, target.cells) if head else 0
        system = _parts(target.system(), draft.system() if draft else Place(), head.system() if head else Place())
        places = list(zip(*self._on_gpus(gpus), strict=True))
        on_gpus = [_parts(*each) for each in places]
        sees_on_gpu = self._sees_on_gpu and bool(on_gpus)
        if sees_on_gpu:
            first = first_gpu(gpus.shares)
            on_gpus[first] = msgspec.structs.replace(on_gpus[first], projector=self._projector)
        return MemoryEstimate(
            system=msgspec.structs.replace(
                system,
                projector=0 if sees_on_gpu else self._projector,
                target_kv=system.target_kv + _MARKS * _state(shape),
                head=system.head + states,
                compute=system.compute + _PROCESS_BYTES,
            ),
            gpu=_sum(on_gpus),
            gpus=on_gpus,
            largest_tensors=[max(place.largest_tensor for place in each) for each in places],
        )

    def shares_within(self, gpus: GpuSplit, spaces: Sequence[int]) -> tuple[float, ...]:
        """How many of the target's layers each GPU gets so that none exceeds its ``spaces`` (bytes), if possible. An
        MTP head counts with the output.
        """
        layers = self._target.by_layer()
        if not layers:
            return ()
        left = [space - taken for space, taken in zip(spaces, self._target.besides(len(spaces)), strict=True)]
        if self._draft is not None:
            taken = self._draft.on_gpus(gpus.draft([0] * len(left)))
            left = [space - place.total for space, place in zip(left, taken, strict=True)]
        if self._head is not None:
            layers[-1] += sum(place.total for place in self._head.on_gpus((1.0,)))
        together = 2 if self._has_own_head and len(layers) > 1 else 1  # the head is the last layer before the output
        layers[-together:] = [sum(layers[-together:])]
        for first in range(len(left)):
            # The projector is on the first GPU with a layer.
            counts = filled(layers, [space - self._projector * (gpu == first) for gpu, space in enumerate(left)])
            if any(counts[: first + 1]):
                break
        end = max(number for number, count in enumerate(counts) if count)
        return tuple(count + (together - 1) * (number == end) for number, count in enumerate(counts))

    def _on_gpus(self, gpus: GpuSplit) -> tuple[list[Place], list[Place], list[Place]]:
        """The memory of the target, the draft and the head on each GPU."""
        rows, nowhere = gpus.rows() if gpus.by_rows else (), [Place()] * len(gpus.free)
        target, draft, head = self._target.on_gpus(gpus.target(), rows), nowhere, nowhere
        taken = [place.total for place in target]
        if self._draft is not None:
            draft = self._draft.on_gpus(gpus.draft(taken), () if gpus.draft_gpu is not None else rows)
        if self._head is not None:
            head = self._head.on_gpus(gpus.target() if self._has_own_head else gpus.second(taken), rows)
        return target, draft, head


def _parts(target: Place, draft: Place, head: Place) -> Parts:
    """The memory in one place."""
    return Parts(
        target_weights=target.weights,
        target_kv=target.kv,
        draft_weights=draft.weights,
        draft_kv=draft.kv,
        head=head.weights + head.kv,
        compute=target.compute + draft.compute + head.compute,
    )


def _sum(parts: Sequence[Parts]) -> Parts:
    return Parts(**{name: sum(getattr(one, name) for one in parts) for name in Parts.__struct_fields__})


def _head_shape(file: ModelShape) -> ModelShape:
    """The head in ``file`` as a model; inside a target it is only a layer."""
    assert file.head is not None
    layers = [*[Layer(0)] * (len(file.layers) - 1), file.head]
    width = file.head_feed_forward or file.feed_forward
    shape = msgspec.structs.replace(file, layers=layers, running_state=None, inner=0, feed_forward=width)
    if file.is_head_only:
        return shape
    return msgspec.structs.replace(shape, input_weights=0, output_weights=0, tied_weights=0)


def _hidden_states(head: ModelMemory, width: int, batch: int, cells: int) -> int:
    """Bytes of the hidden states (of ``width``) that the target outputs, and of those that wait for the head or are
    kept by it.
    """
    row = width * _FLOAT_BYTES
    if _reads_target(head.shape):
        return (batch + 2 * _KEPT_STATES) * row
    waiting = max(min(WAITING_STATES_BYTES // (2 * row), cells), batch) if row else 0
    kept = min(
        2 * (waiting + _KEPT_STATES), cells
    )  # there is room for this many, and a chat has at most as many as there are cells
    return (kept + batch + head.batch) * row


def _reads_target(head: ModelShape) -> bool:
    """Whether a head reads its target's cache; then it processes one token at a time, and keeps only the last hidden
    states.
    """
    return head.head is not None and not head.head.keys


def _state(shape: ModelShape) -> int:
    """Bytes of the recurrent state of all layers."""
    return sum(layer.state for layer in shape.layers)


def _copies(shape: ModelShape) -> int:
    """Without snapshots, a recurrent state is copied before each draft, in GPU memory if it is there."""
    return int(_state(shape) > 0)


def _snapshots(target: ModelShape, *, has_head: bool) -> int:
    """How many snapshots of a recurrent state the engine has llama.cpp keep, by the size of the whole file."""
    state = _state(target)
    if not state or target.architecture not in KEEPS_STATES:
        return 0
    return snapshots_for(state, target.weights + target.skipped, has_head=has_head)
