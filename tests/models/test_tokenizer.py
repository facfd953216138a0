"""Our reading of tokenizers against llama.cpp's own."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from app.models.gguf import read_header
from tests.support.gguf_files import Vocabulary, bpe_vocabulary, make_vocabulary_file, spm_vocabulary

KINDS = {
    llama_cpp.LLAMA_VOCAB_TYPE_SPM: "SPM",
    llama_cpp.LLAMA_VOCAB_TYPE_BPE: "BPE",
    llama_cpp.LLAMA_VOCAB_TYPE_WPM: "WPM",
    llama_cpp.LLAMA_VOCAB_TYPE_UGM: "UGM",
}
PRE = ["gpt-2", "llama-bpe", "qwen2", "tekken", "glm4", "chameleon", "falcon3", "deepseek-v3", "smollm", "default"]


def ours(path: Path) -> dict[str, Any]:
    tokenizer = read_header(path).tokenizer
    assert tokenizer is not None
    return {
        "kind": tokenizer.kind,
        "size": tokenizer.size,
        "bos": tokenizer.bos_id,
        "eos": tokenizer.eos_id,
        "add_bos": tokenizer.add_bos,
        "add_eos": tokenizer.add_eos,
        "texts": list(tokenizer.tokens),
    }


def llama_cpps(path: Path) -> dict[str, Any]:
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    assert model
    try:
        vocabulary = llama_cpp.llama_model_get_vocab(model)
        size = llama_cpp.llama_vocab_n_tokens(vocabulary)
        bos, eos = llama_cpp.llama_vocab_bos(vocabulary), llama_cpp.llama_vocab_eos(vocabulary)
        return {
            "kind": KINDS[llama_cpp.llama_vocab_type(vocabulary)],
            "size": size,
            "bos": bos if bos >= 0 else None,
            "eos": eos if eos >= 0 else None,
            "add_bos": bool(llama_cpp.llama_vocab_get_add_bos(vocabulary)),
            "add_eos": bool(llama_cpp.llama_vocab_get_add_eos(vocabulary)),
            "texts": [llama_cpp.llama_vocab_get_text(vocabulary, id_) for id_ in range(size)],
        }
    finally:
        llama_cpp.llama_model_free(model)


def vocabularies() -> list[Vocabulary]:
    spm = [
        replace(spm_vocabulary(), add_bos=add_bos, add_eos=add_eos, bos=bos)
        for add_bos, add_eos, bos in itertools.product((None, True, False), (None, True), (None, 0))
    ]
    bpe = [
        replace(bpe_vocabulary(), pre=pre, add_bos=add_bos, bos=bos, eos=eos)
        for pre, add_bos, (bos, eos) in itertools.product(PRE, (None, False), ((None, None), (1, 2)))
    ]
    return [*spm, *bpe, replace(bpe_vocabulary(), model="gemma4", add_bos=False)]


@pytest.mark.parametrize("vocabulary", vocabularies(), ids=itertools.count())
def test_reads_a_tokenizer_as_llama_cpp_does(tmp_path: Path, vocabulary: Vocabulary) -> None:
    path = make_vocabulary_file(tmp_path / "vocabulary.gguf", vocabulary=vocabulary)
    assert ours(path) == llama_cpps(path)


def test_ignores_special_tokens_outside_the_vocabulary_as_llama_cpp_does(tmp_path: Path) -> None:
    vocabulary = replace(spm_vocabulary(), bos=5000, eos=4_000_000_000, eot=None)
    path = make_vocabulary_file(tmp_path / "vocabulary.gguf", vocabulary=vocabulary)
    assert ours(path) == llama_cpps(path)
    assert ours(path)["bos"] == 1
