"""A draft cut from the target's first layers: what is in it, that it drafts, and what is said where it cannot be."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from app.engine.host.engine import Engine
from app.engine.llama import self_draft
from app.engine.llama.self_draft import cut, quantize
from app.models.gguf import read_header
from app.system import KnownError
from tests.support.generation import GREEDY, ask, run
from tests.support.gguf_files import RandomWeights, Shape, Tensors, llama_weights, make_model
from tests.support.pairs import Loader


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six layers of random weights."""
    return make_model(tmp_path_factory.mktemp("target") / "six.gguf", layers=6)


def tensors(path: Path) -> dict[str, bytes]:
    return {tensor.name: tensor.data.tobytes() for tensor in gguf.GGUFReader(path).tensors}


def test_the_first_layers_and_what_surrounds_them_are_kept(target: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft.gguf"
    cut(target, 2, draft, None, 1)
    header, whole, kept = read_header(draft), tensors(target), tensors(draft)
    assert (header.layers, header.name) == (2, "six (first 2 layers)")
    assert kept == {
        name: data for name, data in whole.items() if not name.startswith(tuple(f"blk.{i}." for i in range(2, 6)))
    }
    assert {"token_embd.weight", "output_norm.weight", "output.weight"} <= set(kept)
    assert [path.name for path in tmp_path.iterdir()] == ["draft.gguf"]


@pytest.mark.usefixtures("one_by_one")
def test_a_cut_before_layers_that_change_nothing_is_the_same_function(
    engine: Engine, load: Loader, tmp_path: Path
) -> None:
    def only_two_write(shape: Shape, random: RandomWeights) -> Tensors:
        made = llama_weights(shape, random)
        for layer, part in itertools.product(range(2, shape.layers), ("attn_output", "ffn_down")):
            made[f"blk.{layer}.{part}.weight"][:] = 0.0
        return made

    large = make_model(tmp_path / "large.gguf", layers=5, weights="F32", tensors=only_two_write)
    draft = tmp_path / "draft.gguf"
    cut(large, 2, draft, None, 1)
    assert load(large, draft, threads=1).draft is not None
    answer = run(engine, ask("x", sampling=GREEDY, max_tokens=100))
    assert answer.finished.figures.draft.acceptance_rate == 1.0
    cut(large, 1, tmp_path / "one.gguf", None, 1)
    load(large, tmp_path / "one.gguf", threads=1)
    shorter = run(engine, ask("x", sampling=GREEDY, max_tokens=100))
    assert shorter.token_ids == answer.token_ids
    draft_figures = shorter.finished.figures.draft
    assert draft_figures.accepted < draft_figures.tested


def test_it_can_be_quantized(target: Path, tmp_path: Path, engine: Engine, load: Loader) -> None:
    sizes = []
    for kind in (None, "q8_0", "q4_0"):
        draft = tmp_path / f"{kind}.gguf"
        cut(target, 3, draft, kind, 1)
        sizes.append(draft.stat().st_size)
        assert load(target, draft, threads=1).draft is not None
    assert sizes == sorted(sizes, reverse=True)
    assert read_header(tmp_path / "q8_0.gguf").quantization == "Q8_0"


@pytest.mark.parametrize("layers", [0, 6])
def test_a_number_of_layers_it_does_not_have(target: Path, tmp_path: Path, layers: int) -> None:
    with pytest.raises(KnownError, match=r"six\.gguf has 6 layers, so a draft can have from 1 to 5"):
        cut(target, layers, tmp_path / "draft.gguf", None, 1)
    assert not list(tmp_path.iterdir())


def a_list_by_layer(writer: gguf.GGUFWriter) -> None:
    del writer.kv_data[0]["llama.attention.head_count_kv"]
    writer.add_array("llama.attention.head_count_kv", [2, 2])


@pytest.mark.parametrize(
    ("layers", "edit", "message"),
    [
        (1, None, "has only one layer, so none can be left out"),
        (2, a_list_by_layer, r"describes each layer separately \(llama.attention.head_count_kv\)"),
    ],
)
def test_models_that_cannot_be_cut(
    tmp_path: Path, layers: int, edit: Callable[[gguf.GGUFWriter], None] | None, message: str
) -> None:
    target = make_model(tmp_path / "target.gguf", layers=layers, edit=edit)
    with pytest.raises(KnownError, match=message):
        cut(target, 1, tmp_path / "draft.gguf", None, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["target.gguf"]


def test_a_place_that_is_taken_or_not_there(target: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken.gguf"
    taken.write_bytes(b"precious")
    with pytest.raises(KnownError, match="already exists"):
        cut(target, 1, taken, None, 1)
    assert taken.read_bytes() == b"precious"
    with pytest.raises(KnownError, match="doesn't exist"):
        cut(target, 1, tmp_path / "gone" / "draft.gguf", None, 1)
    with pytest.raises(KnownError, match="already exists"):
        cut(target, 1, target, None, 1)


@pytest.mark.parametrize("left", [0, 10**9])
def test_a_file_that_came_out_short_is_noticed(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """llama.cpp may report success when the disk filled up while it wrote."""

    def short(source: Path, destination: Path, *arguments: object, **options: object) -> None:
        quantize(source, destination, *arguments, **options)  # type: ignore[arg-type]
        with destination.open("r+b") as file:
            file.truncate(destination.stat().st_size // 2)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, left))

    monkeypatch.setattr(self_draft, "quantize", short)
    with pytest.raises(KnownError, match="is full" if left == 0 else "is incomplete"):
        cut(target, 1, tmp_path / "draft.gguf", None, 1)
    assert not list(tmp_path.iterdir())
