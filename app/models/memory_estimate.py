"""Estimates how much memory a loaded pair takes, from its headers.

What is counted was taken from llama.cpp of October 2026 and then measured: ``docs/memory.md``. The draft follows the
same rules; its context is as long as the target's. So does an MTP head, which has a context of its own, but usually
shares the target's file.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from app.models.architectures import KEEPS_STATES, LARGE_GRAPHS
from app.models.memory_shape import Layer, ModelShape, shape_of
from app.protocol.limits import (
    DEFAULT_BATCH_SIZE,
    DRAFT_OUTPUTS,
    TARGET_OUTPUTS,
    WAITING_STATES_BYTES,
    KvType,
    snapshots_for,
)

__all__ = ["MemoryEstimate", "ModelShape", "Parts", "estimate", "shape_of", "takes_kv_type"]

KV_BLOCKS: dict[KvType, tuple[int, int]] = {"f16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18)}
"""Numbers that are stored together, and the bytes they take."""
_CELLS = 256
"""llama.cpp rounds a cache up to a multiple of this many tokens."""
_FLOAT, _HALF = 4, 2
_BYTES_PER_TOKEN, _BYTES_PER_MERGE = 240, 140
"""For a vocabulary in memory, llama.cpp's and the engine's copy together: six real ones were within a tenth of this."""
_BYTES_PER_NODE = 1255
"""llama.cpp reserves space for three graphs: a tensor (368 bytes), pointers and hash tables for each possible node."""
_LEAST_NODES, _NODES_PER_TENSOR = 1024, 8
_MORE_NODES_PER_TOKEN, _MORE_NODES_PER_TENSOR = 40, 32
_PROCESS_BYTES = 4 * 1024 * 1024
"""What the engine process itself needs once a model is loaded: threads, arrays, libraries in use."""
_MARKS = 2
"""Copies of a recurrent state in system memory: one while a draft is being verified, one of an earlier question."""
_KEPT_STATES = 64
"""Hidden states that an MTP head keeps besides those that may wait (`app.engine.llama.head`)."""
_REPACKED_X86 = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"})
_REPACKED_ARM = _REPACKED_X86 | {"Q5_K", "Q6_K", "Q8_0"}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What takes memory in one place. Bytes."""

    target_weights: int = 0
    target_kv: int = 0
    """KV cache or recurrent state, with its copies."""
    draft_weights: int = 0
    draft_kv: int = 0
    head: int = 0
    """An MTP head: its weights, its KV cache and the hidden states it waits for or keeps."""
    compute: int = 0
    """Buffers and tables of both models, of the head and of the engine."""

    @property
    def total(self) -> int:
        weights, kept = self.target_weights + self.draft_weights, self.target_kv + self.draft_kv
        return weights + kept + self.head + self.compute


class MemoryEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a loaded pair takes. Bytes."""

    system: Parts
    gpu: Parts = Parts()
    """For all GPUs together."""
    repacked: int = 0
    """Pages of the model files that were read once, rearranged for the processor, and are no longer needed. They count
    as resident until the system drops them, which it does before memory runs short.
    """
    skipped: int = 0
    """Pages of an MTP head in the target's file that isn't used: read with the others, and dropped in the same way."""

    @property
    def resident(self) -> int:
        """The maximum that the system reports for the process."""
        return self.system.total + self.repacked + self.skipped


class _Place(msgspec.Struct):
    """What one model takes in one place."""

    weights: int = 0
    kv: int = 0
    compute: int = 0


def estimate(
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
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> MemoryEstimate:
    """The memory a pair takes with ``context_length`` tokens (at least 1) of cache for each of its models, unless
    ``draft_context_length`` gives the draft fewer.

    ``head`` is the file whose MTP head is loaded: the target's own, or one with only the head.
    GPU layers are counted as llama.cpp counts them: the output first, then layers from the last to the first;
    `ALL_LAYERS` means all of them. Of the first ``expert_layers_on_cpu`` layers of the target, the experts stay in
    system memory. ``batch_size`` is `LoadSettings.micro_batch_size`.
    """
    cells = rounded_cells(max(context_length, 1))
    is_own = head is not None and not head.is_head_only
    place = partial(_Model, cells=cells, batch_size=batch_size, kv_type=kv_type)
    model = place(
        target,
        outputs=TARGET_OUTPUTS,
        gpu_layers=target_gpu_layers,
        snapshots=_snapshots(target, has_head=head is not None and draft is None),
        expert_layers_on_cpu=expert_layers_on_cpu,
    )
    draft_model = head_model = None
    if draft is not None:
        draft_model = place(
            draft,
            cells=min(cells, rounded_cells(draft_context_length or cells)),
            kv_type=draft_kv_type or kv_type,
            outputs=DRAFT_OUTPUTS,
            gpu_layers=draft_gpu_layers,
        )
    if head is not None:
        on_gpu = target_gpu_layers if is_own else draft_gpu_layers
        head_model = place(_head_shape(head), outputs=DRAFT_OUTPUTS, gpu_layers=on_gpu, is_head=True)
    system = _parts(model, draft_model, head_model, _Model.system)
    return MemoryEstimate(
        system=msgspec.structs.replace(
            system,
            target_kv=system.target_kv + _MARKS * _state(target),
            head=system.head + (_hidden_states(target, model.batch, model.cells) if head else 0),
            compute=system.compute + _PROCESS_BYTES,
        ),
        gpu=_parts(model, draft_model, head_model, _Model.gpu),
        repacked=sum(one.repacked() for one in (model, draft_model, head_model) if one),
        skipped=0 if is_own else target.skipped,
    )


def takes_kv_type(shape: ModelShape, kv_type: KvType) -> bool:
    """Whether llama.cpp can store this model's keys and values in this type: heads must consist of whole blocks."""
    block = KV_BLOCKS[kv_type][0]
    return shape.key_length % block == 0 and shape.value_length % block == 0


def _parts(target: _Model, draft: _Model | None, head: _Model | None, in_place: Callable[[_Model], _Place]) -> Parts:
    """What they take in one place, which ``in_place`` tells of each."""
    first = in_place(target)
    second, third = (in_place(one) if one else _Place() for one in (draft, head))
    return Parts(
        target_weights=first.weights,
        target_kv=first.kv,
        draft_weights=second.weights,
        draft_kv=second.kv,
        head=third.weights + third.kv,
        compute=first.compute + second.compute + third.compute,
    )


@dataclass
class _Model:
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
        self._experts_apart = sum(layer.experts for layer in apart)
        """Bytes in system memory although the rest of their layers is on a GPU."""

    @property
    def _weights_in_system(self) -> int:
        """Of the layers."""
        return sum(layer.weights for layer in self._layers_in_system) + self._experts_apart

    def system(self) -> _Place:
        """What it takes in system memory."""
        shape = self.shape
        output = 0 if self._on_gpu else shape.output_weights
        weights = shape.input_weights + output + self._weights_in_system
        return _Place(weights, self._kv(self._layers_in_system), self._buffers() + self._tables())

    def gpu(self) -> _Place:
        """What it takes on GPUs."""
        if not self._on_gpu:
            return _Place()
        output = self.shape.output_weights + self.shape.tied_weights
        weights = output + sum(layer.weights for layer in self._layers_on_gpu) - self._experts_apart
        # long batches are computed there even with experts in system memory, which are copied for it one by one
        copied = self.shape.largest_experts if self._experts_apart else 0
        return _Place(weights, self._kv(self._layers_on_gpu), self._graph() + copied)

    def repacked(self) -> int:
        """Bytes of weights that are rearranged for the processor; the file's pages of them stay mapped."""
        kinds = _REPACKED_X86 if platform.machine().lower() in ("x86_64", "amd64") else _REPACKED_ARM
        found = sum(size for kind, size in self.shape.by_type.items() if kind in kinds)
        return found * self._weights_in_system // max(sum(layer.weights for layer in self.shape.layers), 1)

    def _kv(self, layers: list[Layer]) -> int:
        numbers, size = KV_BLOCKS[self.kv_type]
        cached = sum(self._cells_of(layer) * (layer.keys + layer.values) * size // numbers for layer in layers)
        return cached + (1 + self.snapshots) * sum(layer.state for layer in layers)

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
            return self._graph() + self._logits() + self.batch * self.shape.feed_forward * _HALF
        return self._masks() + self.batch * self.shape.width * _FLOAT + self._logits()

    def _graph(self) -> int:
        """llama.cpp's buffer for a graph over a whole batch: its widest point and the attention masks."""
        shape = self.shape
        width, hidden = shape.width, shape.feed_forward
        beside = (4 if hidden >= 3 * width else 3) * width
        has_experts = any(layer.experts for layer in shape.layers)
        routed = max(2 * shape.experts_used - 1, 0) * width if has_experts else 0
        widest = max(3 * hidden + beside + routed, 6 * width, 15 * shape.inner // 2)
        return max(widest * self.batch * _FLOAT + self._masks(), self._logits())

    def _masks(self) -> int:
        # a head without keys reads those of its target
        sizes = {self._cells_of(layer) for layer in self.shape.layers if layer.keys or (self.is_head and layer.weights)}
        return sum(sizes) * self.batch * _HALF

    def _logits(self) -> int:
        return self.outputs * self.shape.vocabulary * _FLOAT

    def _tables(self) -> int:
        shape = self.shape
        if shape.architecture in LARGE_GRAPHS:
            nodes = max(self.batch * _MORE_NODES_PER_TOKEN, shape.tensors * _MORE_NODES_PER_TENSOR)
        else:
            nodes = max(_LEAST_NODES, shape.tensors * _NODES_PER_TENSOR)
        texts = shape.vocabulary * _BYTES_PER_TOKEN + shape.merges * _BYTES_PER_MERGE
        return nodes * _BYTES_PER_NODE + (0 if self.is_head and not shape.is_head_only else texts)


def _head_shape(file: ModelShape) -> ModelShape:
    """The MTP head in ``file`` as a model; inside a target it has nothing but its layer."""
    assert file.head is not None
    layers = [*[Layer(0)] * (len(file.layers) - 1), file.head]
    width = file.head_feed_forward or file.feed_forward
    shape = msgspec.structs.replace(file, layers=layers, running_state=None, inner=0, feed_forward=width)
    if file.is_head_only:
        return shape
    trunk = max(sum(layer.weights for layer in file.layers), 1)
    by_type = {kind: size * file.head.weights // trunk for kind, size in file.by_type.items()}
    return msgspec.structs.replace(shape, input_weights=0, output_weights=0, tied_weights=0, by_type=by_type)


def _hidden_states(target: ModelShape, batch: int, cells: int) -> int:
    """Bytes of those that wait for the head, of those it gets, and of those that the target's context outputs."""
    row = target.width * _FLOAT
    waiting = max(min(WAITING_STATES_BYTES // (2 * row), cells), batch) if row else 0
    kept = min(2 * (waiting + _KEPT_STATES), cells)  # there is room for so many, and a chat has no more than cells
    return (kept + 2 * batch) * row


def _state(shape: ModelShape) -> int:
    """Bytes of one running state of all layers."""
    return sum(layer.state for layer in shape.layers)


def _snapshots(target: ModelShape, *, has_head: bool) -> int:
    """How many snapshots of a running state the engine lets llama.cpp keep. It goes by the size of the whole file."""
    state = _state(target)
    if not state or target.architecture not in KEEPS_STATES:
        return 0
    return snapshots_for(state, target.weights + target.skipped, has_head=has_head)


def rounded_cells(tokens: int) -> int:
    """How many cells a KV cache for so many tokens has."""
    return -(-tokens // _CELLS) * _CELLS
