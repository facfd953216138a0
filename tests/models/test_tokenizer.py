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
from tests.support.matrix import in_proof

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


def vocabularies() -> list[Any]:
    """All values of each number; all combinations only in ``make proof``."""
    spm, bpe = spm_vocabulary(), bpe_vocabulary()
    few = [
        *(replace(spm, add_bos=add_bos) for add_bos in (None, True, False)),
        *(replace(spm, add_eos=True, bos=0), replace(spm, bos=5000, eos=4_000_000_000, eot=None)),
        *(replace(bpe, pre=pre, add_bos=None, bos=1, eos=2) for pre in PRE),
        *(replace(bpe, bos=None, eos=None), replace(bpe, model="gemma4", add_bos=False)),
    ]
    spms = [
        replace(spm, add_bos=add_bos, add_eos=add_eos, bos=bos)
        for add_bos, add_eos, bos in itertools.product((None, True, False), (None, True), (None, 0))
    ]
    bpes = [
        replace(bpe, pre=pre, add_bos=add_bos, bos=bos, eos=eos)
        for pre, add_bos, (bos, eos) in itertools.product(PRE, (None, False), ((None, None), (1, 2)))
    ]
    return [*few, *in_proof([*spms, *bpes])]


@pytest.mark.parametrize("vocabulary", vocabularies(), ids=itertools.count())
def test_reads_a_tokenizer_as_llama_cpp_does(tmp_path: Path, vocabulary: Vocabulary) -> None:
    path = make_vocabulary_file(tmp_path / "vocabulary.gguf", vocabulary=vocabulary)
    assert ours(path) == llama_cpps(path)
