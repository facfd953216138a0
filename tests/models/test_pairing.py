"""Verdicts on pairs, from real files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.models.gguf import GgufHeader, read_header
from app.models.pairing import compare
from tests.support.gguf_files import bpe_vocabulary, make_model, make_vocabulary_file, spm_vocabulary

TOKENS = spm_vocabulary(400).tokens


def model(path: Path, **options: Any) -> GgufHeader:
    return read_header(make_vocabulary_file(path, **options))


def with_token(index: int, spelling: str) -> list[str]:
    return [*TOKENS[:index], spelling, *TOKENS[index + 1 :]]


def test_the_same_vocabulary_fits_whatever_the_models_are_called(tmp_path: Path) -> None:
    target = model(tmp_path / "qwen-large.gguf", name="Large", width=128)
    verdict = compare(target, model(tmp_path / "something-else.gguf", name="Other", architecture="qwen2"))
    assert verdict.fits
    assert verdict.reason == "Compatible: same vocabulary of 512 tokens."
    assert (verdict.target_tokens, verdict.draft_tokens, verdict.first_difference) == (512, 512, None)


def test_names_the_first_different_token_with_both_spellings(tmp_path: Path) -> None:
    target = model(tmp_path / "target.gguf", tokens=with_token(139, "▁▁"))
    draft = model(tmp_path / "draft.gguf", tokens=with_token(139, "\n\n"))
    verdict = compare(target, draft)
    assert not verdict.fits
    assert verdict.reason == 'The vocabularies differ: token 139 is "▁▁" in the target and "\\n\\n" in the draft.'
    assert verdict.first_difference == 139
    assert verdict.warning is None


@pytest.mark.parametrize(("index", "fits"), [(4, True), (5, False), (399, False)])
def test_the_first_five_tokens_may_differ(tmp_path: Path, index: int, fits: bool) -> None:
    draft = model(tmp_path / "draft.gguf", tokens=with_token(index, "other"))
    verdict = compare(model(tmp_path / "target.gguf", tokens=TOKENS), draft)
    assert (verdict.fits, verdict.first_difference) == (fits, None if fits else index)


def test_up_to_128_more_tokens_are_tolerated(tmp_path: Path) -> None:
    small = model(tmp_path / "400.gguf", vocab_size=400)
    at_limit, beyond = model(tmp_path / "528.gguf", vocab_size=528), model(tmp_path / "529.gguf", vocab_size=529)
    fitting = compare(at_limit, small)
    assert (fitting.fits, compare(small, at_limit).fits) == (True, True)
    assert fitting.reason == "Compatible: same vocabulary, with 528 tokens in the target and 400 in the draft."
    refused = compare(beyond, small)
    assert (refused.fits, compare(small, beyond).fits) == (False, False)
    assert refused.reason == (
        "The vocabularies differ in size: 529 tokens in the target and 400 in the draft. "
        "At most 128 tokens of difference are allowed."
    )


def test_another_kind_of_vocabulary(tmp_path: Path) -> None:
    target = model(tmp_path / "bpe.gguf", tokenizer="gpt2")
    verdict = compare(model(tmp_path / "spm.gguf"), target)
    assert verdict.reason == "The vocabularies are of different kinds: SPM in the target, BPE in the draft."
    assert compare(target, target).fits
    bare = model(tmp_path / "bare.gguf", vocabulary=replace(spm_vocabulary(), model=""))
    assert compare(target, bare).reason == "The draft has no tokenizer to compare."
    assert compare(bare, target).reason == "The target has no tokenizer to compare."


def test_rules_for_the_begin_of_text_token(tmp_path: Path) -> None:
    adds = model(tmp_path / "adds.gguf", vocabulary=replace(bpe_vocabulary(), add_bos=True))
    adds_other = model(tmp_path / "other.gguf", vocabulary=replace(bpe_vocabulary(), add_bos=True, bos=1))
    lacks = model(tmp_path / "lacks.gguf", vocabulary=replace(bpe_vocabulary(), add_bos=False))
    lacks_other = model(tmp_path / "lacks-other.gguf", vocabulary=replace(bpe_vocabulary(), add_bos=False, bos=1))
    silent = model(tmp_path / "silent.gguf", vocabulary=replace(bpe_vocabulary(), add_bos=None))
    assert compare(adds, lacks).reason == (
        "The target begins every text with its begin-of-text token, but the draft doesn't."
    )
    assert compare(adds, adds_other).reason == (
        "The begin-of-text token is number 0 in the target and number 1 in the draft."
    )
    assert compare(lacks, lacks_other).fits
    assert compare(lacks, silent).fits


def test_rules_for_the_end_of_text_token(tmp_path: Path) -> None:
    adds = model(tmp_path / "adds.gguf", vocabulary=replace(spm_vocabulary(), add_eos=True))
    adds_other = model(tmp_path / "other.gguf", vocabulary=replace(spm_vocabulary(), add_eos=True, eos=0))
    lacks = model(tmp_path / "lacks.gguf")
    assert (
        compare(lacks, adds).reason == "The draft ends every text with its end-of-text token, but the target doesn't."
    )
    assert compare(adds, adds_other).reason == (
        "The end-of-text token is number 2 in the target and number 0 in the draft."
    )


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [("mamba2", "recurrent"), ("rwkv7", "recurrent"), ("qwen35", "hybrid"), ("lfm2", "hybrid"), ("young", "hybrid")],
)
def test_models_with_a_running_state_may_draft_and_be_drafted_for(tmp_path: Path, architecture: str, kind: str) -> None:
    def of_an_architecture_younger_than_this_version(writer: Any) -> None:
        writer.add_ssm_state_size(16)

    ordinary = model(tmp_path / "ordinary.gguf")
    edit = of_an_architecture_younger_than_this_version if architecture == "young" else None
    stateful = model(tmp_path / "stateful.gguf", architecture=architecture, edit=edit)
    assert stateful.running_state == kind
    assert compare(stateful, ordinary).fits and compare(ordinary, stateful).fits


def test_warns_when_the_draft_is_larger_than_a_third_of_the_target(tmp_path: Path) -> None:
    target = read_header(make_model(tmp_path / "target.gguf", weights="F32"))
    half = read_header(make_model(tmp_path / "half.gguf", weights="F16"))
    small = read_header(make_model(tmp_path / "small.gguf", weights="Q8_0", layers=1))
    verdict = compare(target, half)
    assert verdict.fits
    assert verdict.warning is not None
    assert verdict.warning.endswith("% of the target's size. A draft this large may cost more time than it saves.")
    assert compare(target, small).warning is None
