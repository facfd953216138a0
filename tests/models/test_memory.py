"""What a pair takes: from headers by hand, and against the engine process itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import gguf
import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.host.engine import Engine
from app.models.gguf import read_header
from app.models.memory_shape import Layer
from app.models.model_memory import ModelShape, shape_of
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import GenerationFinished, Hello, PairLoaded
from app.protocol.options import ALL_LAYERS, KvType, LoadSettings, Sampling
from tests.support.architectures import WINDOW, Architecture, make
from tests.support.eagle3_models import make_pair as make_eagle3_pair
from tests.support.engine_process import EngineProcess
from tests.support.gguf_files import make_model
from tests.support.matrix import in_proof
from tests.support.memory import estimate

MODEL = ModelShape(
    architecture="llama",
    layers=[Layer(1_000_000, keys=256, values=256)] * 8,
    input_weights=500_000,
    output_weights=600_000,
    width=256,
    feed_forward=768,
    vocabulary=1000,
)


def llama(path: Path, **options: Any) -> ModelShape:
    return shape_of(read_header(make_model(path / "model.gguf", **options)))


def of(path: Path, architecture: Architecture) -> ModelShape:
    return shape_of(read_header(make(path / f"{architecture}.gguf", architecture)))


# ---------------------------------------------------------------- shapes


def test_the_shape_of_a_llama_model(tmp_path: Path) -> None:
    shape = llama(tmp_path, width=64, heads=4, kv_heads=2, layers=3, feed_forward=96, context_length=256)
    layer = 4 * (2 * 64) + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96)  # two norms in F32, matrices in F16
    assert shape.layers == [Layer(layer, keys=32, values=32)] * 3
    assert (shape.input_weights, shape.output_weights) == (512 * 64 * 2, 512 * 64 * 2 + 64 * 4)
    assert (shape.width, shape.heads, shape.feed_forward, shape.vocabulary) == (64, 4, 96, 512)
    assert (shape.key_length, shape.value_length, shape.default_context) == (16, 16, 256)
    assert not shape.tied_weights


def test_hybrids_keep_states_in_some_layers_and_keys_in_others(tmp_path: Path) -> None:
    hybrids: tuple[Architecture, ...] = ("qwen35", "lfm2", "granitehybrid")
    for architecture in hybrids:
        shape = of(tmp_path, architecture)
        assert [(layer.keys > 0, layer.state > 0) for layer in shape.layers] == [(False, True), (True, False)] * 2
    recurrent = of(tmp_path, "mamba")
    assert {layer.keys for layer in recurrent.layers} == {0}
    assert recurrent.layers[0].state == (3 * 128 + 32 * 128) * 4


NUMBERS = st.sampled_from([0, 1, 3, 2**16, 2**31, 2**32 - 1])


@given(layers=NUMBERS, heads=NUMBERS, key=NUMBERS, window=NUMBERS, experts=NUMBERS, state=NUMBERS)
def test_no_number_is_trusted(
    tmp_path_factory: pytest.TempPathFactory, layers: int, heads: int, key: int, window: int, experts: int, state: int
) -> None:
    def metadata(writer: gguf.GGUFWriter) -> None:
        values = writer.kv_data[0]
        for name, value in (("block_count", layers), ("attention.head_count", heads)):
            values[f"gemma3.{name}"] = gguf.gguf_writer.GGUFValue(value, gguf.GGUFValueType.UINT32)
        writer.add_key_length(key)
        writer.add_sliding_window(window)
        writer.add_expert_used_count(experts)
        writer.add_ssm_state_size(state)

    shape = llama(tmp_path_factory.mktemp("odd"), architecture="gemma3", edit=metadata)
    assert estimate(shape, context_length=4096).system.total > 0


# ---------------------------------------------------------------- estimates


@pytest.mark.parametrize(("kv_type", "size"), [("f16", 16 / 8), ("q8_0", 34 / 32), ("q4_0", 18 / 32)])
def test_the_cache_by_hand(kv_type: KvType, size: float) -> None:
    found = estimate(MODEL, context_length=1000, kv_type=kv_type)
    assert found.system.target_kv == 8 * 512 * 1024 * size  # 1,000 tokens are 1,024 cells


def test_snapshots_of_running_states_are_where_their_layers_are() -> None:
    layers = [Layer(1_000_000, keys=256, values=256), Layer(1_000_000, state=10_000)]
    hybrid = msgspec.structs.replace(MODEL, architecture="qwen35", layers=layers, running_state="hybrid")
    whole = estimate(hybrid, context_length=256, target_gpu_layers=ALL_LAYERS)
    assert whole.gpu.target_kv == 256 * 512 * 2 + 9 * 10_000
    assert whole.system.target_kv == 2 * 10_000
    as_draft = estimate(MODEL, hybrid, context_length=256)
    assert as_draft.system.draft_kv == 256 * 512 * 2 + 2 * 10_000  # and the copy before each draft


def test_the_gpu_gets_the_output_first_and_then_the_last_layers() -> None:
    on_processor = estimate(MODEL, context_length=1024)
    assert on_processor.gpu.total == 0
    output = estimate(MODEL, context_length=1024, target_gpu_layers=1)
    assert (output.gpu.target_weights, output.gpu.target_kv) == (600_000, 0)
    three = estimate(MODEL, context_length=1024, target_gpu_layers=3)
    assert three.gpu.target_weights == 2_600_000
    assert three.gpu.target_kv + three.system.target_kv == on_processor.system.target_kv
    whole = estimate(MODEL, context_length=1024, target_gpu_layers=ALL_LAYERS)
    assert (whole.system.target_weights, whole.system.target_kv) == (500_000, 0)
    assert whole == estimate(MODEL, context_length=1024, target_gpu_layers=99)


def test_tied_embeddings_are_there_twice_only_with_a_gpu() -> None:
    tied = msgspec.structs.replace(MODEL, output_weights=100_000, tied_weights=500_000)
    assert estimate(tied, context_length=256).system.target_weights == 8_600_000
    whole = estimate(tied, context_length=256, target_gpu_layers=ALL_LAYERS)
    assert (whole.system.target_weights, whole.gpu.target_weights) == (500_000, 8_600_000)


HEAD = Layer(3_000_000, keys=256, values=128)
WITH_HEAD = msgspec.structs.replace(MODEL, layers=[*MODEL.layers, Layer(0)], head=HEAD, skipped=HEAD.weights)


@pytest.mark.parametrize(("kv_type", "size"), [("f16", 16 / 8), ("q8_0", 34 / 32)])
def test_what_a_head_takes_by_hand(kv_type: KvType, size: float) -> None:
    alone = estimate(WITH_HEAD, context_length=1024, kv_type=kv_type)
    found = estimate(WITH_HEAD, head=WITH_HEAD, context_length=1024, kv_type=kv_type)
    states = (1024 + 512 + 512) * 256 * 4  # of the whole context, a batch for the head, one from the target
    assert found.system.head == HEAD.weights + 1024 * 384 * size + states
    assert found.system.compute > alone.system.compute
    assert (found.system.target_weights, found.system.target_kv) == (
        alone.system.target_weights,
        alone.system.target_kv,
    )


def test_experts_on_the_processor_leave_the_rest_of_their_layers_on_the_gpu() -> None:
    layers = [Layer(1_000_000, keys=256, values=256), *[Layer(5_000_000, keys=256, values=256, experts=4_000_000)] * 7]
    mixture = msgspec.structs.replace(MODEL, layers=layers, largest_experts=1_500_000, experts=8, experts_used=2)
    together, two, all_apart, more = (
        estimate(mixture, context_length=1024, target_gpu_layers=ALL_LAYERS, expert_layers_on_cpu=count)
        for count in (0, 3, 8, 99)
    )
    assert all_apart == more
    for found, count in ((two, 2), (all_apart, 7)):
        assert together.gpu.target_weights - found.gpu.target_weights == count * 4_000_000
        assert found.system.target_weights - together.system.target_weights == count * 4_000_000
        assert found.gpu.target_kv == together.gpu.target_kv
        assert found.gpu.compute == together.gpu.compute + 1_500_000
        assert found.system.compute > together.system.compute
    on_processor = estimate(mixture, context_length=1024)
    assert on_processor == estimate(mixture, context_length=1024, expert_layers_on_cpu=5)
    half = estimate(mixture, context_length=1024, target_gpu_layers=5, expert_layers_on_cpu=5)
    assert half.gpu.target_weights == 600_000 + 4 * 5_000_000 - 4_000_000


def test_a_gpu_gets_copies_of_what_stays_in_system_memory() -> None:
    def compute(layers: int, largest: int, length: int = 1024) -> int:
        shape = msgspec.structs.replace(MODEL, largest_matrix=largest)
        return estimate(shape, context_length=length, target_gpu_layers=layers).gpu.compute

    hidden, cache = 768 * 512 * 4, 1024 * 512 * 2
    assert compute(ALL_LAYERS, 1_500_000) == compute(ALL_LAYERS, 0)
    whole, part = compute(ALL_LAYERS, 0), compute(5, 1_500_000)
    assert part == whole + 1_500_000 + cache
    assert compute(5, hidden) == whole + cache, "the last result takes the place of the copy"
    assert compute(5, hidden + 1000) == whole + 1000 + cache
    masks = 2048 * 512 * 2 - 1024 * 512 * 2
    assert compute(5, 1_500_000, 2048) == part + cache + masks


def test_a_hybrid_may_lose_flash_attention_where_it_is_split() -> None:
    def compute(architecture: str, layers: int, kv_type: KvType = "f16") -> int:
        split = [Layer(1_000_000, state=100_000), Layer(1_000_000, keys=256, values=256)] * 4
        shape = msgspec.structs.replace(MODEL, architecture=architecture, layers=split, heads=32, largest_matrix=1000)
        return estimate(shape, context_length=1024, kv_type=kv_type, target_gpu_layers=layers).gpu.compute

    scores = 32 * 1024 * 512 * 4
    assert compute("lfm2", 5) > scores > 2 * compute("lfm2", 4), "with 5 layers the last one on the CPU attends"
    assert compute("qwen35", 5) == compute("qwen35", 4) == compute("lfm2", 4)
    assert compute("lfm2", 5, "q8_0") == compute("lfm2", 4, "q8_0")


@given(context=st.integers(1, 100_000), layers=st.integers(0, 9), kv_type=st.sampled_from(["f16", "q8_0", "q4_0"]))
def test_more_context_and_more_layers_take_more(context: int, layers: int, kv_type: KvType) -> None:
    found, longer, more = (
        estimate(MODEL, context_length=length, kv_type=kv_type, target_gpu_layers=on_gpu)
        for length, on_gpu in ((context, layers), (context + 256, layers), (context, layers + 1))
    )
    assert longer.system.total >= found.system.total and longer.gpu.total >= found.gpu.total
    assert more.gpu.total >= found.gpu.total and more.system.total <= found.system.total


# ---------------------------------------------------------------- against the engine


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count resident memory differently")
def test_what_an_eagle3_head_takes_by_hand(tmp_path: Path) -> None:
    """The target keeps and gives the inputs of three layers; the head reads 64 tokens at once, with logits of all."""
    target, head = (shape_of(read_header(path)) for path in make_eagle3_pair(tmp_path))
    plain, found = (estimate(target, head=one, context_length=1024).system for one in (None, head))
    states = (1024 + 512 + 64) * 3 * 64 * 4  # of the whole context, a batch from the target, one for the head
    assert head.head and head.head.weights
    assert found.head == head.weights + head.head.weights + 1024 * 2 * 64 * 2 + states
    assert found.compute - plain.compute >= 512 * 3 * 64 * 4 + 64 * 384 * 4


@pytest.mark.parametrize("kind", ["guide", *in_proof(["grouped"])])
def test_within_a_tenth_of_what_loading_takes(tmp_path: Path, guide_pair: tuple[Path, Path], kind: str) -> None:
    """``python -m benchmarks.memory_estimate`` measures more models."""
    target, draft = guide_pair[0], guide_pair[1] if kind == "guide" else None
    if kind == "grouped":
        grouped: dict[str, Any] = {"width": 512, "heads": 8, "kv_heads": 2, "layers": 8, "feed_forward": 1536}
        target = make_model(tmp_path / "grouped.gguf", weights="Q8_0", context_length=4096, **grouped)
    taken = resident(target, draft, LoadSettings(context_length=1024, kv_type="q8_0", chat_cache_mib=0))
    shapes = [shape_of(read_header(path)) for path in (target, draft) if path]
    assert estimate(*shapes, context_length=1024, kv_type="q8_0").system.total == pytest.approx(taken, rel=0.1)


def resident(target: Path, draft: Path | None, settings: LoadSettings) -> int:
    """Bytes a fresh engine process holds more once it has loaded and has answered a prompt that fills the context."""
    with EngineProcess() as engine:
        engine.until(Hello)
        process = psutil.Process(engine.process.pid)
        before = process.memory_info().rss
        engine.send(Load(request=1, target=str(target), draft=str(draft) if draft else None, settings=settings))
        prompt = [Message(role="user", content="3" * (engine.until(PairLoaded).context_length - 100))]
        # The plan is for what takes most: long drafts of which the draft model's distributions are kept.
        sampling = Sampling(temperature=0.8)
        answer = Generate(request=2, messages=prompt, raw=True, max_tokens=16, sampling=sampling, seed=1)
        engine.send(msgspec.structs.replace(answer, accept="rejection", draft_length=16))
        engine.until(GenerationFinished)
        return process.memory_info().rss - before


def planned_snapshots(kv_bytes: int, shape: ModelShape) -> int:
    """How many the estimate reckons with: what is not cells of the KV cache is the running state and its snapshots."""
    states = sum(layer.state for layer in shape.layers)
    cells = 512 * sum(layer.keys + layer.values for layer in shape.layers) * 2
    return (kv_bytes - cells) // states - 1 if states else 0


@pytest.mark.parametrize(
    ("kind", "expected"), [("guide", 0), ("qwen35", 3), *in_proof([("lfm2", 8), ("granitehybrid", 1)])]
)
def test_as_many_snapshots_as_the_engine_makes(
    tmp_path: Path, guide_pair: tuple[Path, Path], kind: Architecture | Literal["guide"], expected: int
) -> None:
    """``expected`` is far from where rounding would make one more or less of it. Where there are none, one copy of the
    running state is made before a draft.
    """
    if kind == "guide":
        pair = guide_pair
    else:
        pair = make(tmp_path / "target.gguf", kind), make(tmp_path / "draft.gguf", kind, noise=0.05)
    target, draft = (shape_of(read_header(path)) for path in pair)
    plan = estimate(target, draft, context_length=512, target_gpu_layers=ALL_LAYERS, draft_gpu_layers=ALL_LAYERS).gpu
    planned = planned_snapshots(plan.target_kv, target), planned_snapshots(plan.draft_kv, draft)
    engine, _ = loaded(*pair)
    assert engine._target is not None and engine._draft is not None
    kept = [one.context.checkpoints for one in (engine._target, engine._draft)]
    made = tuple(each.snapshots or int(each.running_state) for each in kept)
    engine.unload()
    assert planned == made == (expected, int(kind != "guide"))


def loaded(target: Path, draft: Path | None = None, **options: Any) -> tuple[Engine, PairLoaded]:
    engine, settings = Engine(), LoadSettings(context_length=512, micro_batch_size=32, threads=1)
    pair = Load(request=1, target=str(target), draft=str(draft) if draft else None, settings=settings, **options)
    return engine, engine.load(pair, lambda _: None)


def test_sliding_windows_keep_what_the_file_says(tmp_path: Path) -> None:
    def metadata(writer: gguf.GGUFWriter) -> None:
        writer.add_sliding_window(64)
        writer.add_sliding_window_pattern([True, True, False])
        writer.add_uint32("gemma3.attention.key_length_swa", 8)

    assert [layer.window for layer in of(tmp_path, "gemma3").layers] == [WINDOW, 0, WINDOW, 0]
    shape = llama(tmp_path, architecture="gemma3", layers=3, edit=metadata)
    assert [(one.window, one.keys, one.values) for one in shape.layers] == [(64, 16, 64), (64, 16, 64), (0, 64, 64)]
    without = llama(tmp_path, architecture="phi3", edit=lambda writer: writer.add_sliding_window(64))
    assert {layer.window for layer in without.layers} == {0}
