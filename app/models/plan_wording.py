"""Why a plan is as it is, or does not fit, in one sentence with the numbers."""

from __future__ import annotations

from app.models.load_plan import LoadPlan, Options
from app.models.memory_estimate import MemoryEstimate, ModelShape, takes_kv_type
from app.models.memory_limits import MemoryLimits
from app.models.text import size_text
from app.protocol.limits import ALL_LAYERS


class PlanWording:
    """About plans for one pair on one machine."""

    def __init__(self, target: ModelShape, draft: ModelShape | None, limits: MemoryLimits, wished: Options) -> None:
        self._target = target
        self._draft = draft
        self._limits = limits
        self._wished = wished

    def reason(self, plan: LoadPlan, wished: LoadPlan | None) -> str:
        """Why ``plan``; ``wished`` is what came first and did not fit."""
        takes = self._takes(plan.estimate)
        given_up = self.given_up(plan)
        if given_up and wished is not None:
            return f"{given_up}: {self._numbers(wished)}."
        if not self._limits.gpus:
            return f"Runs on the processor: takes {takes}."
        slots = self._target.gpu_slots
        layers = slots if plan.target_gpu_layers < 0 else min(plan.target_gpu_layers, slots)
        if layers == slots:
            elsewhere = plan.with_draft and 0 <= plan.draft_gpu_layers < (self._draft.gpu_slots if self._draft else 0)
            return f"{'All of the target' if elsewhere else 'Everything'} fits on the GPU: takes {takes}."
        return f"{layers} of {slots} layers of the target fit on the GPU: takes {takes}."

    def refusal(self, plan: LoadPlan) -> str:
        """One sentence with the numbers."""
        return f"{_sentence(self._numbers(plan))}."

    def _numbers(self, plan: LoadPlan) -> str:
        if not takes_kv_type(self._target, plan.kv_type):
            return f"the KV cache of the target cannot be in {plan.kv_type}"
        if plan.with_draft and self._draft and not takes_kv_type(self._draft, plan.kv_type):
            return f"the KV cache of the draft cannot be in {plan.kv_type}"
        subject = "the pair" if plan.with_draft else "the target"
        found = plan.estimate
        if not self._limits.fit_gpus(found):
            where, needs, free = " on the GPU", self._limits.on_gpus(found), self._limits.gpu_bytes
        else:
            where, needs, free = "", self._limits.in_system(found), self._limits.system_bytes
        return f"{subject} needs {size_text(needs)}{where}, {size_text(free)} are free"

    def _takes(self, found: MemoryEstimate) -> str:
        limits = self._limits
        if limits.gpus and not limits.is_shared:
            on_gpu = f"{size_text(limits.on_gpus(found))} of {size_text(limits.gpu_bytes)}"
            return f"{on_gpu} there and {size_text(found.system.total)} of {size_text(limits.system_bytes)} beside it"
        return f"{size_text(found.system.total + found.gpu.total)} of {size_text(limits.system_bytes)}"

    def given_up(self, plan: LoadPlan) -> str:
        """What is other than wished for; empty where nothing is."""
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


def _layers_text(layers: int) -> str:
    return "all" if layers == ALL_LAYERS else str(layers)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
