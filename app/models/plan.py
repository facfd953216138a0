"""How a pair is best loaded on a machine: what goes on the GPU, how long the context is, whether the draft stays.

The draft goes on the GPU first and whole, then as many layers of the target as fit. Where something has to give way,
the draft goes before the KV cache is made smaller, and that before the context is shortened. What was wished for
explicitly is kept, and refused with the numbers where it does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from app.models.machine import Machine
from app.models.memory import MemoryEstimate, ModelShape, estimate, takes_kv_type
from app.models.text import size_text
from app.protocol.devices import Device
from app.protocol.limits import ALL_LAYERS, DEFAULT_BATCH_SIZE, KvType

LEAST_CONTEXT = 1024
"""Tokens; no plan of its own accord goes below."""
SYSTEM_MARGIN_SHARE, MOST_SYSTEM_MARGIN = 10, 2 * 1024**3
"""Left free of the system's memory: a tenth of it, at most two GiB. The window, other programs and the caches of kept
chats live there."""
GPU_MARGIN_SHARE, LEAST_GPU_MARGIN = 20, 512 * 1024**2
"""Left free of each GPU: a twentieth, at least half a GiB. The driver takes some of it, and so does the desktop."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asks for; what is not set is chosen."""

    context_length: int | None = None
    """Tokens."""
    kv_type: KvType | None = None
    target_gpu_layers: int | None = None
    """As llama.cpp counts them; `ALL_LAYERS` is all."""
    draft_gpu_layers: int | None = None
    keep_draft: bool = False
    """Rather no plan than one without the draft."""
    batch_size: int = DEFAULT_BATCH_SIZE
    """`LoadSettings.micro_batch_size`."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to load a pair. The first fields are those of `app.protocol.messages.LoadSettings`."""

    context_length: int
    """Tokens."""
    kv_type: KvType
    target_gpu_layers: int
    draft_gpu_layers: int
    with_draft: bool
    estimate: MemoryEstimate
    fits: bool
    system_room: int
    """Bytes of system memory a pair may take on this machine, the margin left out."""
    gpu_room: int
    """The same for all GPUs together."""
    sentence: str
    """Why it is so, or how it differs from what was asked for."""

    @property
    def needed(self) -> int:
        """Bytes, system and GPUs together."""
        return self.estimate.system.total + self.estimate.gpu.total


def make_plan(target: ModelShape, draft: ModelShape | None, machine: Machine, wishes: Wishes | None = None) -> Plan:
    """The best plan that fits; where none does, what was wished for, with ``fits`` False and the numbers."""
    planner = _Planner(target, draft, machine, wishes or Wishes())
    first: Plan | None = None
    for ways in planner.ways():
        plan = planner.placed(ways)
        if plan.fits:
            return msgspec.structs.replace(plan, sentence=planner.reason(plan, first))
        first = first or plan
    assert first is not None
    return msgspec.structs.replace(first, sentence=planner.refusal(first))


def alternatives(
    target: ModelShape, draft: ModelShape | None, machine: Machine, wishes: Wishes | None = None
) -> list[Plan]:
    """Plans that fit where the wished one does not; each gives one thing up, the last more than one if it has to."""
    return _Planner(target, draft, machine, wishes or Wishes()).alternatives()


def system_room(machine: Machine) -> int:
    """Bytes of system memory a pair may take."""
    margin = min(machine.memory_total // SYSTEM_MARGIN_SHARE, MOST_SYSTEM_MARGIN)
    return max(machine.memory_free - margin, 0)


def gpu_room(machine: Machine) -> int:
    """Bytes a pair may take on the GPUs in use, which llama.cpp spreads its layers over."""
    return sum(map(_room_on, _used(machine.devices)))


def _used(devices: list[Device]) -> list[Device]:
    """llama.cpp takes integrated GPUs only where there are no others."""
    return [device for device in devices if device.kind == "gpu"] or devices[:1]


def _room_on(device: Device) -> int:
    margin = max(device.total_bytes // GPU_MARGIN_SHARE, LEAST_GPU_MARGIN)
    return max(device.free_bytes - margin, 0)


class _Ways(NamedTuple):
    """What a plan can give up."""

    draft: bool
    kv_type: KvType
    context: int
    target_layers: int | None = None
    """``None``: as many as fit."""


def _layers_text(layers: int) -> str:
    return "all" if layers == ALL_LAYERS else str(layers)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


class _Planner:
    def __init__(self, target: ModelShape, draft: ModelShape | None, machine: Machine, wishes: Wishes) -> None:
        self._target = target
        self._draft = draft
        self._wishes = wishes
        self._devices = _used(machine.devices)
        self._shared = any(device.kind == "integrated" for device in self._devices)
        self._system_room = system_room(machine)
        self._gpu_room = gpu_room(machine)
        self._draft_slots = draft.gpu_slots if draft else 0
        self._wished = _Ways(
            draft is not None,
            wishes.kv_type or "f16",
            wishes.context_length or target.default_context,
            wishes.target_gpu_layers,
        )

    # ------------------------------------------------------------ what to try

    def ways(self) -> Iterator[_Ways]:
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

    def _kv_types(self, ways: _Ways) -> list[KvType]:
        if self._wishes.kv_type is None and self._takes(ways._replace(kv_type="q8_0")):
            return ["f16", "q8_0"]
        return [self._wished.kv_type]

    def _takes(self, ways: _Ways) -> bool:
        """Whether the models can have such a KV cache at all."""
        drafted = self._draft if ways.draft else None
        return all(takes_kv_type(shape, ways.kv_type) for shape in (self._target, drafted) if shape)

    # ------------------------------------------------------------ what goes where

    def placed(self, ways: _Ways) -> Plan:
        """The best place for everything: the draft on the GPU if it can be, then as much of the target as fits."""
        plans = [self._with_most_layers(ways, layers) for layers in self._draft_places(ways)]
        return next((plan for plan in plans if plan.fits), plans[0])

    def _draft_places(self, ways: _Ways) -> list[int]:
        if self._wishes.draft_gpu_layers is not None:
            return [self._wishes.draft_gpu_layers]
        return [ALL_LAYERS, 0] if self._devices and ways.draft else [ALL_LAYERS]

    def _with_most_layers(self, ways: _Ways, draft_layers: int) -> Plan:
        if ways.target_layers is not None:
            return self._plan(ways, ways.target_layers, draft_layers)
        whole = self._plan(ways, ALL_LAYERS, draft_layers)
        if not self._devices or self._has_room(whole.estimate):
            return whole
        low, high = 0, self._target.gpu_slots - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._has_room(self._estimate(ways, middle, draft_layers)):
                low = middle
            else:
                high = middle - 1
        return self._plan(ways, low, draft_layers)

    def _has_room(self, found: MemoryEstimate) -> bool:
        """Whether so many layers can be on the GPU. Where its memory is the system's, all of it has to fit there."""
        return self._fits(found) if self._shared else self._gpu_fits(found)

    def _plan(self, ways: _Ways, target_layers: int, draft_layers: int) -> Plan:
        found = self._estimate(ways, target_layers, draft_layers)
        return Plan(
            context_length=ways.context,
            kv_type=ways.kv_type,
            target_gpu_layers=target_layers,
            draft_gpu_layers=draft_layers,
            with_draft=ways.draft,
            estimate=found,
            fits=self._fits(found) and self._takes(ways),
            system_room=self._system_room,
            gpu_room=self._gpu_room,
            sentence="",
        )

    def _estimate(self, ways: _Ways, target_layers: int, draft_layers: int) -> MemoryEstimate:
        return estimate(
            self._target,
            self._draft if ways.draft else None,
            context_length=ways.context,
            kv_type=ways.kv_type,
            target_gpu_layers=target_layers if self._devices else 0,
            draft_gpu_layers=draft_layers if self._devices else 0,
            batch_size=self._wishes.batch_size,
        )

    def _fits(self, found: MemoryEstimate) -> bool:
        beside = found.gpu.total if self._shared else 0
        return found.system.total + beside <= self._system_room and self._gpu_fits(found)

    def _gpu_fits(self, found: MemoryEstimate) -> bool:
        return not found.gpu.total or self._on_gpus(found) <= self._gpu_room

    def _on_gpus(self, found: MemoryEstimate) -> int:
        """Each GPU has compute buffers of its own."""
        return found.gpu.total + found.gpu.compute * max(len(self._devices) - 1, 0)

    # ------------------------------------------------------------ in words

    def reason(self, plan: Plan, wished: Plan | None) -> str:
        """Why ``plan``; ``wished`` is what came first and did not fit."""
        takes = self._takes_of(plan.estimate)
        given_up = self._given_up(plan)
        if given_up and wished is not None:
            return f"{given_up}: {self._numbers(wished)}."
        if not self._devices:
            return f"Runs on the processor: takes {takes}."
        slots = self._target.gpu_slots
        layers = slots if plan.target_gpu_layers < 0 else min(plan.target_gpu_layers, slots)
        if layers == slots:
            elsewhere = plan.with_draft and 0 <= plan.draft_gpu_layers < self._draft_slots
            return f"{'All of the target' if elsewhere else 'Everything'} fits on the GPU: takes {takes}."
        return f"{layers} of {slots} layers of the target fit on the GPU: takes {takes}."

    def refusal(self, plan: Plan) -> str:
        """One sentence with the numbers."""
        return f"{_sentence(self._numbers(plan))}."

    def _numbers(self, plan: Plan) -> str:
        if not takes_kv_type(self._target, plan.kv_type):
            return f"the KV cache of the target cannot be in {plan.kv_type}"
        if plan.with_draft and self._draft and not takes_kv_type(self._draft, plan.kv_type):
            return f"the KV cache of the draft cannot be in {plan.kv_type}"
        subject = "the pair" if plan.with_draft else "the target"
        found = plan.estimate
        if not self._gpu_fits(found):
            where, needs, room = " on the GPU", self._on_gpus(found), self._gpu_room
        else:
            where, needs, room = "", found.system.total + (found.gpu.total if self._shared else 0), self._system_room
        return f"{subject} needs {size_text(needs)}{where}, {size_text(room)} are free"

    def _takes_of(self, found: MemoryEstimate) -> str:
        if self._devices and not self._shared:
            on_gpu = f"{size_text(self._on_gpus(found))} of {size_text(self._gpu_room)}"
            return f"{on_gpu} there and {size_text(found.system.total)} of {size_text(self._system_room)} beside it"
        return f"{size_text(found.system.total + found.gpu.total)} of {size_text(self._system_room)}"

    def _given_up(self, plan: Plan) -> str:
        parts = []
        if self._wished.draft and not plan.with_draft:
            parts.append("without the draft")
        if plan.kv_type != self._wished.kv_type:
            parts.append(f"KV cache in {plan.kv_type} instead of {self._wished.kv_type}")
        if plan.context_length != self._wished.context:
            parts.append(f"context {plan.context_length:,} instead of {self._wished.context:,}")
        if self._wished.target_layers is not None and plan.target_gpu_layers != self._wished.target_layers:
            now, wished = map(_layers_text, (plan.target_gpu_layers, self._wished.target_layers))
            parts.append(f"{now} layers on the GPU instead of {wished}")
        return _sentence(", ".join(parts))

    # ------------------------------------------------------------ what would fit

    def alternatives(self) -> list[Plan]:
        wished = self._wished
        if self.placed(wished).fits:
            return []
        ways = self._without_one_thing()
        smallest = wished._replace(draft=False, kv_type="q8_0" if self._could_quantize() else wished.kv_type)
        plans = [plan for plan in map(self.placed, ways) if plan.fits]
        if not plans and smallest not in ways:
            plans = [plan for plan in [self.placed(smallest)] if plan.fits]
        if shorter := self._longest(wished):
            plans.append(shorter)
        if not plans and (last := self._longest(smallest._replace(target_layers=None))):
            plans = [last]
        return [
            msgspec.structs.replace(plan, sentence=f"{self._given_up(plan)}: {size_text(plan.needed)}")
            for plan in plans
        ]

    def _without_one_thing(self) -> list[_Ways]:
        """All that can be given up beside the length of the context."""
        wished = self._wished
        ways = [wished._replace(draft=False)] if wished.draft else []
        if self._could_quantize():
            ways.append(wished._replace(kv_type="q8_0"))
        if not self._takes(wished):
            ways.append(wished._replace(kv_type="f16"))
        if wished.target_layers is not None:
            ways.append(wished._replace(target_layers=None))
        return ways

    def _could_quantize(self) -> bool:
        return self._wished.kv_type == "f16" and self._takes(self._wished._replace(kv_type="q8_0"))

    def _longest(self, ways: _Ways) -> Plan | None:
        """With the longest context below that of ``ways`` that fits, a multiple of `LEAST_CONTEXT`."""
        low, high = 0, (ways.context - 1) // LEAST_CONTEXT
        while low < high:
            middle = (low + high + 1) // 2
            if self.placed(ways._replace(context=middle * LEAST_CONTEXT)).fits:
                low = middle
            else:
                high = middle - 1
        return self.placed(ways._replace(context=low * LEAST_CONTEXT)) if low else None
