"""Target, draft and MTP head on a GPU, whole and in part: the text is that without a draft, and that of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.engine.host.engine import Engine
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.models.gguf import read_header
from app.models.machine_memory import MachineMemory
from app.models.memory_shape import shape_of
from app.models.planner import LoadPlan, Wishes, make_plan
from app.protocol.commands import Load
from app.protocol.events import Device, PairLoaded
from app.protocol.options import LoadSettings, Sampling
from app.system import KnownError
from tests.support.architectures import Architecture, make
from tests.support.eagle3_models import TargetArchitecture, make_table_pair
from tests.support.generation import GREEDY, ask, assert_same, assert_sums_close, run
from tests.support.mtp_models import ARCHITECTURES, HeadArchitecture, make_table_model

Loading = Callable[..., PairLoaded]
Sizes = dict[str, float]
ALL, NONE, SOME = -1, 0, 1
"""Layers on the GPU; of one, it is the output."""
SMALL = {"context_length": 256, "micro_batch_size": 32, "threads": 1}


def on(device: Device, sizes: Sizes) -> dict[str, float]:
    """What of ``sizes`` is on ``device``, by purpose."""
    return {name.removeprefix(f"{device.name} "): size for name, size in sizes.items() if name.startswith(device.name)}


@pytest.mark.parametrize("layers", [(ALL, ALL), (SOME, ALL), (ALL, NONE), (NONE, ALL), (2, SOME)])
def test_the_text_is_the_same_with_and_without_a_draft(
    engine: Engine, load: Loading, random_pair: tuple[Path, Path], layers: tuple[int, int]
) -> None:
    pair = load(*random_pair, target_gpu_layers=layers[0], draft_gpu_layers=layers[1], **SMALL)
    assert pair.draft is not None and pair.draft_refused is None
    assert pair.target.gpu_layers == (2 if layers[0] == ALL else layers[0])
    for sampling in (GREEDY, Sampling(temperature=0.8)):
        command = ask("x", sampling=sampling, max_tokens=16, draft_length=3)
        plain, drafted = run(engine, ask("x", sampling=sampling, max_tokens=16, draft_length=0)), run(engine, command)
        assert_same(engine, command, drafted, plain)
        assert_sums_close(drafted)
        assert drafted.finished.figures.draft.accepted


def test_the_text_is_that_of_the_processor(engine: Engine, load: Loading, random_pair: tuple[Path, Path]) -> None:
    command = ask("x", sampling=GREEDY, max_tokens=24, draft_length=0)
    load(random_pair[0], target_gpu_layers=NONE, **SMALL)
    on_cpu = run(engine, command)
    load(random_pair[0], target_gpu_layers=ALL, **SMALL)
    assert_same(engine, command, run(engine, command), on_cpu)


def test_without_layers_there_nothing_is_on_the_gpu(
    load: Loading, random_pair: tuple[Path, Path], gpu: Device, buffers: Sizes
) -> None:
    """llama.cpp would reserve compute buffers there, to compute long batches."""
    load(random_pair[0], target_gpu_layers=NONE, draft_gpu_layers=NONE, **SMALL)
    assert buffers and not on(gpu, buffers)
    buffers.clear()
    load(random_pair[0], target_gpu_layers=ALL, draft_gpu_layers=ALL, **SMALL)
    assert set(on(gpu, buffers)) == {"model", "KV", "compute"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("layers", [ALL, 2])
def test_an_mtp_head_keeps_in_step(engine: Engine, tmp_path: Path, architecture: HeadArchitecture, layers: int) -> None:
    """The head of a table model is right only where it gets the hidden state that belongs to its token."""
    target = make_table_model(tmp_path / "target.gguf", architecture)
    settings = LoadSettings(target_gpu_layers=layers, **SMALL)  # type: ignore[arg-type]
    pair = engine.load(Load(request=1, target=str(target), head="on", settings=settings), lambda _: None)
    assert pair.has_head, pair.head_refused
    answer = run(engine, ask("x", sampling=GREEDY, max_tokens=16, drafter="mtp", draft_length=3))
    draft = answer.finished.figures.draft
    assert draft.tested and draft.accepted == draft.tested
    assert run(engine, ask("x", sampling=GREEDY, max_tokens=16, draft_length=0)).token_ids == answer.token_ids


@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
@pytest.mark.parametrize("layers", [ALL, 2])
def test_an_eagle3_head_keeps_in_step(
    engine: Engine, tmp_path: Path, architecture: TargetArchitecture, layers: int
) -> None:
    target, head = make_table_pair(tmp_path, architecture=architecture, own=())
    settings = LoadSettings(target_gpu_layers=layers, draft_gpu_layers=layers, **SMALL)  # type: ignore[arg-type]
    pair = engine.load(Load(request=1, target=str(target), draft=str(head), settings=settings), lambda _: None)
    assert pair.head_drafter == "eagle3", pair.head_refused
    answer = run(engine, ask("x", sampling=GREEDY, max_tokens=16, drafter="eagle3", draft_length=3))
    draft = answer.finished.figures.draft
    assert draft.tested and draft.accepted == draft.tested
    assert run(engine, ask("x", sampling=GREEDY, max_tokens=16, draft_length=0)).token_ids == answer.token_ids


def test_drafts_for_a_hybrid_are_no_longer_than_its_snapshots(engine: Engine, load: Loading, tmp_path: Path) -> None:
    load(make(tmp_path / "hybrid.gguf", "qwen35", weights="F32"), **SMALL)
    target = engine._loaded()
    snapshots = target.context.checkpoints.snapshots
    assert 0 < target.longest_draft <= snapshots
    command = ask("1 1 1 1 1 1 1 1", sampling=GREEDY, max_tokens=16, drafter="ngram", draft_length=16)
    plain = run(engine, ask("1 1 1 1 1 1 1 1", sampling=GREEDY, max_tokens=16, draft_length=0))
    drafted = run(engine, command)
    assert_same(engine, command, drafted, plain)
    assert all(round_.tested <= snapshots for round_ in drafted.rounds)


@pytest.mark.parametrize("layers", [ALL, SOME])
def test_the_state_of_a_hybrid_draft_model_is_copied_where_it_is(
    engine: Engine, load: Loading, tmp_path: Path, layers: int
) -> None:
    pair = make(tmp_path / "target.gguf", "qwen35", weights="F32"), tmp_path / "draft.gguf"
    make(pair[1], "qwen35", weights="F32", noise=0.05)
    assert load(*pair, draft_gpu_layers=layers, **SMALL).draft_refused is None
    assert engine._draft
    back = engine._draft.context.checkpoints
    assert back.copies_in_place == (layers == ALL)
    command = ask("x", sampling=GREEDY, max_tokens=24, draft_length=4)
    plain, drafted = run(engine, ask("x", sampling=GREEDY, max_tokens=24, draft_length=0)), run(engine, command)
    assert_same(engine, command, drafted, plain)
    tested, accepted = drafted.finished.figures.draft.tested, drafted.finished.figures.draft.accepted
    assert 0 < accepted < tested, "nothing was taken back"
    assert back._before_draft is not None
    assert (back._before_draft.data.nbytes < back.size() / 4) == (layers == ALL)


@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
def test_a_copy_of_the_kv_cache_comes_back(tmp_path: Path, architecture: Architecture) -> None:
    """From the GPU to system memory and back, and cut in between: the logits are those of never having left."""
    path = make(tmp_path / "model.gguf", architecture, weights="F32")
    model = Model(path, ALL, lambda _: True)
    context = Context(model, LoadSettings(), length=256, threads=1, snapshots=4)
    context.decode(range(3, 13), 0)
    state = context.save()
    expected = context.decode([20, 21], 1)[0].copy()
    context.roll_back(11)
    assert np.allclose(context.decode(context_rest(context, [20, 21]), 1)[0], expected, atol=1e-3)
    context.clear(overwrite=True)
    assert context.restore(state)
    assert np.allclose(context.decode([20, 21], 1)[0], expected, atol=1e-3)
    context.close()
    model.close()


def context_rest(context: Context, last: list[int]) -> list[int]:
    """What ``context`` lacks of its first ten tokens and ``last``."""
    return [*range(3, 13), *last][len(context.tokens) :]


def test_a_context_that_is_too_large_is_a_sentence(engine: Engine, load: Loading, tmp_path: Path, gpu: Device) -> None:
    """And the next load works: nothing of the failed one is left."""
    path = make(tmp_path / "model.gguf", "llama", width=256, heads=4, layers=4, context_length=1 << 20)
    per_token = 4 * 2 * 256 * 2
    too_many = min(gpu.total_bytes // per_token * 4, 1 << 23)
    says = r"There isn't enough memory for a context of [\d,]+ tokens|is too large for this computer's GPU"
    with pytest.raises(KnownError, match=says):
        load(path, context_length=too_many)
    load(path, **SMALL)
    assert run(engine, ask("x", max_tokens=3)).token_ids


def test_the_plan_stops_where_the_gpu_does(engine: Engine, load: Loading, tmp_path: Path, gpu: Device) -> None:
    """At the longest context that the plan finds possible, the engine answers; the next one both refuse."""
    if not 0 < gpu.largest_tensor <= 1 << 28:
        pytest.skip("no cache that fits on this GPU is too large for it")
    path = make(tmp_path / "model.gguf", "llama", width=1024, heads=8, layers=1, context_length=1 << 20)
    per_token = 2 * shape_of(read_header(path)).layers[0].keys
    longest = gpu.largest_tensor // per_token // 256 * 256
    machine = MachineMemory(memory_total=1 << 40, memory_free=1 << 40, devices=[gpu])

    def plan(tokens: int) -> LoadPlan:
        wishes = Wishes(context_length=tokens, kv_type="f16", target_gpu_layers=ALL, batch_size=32)
        return make_plan(shape_of(read_header(path)), None, machine, wishes)

    assert plan(longest).fits, plan(longest).sentence
    load(path, **{**SMALL, "context_length": longest})
    assert run(engine, ask("x", max_tokens=3)).token_ids
    assert plan(longest + 1).sentence == f"A KV cache for {longest + 1:,} tokens is too large for the GPU."
    with pytest.raises(KnownError, match=f"Choose a context of at most {longest:,} tokens"):
        load(path, **{**SMALL, "context_length": longest + 1})


def test_a_second_load_takes_the_place_of_the_first(
    engine: Engine, load: Loading, random_pair: tuple[Path, Path], gpu: Device
) -> None:
    from app.engine.llama.backend import devices

    first = load(*random_pair, **SMALL)
    free = devices()[0].free_bytes
    for _ in range(2):
        load(random_pair[1], **SMALL)
        again = load(*random_pair, **SMALL)
        assert again.target.gpu_layers == first.target.gpu_layers
    if "llvmpipe" not in gpu.description:  # whose memory is the system's, which others use, too
        assert devices()[0].free_bytes >= free - 16 * 1024 * 1024
    assert run(engine, ask("x", max_tokens=3)).token_ids
