"""The plan's estimate for a GPU against the buffers that llama.cpp allocates there: it is at most a tenth more."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.gguf import read_header
from app.models.model_memory import shape_of
from app.protocol.events import Device
from tests.support import gpu_memory
from tests.support.gpu_memory import LENGTH, MIB, Case, allocated, planned

CASES = {
    "everything": Case(),
    "part": Case(layers=4),
    "output alone": Case(layers=1),
    "output alone, small batches": Case(layers=1, batch=64),
    "q8_0 cache": Case(kv_type="q8_0"),
    "small batches": Case(batch=64),
    "with draft": Case(draft_layers=2),
    "hybrid": Case(gpu_memory.hybrid),
    "part of a hybrid": Case(gpu_memory.hybrid, layers=4),
    "part of a hybrid, without flash attention": Case(gpu_memory.without_flash_attention, layers=3),
    "head": Case(gpu_memory.with_head, with_head=True),
    "hybrid with head": Case(gpu_memory.hybrid_with_head, with_head=True),
    "experts on the GPU": Case(gpu_memory.experts),
    "some experts on the CPU": Case(gpu_memory.experts, experts_apart=3),
    "all experts on the CPU": Case(gpu_memory.experts, experts_apart=6),
    "part of a mixture": Case(gpu_memory.experts, layers=3),
    "many experts on the GPU": Case(gpu_memory.many_experts),
    "many experts on the CPU": Case(gpu_memory.many_experts, experts_apart=6),
}


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_what_is_allocated(name: str, tmp_path: Path, gpu: Device, buffers: dict[str, float]) -> None:
    case = CASES[name]
    target, draft = case.files(tmp_path)
    (real,) = allocated(case, target, draft, [gpu], buffers)
    plan = planned(case, target, draft, [gpu]).gpu.total / MIB
    total = sum(real.values())
    print(f"| {name} | {plan:.1f} | {total:.1f} | {plan / total - 1:+.1%} | {real}")  # noqa: T201 - benchmarks/notes/gpu.md
    # The copy of a layer's KV cache may find room among buffers that are free by then.
    layers = shape_of(read_header(target)).layers if case.layers > 0 else []
    copied = max((LENGTH * 2 * (layer.keys + layer.values) / MIB for layer in layers), default=0.0)
    assert 0.98 * total <= plan <= 1.1 * total + copied
