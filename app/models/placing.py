"""What goes where: the best places on a machine for a pair of which it is decided what is loaded.

The draft goes on a GPU first and completely, then as much of the target as fits: of a mixture of experts, first all of
its layers with the experts of as few as possible in system memory, otherwise as many layers as fit. With several GPUs,
the draft is on the one that leaves most for the target, whose layers llama.cpp spreads by free memory if that fits, and
otherwise as it is told.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from app.models.gpu_split import GpuSplit
from app.models.load_plan import LoadPlan, Wishes
from app.models.machine_memory import MachineMemory
from app.models.memory_estimate import MemoryEstimate, ModelShape, PairMemory
from app.models.memory_limits import MemoryLimits
from app.models.model_memory import takes_kv_type
from app.models.mtp import is_wanted
from app.protocol.limits import ALL_LAYERS, KvType


class Options(NamedTuple):
    """What a plan can give up."""

    draft: bool
    head: bool
    """An MTP head may be used."""
    kv_type: KvType
    context: int
    """Tokens."""
    target_layers: int | None
    """``None``: as many as fit."""


class _DraftPlace(NamedTuple):
    """Where the draft, or a head in a file of its own, goes."""

    layers: int
    """On a GPU."""
    gpu: int | None = None
    """The index of the GPU that it has for itself; ``None``: as the target."""


class Placer:
    """Finds places for a pair.

    Attributes:
        limits: What the pair may take.
        draft, sidecar: The draft model, or the file with only the target's head; at most one of them.
    """

    def __init__(self, target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes) -> None:
        is_sidecar = draft is not None and draft.is_head_only
        self._target = target
        self.draft = None if is_sidecar else draft
        self.sidecar = draft if is_sidecar else None
        self._wishes = wishes
        gpus = MemoryLimits(machine).gpus
        names = [gpu.name for gpu in gpus]
        shares = wishes.tensor_split if len(wishes.tensor_split) == len(gpus) else ()
        if wishes.split_mode == "none" and gpus:
            main = names.index(wishes.main_gpu) if wishes.main_gpu in names else 0
            shares = tuple(float(number == main) for number in range(len(gpus)))
        self._own_gpu = names.index(wishes.draft_device) if wishes.draft_device in names else None
        used = {name for name, share in zip(names, shares, strict=True) if share} if any(shares) else set()
        self.limits = MemoryLimits(machine, used | {wishes.draft_device} if used else ())
        self._split = GpuSplit(
            tuple(gpu.free_bytes for gpu in gpus),
            tuple(gpu.total_bytes for gpu in gpus),
            shares if any(shares) else (),
            by_rows=wishes.split_mode == "row",
        )

    @property
    def _chooses_draft_gpu(self) -> bool:
        return self._wishes.split_mode != "none" and not self._wishes.draft_device

    @property
    def has_shares(self) -> bool:
        """Whether it was requested how much each GPU gets."""
        return bool(self._split.shares)

    def takes(self, options: Options) -> bool:
        """Whether the models can have this kind of KV cache at all."""
        shapes = self._target, self.sidecar if options.head else None
        draft_type = self._wishes.draft_kv_type or options.kv_type
        takes_draft = not options.draft or self.draft is None or takes_kv_type(self.draft, draft_type)
        return takes_draft and all(takes_kv_type(shape, options.kv_type) for shape in shapes if shape)

    def best(self, options: Options) -> LoadPlan:
        """The best place for everything; if it doesn't fit anywhere, the first that was tried."""
        plans = list[LoadPlan]()
        for place in self._draft_places(options):
            plans.append(plan := self._with_most_layers(options, place))
            if plan.fits and plan.target_gpu_layers == ALL_LAYERS and not plan.expert_layers_on_cpu:
                break
        return max(plans, key=self._rank)

    def _rank(self, plan: LoadPlan) -> tuple[bool, bool, int, int]:
        """The first of equal ones is the best."""
        if not plan.fits:
            return False, False, 0, 0
        layers = self._target.gpu_slots if plan.target_gpu_layers < 0 else plan.target_gpu_layers
        return True, plan.draft_gpu_layers != 0, layers, -plan.expert_layers_on_cpu

    def _draft_places(self, options: Options) -> Iterator[_DraftPlace]:
        wished, gpus = self._wishes.draft_gpu_layers, len(self.limits.gpus)
        has_second = options.draft or (options.head and self.sidecar is not None)
        on_gpu = ALL_LAYERS if wished is None else wished
        if options.draft and on_gpu and self._own_gpu is not None:
            yield _DraftPlace(on_gpu, self._own_gpu)
        elif options.draft and on_gpu and gpus > 1 and self._chooses_draft_gpu:
            spaces = self.limits.spaces
            for number in sorted(range(gpus), key=lambda number: -spaces[number]):
                yield _DraftPlace(on_gpu, number)
        else:
            yield _DraftPlace(on_gpu)
        if wished is None and has_second and gpus:
            yield _DraftPlace(0)

    def _with_most_layers(self, options: Options, place: _DraftPlace) -> LoadPlan:
        if options.target_layers is not None:
            return self._with_fewest_experts_apart(options, options.target_layers, place)
        whole = self._with_fewest_experts_apart(options, ALL_LAYERS, place)
        if not self.limits.gpus or self._has_space(whole.estimate):
            return whole
        experts = whole.expert_layers_on_cpu

        def has_no_space(layers: int) -> bool:
            return not self._has_space(self._spread(options, layers, place, experts)[0])

        most = bisect(range(1, self._target.gpu_slots), False, key=has_no_space)
        return self._plan(options, most, place, experts)

    def _with_fewest_experts_apart(self, options: Options, target_layers: int, place: _DraftPlace) -> LoadPlan:
        """With the experts of no more layers in system memory than necessary; of all if that isn't enough."""

        def apart(layers: int) -> LoadPlan:
            return self._plan(options, target_layers, place, layers)

        if self._wishes.expert_layers_on_cpu is not None:
            return apart(self._wishes.expert_layers_on_cpu)
        together, most = apart(0), self._target.expert_layers
        if not self.limits.gpus or self.limits.is_shared or not most or self._has_space(together.estimate):
            return together
        return apart(1 + bisect(range(1, most), False, key=lambda layers: self._has_space(apart(layers).estimate)))

    def _has_space(self, found: MemoryEstimate) -> bool:
        """Whether this many layers fit on the GPU. If its memory is the system's, everything has to fit there."""
        return self.limits.fit(found) if self.limits.is_shared else self.limits.fit_gpus(found)

    def _plan(self, options: Options, target_layers: int, place: _DraftPlace, expert_layers: int) -> LoadPlan:
        limits = self.limits
        found, shares = self._spread(options, target_layers, place, expert_layers)
        return LoadPlan(
            context_length=options.context,
            kv_type=options.kv_type,
            target_gpu_layers=target_layers,
            draft_gpu_layers=place.layers,
            expert_layers_on_cpu=expert_layers,
            tensor_split=shares or self._wishes.tensor_split,
            draft_device=self._wishes.draft_device if place.gpu is None else limits.gpus[place.gpu].name,
            with_draft=options.draft,
            with_head=self._head(options, target_layers) is not None,
            estimate=found,
            fits=limits.fit(found) and self.takes(options),
            system_space=limits.system_bytes,
            gpu_space=limits.gpu_bytes,
            gpu_spaces={gpu.name: space for gpu, space in zip(limits.gpus, limits.spaces, strict=True)},
            sentence="",
        )

    def _spread(
        self, options: Options, target_layers: int, place: _DraftPlace, expert_layers: int
    ) -> tuple[MemoryEstimate, tuple[float, ...]]:
        """What it takes, and the shares of the GPUs if llama.cpp has to be told them for it to fit."""
        memory = PairMemory(
            self._target,
            self.draft if options.draft else None,
            head=self._head(options, target_layers),
            context_length=options.context,
            kv_type=options.kv_type,
            draft_context_length=self._wishes.draft_context_length,
            draft_kv_type=self._wishes.draft_kv_type,
            target_gpu_layers=target_layers if self.limits.gpus else 0,
            draft_gpu_layers=place.layers if self.limits.gpus else 0,
            expert_layers_on_cpu=expert_layers,
            projector_bytes=self._wishes.projector_bytes,
            batch_size=self._wishes.batch_size,
        )
        split = replace(self._split, draft_gpu=place.gpu)
        found = memory.estimate(split)
        has_choice = not (split.shares or self._wishes.tensor_split or split.by_rows)
        can_choose = len(split.free) > 1 and has_choice
        might_fit = found.gpu.total - found.gpu.compute <= self.limits.gpu_bytes
        if can_choose and might_fit and not self.limits.fit_gpus(found):
            shares = memory.shares_within(split, self.limits.spaces)
            other = memory.estimate(replace(split, shares=shares))
            if self.limits.fit_gpus(other):
                return other, shares
        return found, ()

    def _head(self, options: Options, target_layers: int) -> ModelShape | None:
        """The file whose head the engine would use, as `app.engine.host.heads` decides."""
        if not options.head or (options.draft and self._wishes.head != "on"):
            return None
        if self.sidecar:
            return self.sidecar if self.sidecar.head else None
        has_own = self._target.head is not None
        return self._target if has_own and is_wanted(self._wishes.head, self._target, target_layers) else None
