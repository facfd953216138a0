"""How a pair is best loaded on a machine: what goes on the GPU, how long the context is, whether the draft stays.

The draft goes on the GPU first and whole, then as many layers of the target as fit. Where something has to give way,
the draft goes before the KV cache is made smaller, and that before the context is shortened. What was wished for
explicitly is kept, and refused with the numbers where it does not fit.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator

import msgspec

from app.models.load_plan import LEAST_CONTEXT, LoadPlan, Options, Wishes
from app.models.machine_memory import MachineMemory
from app.models.memory_estimate import MemoryEstimate, ModelShape, estimate, takes_kv_type
from app.models.memory_limits import MemoryLimits
from app.models.plan_wording import PlanWording
from app.models.text import size_text
from app.protocol.limits import ALL_LAYERS, KvType


def make_plan(
    target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes | None = None
) -> LoadPlan:
    """The best plan that fits; where none does, what was wished for, with ``fits`` False and the numbers."""
    planner = _Planner(target, draft, machine, wishes or Wishes())
    first: LoadPlan | None = None
    for options in planner.candidates():
        plan = planner.placed(options)
        if plan.fits:
            return msgspec.structs.replace(plan, sentence=planner.wording.reason(plan, first))
        first = first or plan
    assert first is not None
    return msgspec.structs.replace(first, sentence=planner.wording.refusal(first))


def alternatives(
    target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes | None = None
) -> list[LoadPlan]:
    """Plans that fit where the wished one does not; each gives one thing up, the last more than one if it has to."""
    return _Planner(target, draft, machine, wishes or Wishes()).alternatives()


class _Planner:
    def __init__(self, target: ModelShape, draft: ModelShape | None, machine: MachineMemory, wishes: Wishes) -> None:
        self._target = target
        self._draft = draft
        self._wishes = wishes
        self._limits = MemoryLimits(machine)
        self._wished = Options(
            draft is not None,
            wishes.kv_type or "f16",
            wishes.context_length or target.default_context,
            wishes.target_gpu_layers,
        )
        self.wording = PlanWording(target, draft, self._limits, self._wished)

    # ------------------------------------------------------------ what to try

    def candidates(self) -> Iterator[Options]:
        """Best first."""
        wished = self._wished
        if wished.draft:
            yield wished
        if wished.draft and self._wishes.keep_draft:
            alone = wished
        else:
            alone = wished._replace(draft=False)
            yield alone
        for context in self._contexts():
            for kv_type in self._kv_types(alone):
                if (context, kv_type) != (wished.context, wished.kv_type):
                    yield alone._replace(context=context, kv_type=kv_type)

    def _contexts(self) -> list[int]:
        found = [self._wished.context]
        while self._wishes.context_length is None and found[-1] // 2 >= LEAST_CONTEXT:
            found.append(found[-1] // 2)
        return found

    def _kv_types(self, options: Options) -> list[KvType]:
        if self._wishes.kv_type is None and self._takes(options._replace(kv_type="q8_0")):
            return ["f16", "q8_0"]
        return [self._wished.kv_type]

    def _takes(self, options: Options) -> bool:
        """Whether the models can have such a KV cache at all."""
        drafted = self._draft if options.draft else None
        return all(takes_kv_type(shape, options.kv_type) for shape in (self._target, drafted) if shape)

    # ------------------------------------------------------------ what goes where

    def placed(self, options: Options) -> LoadPlan:
        """The best place for everything: the draft on the GPU if it can be, then as much of the target as fits."""
        plans = [self._with_most_layers(options, layers) for layers in self._draft_places(options)]
        return next((plan for plan in plans if plan.fits), plans[0])

    def _draft_places(self, options: Options) -> list[int]:
        if self._wishes.draft_gpu_layers is not None:
            return [self._wishes.draft_gpu_layers]
        return [ALL_LAYERS, 0] if self._limits.gpus and options.draft else [ALL_LAYERS]

    def _with_most_layers(self, options: Options, draft_layers: int) -> LoadPlan:
        if options.target_layers is not None:
            return self._plan(options, options.target_layers, draft_layers)
        whole = self._plan(options, ALL_LAYERS, draft_layers)
        if not self._limits.gpus or self._has_space(whole.estimate):
            return whole

        def has_no_space(layers: int) -> bool:
            return not self._has_space(self._estimate(options, layers, draft_layers))

        most = bisect(range(1, self._target.gpu_slots), False, key=has_no_space)
        return self._plan(options, most, draft_layers)

    def _has_space(self, found: MemoryEstimate) -> bool:
        """Whether so many layers can be on the GPU. Where its memory is the system's, all of it has to fit there."""
        return self._limits.fit(found) if self._limits.is_shared else self._limits.fit_gpus(found)

    def _plan(self, options: Options, target_layers: int, draft_layers: int) -> LoadPlan:
        found = self._estimate(options, target_layers, draft_layers)
        return LoadPlan(
            context_length=options.context,
            kv_type=options.kv_type,
            target_gpu_layers=target_layers,
            draft_gpu_layers=draft_layers,
            with_draft=options.draft,
            estimate=found,
            fits=self._limits.fit(found) and self._takes(options),
            system_space=self._limits.system_bytes,
            gpu_space=self._limits.gpu_bytes,
            sentence="",
        )

    def _estimate(self, options: Options, target_layers: int, draft_layers: int) -> MemoryEstimate:
        return estimate(
            self._target,
            self._draft if options.draft else None,
            context_length=options.context,
            kv_type=options.kv_type,
            target_gpu_layers=target_layers if self._limits.gpus else 0,
            draft_gpu_layers=draft_layers if self._limits.gpus else 0,
            batch_size=self._wishes.batch_size,
        )

    # ------------------------------------------------------------ what would fit

    def alternatives(self) -> list[LoadPlan]:
        wished = self._wished
        if self.placed(wished).fits:
            return []
        lesser = self._without_one_thing()
        smallest = wished._replace(draft=False, kv_type="q8_0" if self._can_quantize() else wished.kv_type)
        plans = [plan for plan in map(self.placed, lesser) if plan.fits]
        if not plans and smallest not in lesser:
            plans = [plan for plan in [self.placed(smallest)] if plan.fits]
        if shorter := self._longest(wished):
            plans.append(shorter)
        if not plans and (last := self._longest(smallest._replace(target_layers=None))):
            plans = [last]
        return [
            msgspec.structs.replace(plan, sentence=f"{self.wording.given_up(plan)}: {size_text(plan.needed)}")
            for plan in plans
        ]

    def _without_one_thing(self) -> list[Options]:
        """All that can be given up beside the length of the context."""
        wished = self._wished
        lesser = [wished._replace(draft=False)] if wished.draft else []
        if self._can_quantize():
            lesser.append(wished._replace(kv_type="q8_0"))
        if not self._takes(wished):
            lesser.append(wished._replace(kv_type="f16"))
        if wished.target_layers is not None:
            lesser.append(wished._replace(target_layers=None))
        return lesser

    def _can_quantize(self) -> bool:
        return self._wished.kv_type == "f16" and self._takes(self._wished._replace(kv_type="q8_0"))

    def _longest(self, options: Options) -> LoadPlan | None:
        """With the longest context below that of ``options`` that fits, a multiple of `LEAST_CONTEXT`."""

        def at(steps: int) -> LoadPlan:
            return self.placed(options._replace(context=steps * LEAST_CONTEXT))

        steps = bisect(
            range(1, (options.context - 1) // LEAST_CONTEXT + 1), False, key=lambda count: not at(count).fits
        )
        return at(steps) if steps else None
