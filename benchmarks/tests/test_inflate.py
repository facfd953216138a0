"""The pairs benchmarks measure on: an inflated model is the same function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.models.gguf import read_header
from app.models.pairing import compare
from app.protocol.commands import Load
from app.protocol.options import LoadSettings
from benchmarks.inflate import Shape, grown, inflate, inflated, read_shape, vocabulary_pair
from benchmarks.quantizing import quantize
from tests.support.generation import GREEDY, ask, run
from tests.support.gguf_files import CHATML_TEMPLATE, make_model

SMALL = Shape(width=64, heads=2, kv_heads=1, head_size=32, feed_forward=128, layers=2)
LARGE = Shape(width=160, heads=6, kv_heads=3, head_size=32, feed_forward=224, layers=5)
_EPSILON = "llama.attention.layer_norm_rms_epsilon"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small model with grouped heads and a norm epsilon that matters, and the same inflated."""

    def large_epsilon(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0][_EPSILON].value = 0.5

    folder = tmp_path_factory.mktemp("inflate")
    source = make_model(folder / "small.gguf", kv_heads=1, chat_template=CHATML_TEMPLATE, edit=large_epsilon)
    large = folder / "large.gguf"
    inflate(source, large, LARGE)
    return source, large


def logits(path: Path, tokens: list[int]) -> Floats:
    """Logits behind each of ``tokens``, shape (tokens, vocabulary)."""
    backend.start()
    model = Model(path, 0, lambda _: True)
    settings = LoadSettings(batch_size=64, micro_batch_size=64)
    context = Context(model, settings, length=256, threads=1, outputs=len(tokens))
    rows = context.decode(tokens, len(tokens)).copy()
    context.close()
    model.close()
    return rows


def greedy_answer(path: Path) -> tuple[str, list[int]]:
    engine = Engine()
    engine.load(Load(request=1, target=str(path), settings=LoadSettings(threads=1)), lambda _: None)
    answer = run(engine, ask("Say something.", sampling=GREEDY, max_tokens=24, draft_length=0))
    engine.unload()
    return answer.text, answer.token_ids


def test_inflated_model_has_the_same_logits(pair: tuple[Path, Path]) -> None:
    small, large = (logits(path, list(range(100, 148))) for path in pair)

    assert small.std() > 1
    np.testing.assert_allclose(large, small, atol=0.05)


def test_inflated_model_gives_the_same_answer(pair: tuple[Path, Path]) -> None:
    small, large = (greedy_answer(path) for path in pair)

    assert len(small[1]) == 24
    assert large == small


def test_inflated_file_has_the_asked_shape_and_keeps_the_rest(pair: tuple[Path, Path]) -> None:
    small, large = (gguf.GGUFReader(path) for path in pair)
    changed = {name for name, field in small.fields.items() if field.contents() != large.fields[name].contents()}

    assert (read_shape(small), read_shape(large)) == (SMALL, LARGE)
    assert large.fields[_EPSILON].contents() == pytest.approx(0.5 * 64 / 160)
    assert {name for name in changed if not name.startswith(("GGUF.", "llama."))} == {"general.name"}
    assert large.fields["tokenizer.chat_template"].contents() == CHATML_TEMPLATE


def test_what_was_added_computes_and_writes_nothing(pair: tuple[Path, Path]) -> None:
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(pair[1]).tensors}

    assert not tensors["blk.4.attn_output.weight"].any()
    assert not tensors["blk.4.ffn_down.weight"].any()
    assert not tensors["token_embd.weight"][:, 64:].any()
    assert np.count_nonzero(tensors["blk.4.ffn_gate.weight"]) > 1000
    assert np.count_nonzero(tensors["blk.0.attn_q.weight"][64:]) > 1000


def test_refuses_a_shape_that_cannot_hold_the_model(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        inflate(pair[0], tmp_path / "no.gguf", replace(LARGE, width=32))
    with pytest.raises(ValueError, match="heads per KV head"):
        inflate(pair[0], tmp_path / "no.gguf", replace(LARGE, kv_heads=6))
    assert list(tmp_path.glob("*.gguf")) == []


def test_refuses_another_architecture(tmp_path: Path) -> None:
    other = make_model(tmp_path / "qwen2.gguf", architecture="qwen2")

    with pytest.raises(ValueError, match="not qwen2"):
        inflated(other, tmp_path / "out")


def test_grown_shape_has_the_asked_size_and_whole_blocks() -> None:
    shape = grown(Shape(width=768, heads=12, kv_heads=4, head_size=64, feed_forward=2048, layers=2), 4096)

    assert shape.heads == 3 * shape.kv_heads
    assert {size % 256 for size in (shape.width, shape.attention, shape.feed_forward)} == {0}
    assert shape.layers * shape.layer_parameters + 4096 * shape.width == pytest.approx(600e6, rel=0.02)


def test_quantized_variant_loads_and_answers(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "q8_0.gguf"
    backend.start()
    quantize(pair[1], path, "q8_0", threads=1)

    assert read_header(path).quantization == "Q8_0"
    assert greedy_answer(path)[1]


def test_vocabulary_pair_fits_and_is_made_once(tmp_path: Path) -> None:
    target, draft = vocabulary_pair(tmp_path, 512)
    made = target.stat().st_mtime_ns
    verdict = compare(read_header(target), read_header(draft))

    assert verdict.fits
    assert verdict.target_tokens == 512
    assert vocabulary_pair(tmp_path, 512)[0].stat().st_mtime_ns == made
