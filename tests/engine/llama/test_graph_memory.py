"""The estimate of llama.cpp's compute buffer on the CPU against what llama.cpp allocates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.engine.llama.context import Context
from app.engine.llama.model import ON_THE_CPU, Model
from app.models.gguf import read_header
from app.models.model_memory import ModelMemory, shape_of
from app.protocol.options import TARGET_OUTPUTS, LoadSettings
from tests.support.architectures import make
from tests.support.expert_models import make_expert_model
from tests.support.gguf_files import make_model

LENGTH, BATCH = 1024, 128
SIZES: dict[str, Any] = {"width": 256, "heads": 4, "kv_heads": 2, "layers": 2, "vocab_size": 512, "weights": "F16"}


def _llama(path: Path, **options: Any) -> Path:
    return make_model(path, **{**SIZES, "context_length": LENGTH, **options})


def _experts(path: Path, **options: Any) -> Path:
    return make_expert_model(path, **{**SIZES, "context_length": LENGTH, **options})


def _other(path: Path, architecture: Any) -> Path:
    sizes = {name: value for name, value in SIZES.items() if name != "vocab_size"}
    return make(path, architecture, **{**sizes, "layers": 4, "feed_forward": 768})


CASES: dict[str, Callable[[Path], Path]] = {
    "llama, feed-forward 4 widths": lambda path: _llama(path, feed_forward=1024),
    "llama, feed-forward 2.75 widths": lambda path: _llama(path, feed_forward=704),
    "2 of 4 experts": lambda path: _experts(path, feed_forward=512),
    "4 of 8 narrow experts": lambda path: _experts(path, experts=8, used=4, feed_forward=192),
    "8 of 16 narrow experts": lambda path: _experts(path, experts=16, used=8, feed_forward=96),
    **{name: lambda path, name=name: _other(path, name) for name in ("qwen35", "lfm2", "gemma3", "deepseek2")},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", CASES)
def test_the_estimate_is_what_is_allocated(name: str, tmp_path: Path, buffers: dict[str, float]) -> None:
    path = CASES[name](tmp_path / "model.gguf")
    model = Model(path, 0, lambda _: True, placement=ON_THE_CPU)
    context = Context(model, LoadSettings(micro_batch_size=BATCH), length=LENGTH, threads=1, snapshots=0)
    context.close()
    model.close()
    memory = ModelMemory(shape_of(read_header(path)), LENGTH, BATCH, "f16", TARGET_OUTPUTS, gpu_layers=0)
    estimated = memory._graph() / 1024**2
    assert 0.97 * buffers["CPU compute"] <= estimated <= 1.1 * buffers["CPU compute"]
