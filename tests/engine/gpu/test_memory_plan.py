"""The plan's estimate for a GPU against the buffers that llama.cpp allocates there: it is at most a tenth more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.engine.host.contexts import _affordable_snapshots
from app.engine.llama.context import Context
from app.engine.llama.head import Head
from app.engine.llama.model import Model
from app.engine.llama.placement import Placement
from app.models.gguf import read_header
from app.models.memory_estimate import estimate, shape_of
from app.protocol.devices import Device
from app.protocol.limits import DRAFT_OUTPUTS, KvType
from app.protocol.options import LoadSettings
from tests.support.architectures import make
from tests.support.expert_models import make_expert_model
from tests.support.gguf_files import make_model
from tests.support.mtp_models import make_table_model

MIB = 1024 * 1024
LENGTH = 2048
Sizes = dict[str, float]
WIDE: dict[str, Any] = {"width": 512, "heads": 8, "kv_heads": 4, "feed_forward": 1536, "vocab_size": 4096}


def _llama(path: Path, **options: Any) -> Path:
    return make_model(path, **{**WIDE, "layers": 8, "context_length": 4096, **options})


def _hybrid(path: Path) -> Path:
    return make(path, "qwen35", **{**WIDE, "vocab_size": 512, "kv_heads": 2}, layers=8, weights="F16")


def _with_head(path: Path) -> Path:
    return make_table_model(path, "glm4moe", width=768, heads=8, kv_heads=4, layers=5, feed_forward=1536, weights="F16")


def _hybrid_with_head(path: Path) -> Path:
    return make_table_model(path, "qwen35", width=768, heads=8, kv_heads=2, layers=5, feed_forward=1536, weights="F16")


def _experts(path: Path, **options: Any) -> Path:
    return make_expert_model(path, **{**WIDE, "layers": 6, "context_length": 4096, "weights": "F16", **options})


def _many_experts(path: Path) -> Path:
    """What they return is the widest point."""
    return _experts(path, experts=32, used=8, feed_forward=160)


@dataclass(frozen=True)
class Case:
    make: Callable[[Path], Path]
    layers: int = -1
    kv_type: KvType = "f16"
    with_draft: bool = False
    with_head: bool = False
    experts_apart: int = 0
    batch: int = 512


CASES = {
    "everything": Case(_llama),
    "part": Case(_llama, layers=4),
    "output alone": Case(_llama, layers=1),
    "output alone, small batches": Case(_llama, layers=1, batch=64),
    "q8_0 cache": Case(_llama, kv_type="q8_0"),
    "small batches": Case(_llama, batch=64),
    "with draft": Case(_llama, with_draft=True),
    "hybrid": Case(_hybrid),
    "part of a hybrid": Case(_hybrid, layers=4),
    "head": Case(_with_head, with_head=True),
    "hybrid with head": Case(_hybrid_with_head, with_head=True),
    "experts on the GPU": Case(_experts),
    "some experts on the CPU": Case(_experts, experts_apart=3),
    "all experts on the CPU": Case(_experts, experts_apart=6),
    "part of a mixture": Case(_experts, layers=3),
    "many experts on the GPU": Case(_many_experts),
    "many experts on the CPU": Case(_many_experts, experts_apart=6),
}


def allocated(case: Case, path: Path, draft: Path | None, gpu: Device, buffers: Sizes) -> dict[str, float]:
    """MiB that llama.cpp has allocated on ``gpu``, by purpose, when this is loaded as the engine does it."""
    settings = LoadSettings(kv_type=case.kv_type, micro_batch_size=case.batch)
    with contextlib.ExitStack() as freed:
        placement = Placement(expert_layers_on_cpu=case.experts_apart)
        model = Model(path, case.layers, lambda _: True, with_head=case.with_head, placement=placement)
        freed.callback(model.close)
        snapshots = _affordable_snapshots(model, settings, 1, has_head=case.with_head)
        for name in [name for name in buffers if not name.endswith("model")]:
            del buffers[name]  # of a context that was asked for these, and is gone
        context = Context(model, settings, length=LENGTH, threads=1, snapshots=snapshots)
        freed.callback(context.close)
        if case.with_head:
            freed.callback(Head(context, model, settings).close)
        if draft:
            second = Model(draft, -1, lambda _: True)
            freed.callback(second.close)
            freed.callback(Context(second, settings, length=LENGTH, threads=1, outputs=DRAFT_OUTPUTS).close)
        return {name.removeprefix(f"{gpu.name} "): size for name, size in buffers.items() if name.startswith(gpu.name)}


def planned(case: Case, path: Path, draft: Path | None) -> float:
    """MiB on the GPU."""
    target = shape_of(read_header(path))
    found = estimate(
        target,
        shape_of(read_header(draft)) if draft else None,
        head=target if case.with_head else None,
        context_length=LENGTH,
        kv_type=case.kv_type,
        target_gpu_layers=case.layers,
        draft_gpu_layers=-1,
        expert_layers_on_cpu=case.experts_apart,
        batch_size=case.batch,
    )
    return found.gpu.total / MIB


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_what_is_allocated(name: str, tmp_path: Path, gpu: Device, buffers: Sizes) -> None:
    case = CASES[name]
    path = case.make(tmp_path / "target.gguf")
    draft = _llama(tmp_path / "draft.gguf", layers=2, width=256) if case.with_draft else None
    real = allocated(case, path, draft, gpu, buffers)
    plan = planned(case, path, draft)
    total = sum(real.values())
    print(f"| {name} | {plan:.1f} | {total:.1f} | {plan / total - 1:+.1%} | {real}")  # noqa: T201 - docs/gpu.md
    # The copy of a layer's KV cache may find room among buffers that are free by then.
    layers = shape_of(read_header(path)).layers if case.layers > 0 else []
    copied = max((LENGTH * 2 * (layer.keys + layer.values) / MIB for layer in layers), default=0.0)
    assert 0.98 * total <= plan <= 1.1 * total + copied
