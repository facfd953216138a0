"""How to load a pair on a machine: what goes on the GPU, the context length, whether it fits.

If something has to be left out, the draft goes first, then the MTP head; then the KV cache gets a smaller type, then
the context is shortened. Explicit requests are kept, and refused with the numbers if they don't fit.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import msgspec

from app import words
from app.models.heads import is_wanted
from app.models.machine_memory import MachineMemory, MemoryLimits
from app.models.model_memory import GpuSplit, MemoryEstimate, ModelShape, PairMemory, takes_kv_type
from app.protocol.options import ALL_LAYERS, DEFAULT_BATCH_SIZE, HeadChoice, KvType, SplitMode


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """The user's requests; all else is automatic."""

    context_length: int | None = None
    """Tokens."""
    kv_type: KvType | None = None
    target_gpu_layers: int | None = None
    """Counted as in llama.cpp; `ALL_LAYERS` is all."""
    draft_gpu_layers: int | None = None
    keep_draft: bool = False
    """Plans without the draft are unacceptable."""
    head: HeadChoice = "auto"
    """As `app.protocol.commands.Load.head`."""
    expert_layers_on_cpu: int | None = None
    """The number of first layers whose experts stay in system memory."""
    draft_context_length: int | None = None
    """In tokens; by default the target's, and never more."""
    draft_kv_type: KvType | None = None
    """By default the target's."""
    split_mode: SplitMode = "layer"
    main_gpu: str = ""
    """`Device.name` of the only GPU to use with the ``split_mode`` ``none``; empty for the first one."""
    tensor_split: tuple[float, ...] = ()
    """The share of each GPU; ignored if their number is wrong, which the engine refuses."""
    draft_device: str = ""
    """`Device.name` of the GPU for the draft."""
    projector_bytes: int = 0
    """The memory of the target's projector, on the first GPU with a part of the target."""
    batch_size: int = DEFAULT_BATCH_SIZE
    """`LoadSettings.micro_batch_size`."""


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A way to load a pair. The first fields are those of `app.protocol.options.LoadSettings`."""

    context_length: int
    """Tokens."""
    kv_type: KvType
    target_gpu_layers: int
    draft_gpu_layers: int
    expert_layers_on_cpu: int
    tensor_split: tuple[float, ...] = ()
    """Empty if llama.cpp's own way, by free memory, is good enough."""
    draft_device: str = ""
    with_draft: bool
    with_head: bool
    """An MTP head is used: the target's own, or that of a file given as the draft."""
    estimate: MemoryEstimate
    fits: bool
    system_space: int = msgspec.field(name="system_room")
    """Bytes of system memory that a pair may use on this machine, after the safety margin."""
    gpu_space: int = msgspec.field(name="gpu_room")
    """The same for all GPUs together."""
    gpu_spaces: dict[str, int] = msgspec.field(name="gpu_rooms", default_factory=dict)
    """The same for each GPU of `MemoryEstimate.gpus`, by `Device.name`; 0 for those not to be used."""
    sentence: str
    """Why the plan is as it is, or how it differs from the request."""
    gives_up: bool = False
    """It fits only because it differs from the request."""

    @property
    def needed(self) -> int:
        """Bytes, system and GPUs together."""
        return self.estimate.system.total + self.estimate.gpu.total


# Placement of a pair once it is decided what to load. The draft goes on a GPU first and completely, then as much of the
# target as fits: for a mixture of experts all of its layers, with the experts of as few as possible in system memory;
# otherwise as many layers as fit. With several GPUs, the draft goes on the one that leaves most for the target, whose
# layers llama.cpp spreads by free memory if that fits, and otherwise by given shares.


class Options(NamedTuple):
    """What a plan can give up."""

    draft: bool
    head: bool
    """An MTP head may be used."""
    kv_type: KvType
    context: int
    """Tokens."""
    target_layers: int | None
    """``None`` for as many as fit."""


class _DraftPlace(NamedTuple):
    """The place of the draft, or of a head in a separate file."""

    layers: int
    """On a GPU."""
    gpu: int | None = None
    """The index of the GPU reserved for it; ``None`` to share the target's."""


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
        """Whether shares of the GPUs were requested."""
        return bool(self._split.shares)

    def takes(self, options: Options) -> bool:
        """Whether the models support this type of KV cache."""
        shapes = self._target, self.sidecar if options.head else None
        draft_type = self._wishes.draft_kv_type or options.kv_type
        takes_draft = not options.draft or self.draft is None or takes_kv_type(self.draft, draft_type)
        return takes_draft and all(takes_kv_type(shape, options.kv_type) for shape in shapes if shape)

    def best(self, options: Options) -> LoadPlan:
        """The best placement; if nothing fits, the first that was tried."""
        plans = list[LoadPlan]()
        for place in self._draft_places(options):
            plans.append(plan := self._with_most_layers(options, place))
            if plan.fits and plan.target_gpu_layers == ALL_LAYERS and not plan.expert_layers_on_cpu:
                break
        return max(plans, key=self._rank)

    def _rank(self, plan: LoadPlan) -> tuple[bool, bool, int, int]:
        """Equal ranks keep their order."""
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
        """The placement with as few layers' experts in system memory as necessary, at worst all."""

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
        """The memory, and the GPU shares if it only fits with given ones."""
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
        """The file whose head the engine would use, as `app.engine.host.model_files` decides."""
        if not options.head or (options.draft and self._wishes.head != "on"):
            return None
        if self.sidecar:
            return self.sidecar if self.sidecar.head else None
        has_own = self._target.head is not None
        return self._target if has_own and is_wanted(self._wishes.head, self._target, target_layers) else None


__all__ = ["LEAST_CONTEXT", "LoadPlan", "Wishes", "alternatives", "layers_text", "make_plan"]

LEAST_CONTEXT = 1024
"""In tokens; no automatic plan goes below this."""


def make_plan(
    target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes | None = None
) -> LoadPlan:
    """The best plan that fits; otherwise the request, with ``fits`` False and the numbers.

    ``draft`` may be a file with only the MTP head of the target.
    """
    return _Planner(target, draft, machine, wishes or Wishes()).best()


def alternatives(
    target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes | None = None
) -> list[LoadPlan]:
    """Plans that fit if the requested one doesn't; each gives up one thing, the last one more if necessary."""
    return _Planner(target, draft, machine, wishes or Wishes()).alternatives()


class _Planner:
    def __init__(self, target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes) -> None:
        self._target = target
        self._wishes = wishes
        self._placer = placer = Placer(target, draft, machine, wishes)
        self._limits = placer.limits
        self._wished = Options(
            placer.draft is not None,
            placer.sidecar is not None or (target.head is not None and wishes.head != "off"),
            wishes.kv_type or "f16",
            min(wishes.context_length or target.default_context, target.longest_context),
            wishes.target_gpu_layers,
        )

    def best(self) -> LoadPlan:
        plans = map(self._placer.best, self._candidates())
        wished = next(plans)
        if wished.fits:
            return msgspec.structs.replace(wished, sentence=self._how_it_fits(wished))
        numbers = self._why_not(wished)
        for plan in plans:
            if plan.fits:
                given_up = f"{self._changes(plan, wished)}: {numbers}."
                return msgspec.structs.replace(plan, sentence=given_up, gives_up=True)
        return msgspec.structs.replace(wished, sentence=f"{_sentence(numbers)}.")

    def _candidates(self) -> Iterator[Options]:
        """The request, then what comes closest to it."""
        wished = self._wished
        yield wished
        lighter = [] if self._wishes.keep_draft else self._without_draft()
        yield from lighter
        alone = lighter[-1] if lighter else wished
        contexts, kv_types = [wished.context], [wished.kv_type]
        while self._wishes.context_length is None and contexts[-1] // 2 >= LEAST_CONTEXT:
            contexts.append(contexts[-1] // 2)
        if self._wishes.kv_type is None and self._placer.takes(alone._replace(kv_type="q8_0")):
            kv_types.append("q8_0")
        for context, kv_type in product(contexts, kv_types):
            if (context, kv_type) != (wished.context, wished.kv_type):
                yield alone._replace(context=context, kv_type=kv_type)

    def _without_draft(self) -> list[Options]:
        """The request with the target's own head instead of the draft, and with neither."""
        wished = self._wished
        found = [wished._replace(draft=False), wished._replace(draft=False, head=False)]
        return [options for number, options in enumerate(found) if options not in (wished, *found[:number])]

    # ------------------------------------------------------------ alternatives

    def alternatives(self) -> list[LoadPlan]:
        wished, wished_plan = self._wished, self._placer.best(self._wished)
        if wished_plan.fits:
            return []
        can_quantize = wished.kv_type == "f16" and self._placer.takes(wished._replace(kv_type="q8_0"))
        lesser = self._without_one_thing(can_quantize=can_quantize)
        smallest = wished._replace(draft=False, head=False, kv_type="q8_0" if can_quantize else wished.kv_type)
        plans = [plan for plan in map(self._placer.best, lesser) if plan.fits]
        if not plans and smallest not in lesser:
            plans = [plan for plan in [self._placer.best(smallest)] if plan.fits]
        if shorter := self._longest(wished):
            plans.append(shorter)
        if not plans and (last := self._longest(smallest._replace(target_layers=None))):
            plans = [last]
        return [
            msgspec.structs.replace(plan, sentence=f"{self._changes(plan, wished_plan)}: {words.size(plan.needed)}")
            for plan in plans
        ]

    def _without_one_thing(self, *, can_quantize: bool) -> list[Options]:
        """Everything that can be given up except the context length."""
        wished = self._wished
        lesser = self._without_draft()[-1:]
        if can_quantize:
            lesser.append(wished._replace(kv_type="q8_0"))
        if not self._placer.takes(wished):
            lesser.append(wished._replace(kv_type="f16"))
        if wished.target_layers is not None:
            lesser.append(wished._replace(target_layers=None))
        return lesser

    def _longest(self, options: Options) -> LoadPlan | None:
        """A plan with the longest shorter context that fits, a multiple of `LEAST_CONTEXT`."""

        def at(steps: int) -> LoadPlan:
            return self._placer.best(options._replace(context=steps * LEAST_CONTEXT))

        steps = bisect(
            range(1, (options.context - 1) // LEAST_CONTEXT + 1), False, key=lambda count: not at(count).fits
        )
        return at(steps) if steps else None

    # ------------------------------------------------------------ in words

    def _how_it_fits(self, plan: LoadPlan) -> str:
        limits, found = self._limits, plan.estimate
        if not found.gpu.total:
            has_no_space = limits.gpus and self._wishes.target_gpu_layers != 0
            reason = "No layer of the target fits on the GPU, so it runs" if has_no_space else "Runs"
            needed = f"{words.size(found.system.total)} of {words.size(limits.system_bytes)}"
            return f"{reason} on the CPU and needs {needed}.{self._context_note()}"
        if limits.gpus and not limits.is_shared:
            on_gpu = f"{words.size(found.gpu.total)} of {words.size(limits.gpu_bytes)} of GPU memory"
            takes = (
                f"{on_gpu} and {words.size(found.system.total)} of {words.size(limits.system_bytes)} of system memory"
            )
        else:
            takes = f"{words.size(plan.needed)} of {words.size(limits.system_bytes)}"
        return f"{self._on_gpu(plan)} needs {takes}.{self._shares_note(plan)}{self._context_note()}"

    def _on_gpu(self, plan: LoadPlan) -> str:
        """The beginning of a sentence about what is on the GPU or GPUs."""
        where = "the GPUs" if sum(map(bool, self._limits.spaces)) > 1 else "the GPU"
        slots = self._target.gpu_slots
        layers = slots if plan.target_gpu_layers < 0 else min(plan.target_gpu_layers, slots)
        if apart := self._experts_note(plan, slots - layers):
            numbers = "all" if layers == slots else f"{layers} of {slots}"
            return f"{_sentence(numbers)} layers of the target fit on {where}, {apart}. It"
        if layers == slots:
            second = self._placer.draft if plan.with_draft else self._placer.sidecar if plan.with_head else None
            elsewhere = 0 <= plan.draft_gpu_layers < (second.gpu_slots if second else 0)
            return f"{('All of the target' if elsewhere else 'Everything')} fits on {where} and"
        verb = "fit" if self._wishes.target_gpu_layers is None else "are"
        return f"{layers} of {slots} layers of the target {verb} on {where}. It"

    def _shares_note(self, plan: LoadPlan) -> str:
        """The layers of each GPU, if the plan had to decide that."""
        if plan.tensor_split == self._wishes.tensor_split:
            return ""
        names = [gpu.name for gpu in self._limits.gpus]
        counts = (f"{name} {words.number(count)}" for name, count in zip(names, plan.tensor_split, strict=True))
        return f" Layers of the target: {', '.join(counts)}."

    def _context_note(self) -> str:
        """A sentence about a requested context that is longer than the target's."""
        longest = self._target.longest_context
        is_cut = (self._wishes.context_length or 0) > longest
        return f" This model can't have a context of more than {words.number(longest)} tokens." if is_cut else ""

    def _why_not(self, plan: LoadPlan) -> str:
        """Why ``plan`` does not fit."""
        if not takes_kv_type(self._target, plan.kv_type):
            return f"the target's KV cache can't be {plan.kv_type}"
        draft_type = self._wishes.draft_kv_type or plan.kv_type
        if plan.with_draft and self._placer.draft and not takes_kv_type(self._placer.draft, draft_type):
            return f"the draft's KV cache can't be {draft_type}"
        if self._limits.has_too_large_tensor(plan.estimate):
            return f"a KV cache for {words.number(plan.context_length)} tokens is too large for the GPU"
        subject = "the pair" if plan.with_draft else "the target with its head" if plan.with_head else "the target"
        where, needs, free = self._lacking_memory(plan.estimate)
        return f"{subject} needs {words.size(needs)}{where}, but only {words.size(free)} is free"

    def _lacking_memory(self, found: MemoryEstimate) -> tuple[str, int, int]:
        """Names the memory that is too small, with the bytes needed and free there."""
        limits, fullest = self._limits, self._limits.fullest(found)
        if fullest is None:
            return "", limits.in_system(found), limits.system_bytes
        if len(limits.gpus) == 1:
            return " on the GPU", found.gpu.total, limits.gpu_bytes
        if found.gpu.total > limits.gpu_bytes and not self._placer.has_shares:
            return " on the GPUs", found.gpu.total, limits.gpu_bytes
        return f" on {limits.gpus[fullest].name}", found.gpus[fullest].total, limits.spaces[fullest]

    def _changes(self, plan: LoadPlan, wished_plan: LoadPlan) -> str:
        """How the plan differs from the request."""
        wished = self._wished
        parts = []
        if wished.draft and not plan.with_draft:
            has_changed = plan.with_head and not wished_plan.with_head
            parts.append("with the head instead of the draft" if has_changed else "without the draft")
        if wished_plan.with_head and not plan.with_head:
            parts.append("without the head")
        if plan.kv_type != wished.kv_type:
            parts.append(f"a {plan.kv_type} KV cache instead of {wished.kv_type}")
        if plan.context_length != wished.context:
            parts.append(
                f"a context of {words.number(plan.context_length)} tokens instead of {words.number(wished.context)}"
            )
        if wished.target_layers is not None and plan.target_gpu_layers != wished.target_layers:
            now, before = map(layers_text, (plan.target_gpu_layers, wished.target_layers))
            parts.append(f"{now} layers on the GPU instead of {before}")
        return _sentence(", ".join(parts))

    def _experts_note(self, plan: LoadPlan, first: int) -> str:
        """How many of the layers on the GPU, beginning with number ``first``, leave their experts behind; empty if
        none.
        """
        count = sum(bool(layer.experts) for layer in self._target.layers[first : plan.expert_layers_on_cpu])
        return f"{count} of them without {'its' if count == 1 else 'their'} experts" if count else ""


def layers_text(layers: int) -> str:
    """A number of layers on the GPU, for display."""
    return "all" if layers == ALL_LAYERS else str(layers)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
