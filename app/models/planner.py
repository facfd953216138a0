"""How to load a pair on a machine: what goes on the GPU, how long the context is, whether the draft is used.

`app.models.placing` finds the best places. If something has to be left out, the draft goes first, then the MTP head;
then the KV cache gets a smaller type, then the context is shortened. What was requested explicitly is kept, and refused
with the numbers if it doesn't fit.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from itertools import product

import msgspec

from app.models.load_plan import LoadPlan, Wishes
from app.models.machine_memory import MachineMemory
from app.models.memory_estimate import MemoryEstimate, ModelShape
from app.models.model_memory import takes_kv_type
from app.models.placing import Options, Placer
from app.models.text import size_text
from app.protocol.limits import ALL_LAYERS

__all__ = ["LEAST_CONTEXT", "LoadPlan", "Wishes", "alternatives", "layers_text", "make_plan"]

LEAST_CONTEXT = 1024
"""In tokens; no automatic plan goes below this."""


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
        numbers = self._numbers(wished)
        for plan in plans:
            if plan.fits:
                given_up = f"{self._given_up(plan, wished)}: {numbers}."
                return msgspec.structs.replace(plan, sentence=given_up, gives_up=True)
        return msgspec.structs.replace(wished, sentence=f"{_sentence(numbers)}.")

    def _candidates(self) -> Iterator[Options]:
        """What was requested, then what comes closest to it."""
        wished = self._wished
        yield wished
        lighter = [] if self._wishes.keep_draft else self._lighter()
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

    def _lighter(self) -> list[Options]:
        """What was requested with the target's own head in place of the draft, and with neither."""
        wished = self._wished
        found = [wished._replace(draft=False), wished._replace(draft=False, head=False)]
        return [options for number, options in enumerate(found) if options not in (wished, *found[:number])]

    # ------------------------------------------------------------ what would fit

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
            msgspec.structs.replace(plan, sentence=f"{self._given_up(plan, wished_plan)}: {size_text(plan.needed)}")
            for plan in plans
        ]

    def _without_one_thing(self, *, can_quantize: bool) -> list[Options]:
        """Everything that can be given up except the context length."""
        wished = self._wished
        lesser = self._lighter()[-1:]
        if can_quantize:
            lesser.append(wished._replace(kv_type="q8_0"))
        if not self._placer.takes(wished):
            lesser.append(wished._replace(kv_type="f16"))
        if wished.target_layers is not None:
            lesser.append(wished._replace(target_layers=None))
        return lesser

    def _longest(self, options: Options) -> LoadPlan | None:
        """With the longest context below that of ``options`` that fits, a multiple of `LEAST_CONTEXT`."""

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
            needed = f"{size_text(found.system.total)} of {size_text(limits.system_bytes)}"
            return f"{reason} on the CPU and needs {needed}.{self._cut()}"
        if limits.gpus and not limits.is_shared:
            on_gpu = f"{size_text(found.gpu.total)} of {size_text(limits.gpu_bytes)} of GPU memory"
            takes = f"{on_gpu} and {size_text(found.system.total)} of {size_text(limits.system_bytes)} of system memory"
        else:
            takes = f"{size_text(plan.needed)} of {size_text(limits.system_bytes)}"
        return f"{self._on_gpu(plan)} needs {takes}.{self._shares(plan)}{self._cut()}"

    def _on_gpu(self, plan: LoadPlan) -> str:
        """The beginning of a sentence that says what is on the GPU, or on several."""
        where = "the GPUs" if sum(map(bool, self._limits.spaces)) > 1 else "the GPU"
        slots = self._target.gpu_slots
        layers = slots if plan.target_gpu_layers < 0 else min(plan.target_gpu_layers, slots)
        if apart := self._experts_apart(plan, slots - layers):
            numbers = "all" if layers == slots else f"{layers} of {slots}"
            return f"{_sentence(numbers)} layers of the target fit on {where}, {apart}. It"
        if layers == slots:
            second = self._placer.draft if plan.with_draft else self._placer.sidecar if plan.with_head else None
            elsewhere = 0 <= plan.draft_gpu_layers < (second.gpu_slots if second else 0)
            return f"{('All of the target' if elsewhere else 'Everything')} fits on {where} and"
        verb = "fit" if self._wishes.target_gpu_layers is None else "are"
        return f"{layers} of {slots} layers of the target {verb} on {where}. It"

    def _shares(self, plan: LoadPlan) -> str:
        """How many layers each GPU gets, where the plan had to decide that."""
        if plan.tensor_split == self._wishes.tensor_split:
            return ""
        names = [gpu.name for gpu in self._limits.gpus]
        counts = (f"{name} {count:.0f}" for name, count in zip(names, plan.tensor_split, strict=True))
        return f" Layers of the target: {', '.join(counts)}."

    def _cut(self) -> str:
        """A sentence about a context that is longer than the target can have."""
        longest = self._target.longest_context
        is_cut = (self._wishes.context_length or 0) > longest
        return f" This model can't have a context of more than {longest:,} tokens." if is_cut else ""

    def _numbers(self, plan: LoadPlan) -> str:
        """Why ``plan`` does not fit."""
        if not takes_kv_type(self._target, plan.kv_type):
            return f"the target's KV cache can't be {plan.kv_type}"
        draft_type = self._wishes.draft_kv_type or plan.kv_type
        if plan.with_draft and self._placer.draft and not takes_kv_type(self._placer.draft, draft_type):
            return f"the draft's KV cache can't be {draft_type}"
        if self._limits.has_too_large_tensor(plan.estimate):
            return f"a KV cache for {plan.context_length:,} tokens is too large for the GPU"
        subject = "the pair" if plan.with_draft else "the target with its MTP head" if plan.with_head else "the target"
        where, needs, free = self._too_full(plan.estimate)
        return f"{subject} needs {size_text(needs)}{where}, but only {size_text(free)} is free"

    def _too_full(self, found: MemoryEstimate) -> tuple[str, int, int]:
        """Where there isn't enough space, for display, and the bytes that are needed and free there."""
        limits, fullest = self._limits, self._limits.fullest(found)
        if fullest is None:
            return "", limits.in_system(found), limits.system_bytes
        if len(limits.gpus) == 1:
            return " on the GPU", found.gpu.total, limits.gpu_bytes
        if found.gpu.total > limits.gpu_bytes and not self._placer.has_shares:
            return " on the GPUs", found.gpu.total, limits.gpu_bytes
        return f" on {limits.gpus[fullest].name}", found.gpus[fullest].total, limits.spaces[fullest]

    def _given_up(self, plan: LoadPlan, wished_plan: LoadPlan) -> str:
        """What is different from the request."""
        wished = self._wished
        parts = []
        if wished.draft and not plan.with_draft:
            has_changed = plan.with_head and not wished_plan.with_head
            parts.append("with the MTP head instead of the draft" if has_changed else "without the draft")
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
