"""Options of a load: what they change in llama.cpp, what is refused, and that answers stay the same."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import msgspec
import pytest

from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.engine.llama.model import Model, Placement
from app.protocol.options import MAX_LAYERS, Sampling
from app.system import KnownError
from tests.support.architectures import make
from tests.support.expert_models import make_expert_model
from tests.support.generation import ask, assert_same, run
from tests.support.matrix import in_proof
from tests.support.pairs import Loader, Pair

WARM = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)


@pytest.fixture(scope="session")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_expert_model(tmp_path_factory.mktemp("experts") / "experts.gguf", layers=3)


@pytest.fixture(scope="session")
def endless_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("endless")
    return make(folder / "target.gguf", "llama"), make(folder / "draft.gguf", "llama", noise=0.05)


@pytest.fixture
def llama_log() -> Iterator[list[str]]:
    """Everything that llama.cpp says, with what it says for debugging."""
    lines: list[str] = []

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def note(_level: int, text: bytes, _data: object) -> None:
        lines.append(text.decode("utf-8", "replace"))

    llama_cpp.llama_log_set(note, None)
    yield lines
    backend.start()


@pytest.fixture
def processor_as_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine that runs tests has a GPU, but llama.cpp takes the processor for one if it is told to."""
    backend.start()  # a test may be the first one
    handles = {"CPU": backend._handles(backend.CPU)[0]}
    monkeypatch.setattr(backend, "offload_handles", lambda: handles)


def moved(log: list[str]) -> set[str]:
    """The tensors that llama.cpp was told to put elsewhere."""
    return {line.split()[1] for line in log if "buffer type overridden to" in line}


# ---------------------------------------------------------------- where the weights go


@pytest.mark.parametrize(("layers", "expected"), [(0, 0), (2, 2), (MAX_LAYERS, 3)])
def test_the_experts_of_the_first_layers_stay_in_system_memory(
    engine: Engine, load: Loader, experts: Path, llama_log: list[str], layers: int, expected: int
) -> None:
    load(experts, expert_layers_on_cpu=layers)
    parts = ("gate", "up", "down")
    assert moved(llama_log) == {f"blk.{i}.ffn_{part}_exps.weight" for i in range(expected) for part in parts}
    assert len(run(engine, ask("x", max_tokens=5)).token_ids) == 5


def test_experts_in_system_memory_give_the_same_answer(engine: Engine, load: Loader, experts: Path) -> None:
    command = ask("x", sampling=WARM, seed=3, max_tokens=40)
    load(experts, threads=1)
    plain = run(engine, command)
    load(experts, threads=1, expert_layers_on_cpu=2)
    assert_same(engine, command, run(engine, command), plain)


@pytest.mark.parametrize(
    "options", [{"split_mode": "none", "main_gpu": "CUDA7"}, {"tensor_split": (3.0, 1.0)}, {"tensor_split": (1.0,)}]
)
def test_gpus_that_are_not_there_are_refused(
    engine: Engine, load: Loader, random_pair: Pair, options: dict[str, object]
) -> None:
    if backend.gpu_devices():
        pytest.skip("this computer has a GPU")
    with pytest.raises(KnownError, match=r"No GPU can be used here\.|this computer has no GPU\."):
        load(*random_pair, **options)
    assert load(*random_pair).draft is not None  # the process goes on


@pytest.mark.usefixtures("processor_as_gpu")
def test_the_sentence_names_the_gpus_there_are(load: Loader, random_pair: Pair) -> None:
    with pytest.raises(KnownError, match=r"There is no GPU named CUDA7\. The GPUs here are CPU\."):
        load(*random_pair, split_mode="none", main_gpu="CUDA7")
    with pytest.raises(KnownError, match=r"The shares of 2 GPUs .* has one GPU\."):
        load(*random_pair, tensor_split=(1.0, 1.0))


@pytest.mark.parametrize(
    ("placement", "devices", "split"),
    [
        (Placement(tensor_split=(0.0, 1.0, 3.0)), [22, 33, None], [1.0, 3.0]),
        (Placement(tensor_split=(2.0, 0.0, 0.0)), [11, None], [2.0]),
        (Placement(tensor_split=(0.0, 0.0, 0.0)), [], [0.0, 0.0, 0.0]),  # llama.cpp goes by free memory then
        (Placement("B", "none"), [22, None], []),
    ],
)
def test_only_gpus_with_a_share_are_used(
    monkeypatch: pytest.MonkeyPatch, placement: Placement, devices: list[int | None], split: list[float]
) -> None:
    monkeypatch.setattr(backend, "offload_handles", lambda: {"A": 11, "B": 22, "C": 33})
    params = llama_cpp.llama_model_default_params()
    kept = placement.apply(params)
    given = ctypes.cast(params.devices, ctypes.POINTER(ctypes.c_void_p))
    assert [given[number] for number in range(len(devices))] == devices
    assert bool(params.devices) == bool(devices)
    assert [params.tensor_split[number] for number in range(len(split))] == split
    assert placement.first_gpu() == (devices or [11])[0]
    assert kept  # which llama.cpp reads until the model is loaded


@pytest.mark.usefixtures("processor_as_gpu")
def test_a_gpu_that_cannot_split_rows_is_no_crash(random_pair: Pair) -> None:
    with pytest.raises(KnownError, match=r"can't load target\.gguf: .*does not support split buffers"):
        Model(random_pair[0], -1, lambda _: True, placement=Placement("CPU", "row"))


def test_a_draft_on_a_missing_gpu_is_left_out(load: Loader, random_pair: Pair) -> None:
    pair = load(*random_pair, draft_device="CUDA1")
    assert pair.draft is None
    assert pair.draft_refused is not None and "There is no GPU named CUDA1." in pair.draft_refused


# ---------------------------------------------------------------- contexts


def test_flash_attention_off(engine: Engine, load: Loader, random_pair: Pair, llama_log: list[str]) -> None:
    command = ask("x", sampling=WARM, seed=3, max_tokens=40)
    for choice in ("on", "off"):
        load(*random_pair, flash_attention=choice, threads=1)
        says = {"on": "enabled", "off": "disabled"}[choice]
        found = [line for line in llama_log if "flash_attn " in line and "=" in line]
        assert found and all(line.split()[-1] == says for line in found)
        llama_log.clear()
        answer = run(engine, command)
        assert_same(engine, command, run(engine, msgspec.structs.replace(command, draft_length=0)), answer)


def test_a_quantized_cache_needs_flash_attention(load: Loader, random_pair: Pair) -> None:
    with pytest.raises(
        KnownError, match=r"q8_0 needs flash attention, which is turned off\. Turn it on, or choose f16"
    ):
        load(*random_pair, flash_attention="off", kv_type="q8_0")
    pair = load(*random_pair, flash_attention="off", draft_kv_type="q4_0")
    assert pair.draft_refused is not None and "q4_0 needs flash attention" in pair.draft_refused


def test_a_cache_type_that_heads_do_not_allow_is_refused(
    engine: Engine, load: Loader, tmp_path: Path, random_pair: Pair
) -> None:
    narrow = make_expert_model(tmp_path / "narrow.gguf", width=64, heads=4)  # heads of 16 numbers, blocks of 32
    with pytest.raises(KnownError, match=r"can't have a KV cache of type q8_0 .*block size 32.*Choose f16\."):
        load(narrow, kv_type="q8_0")
    pair = load(random_pair[0], narrow, draft_kv_type="q8_0")
    assert pair.draft_refused is not None and "can't have a KV cache of type q8_0" in pair.draft_refused
    assert load(random_pair[0], narrow, kv_type="q8_0", draft_kv_type="f16").draft is not None


@pytest.mark.parametrize("accept", ["coupled", *in_proof(["block"])])
def test_a_draft_with_a_shorter_context_stops_drafting_at_its_end(
    engine: Engine, load: Loader, endless_pair: Pair, accept: str
) -> None:
    """The rest of the answer is that of n-grams and the target, and the same text."""
    command = ask("x", sampling=WARM, seed=3, max_tokens=380, draft_length=5, accept=accept)
    load(*endless_pair, context_length=512, draft_context_length=256, threads=1)
    assert engine._draft is not None and engine._draft.context.length == 256
    answer = run(engine, command)
    ends = 256 - answer.started.prompt_tokens
    drafted = [place for place, piece in enumerate(answer.pieces) if piece.drafter == "model"]
    assert drafted and 200 < max(drafted) <= ends
    assert len(answer.token_ids) == 380 and answer.finished.draft_failure is None
    assert len(engine._draft.context.tokens) <= 256
    if accept == "coupled":
        load(endless_pair[0], context_length=512, threads=1)
        assert_same(engine, command, run(engine, msgspec.structs.replace(command, draft_length=0)), answer)
    load(*endless_pair, context_length=512, draft_context_length=256, threads=1)
    assert run(engine, ask("y", max_tokens=30, draft_length=5)).finished.figures.draft.accepted  # drafts in short chats


@pytest.mark.parametrize("draft_length", ["auto", 3])
def test_a_prompt_beyond_the_drafts_context(
    engine: Engine, load: Loader, random_pair: Pair, draft_length: object
) -> None:
    load(*random_pair, context_length=1024, draft_context_length=256, threads=1)
    command = ask("word " * 200, max_tokens=20, draft_length=draft_length)
    answer = run(engine, command)
    assert answer.started.prompt_tokens > 256
    assert not any(piece.drafter for piece in answer.pieces)


# ---------------------------------------------------------------- threads


# ---------------------------------------------------------------- what is stored
