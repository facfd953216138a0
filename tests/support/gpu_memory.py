"""What llama.cpp allocates on GPUs for a pair, as the engine loads it, and what the memory plan says of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.engine.host.loading import _affordable_snapshots
from app.engine.llama.context import Context
from app.engine.llama.head import Head
from app.engine.llama.model import Model, Placement
from app.models.gguf import read_header
from app.models.model_memory import GpuSplit, MemoryEstimate, shape_of
from app.protocol.events import Device
from app.protocol.options import DRAFT_OUTPUTS, KvType, LoadSettings
from tests.support.architectures import make
from tests.support.expert_models import make_expert_model
from tests.support.gguf_files import make_model
from tests.support.memory import estimate
from tests.support.mtp_models import make_table_model

MIB = 1024 * 1024
LENGTH = 2048
_WIDE: dict[str, Any] = {"width": 512, "heads": 8, "kv_heads": 4, "feed_forward": 1536, "vocab_size": 4096}


def llama(path: Path, **options: Any) -> Path:
    return make_model(path, **{**_WIDE, "layers": 8, "context_length": 4096, **options})


def hybrid(path: Path) -> Path:
    return make(path, "qwen35", **{**_WIDE, "vocab_size": 512, "kv_heads": 2}, layers=8, weights="F16")


def without_flash_attention(path: Path) -> Path:
    """Where attention is the last layer on the CPU."""
    return make(path, "lfm2", **{**_WIDE, "vocab_size": 512}, layers=6, weights="F16")


def with_head(path: Path) -> Path:
    return make_table_model(path, "glm4moe", width=768, heads=8, kv_heads=4, layers=5, feed_forward=1536, weights="F16")


def hybrid_with_head(path: Path) -> Path:
    return make_table_model(path, "qwen35", width=768, heads=8, kv_heads=2, layers=5, feed_forward=1536, weights="F16")


def experts(path: Path, **options: Any) -> Path:
    return make_expert_model(path, **{**_WIDE, "layers": 6, "context_length": 4096, "weights": "F16", **options})


def many_experts(path: Path) -> Path:
    """What they return is the widest point."""
    return experts(path, experts=32, used=8, feed_forward=160)


@dataclass(frozen=True)
class Case:
    """A pair, and how it is loaded."""

    make: Callable[[Path], Path] = llama
    layers: int = -1
    kv_type: KvType = "f16"
    draft_layers: int = 0
    """0: there is no draft model."""
    with_head: bool = False
    experts_apart: int = 0
    batch: int = 512
    shares: Sequence[float] = ()
    """Of each GPU."""
    draft_gpu: int | None = None

    def files(self, folder: Path) -> tuple[Path, Path | None]:
        """Target and draft, made in ``folder``."""
        draft = llama(folder / "draft.gguf", layers=self.draft_layers, width=256) if self.draft_layers else None
        return self.make(folder / "target.gguf"), draft


def allocated(
    case: Case, target: Path, draft: Path | None, gpus: Sequence[Device], buffers: dict[str, float]
) -> list[dict[str, float]]:
    """MiB that llama.cpp has allocated on each GPU, by purpose; ``buffers`` is the fixture of that name."""
    settings = LoadSettings(kv_type=case.kv_type, micro_batch_size=case.batch)
    placement = Placement(tensor_split=tuple(case.shares), expert_layers_on_cpu=case.experts_apart)
    own = Placement(tensor_split=placement.tensor_split)
    if case.draft_gpu is not None:
        own = Placement(gpus[case.draft_gpu].name, "none")
    with contextlib.ExitStack() as freed:
        model = Model(target, case.layers, lambda _: True, with_head=case.with_head, placement=placement)
        freed.callback(model.close)
        snapshots = _affordable_snapshots(model, settings, 1, has_head=case.with_head)
        for name in [name for name in buffers if not name.endswith("model")]:
            del buffers[name]  # of a context that was asked for these, and is gone
        context = Context(model, settings, length=LENGTH, threads=1, snapshots=snapshots)
        freed.callback(context.close)
        if case.with_head:
            freed.callback(Head(context, model, settings).close)
        if draft:
            second = Model(draft, -1, lambda _: True, placement=own)
            freed.callback(second.close)
            freed.callback(Context(second, settings, length=LENGTH, threads=1, outputs=DRAFT_OUTPUTS).close)
        return [
            {name.removeprefix(f"{gpu.name} "): size for name, size in buffers.items() if name.startswith(gpu.name)}
            for gpu in gpus
        ]


def planned(case: Case, target: Path, draft: Path | None, gpus: Sequence[Device]) -> MemoryEstimate:
    """The memory plan's estimate."""
    shape = shape_of(read_header(target))
    return estimate(
        shape,
        shape_of(read_header(draft)) if draft else None,
        gpus=GpuSplit(
            tuple(gpu.free_bytes for gpu in gpus),
            tuple(gpu.total_bytes for gpu in gpus),
            tuple(case.shares),
            draft_gpu=case.draft_gpu,
        ),
        head=shape if case.with_head else None,
        context_length=LENGTH,
        kv_type=case.kv_type,
        target_gpu_layers=case.layers,
        draft_gpu_layers=-1,
        expert_layers_on_cpu=case.experts_apart,
        batch_size=case.batch,
    )
