"""From files to models, with names as they are in use."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.hub.repository import RemoteFile, group, vision_files
from app.models.names import quantization


def file(path: str, size: int = 1000) -> RemoteFile:
    return RemoteFile(repository="maker/model", commit="0" * 40, path=path, size=size, sha256="0" * 64)


def names(*paths: str) -> list[str]:
    return [model.name for model in group(map(file, paths))]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-0.5b-instruct-q8_0.gguf", "Q8_0"),
        ("Qwen3.8-27B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("Qwen3.8-27B-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"),
        ("model.Q4_K_S.gguf", "Q4_K_S"),
        ("model-IQ4_NL.gguf", "IQ4_NL"),
        ("model-IQ4_XS.gguf", "IQ4_XS"),
        ("model-IQ1_M.gguf", "IQ1_M"),
        ("model-Q6_K.gguf", "Q6_K"),
        ("model-Q2_K_L.gguf", "Q2_K_L"),
        ("model-Q8_K_XL.gguf", "Q8_K_XL"),
        ("model-Q4_0_4_8.gguf", "Q4_0_4_8"),
        ("model-TQ1_0.gguf", "TQ1_0"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("model-mxfp4_moe.gguf", "MXFP4_MOE"),
        ("model-BF16.gguf", "BF16"),
        ("model-fp16.gguf", "F16"),
        ("model-f32.gguf", "F32"),
        ("BF16/model-00001-of-00002.gguf", "BF16"),
        ("UD-Q2_K_XL/model-UD-Q2_K_XL-00001-of-00003.gguf", "UD-Q2_K_XL"),
        ("Q4_0-to-Q4_K_M/model-Q5_0.gguf", "Q5_0"),
        ("Q8/model.gguf", ""),
        ("model.gguf", ""),
        ("aq4_k_mb.gguf", ""),
        ("Model-F16x.gguf", ""),
    ],
)
def test_quantization_as_the_name_says_it(path: str, expected: str) -> None:
    assert quantization(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "model-Q4_K_M.gguf.part",
        "mmproj-model-F16.gguf",
        "model.mmproj-Q8_0.gguf",
        "imatrix.gguf",
        "model-imatrix.gguf",
        "ggml-vocab-llama-bpe.gguf",
        "mtp-gemma-4-E2B-it.gguf",
        "MTP/mtp-gemma-4-E2B-it.gguf",
        "model-MTP-head-Q8_0.gguf",
        "model-LoRA-f16.gguf",
        "adapter.gguf",
        "model-eagle3-Q4_K_M.gguf",
        "Qwen3.8-27B-DFlash2-Q4_K_M.gguf",
        "model-control-vector.gguf",
    ],
)
def test_files_that_are_no_models(path: str) -> None:
    assert names(path) == []


def test_vision_files_are_told_by_their_names() -> None:
    paths = ["mmproj-F16.gguf", "sub/model.mmproj-Q8_0.gguf", "mmproject.gguf", "mmproj-F16.json", "model.gguf"]
    found = vision_files(file(path, size) for size, path in enumerate(paths, 1))
    assert [(model.name, model.quantization) for model in found] == [
        ("mmproj-F16.gguf", "F16"),
        ("model.mmproj-Q8_0.gguf", "Q8_0"),
    ]


def test_parts_are_put_together_in_order_and_incomplete_ones_left_out() -> None:
    paths = [f"Q8_0/big-Q8_0-{number:05d}-of-00003.gguf" for number in (3, 1, 2)]
    cut = ["Q4_0/big-Q4_0-00001-of-00002.gguf", "cut-00002-of-00003.gguf", "none-00000-of-00001.gguf"]
    (model,) = group([file(path, size) for size, path in enumerate([*paths, *cut], 1)])
    assert [part.path for part in model.files] == sorted(paths)
    assert (model.size, model.quantization, model.name) == (6, "Q8_0", "big-Q8_0-00001-of-00003.gguf")


PIECES = st.sampled_from(
    ["model", "-", "Q4_K_M", "00001", "-of-", "00002", "-00001-of-00002", "-00002-of-00002", "/", ".gguf", "mtp", "UD"]
)


@given(st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=12, unique=True), st.randoms())
def test_any_names(paths: list[str], order: random.Random) -> None:
    models = group(map(file, paths))
    used = [part.path for model in models for part in model.files]
    assert len(used) == len(set(used))
    assert set(used) <= set(paths)
    order.shuffle(paths)
    assert group(map(file, paths)) == models
