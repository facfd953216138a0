"""Models in the shapes of those that people run: types are llama.cpp's, sizes as published, and they load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.protocol.commands import Load
from app.protocol.options import LoadSettings
from benchmarks import shapes
from benchmarks.quantizing import quantize
from benchmarks.shape_layers import (
    SHAPES,
    DeltaNet,
    ModelShape,
    Sizes,
    Tensor,
    Tokens,
    gemma4,
    gpt_oss,
    llama,
    qwen35,
)
from tests.support.architectures import make
from tests.support.generation import ask, run
from tests.support.gguf_files import CHATML_TEMPLATE, make_vocabulary_file

TOKENS = Tokens("tiny", 600)
SIZES = Sizes(width=256, layers=4, heads=4, kv_heads=2, head=64, feed_forward=512, context=1024)
SMALL: dict[str, ModelShape] = {
    "llama": llama("Small", SIZES, TOKENS, is_tied=False, rope_factor=8),
    "qwen35": qwen35("Small", replace(SIZES, layers=5), DeltaNet(32, 4, 8), TOKENS, heads=1),
    "gemma4": gemma4("Small", replace(SIZES, layers=6), TOKENS, window=32, wide_head=128, wide_kv_heads=1),
    "gpt-oss": gpt_oss("Small", SIZES, TOKENS, experts=4, used=2, window=32),
}


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabularies")
    make_vocabulary_file(folder / "ggml-vocab-tiny.gguf", tokenizer="gpt2", chat_template=CHATML_TEMPLATE)
    return folder


@pytest.mark.parametrize("name", SMALL)
def test_a_small_relative_of_each_loads_and_answers(name: str, vocabularies: Path, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gguf"
    shapes.write(SMALL[name], path, vocabularies)
    assert path.stat().st_size - shapes.size(SMALL[name]) < 100_000
    engine = Engine()
    loaded = engine.load(Load(request=1, target=str(path), settings=LoadSettings(threads=1)), lambda _: None)
    assert loaded.template == "model"
    never = {0: -100.0, 2: -100.0}  # its ends
    answer = run(engine, ask("Hello", max_tokens=40, logit_bias=never))
    engine.unload()
    assert len(set(answer.token_ids)) > 20, "it goes in circles"


def test_no_two_rows_are_the_same(vocabularies: Path, tmp_path: Path) -> None:
    path = tmp_path / "llama.gguf"
    shapes.write(SMALL["llama"], path, vocabularies)
    (embedding,) = (tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == "output.weight")
    assert len(np.unique(embedding.data, axis=0)) > 0.9 * len(embedding.data)  # a row of 256 weights is one piece


@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
def test_the_types_are_those_that_llama_cpp_chooses(architecture: str, tmp_path: Path) -> None:
    backend.start()
    made = make(tmp_path / "made.gguf", architecture, weights="F16", width=256, layers=16)  # type: ignore[arg-type]
    quantize(made, tmp_path / "quantized.gguf", "q4_k_m", 1)
    tensors = [Tensor(one.name, tuple(map(int, reversed(one.shape)))) for one in gguf.GGUFReader(made).tensors]
    chosen = {one.name: one.tensor_type for one in gguf.GGUFReader(tmp_path / "quantized.gguf").tensors}
    expected = shapes.types(tensors, "Q4_K_M", 16)
    assert {name: expected[name].name for name in chosen} == {name: kind.name for name, kind in chosen.items()}


@pytest.mark.parametrize(
    ("name", "published", "tokenizer"),
    [
        ("llama-3.2-1b", 807_694_016, 8e6),
        ("llama-3.1-8b", 4_920_734_272, 8e6),
        ("gpt-oss-20b", 12_109_566_624, 14e6),
        ("gemma4-12b", 7_121_860_000 + 262_144 * 3840 // 256 * (210 - 144), 16e6),
        ("qwen3.5-4b", 2_834_975_040, 70e6),
    ],
)
def test_they_are_as_large_as_published(name: str, published: int, tokenizer: float) -> None:
    assert 0 < published - shapes.size(SHAPES[name]()) < tokenizer


def test_what_does_not_fit_on_the_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "size", lambda _: 10**18)
    with pytest.raises(SystemExit, match=r"llama-3.2-1b takes 1000000000\.0 GB"):
        shapes.shaped("llama-3.2-1b", tmp_path)
