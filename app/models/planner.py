"""How to load a pair on a machine: what goes on the GPU, how long the context is, whether the draft is used.

The draft goes on the GPU first and completely, then as much of the target as fits: of a mixture of experts, first all
of its layers with the experts of as few as possible in system memory, otherwise as many layers as fit. If something has
to be left out, the draft goes first, then the MTP head; then the KV cache gets a smaller type, then the context is
shortened. What was requested explicitly is kept, and refused with the numbers if it doesn't fit.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import msgspec

from app.models.machine_memory import MachineMemory
from app.models.memory_estimate import MemoryEstimate, ModelShape, estimate, takes_kv_type
from app.models.memory_limits import MemoryLimits
from app.models.mtp import is_wanted
from app.models.text import size_text
from app.protocol.limits import ALL_LAYERS, DEFAULT_BATCH_SIZE, HeadChoice, KvType

LEAST_CONTEXT = 1024
"""In tokens; no automatic plan goes below this."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user requests; the rest is chosen automatically."""

    context_length: int | None = None
    """Tokens."""
    kv_type: KvType | None = None
    target_gpu_layers: int | None = None
    """Counted as llama.cpp does; `ALL_LAYERS` is all."""
    draft_gpu_layers: int | None = None
    keep_draft: bool = False
    """A plan that leaves the draft out isn't acceptable."""
    head: HeadChoice = "auto"
    """As `app.protocol.commands.Load.head`."""
    expert_layers_on_cpu: int | None = None
    """Of how many layers, counted from the first, the experts stay in system memory."""
    draft_context_length: int | None = None
    """Tokens; by default as many as the target has, and never more."""
    draft_kv_type: KvType | None = None
    """By default the target's."""
    only_gpu: str | None = None
    """`Device.name` of the only GPU to use, empty for the first one; all are used by default."""
    batch_size: int = DEFAULT_BATCH_SIZE
    """`LoadSettings.micro_batch_size`."""


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to load a pair. The first fields are those of `app.protocol.options.LoadSettings`."""

    context_length: int
    """Tokens."""
    kv_type: KvType
    target_gpu_layers: int
    draft_gpu_layers: int
    expert_layers_on_cpu: int
    with_draft: bool
    with_head: bool
    """An MTP head is used: the target's own, or that of a file given as the draft."""
    estimate: MemoryEstimate
    fits: bool
    system_space: int = msgspec.field(name="system_room")
    """Bytes of system memory that a pair may use on this machine, after the safety margin."""
    gpu_space: int = msgspec.field(name="gpu_room")
    """The same for all GPUs together."""
    sentence: str
    """Why the plan is as it is, or how it differs from what was requested."""
    gives_up: bool = False
    """Whether it fits only because it differs from what was requested."""

    @property
    def needed(self) -> int:
        """Bytes, system and GPUs together."""
        return self.estimate.system.total + self.estimate.gpu.total


def make_plan(
    target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes | None = None
) -> LoadPlan:
    """The best plan that fits; if none does, what was requested, with ``fits`` False and the numbers.

    ``draft`` may be a file with only the MTP head of the target.
    """
    return _Planner(target, draft, machine, wishes or Wishes()).best()


def alternatives(
    target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes | None = None
) -> list[LoadPlan]:
    """Plans that fit if the requested one doesn't; each gives up one thing, the last one more if necessary."""
    return _Planner(target, draft, machine, wishes or Wishes()).alternatives()


class _Options(NamedTuple):
    """What a plan can give up."""

    draft: bool
    head: bool
    """An MTP head may be used."""
    kv_type: KvType
    context: int
    """Tokens."""
    target_layers: int | None
    """``None``: as many as fit."""


class _Planner:
    def __init__(self, target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes) -> None:
        self._target = target
        is_sidecar = draft is not None and draft.is_head_only
        self._draft = None if is_sidecar else draft
        self._sidecar = draft if is_sidecar else None
        self._wishes = wishes
        self._limits = MemoryLimits(machine, wishes.only_gpu)
        self._wished = _Options(
            self._draft is not None,
            self._sidecar is not None or (target.head is not None and wishes.head != "off"),
            wishes.kv_type or "f16",
            wishes.context_length or target.default_context,
            wishes.target_gpu_layers,
        )

    def best(self) -> LoadPlan:
        plans = map(self._placed, self._candidates())
        wished = next(plans)
        if wished.fits:
            return msgspec.structs.replace(wished, sentence=self._how_it_fits(wished))
        numbers = self._numbers(wished)
        for plan in plans:
            if plan.fits:
                given_up = f"{self._given_up(plan, wished)}: {numbers}."
                return msgspec.structs.replace(plan, sentence=given_up, gives_up=True)
        return msgspec.structs.replace(wished, sentence=f"{_sentence(numbers)}.")

    def _candidates(self) -> Iterator[_Options]:
        """What was requested, then what comes closest to it."""
        wished = self._wished
        yield wished
        lighter = [] if self._wishes.keep_draft else self._lighter()
        yield from lighter
        alone = lighter[-1] if lighter else wished
        contexts, kv_types = [wished.context], [wished.kv_type]
        while self._wishes.context_length is None and contexts[-1] // 2 >= LEAST_CONTEXT:
            contexts.append(contexts[-1] // 2)
        if self._wishes.kv_type is None and self._takes(alone._replace(kv_type="q8_0")):
            kv_types.append("q8_0")
        for context, kv_type in product(contexts, kv_types):
            if (context, kv_type) != (wished.context, wished.kv_type):
                yield alone._replace(context=context, kv_type=kv_type)

    def _lighter(self) -> list[_Options]:
        """What was requested with the target's own head in place of the draft, and with neither."""
        wished = self._wished
        found = [wished._replace(draft=False), wished._replace(draft=False, head=False)]
        return [options for number, options in enumerate(found) if options not in (wished, *found[:number])]

    def _takes(self, options: _Options) -> bool:
        """Whether the models can have this kind of KV cache at all."""
        shapes = self._target, self._sidecar if options.head else None
        draft, draft_type = self._draft, self._wishes.draft_kv_type or options.kv_type
        takes_draft = not options.draft or draft is None or takes_kv_type(draft, draft_type)
        return takes_draft and all(takes_kv_type(shape, options.kv_type) for shape in shapes if shape)

    def _head(self, options: _Options, target_layers: int) -> ModelShape | None:
        """The file whose head the engine would use, as `app.engine.host.heads` decides."""
        if not options.head or options.draft:
            return None
        if self._sidecar:
            return self._sidecar if self._sidecar.head else None
        has_own = self._target.head is not None
        return self._target if has_own and is_wanted(self._wishes.head, self._target, target_layers) else None

    # ------------------------------------------------------------ what goes where

    def _placed(self, options: _Options) -> LoadPlan:
        """The best place for everything: the draft on the GPU if possible, then as much of the target as fits."""
        if self._wishes.draft_gpu_layers is not None:
            draft_places = [self._wishes.draft_gpu_layers]
        else:
            has_second = options.draft or (options.head and self._sidecar is not None)
            draft_places = [ALL_LAYERS, 0] if self._limits.gpus and has_second else [ALL_LAYERS]
        plans = [self._with_most_layers(options, layers) for layers in draft_places]
        return next((plan for plan in plans if plan.fits), plans[0])

    def _with_most_layers(self, options: _Options, draft_layers: int) -> LoadPlan:
        if options.target_layers is not None:
            return self._with_fewest_experts_apart(options, options.target_layers, draft_layers)
        whole = self._with_fewest_experts_apart(options, ALL_LAYERS, draft_layers)
        if not self._limits.gpus or self._has_space(whole.estimate):
            return whole
        experts = whole.expert_layers_on_cpu

        def has_no_space(layers: int) -> bool:
            return not self._has_space(self._estimate(options, layers, draft_layers, experts))

        most = bisect(range(1, self._target.gpu_slots), False, key=has_no_space)
        return self._plan(options, most, draft_layers, experts)

    def _with_fewest_experts_apart(self, options: _Options, target_layers: int, draft_layers: int) -> LoadPlan:
        """With the experts of no more layers in system memory than necessary; of all if that isn't enough."""

        def apart(layers: int) -> LoadPlan:
            return self._plan(options, target_layers, draft_layers, layers)

        if self._wishes.expert_layers_on_cpu is not None:
            return apart(self._wishes.expert_layers_on_cpu)
        together, most = apart(0), self._target.expert_layers
        if not self._limits.gpus or self._limits.is_shared or not most or self._has_space(together.estimate):
            return together
        return apart(1 + bisect(range(1, most), False, key=lambda layers: self._has_space(apart(layers).estimate)))

    def _has_space(self, found: MemoryEstimate) -> bool:
        """Whether this many layers fit on the GPU. If its memory is the system's, everything has to fit there."""
        return self._limits.fit(found) if self._limits.is_shared else self._limits.fit_gpus(found)

    def _plan(self, options: _Options, target_layers: int, draft_layers: int, expert_layers: int) -> LoadPlan:
        found = self._estimate(options, target_layers, draft_layers, expert_layers)
        return LoadPlan(
            context_length=options.context,
            kv_type=options.kv_type,
            target_gpu_layers=target_layers,
            draft_gpu_layers=draft_layers,
            expert_layers_on_cpu=expert_layers,
            with_draft=options.draft,
            with_head=self._head(options, target_layers) is not None,
            estimate=found,
            fits=self._limits.fit(found) and self._takes(options),
            system_space=self._limits.system_bytes,
            gpu_space=self._limits.gpu_bytes,
            sentence="",
        )

    def _estimate(self, options: _Options, target_layers: int, draft_layers: int, expert_layers: int) -> MemoryEstimate:
        return estimate(
            self._target,
            self._draft if options.draft else None,
            head=self._head(options, target_layers),
            context_length=options.context,
            kv_type=options.kv_type,
            draft_context_length=self._wishes.draft_context_length,
            draft_kv_type=self._wishes.draft_kv_type,
            target_gpu_layers=target_layers if self._limits.gpus else 0,
            draft_gpu_layers=draft_layers if self._limits.gpus else 0,
            expert_layers_on_cpu=expert_layers,
            batch_size=self._wishes.batch_size,
        )

    # ------------------------------------------------------------ what would fit

    def alternatives(self) -> list[LoadPlan]:
        wished, wished_plan = self._wished, self._placed(self._wished)
        if wished_plan.fits:
            return []
        can_quantize = wished.kv_type == "f16" and self._takes(wished._replace(kv_type="q8_0"))
        lesser = self._without_one_thing(can_quantize=can_quantize)
        smallest = wished._replace(draft=False, head=False, kv_type="q8_0" if can_quantize else wished.kv_type)
        plans = [plan for plan in map(self._placed, lesser) if plan.fits]
        if not plans and smallest not in lesser:
            plans = [plan for plan in [self._placed(smallest)] if plan.fits]
        if shorter := self._longest(wished):
            plans.append(shorter)
        if not plans and (last := self._longest(smallest._replace(target_layers=None))):
            plans = [last]
        return [
            msgspec.structs.replace(plan, sentence=f"{self._given_up(plan, wished_plan)}: {size_text(plan.needed)}")
            for plan in plans
        ]

    def _without_one_thing(self, *, can_quantize: bool) -> list[_Options]:
        """Everything that can be given up except the context length."""
        wished = self._wished
        lesser = self._lighter()[-1:]
        if can_quantize:
            lesser.append(wished._replace(kv_type="q8_0"))
        if not self._takes(wished):
            lesser.append(wished._replace(kv_type="f16"))
        if wished.target_layers is not None:
            lesser.append(wished._replace(target_layers=None))
        return lesser

    def _longest(self, options: _Options) -> LoadPlan | None:
        """With the longest context below that of ``options`` that fits, a multiple of `LEAST_CONTEXT`."""

        def at(steps: int) -> LoadPlan:
            return self._placed(options._replace(context=steps * LEAST_CONTEXT))

        steps = bisect(
            range(1, (options.context - 1) // LEAST_CONTEXT + 1), False, key=lambda count: not at(count).fits
        )
        return at(steps) if steps else None

    # ------------------------------------------------------------ in words

    def _how_it_fits(self, plan: LoadPlan) -> str:
        limits, found = self._limits, plan.estimate
        if not found.gpu.total:
            reason = "No layer of the target fits on the GPU, so it runs" if limits.gpus else "Runs"
            if self._wishes.target_gpu_layers == 0:
                reason = "Runs"
            needed = f"{size_text(found.system.total)} of {size_text(limits.system_bytes)}"
            return f"{reason} on the CPU and needs {needed}."
        if limits.gpus and not limits.is_shared:
            on_gpu = f"{size_text(limits.on_gpus(found))} of {size_text(limits.gpu_bytes)} of GPU memory"
            takes = f"{on_gpu} and {size_text(found.system.total)} of {size_text(limits.system_bytes)} of system memory"
        else:
            takes = f"{size_text(plan.needed)} of {size_text(limits.system_bytes)}"
        slots = self._target.gpu_slots
        layers = slots if plan.target_gpu_layers < 0 else min(plan.target_gpu_layers, slots)
        if apart := self._experts_apart(plan, slots - layers):
            numbers = "all" if layers == slots else f"{layers} of {slots}"
            return f"{_sentence(numbers)} layers of the target fit on the GPU, {apart}. It needs {takes}."
        if layers == slots:
            second = self._draft if plan.with_draft else self._sidecar if plan.with_head else None
            elsewhere = 0 <= plan.draft_gpu_layers < (second.gpu_slots if second else 0)
            return f"{('All of the target' if elsewhere else 'Everything')} fits on the GPU and needs {takes}."
        verb = "fit" if self._wishes.target_gpu_layers is None else "are"
        return f"{layers} of {slots} layers of the target {verb} on the GPU. It needs {takes}."

    def _numbers(self, plan: LoadPlan) -> str:
        """Why ``plan`` does not fit."""
        if not takes_kv_type(self._target, plan.kv_type):
            return f"the target's KV cache can't be {plan.kv_type}"
        draft_type = self._wishes.draft_kv_type or plan.kv_type
        if plan.with_draft and self._draft and not takes_kv_type(self._draft, draft_type):
            return f"the draft's KV cache can't be {draft_type}"
        subject = "the pair" if plan.with_draft else "the target with its MTP head" if plan.with_head else "the target"
        found = plan.estimate
        if not self._limits.fit_gpus(found):
            where, needs, free = " on the GPU", self._limits.on_gpus(found), self._limits.gpu_bytes
        else:
            where, needs, free = "", self._limits.in_system(found), self._limits.system_bytes
        return f"{subject} needs {size_text(needs)}{where}, but only {size_text(free)} is free"

    def _given_up(self, plan: LoadPlan, wished_plan: LoadPlan) -> str:
        """What is different from the request."""
        wished = self._wished
        parts = []
        if wished.draft and not plan.with_draft:
            parts.append("with the MTP head instead of the draft" if plan.with_head else "without the draft")
        if wished_plan.with_head and not plan.with_head:
            parts.append("without the MTP head")
        if plan.kv_type != wished.kv_type:
            parts.append(f"a {plan.kv_type} KV cache instead of {wished.kv_type}")
        if plan.context_length != wished.context:
            parts.append(f"a context of {plan.context_length:,} tokens instead of {wished.context:,}")
        if wished.target_layers is not None and plan.target_gpu_layers != wished.target_layers:
            now, before = map(layers_text, (plan.target_gpu_layers, wished.target_layers))
            parts.append(f"{now} layers on the GPU instead of {before}")
        return _sentence(", ".join(parts))

    def _experts_apart(self, plan: LoadPlan, first: int) -> str:
        """Of the layers on the GPU, which begin with the one numbered ``first``, how many are there without their
        experts; empty if none.
        """
        count = sum(bool(layer.experts) for layer in self._target.layers[first : plan.expert_layers_on_cpu])
        return f"{count} of them without {'its' if count == 1 else 'their'} experts" if count else ""


def layers_text(layers: int) -> str:
    """A number of layers on the GPU, for display."""
    return "all" if layers == ALL_LAYERS else str(layers)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
