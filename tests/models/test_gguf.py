"""Headers of real files, as the ``gguf`` library writes them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from app.models.gguf import GgufHeader, ModelFileError, check_loadable, read_header
from tests.support.gguf_files import CHATML_TEMPLATE, Weights, make_model, make_vocabulary_file
from tests.support.raw_gguf import F32, header, pair, string, tensor, uint32

Edit = Callable[[Any], None]


def refused(header: GgufHeader) -> str:
    """The sentence with which a file is kept from llama.cpp."""
    with pytest.raises(ModelFileError) as caught:
        check_loadable(header)
    return str(caught.value)


def small(folder: Path, **options: Any) -> GgufHeader:
    return read_header(make_model(folder / "model.gguf", layers=1, width=32, **options))


def test_says_what_was_written(tmp_path: Path) -> None:
    path = make_model(
        tmp_path / "small.gguf",
        name="Small one",
        heads=4,
        kv_heads=2,
        layers=3,
        context_length=1024,
        chat_template=CHATML_TEMPLATE,
    )
    read = read_header(path)
    check_loadable(read)
    assert (read.name, read.architecture, read.quantization, read.version) == ("Small one", "llama", "F16", 3)
    assert (read.layers, read.heads, read.kv_heads, read.width, read.training_context) == (3, 4, 2, 64, 1024)
    assert (read.rope.dimensions, read.rope.base) == (16, 10000.0)
    assert read.chat_template == CHATML_TEMPLATE
    assert (read.experts, read.mtp_layers, read.split, read.running_state) == (0, 0, None, None)
    assert read.file_size == path.stat().st_size
    assert read.tokenizer is not None
    assert (read.tokenizer.kind, read.tokenizer.size, read.tokenizer.eot_id) == ("SPM", 512, 355)
    data = bytearray(path.read_bytes())
    data[4:8] = struct.pack("<I", 2)
    path.write_bytes(data)
    assert read_header(path).version == 2


@pytest.mark.parametrize("weights", ["F32", "F16", "Q8_0"])
def test_lists_the_tensors_as_the_gguf_library_does(tmp_path: Path, weights: Weights) -> None:
    path = make_model(tmp_path / "model.gguf", weights=weights)
    expected = [
        (one.name, [int(length) for length in one.shape], one.tensor_type.name, int(one.data_offset), int(one.n_bytes))
        for one in gguf.GGUFReader(path).tensors
    ]
    read = read_header(path)
    assert [(one.name, list(one.shape), one.type, one.offset, one.size) for one in read.tensors] == expected
    assert read.parameters == sum(one.elements for one in read.tensors)
    assert read.tensor_bytes == sum(one[4] for one in expected)


def written(path: Path, fill: Edit) -> GgufHeader:
    writer = gguf.GGUFWriter(path, "llama")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_header(path)


def test_takes_the_commonest_type_where_the_file_does_not_name_its_quantization(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        writer.add_tensor("small", np.zeros((8, 8), dtype="float32"))
        writer.add_tensor("large", np.zeros((64, 64), dtype="float16"))

    assert written(tmp_path / "unnamed.gguf", fill).quantization == "F16"


def test_reads_the_rarer_facts(tmp_path: Path) -> None:
    def edit(writer: Any) -> None:
        writer.add_expert_count(8)
        writer.add_expert_used_count(2)
        writer.add_nextn_predict_layers(1)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(128)

    read = read_header(make_model(tmp_path / "model.gguf", edit=edit))
    assert (read.experts, read.experts_used, read.mtp_layers) == (8, 2, 1)
    assert (read.rope.scaling, read.rope.factor, read.rope.original_context) == ("yarn", 4.0, 128)


def test_the_fingerprint_tells_token_lists_apart(tmp_path: Path) -> None:
    def fingerprint(name: str, **options: Any) -> str:
        tokenizer = read_header(make_vocabulary_file(tmp_path / name, **options)).tokenizer
        assert tokenizer is not None
        return tokenizer.fingerprint

    tokens = [f"<{index}>" for index in range(400)]
    swapped = [*tokens[:-2], tokens[-1], tokens[-2]]
    first = fingerprint("a.gguf", tokens=tokens)
    assert first == fingerprint("b.gguf", tokens=tokens, architecture="qwen2", width=128)
    assert first != fingerprint("c.gguf", tokens=swapped)


# ---------------------------------------------------------------- files that are no model for llama.cpp


@pytest.mark.parametrize(
    ("architecture", "part"),
    [
        ("clip", "vision or audio part"),
        ("bert", "is an embedding model"),
        ("t5", "encoder–decoder"),
        ("eagle3", "is the EAGLE-3 head of a model. Open that model"),
        ("dflash", "is a DFlash drafter, which this version"),
        ("dspark", "is a DSpark drafter, which this version"),
        ("dream", "is a diffusion language model"),
    ],
)
def test_refuses_models_that_do_not_write_text(tmp_path: Path, architecture: str, part: str) -> None:
    assert part in refused(small(tmp_path, architecture=architecture))


@pytest.mark.parametrize(("kind", "part"), [("adapter", "adapter (LoRA)"), ("mmproj", "Open the model itself")])
def test_refuses_parts_of_models(tmp_path: Path, kind: str, part: str) -> None:
    assert part in refused(small(tmp_path, edit=lambda writer: writer.add_type(kind)))
    vocabulary = read_header(make_vocabulary_file(tmp_path / "vocab.gguf"))
    assert refused(vocabulary) == "vocab.gguf contains only a vocabulary, no model."


def test_refuses_what_llama_cpp_cannot_take(tmp_path: Path) -> None:
    path = tmp_path / "raw.gguf"
    weights = [tensor("token_embd.weight", [32], 0, 0)]

    def problem(*pairs: bytes) -> str:
        path.write_bytes(header(list(pairs), weights) + bytes(1024))
        return refused(read_header(path))

    llama = string("general.architecture", "llama")
    assert "which architecture" in problem()
    assert "0 layers" in problem(llama)
    assert "100,000 layers" in problem(llama, uint32("llama.block_count", 100_000))
    assert "no tokenizer" in problem(llama, uint32("llama.block_count", 1))
    negative = pair("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", -1.0))
    assert "_rms_epsilon is -1.0" in problem(llama, uint32("llama.block_count", 1), negative)
    heads = uint32("llama.attention.head_count_kv", 2**30 + 2)
    assert "head_count_kv is 1,073,741,826" in problem(llama, uint32("llama.block_count", 1), heads)
    long_template = string("tokenizer.chat_template", "x" * 300_000)
    assert "chat template of 300,000 bytes" in problem(llama, uint32("llama.block_count", 1), long_template)


@pytest.mark.parametrize("spelling", ["<7>", "<7>\0x", "[EMPTY_398]"])
def test_refuses_a_token_that_is_there_twice(tmp_path: Path, spelling: str) -> None:
    """llama.cpp would stop the process; it ends tokens at a zero byte and gives empty ones a name."""
    tokens = [*(f"<{index}>" for index in range(398)), ""]
    assert "same token twice" in refused(small(tmp_path, tokens=[*tokens, spelling]))
    check_loadable(small(tmp_path, tokens=[*tokens, "\0"]))


# ---------------------------------------------------------------- split models


@pytest.fixture
def split(tmp_path: Path) -> list[Path]:
    """The three parts of a model."""
    make_model(tmp_path / "split.gguf", max_tensors_per_file=8)
    return sorted(tmp_path.glob("split-*"))


def test_a_split_model_is_one_model(tmp_path: Path, split: list[Path]) -> None:
    read = read_header(split[0])
    check_loadable(read)
    assert read.split is not None
    assert (read.split.number, read.split.count, read.split.missing) == (1, 3, ())
    assert read.parameters == read_header(make_model(tmp_path / "whole.gguf")).parameters
    assert read.file_size == sum(file.stat().st_size for file in split)


def test_a_split_model_that_is_not_whole(split: list[Path]) -> None:
    problem = refused(read_header(split[2]))
    assert problem.endswith("Open its first part, split-00001-of-00003.gguf.")
    content = split[1].read_bytes()
    split[1].unlink()
    assert refused(read_header(split[0])) == (
        "split-00001-of-00003.gguf is part 1 of 3 of a model, but these files are missing: split-00002-of-00003.gguf."
    )
    split[1].write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match=r"^split-00002-of-00003.gguf is not a GGUF model file\.$"):
        read_header(split[0])
    split[1].write_bytes(content)
    assert "was renamed" in refused(read_header(split[0].rename(split[0].with_name("renamed.gguf"))))


def test_parts_that_were_mixed_up_are_noticed(tmp_path: Path, split: list[Path]) -> None:
    first, second, third = split
    third.write_bytes(second.read_bytes())
    with pytest.raises(ModelFileError, match=r"^split-00003-.* is named part 3 of a model, but says it is part 2\.$"):
        read_header(first)
    make_model(tmp_path / "other.gguf", max_tensors_per_file=10)
    (tmp_path / "other-00003-of-00003.gguf").rename(third)
    with pytest.raises(
        ModelFileError, match="is damaged: its parts contain 17 tensors instead of the 21 different ones"
    ):
        read_header(first)
