"""Estimates how much memory a loaded pair takes, from its headers.

What is counted was taken from llama.cpp of October 2026 and then measured: ``benchmarks/notes/memory.md``. The draft
follows the same rules; its context is as long as the target's. So does an MTP head, which has a context of its own,
but usually shares the target's file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from app.models.architectures import KEEPS_STATES
from app.models.gpu_split import ONE_GPU, GpuSplit, filled, first_gpu
from app.models.memory_shape import Layer, ModelShape, shape_of
from app.models.model_memory import ModelMemory, Place, cells_for
from app.protocol.limits import (
    DEFAULT_BATCH_SIZE,
    DRAFT_OUTPUTS,
    TARGET_OUTPUTS,
    WAITING_STATES_BYTES,
    KvType,
    snapshots_for,
)

__all__ = ["MemoryEstimate", "ModelShape", "Parts", "estimate", "shape_of"]

_FLOAT = 4
_PROCESS_BYTES = 4 * 1024 * 1024
"""What the engine process itself needs once a model is loaded: threads, arrays, libraries in use."""
_MARKS = 2
"""Copies of a recurrent state in system memory: one while a draft is being verified, one of an earlier question."""
_KEPT_STATES = 64
"""Hidden states that an MTP head keeps besides those that may wait (`app.engine.llama.head`)."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What takes memory in one place. Bytes."""

    target_weights: int = 0
    target_kv: int = 0
    """KV cache or recurrent state, with its copies."""
    draft_weights: int = 0
    draft_kv: int = 0
    head: int = 0
    """An MTP head: its weights, its KV cache and the hidden states it waits for or keeps."""
    projector: int = 0
    """What the target sees images with, and its buffers."""
    compute: int = 0
    """Buffers and tables of both models, of the head and of the engine."""

    @property
    def total(self) -> int:
        weights, kept = self.target_weights + self.draft_weights, self.target_kv + self.draft_kv
        return weights + kept + self.head + self.projector + self.compute


class MemoryEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a loaded pair takes. Bytes."""

    system: Parts
    gpu: Parts = Parts()
    """For all GPUs together."""
    gpus: list[Parts] = []
    """For each of them."""
    largest_tensors: list[int] = []
    """For each of them, of the KV caches there: all keys or all values of a layer."""
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


def estimate(
    target: ModelShape, draft: ModelShape | None = None, *, gpus: GpuSplit = ONE_GPU, **options: Any
) -> MemoryEstimate:
    """The memory a pair takes; ``options`` as for `PairMemory`."""
    return PairMemory(target, draft, **options).estimate(gpus)


class PairMemory:
    """The memory a pair takes, however it is spread over GPUs."""

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
        """With ``context_length`` tokens (at least 1) of cache for each of the models, unless ``draft_context_length``
        gives the draft fewer, or a model can't have so many.

        ``head`` is the file whose MTP head is loaded: the target's own, or one with only the head.
        GPU layers are counted as llama.cpp counts them: the output first, then layers from the last to the first;
        `ALL_LAYERS` means all of them. Of the first ``expert_layers_on_cpu`` layers of the target, the experts stay in
        system memory. ``projector_bytes``: `Parts.projector`. ``batch_size`` is `LoadSettings.micro_batch_size`.
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
        )
        self._draft = self._head = None
        if draft is not None:
            own = min(cells, cells_for(draft, draft_context_length or cells))
            self._draft = place(draft, cells=own, kv_type=draft_kv_type or kv_type, snapshots=_copies(draft))
        if head is not None:
            self._head = place(
                _head_shape(head),
                batch_size=1 if _reads_target(head) else batch_size,
                gpu_layers=target_gpu_layers if self._has_own_head else draft_gpu_layers,
                expert_layers_on_cpu=expert_layers_on_cpu,
                is_head=True,
            )

    def estimate(self, gpus: GpuSplit = ONE_GPU) -> MemoryEstimate:
        """What it takes if it is spread like this."""
        target, draft, head = self._target, self._draft, self._head
        shape = target.shape
        states = _hidden_states(head.shape, shape.width, target.batch, target.cells) if head else 0
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
            repacked=sum(one.repacked() for one in (target, draft, head) if one),
            skipped=0 if self._has_own_head else shape.skipped,
        )

    def shares_within(self, gpus: GpuSplit, spaces: Sequence[int]) -> tuple[float, ...]:
        """How many layers of the target to give to each GPU, so that no GPU takes more than its of ``spaces`` (bytes),
        if that is possible. An MTP head is counted where the output is.
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
            # The projector is on the first GPU that gets a layer.
            counts = filled(layers, [space - self._projector * (gpu == first) for gpu, space in enumerate(left)])
            if any(counts[: first + 1]):
                break
        end = max(number for number, count in enumerate(counts) if count)
        return tuple(count + (together - 1) * (number == end) for number, count in enumerate(counts))

    def _on_gpus(self, gpus: GpuSplit) -> tuple[list[Place], list[Place], list[Place]]:
        """What the target, the draft and the head take on each GPU."""
        rows, nowhere = gpus.rows() if gpus.by_rows else (), [Place()] * len(gpus.free)
        target, draft, head = self._target.on_gpus(gpus.target(), rows), nowhere, nowhere
        taken = [place.total for place in target]
        if self._draft is not None:
            draft = self._draft.on_gpus(gpus.draft(taken), () if gpus.draft_gpu is not None else rows)
        if self._head is not None:
            head = self._head.on_gpus(gpus.target() if self._has_own_head else gpus.second(taken), rows)
        return target, draft, head


def _parts(target: Place, draft: Place, head: Place) -> Parts:
    """What they take in one place."""
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


def _hidden_states(head: ModelShape, width: int, batch: int, cells: int) -> int:
    """Bytes of those that the target's context outputs, of ``width``, and of those that wait for the head or that it
    keeps, and gets.
    """
    row = width * _FLOAT
    if _reads_target(head):
        return (batch + 2 * _KEPT_STATES) * row
    waiting = max(min(WAITING_STATES_BYTES // (2 * row), cells), batch) if row else 0
    kept = min(2 * (waiting + _KEPT_STATES), cells)  # there is room for so many, and a chat has no more than cells
    return (kept + 2 * batch) * row


def _reads_target(head: ModelShape) -> bool:
    """Whether a head reads its target's cache; then it processes one token at a time, and keeps only the last hidden
    states.
    """
    return head.head is not None and not head.head.keys


def _state(shape: ModelShape) -> int:
    """Bytes of one running state of all layers."""
    return sum(layer.state for layer in shape.layers)


def _copies(shape: ModelShape) -> int:
    """Without snapshots, a running state is copied before each draft, in the memory that has it if that is a GPU's."""
    return int(_state(shape) > 0)


def _snapshots(target: ModelShape, *, has_head: bool) -> int:
    """How many snapshots of a running state the engine lets llama.cpp keep. It goes by the size of the whole file."""
    state = _state(target)
    if not state or target.architecture not in KEEPS_STATES:
        return 0
    return snapshots_for(state, target.weights + target.skipped, has_head=has_head)
