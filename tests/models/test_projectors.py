"""Which projector a model sees with."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.gguf import read_header
from app.models.heads import find_projector, fits, projector_bytes
from app.models.model_memory import GpuSplit, PairMemory, shape_of
from tests.support.gguf_files import make_model
from tests.support.memory import estimate
from tests.support.vision_models import make_projector, make_seeing_model


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_seeing_model(tmp_path / "Tiny-VL-2B-Q8_0.gguf", "qwen2vl")


def found(target: Path) -> Path | None:
    projector = find_projector(read_header(target))
    return projector.path if projector else None


def test_only_what_fits_is_found(target: Path, tmp_path: Path) -> None:
    assert found(target) is None
    make_projector(tmp_path / "mmproj-wider.gguf", "qwen2vl", target_width=96)
    make_projector(tmp_path / "mmproj-gemma.gguf", "gemma3")
    make_model(tmp_path / "mmproj-of-a-model.gguf")
    (tmp_path / "mmproj-empty.gguf").write_bytes(b"")
    assert found(target) is None
    wanted = make_projector(tmp_path / "mmproj-F16.gguf", "qwen2vl")
    assert found(target) == wanted
    header = read_header(make_projector(tmp_path / "any.gguf", "llava"))  # for any family
    assert header.is_projector and header.projection == 64
    model = read_header(make_model(tmp_path / "model.gguf"))
    assert fits(model, header) and not fits(header, model)


def test_the_one_with_the_models_name_comes_first(target: Path, tmp_path: Path) -> None:
    names = ("mmproj-Other-7B-F16.gguf", "Tiny-VL-2B-mmproj-Q8_0.gguf", "mmproj-Tiny-VL-7B-F16.gguf")
    made = [make_projector(tmp_path / name, "qwen2vl") for name in names]
    assert found(target) == made[1]


def test_it_is_part_of_the_memory_plan(target: Path, tmp_path: Path) -> None:
    needed = projector_bytes(read_header(make_projector(tmp_path / "mmproj.gguf", "qwen2vl")))
    assert needed > read_header(tmp_path / "mmproj.gguf").tensor_bytes
    shape = shape_of(read_header(target))
    blind = estimate(shape, context_length=512)
    seeing = estimate(shape, context_length=512, projector_bytes=needed)
    assert seeing.system.total - blind.system.total == seeing.system.projector == needed
    on_gpu = estimate(shape, context_length=512, projector_bytes=needed, target_gpu_layers=-1)
    assert (on_gpu.gpu.projector, on_gpu.system.projector) == (needed, 0)


def test_it_is_on_the_first_gpu_that_the_target_is_on(target: Path) -> None:
    needed = 1 << 29
    memory = PairMemory(shape_of(read_header(target)), context_length=512, projector_bytes=needed, target_gpu_layers=-1)
    free = (1 << 30, 1 << 30)
    for shares, on in (((), 0), ((1.0, 1.0), 0), ((0.0, 1.0), 1)):
        assert [parts.projector for parts in memory.estimate(GpuSplit(free, free, shares)).gpus].index(needed) == on
    # Chosen shares have room for it where it goes.
    assert memory.shares_within(GpuSplit(free, free), free)[0] == 0.0
    assert memory.shares_within(GpuSplit(free, free), (free[0], needed // 2))[0] > 0.0
