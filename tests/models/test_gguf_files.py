"""The models tests are made with are real ones: llama.cpp loads them and decodes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from app.models.gguf import check_loadable, read_header
from tests.support.gguf_files import Weights, make_model
from tests.support.matrix import in_proof


def greedy(path: Path, prompt: str, count: int) -> list[int]:
    """The most likely continuation, with what llama.cpp's plain decoding gives."""
    model = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, logits_all=True, verbose=False)  # else they are not kept
    tokens = []
    for token in model.generate(model.tokenize(prompt.encode()), temp=0.0, repeat_penalty=1.0):
        tokens.append(int(token))
        if len(tokens) == count:
            break
    assert all(math.isfinite(logit) for logit in model.eval_logits[-1])
    model.close()
    return tokens


@pytest.mark.parametrize("tokenizer", ["llama", "gpt2"])
@pytest.mark.parametrize("weights", ["F16", *in_proof(["F32", "Q8_0"])])
def test_models_load_and_decode(tmp_path: Path, tokenizer: Any, weights: Weights) -> None:
    path = make_model(tmp_path / "model.gguf", tokenizer=tokenizer, weights=weights, kv_heads=1)
    check_loadable(read_header(path))
    assert len(set(greedy(path, "Hello wörld", 20))) > 5


def test_split_models_load(tmp_path: Path) -> None:
    whole, first = make_model(tmp_path / "whole.gguf"), make_model(tmp_path / "split.gguf", max_tensors_per_file=8)
    check_loadable(read_header(first))
    assert greedy(whole, "Once", 10) == greedy(first, "Once", 10)
