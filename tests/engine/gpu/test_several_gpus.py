"""Two GPUs: the text is that of the processor however a pair is spread over them, and each takes what the plan says.

``make gpu-test`` runs these on two devices made of software, the same one twice.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from llama_cpp import mtmd_cpp

from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.protocol.commands import Load, Message
from app.protocol.events import Device, PairLoaded
from app.protocol.options import LoadSettings, Sampling
from tests.support import gpu_memory
from tests.support.architectures import Architecture, make
from tests.support.generation import GREEDY, ask, assert_same, assert_sums_close, run
from tests.support.gguf_files import make_model
from tests.support.gpu_memory import MIB, Case, allocated, planned
from tests.support.vision_models import make_image, make_projector, make_seeing_model

Loading = Callable[..., PairLoaded]
SMALL: dict[str, Any] = {"context_length": 256, "micro_batch_size": 32, "threads": 1}


@pytest.fixture(autouse=True)
def gpus(gpu: Device) -> list[Device]:
    """The two that everything is spread over."""
    found = backend.devices()
    if len(found) < 2:
        if "," in os.environ.get("GGML_VK_VISIBLE_DEVICES", ""):
            pytest.fail("llama.cpp finds no second GPU")
        pytest.skip("one GPU; make gpu-test makes two of software")
    return found[:2]


def spreads(first: str, second: str) -> dict[str, dict[str, Any]]:
    """Ways to spread a pair over two GPUs: options of `LoadSettings`."""
    return {
        "by free memory": {},
        "shares": {"tensor_split": (1.0, 3.0)},
        "all on the second": {"tensor_split": (0.0, 1.0)},
        "only the second": {"split_mode": "none", "main_gpu": second},
        "the draft on the second": {"split_mode": "none", "main_gpu": first, "draft_device": second},
        "the draft on the first": {"draft_device": first},
        "in part": {"target_gpu_layers": 3, "draft_gpu_layers": 1},
    }


SPREADS = tuple(spreads("", ""))


# ---------------------------------------------------------------- the text


@pytest.fixture
def processors_text(engine: Engine, load: Loading) -> Callable[..., Any]:
    """An answer of the processor alone."""

    def answer(target: Path, **options: Any) -> Any:
        load(target, target_gpu_layers=0, draft_gpu_layers=0, **SMALL)
        return run(engine, ask("x", draft_length=0, drafter="none", **options))

    return answer


@pytest.mark.parametrize("spread", SPREADS)
def test_the_text_is_that_of_the_processor(
    engine: Engine,
    load: Loading,
    tmp_path: Path,
    gpus: list[Device],
    processors_text: Callable[..., Any],
    spread: str,
) -> None:
    target = make_model(tmp_path / "target.gguf", layers=4, weights="F32")
    draft = make_model(tmp_path / "draft.gguf", layers=4, weights="F32", noise=0.07)
    for sampling in (GREEDY, Sampling(temperature=0.8)):
        options: dict[str, Any] = {"sampling": sampling, "max_tokens": 16}
        expected = processors_text(target, **options)
        pair = load(target, draft, **SMALL, **spreads(gpus[0].name, gpus[1].name)[spread])
        assert pair.draft_refused is None
        command = ask("x", **options, draft_length=3)
        drafted = run(engine, command)
        assert_same(engine, command, drafted, expected)
        assert_sums_close(drafted)
        assert drafted.finished.figures.draft.accepted


@pytest.mark.parametrize("architecture", ["qwen35", "gemma3"])
def test_what_is_rolled_back(
    engine: Engine, load: Loading, tmp_path: Path, processors_text: Callable[..., Any], architecture: Architecture
) -> None:
    """A running state, and sliding windows, on both GPUs; a chat that was away is there again."""
    target = make(tmp_path / "target.gguf", architecture, weights="F32")
    draft = make(tmp_path / "draft.gguf", "llama", weights="F32", noise=0.07)
    expected = processors_text(target, sampling=GREEDY, max_tokens=16)
    load(target, draft, tensor_split=(1.0, 1.0), chat_cache_mib=64, **SMALL)
    command = ask("x", sampling=GREEDY, max_tokens=16, draft_length=3)
    for _ in range(2):
        assert_same(engine, command, run(engine, command), expected)
        run(engine, ask("another chat", sampling=GREEDY, max_tokens=8, draft_length=3))


@pytest.fixture
def projector_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What libmtmd says."""
    lines: list[str] = []

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def note(_level: int, text: bytes, _data: object) -> None:
        lines.append(text.decode("utf-8", "replace").strip())

    usual = backend.on_log
    monkeypatch.setattr(backend, "on_log", note)
    yield lines
    mtmd_cpp.mtmd_helper_log_set(usual, ctypes.c_void_p(0))


def test_a_projector_is_on_the_gpu_that_was_chosen(
    engine: Engine, tmp_path: Path, gpus: list[Device], projector_log: list[str]
) -> None:
    target = make_seeing_model(tmp_path / "target.gguf", "llava")
    projector = make_projector(tmp_path / "mmproj.gguf", "llava")
    image = Message(role="user", content="Look.", images=(make_image(tmp_path / "a.png"),))
    for gpu in gpus:
        projector_log.clear()
        settings = LoadSettings(split_mode="none", main_gpu=gpu.name, **SMALL)
        load = Load(request=1, target=str(target), projector=str(projector), settings=settings)
        assert engine.load(load, lambda _: None).projector_refused is None
        assert f"clip_ctx: CLIP using {gpu.name} backend" in projector_log
        assert run(engine, ask("", messages=[image], sampling=GREEDY, max_tokens=4)).token_ids


# ---------------------------------------------------------------- the plan

CASES = {
    "by free memory": Case(),
    "a quarter and the rest": Case(shares=(1.0, 3.0)),
    "all on the second": Case(shares=(0.0, 1.0)),
    "part": Case(shares=(1.0, 1.0), layers=7),
    "with draft": Case(draft_layers=6),
    "draft on the first": Case(shares=(0.0, 1.0), draft_layers=6, draft_gpu=0),
    "hybrid": Case(gpu_memory.hybrid),
    "head": Case(gpu_memory.with_head, with_head=True),
    "experts": Case(gpu_memory.experts),
    "some experts on the CPU": Case(gpu_memory.experts, experts_apart=3),
}


@pytest.mark.parametrize("name", CASES)
def test_each_gpu_takes_what_the_plan_says(
    name: str, tmp_path: Path, gpus: list[Device], buffers: dict[str, float]
) -> None:
    case = CASES[name]
    target, draft = case.files(tmp_path)
    plan = [parts.total / MIB for parts in planned(case, target, draft, gpus).gpus]
    real = [sum(each.values()) for each in allocated(case, target, draft, gpus, buffers)]
    for gpu, counted, taken in zip(gpus, plan, real, strict=True):
        print(f"| {name} | {gpu.name} | {counted:.1f} | {taken:.1f} |")  # noqa: T201 - benchmarks/notes/gpu.md
        assert 0.98 * taken <= counted <= 1.1 * taken + 2.0
