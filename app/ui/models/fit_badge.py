"""Whether a model fits this machine, in one or two words with a color."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.models.machine_memory import MachineMemory
from app.models.memory_shape import ModelShape
from app.models.planner import make_plan
from app.models.text import size_text


@dataclass(frozen=True)
class FitBadge:
    """``text`` for a column, ``detail`` for its tooltip."""

    text: str
    mood: Literal["quiet", "good", "warning", "bad"] = "quiet"
    detail: str = ""


UNKNOWN_FIT = FitBadge("–", detail="Not known yet.")


def badge_for(shape: ModelShape, machine: MachineMemory) -> FitBadge:
    """From its header, for the model alone."""
    plan = make_plan(shape, None, machine)
    if not plan.fits:
        return FitBadge("Too large", "bad", plan.sentence)
    if plan.context_length < shape.default_context:
        return FitBadge("Short context", "warning", plan.sentence)
    if not machine.devices:
        return FitBadge("Runs on CPU", "good", plan.sentence)
    if plan.target_gpu_layers < 0 or plan.target_gpu_layers >= shape.gpu_slots:
        return FitBadge("Runs on GPU", "good", plan.sentence)
    return FitBadge("Partly on GPU" if plan.target_gpu_layers else "Runs on CPU", "warning", plan.sentence)


def badge_for_size(needed: int, machine: MachineMemory) -> FitBadge:
    """From ``needed`` bytes, before a header is known."""
    gpu = sum(device.free_bytes for device in machine.devices)
    about = f"Needs about {size_text(needed)}"
    if gpu and needed <= gpu:
        return FitBadge("Runs on GPU", "good", f"{about}; the GPU has {size_text(gpu)} free.")
    if needed <= machine.memory_free:
        detail = f"{about}; {size_text(machine.memory_free)} of memory is free."
        return FitBadge("Partly on GPU", "warning", detail) if gpu else FitBadge("Runs on CPU", "good", detail)
    if needed <= gpu + machine.memory_free:
        return FitBadge("Partly on GPU", "warning", f"{about}, which is more than the GPU has free.")
    return FitBadge("Too large", "bad", f"{about}, but only {size_text(max(gpu, machine.memory_free))} is free.")
