"""Two GPUs: the text is that of the processor however a pair is spread over them, and each takes what the plan says.

``make gpu-test`` runs these on two devices made of software, the same one twice.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from llama_cpp import mtmd_cpp

from app.engine.host.contexts import _affordable_snapshots
from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.engine.llama.context import Context
from app.engine.llama.head import Head
from app.engine.llama.model import Model
from app.engine.llama.placement import Placement
from app.models.gguf import read_header
from app.models.gpu_split import GpuSplit
from app.models.memory_estimate import MemoryEstimate, estimate, shape_of
from app.protocol.commands import Load, Message
from app.protocol.devices import Device
from app.protocol.events import PairLoaded
from app.protocol.limits import DRAFT_OUTPUTS
from app.protocol.options import LoadSettings, Sampling
from tests.support.architectures import Architecture, make
from tests.support.expert_models import make_expert_model
from tests.support.generation import GREEDY, ask, assert_same, assert_sums_close, run
from tests.support.gguf_files import make_model
from tests.support.mtp_models import ARCHITECTURES, HeadArchitecture, make_table_model
from tests.support.vision_models import make_image, make_projector, make_seeing_model

Loading = Callable[..., PairLoaded]
Sizes = dict[str, float]
MIB = 1024 * 1024
LENGTH = 2048
SMALL: dict[str, Any] = {"context_length": 256, "micro_batch_size": 32, "threads": 1}
WIDE: dict[str, Any] = {"width": 512, "heads": 8, "kv_heads": 4, "feed_forward": 1536, "vocab_size": 4096}


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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("shares", [(1.0, 1.0), (1.0, 3.0)])
def test_an_mtp_head_keeps_in_step(
    engine: Engine, tmp_path: Path, architecture: HeadArchitecture, shares: tuple[float, ...]
) -> None:
    """The head is with the output; what it gets from the layers before is on the other GPU."""
    target = make_table_model(tmp_path / "target.gguf", architecture)
    load = Load(request=1, target=str(target), head="on", settings=LoadSettings(tensor_split=shares, **SMALL))
    pair = engine.load(load, lambda _: None)
    assert pair.has_head, pair.head_refused
    answer = run(engine, ask("x", sampling=GREEDY, max_tokens=16, drafter="mtp", draft_length=3))
    draft = answer.finished.figures.draft
    assert draft.tested and draft.accepted == draft.tested
    assert run(engine, ask("x", sampling=GREEDY, max_tokens=16, draft_length=0)).token_ids == answer.token_ids


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


def _llama(path: Path, **options: Any) -> Path:
    return make_model(path, **{**WIDE, "layers": 8, "context_length": 4096, **options})


def _hybrid(path: Path) -> Path:
    return make(path, "qwen35", **{**WIDE, "vocab_size": 512, "kv_heads": 2}, layers=8, weights="F16")


def _with_head(path: Path) -> Path:
    return make_table_model(path, "glm4moe", width=768, heads=8, kv_heads=4, layers=5, feed_forward=1536, weights="F16")


def _experts(path: Path) -> Path:
    return make_expert_model(path, **{**WIDE, "layers": 6, "context_length": 4096, "weights": "F16"})


@dataclass(frozen=True)
class Case:
    make: Callable[[Path], Path] = _llama
    shares: Sequence[float] = ()
    layers: int = -1
    draft_gpu: int | None = None
    with_draft: bool = False
    with_head: bool = False
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "halves": Case(),
    "a quarter and the rest": Case(shares=(1.0, 3.0)),
    "all on the second": Case(shares=(0.0, 1.0)),
    "part": Case(shares=(1.0, 1.0), layers=7),
    "with draft": Case(with_draft=True),
    "draft on the first": Case(shares=(0.0, 1.0), with_draft=True, draft_gpu=0),
    "hybrid": Case(_hybrid),
    "head": Case(_with_head, with_head=True),
    "experts": Case(_experts),
    "some experts on the CPU": Case(_experts, options={"expert_layers_on_cpu": 3}),
}


def allocated(case: Case, path: Path, draft: Path | None, gpus: list[Device], buffers: Sizes) -> list[float]:
    """MiB that llama.cpp has allocated on each GPU when this is loaded as the engine does it."""
    settings = LoadSettings()
    placement = Placement(tensor_split=tuple(case.shares), **case.options)
    own = placement if case.draft_gpu is None else Placement(gpus[case.draft_gpu].name, "none")
    with contextlib.ExitStack() as freed:
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
            second = Model(draft, -1, lambda _: True, placement=own)
            freed.callback(second.close)
            freed.callback(Context(second, settings, length=LENGTH, threads=1, outputs=DRAFT_OUTPUTS).close)
        return [sum(size for name, size in buffers.items() if name.startswith(gpu.name)) for gpu in gpus]


def planned(case: Case, path: Path, draft: Path | None, gpus: list[Device]) -> MemoryEstimate:
    target = shape_of(read_header(path))
    return estimate(
        target,
        shape_of(read_header(draft)) if draft else None,
        gpus=GpuSplit(
            tuple(gpu.free_bytes for gpu in gpus),
            tuple(gpu.total_bytes for gpu in gpus),
            tuple(case.shares),
            draft_gpu=case.draft_gpu,
        ),
        head=target if case.with_head else None,
        context_length=LENGTH,
        target_gpu_layers=case.layers,
        draft_gpu_layers=-1,
        **case.options,
    )


@pytest.mark.parametrize("name", CASES)
def test_each_gpu_takes_what_the_plan_says(name: str, tmp_path: Path, gpus: list[Device], buffers: Sizes) -> None:
    case = CASES[name]
    path = case.make(tmp_path / "target.gguf")
    draft = _llama(tmp_path / "draft.gguf", layers=6, width=256) if case.with_draft else None
    plan = [parts.total / MIB for parts in planned(case, path, draft, gpus).gpus]
    real = allocated(case, path, draft, gpus, buffers)
    for gpu, counted, taken in zip(gpus, plan, real, strict=True):
        print(f"| {name} | {gpu.name} | {counted:.1f} | {taken:.1f} | {buffers} |")  # noqa: T201 - docs/gpu.md
    for counted, taken in zip(plan, real, strict=True):
        assert 0.98 * taken <= counted <= 1.1 * taken + 2.0
