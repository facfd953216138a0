"""Which MTP heads there are and can be used, from the headers of files alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.heads import (
    LAYER_INPUTS,
    has_head,
    head_kind,
    head_problem,
    is_assistant,
    is_head_only,
    is_wanted,
    mismatch,
    pays_off,
)
from app.models.pairing import compare
from app.system import KnownError
from tests.support.eagle3_models import make_bare_head
from tests.support.gemma4_models import KINDS, Gemma4, make_assistant, make_gemma4
from tests.support.gguf_files import RandomWeights, Shape, Tensors, llama_weights, make_model
from tests.support.mtp_models import ARCHITECTURES, HeadArchitecture, make_head_file, make_random_model


def renamed(header: GgufHeader, **changes: object) -> GgufHeader:
    return msgspec.structs.replace(header, **changes)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_head_inside_a_model_and_one_by_itself(tmp_path: Path, architecture: HeadArchitecture) -> None:
    inside = read_header(make_random_model(tmp_path / "a.gguf", architecture))
    alone = read_header(make_head_file(tmp_path / "mtp-b.gguf", architecture))
    assert [has_head(one) for one in (inside, alone)] == [True, True]
    assert [is_head_only(one) for one in (inside, alone)] == [False, True]
    assert [head_problem(one) for one in (inside, alone)] == [None, None]
    assert not pays_off(inside) and pays_off(renamed(inside, parameters=4_000_000_000))


def test_neither_a_name_nor_a_number_makes_a_head(tmp_path: Path) -> None:
    """Files from which the head was cut still say that they have a layer of it."""
    model = make_model(tmp_path / "Qwen3.5-MTP.gguf", edit=lambda writer: writer.add_nextn_predict_layers(1))
    header = read_header(model)
    assert not has_head(header) and not is_head_only(header)
    assert head_problem(header) == "Qwen3.5-MTP.gguf has no MTP head."
    counted = renamed(header, mtp_layers=1)
    assert not has_head(counted) and not is_head_only(counted)


@pytest.mark.parametrize("kind", KINDS)
def test_an_assistant_is_a_head_beside_the_targets_of_its_shape(tmp_path: Path, kind: Gemma4) -> None:
    target = read_header(make_gemma4(tmp_path / "a.gguf", kind))
    head = read_header(make_assistant(tmp_path / "b.gguf", kind))
    assert has_head(head) and is_head_only(head) and is_assistant(head) and not has_head(target)
    assert mismatch(target, head) is None
    others = [
        read_header(make_gemma4(tmp_path / "c.gguf", other)) for other in KINDS if (other == "E2B") != (kind == "E2B")
    ]
    others += [read_header(make_gemma4(tmp_path / "d.gguf", kind, width=96)), renamed(target, architecture="gemma3")]
    for other in others:
        assert mismatch(other, head) == "The MTP head in b.gguf belongs to another model."
    with pytest.raises(KnownError, match="is the MTP head of a Gemma 4 model"):
        check_loadable(head)
    check_loadable(head, as_head=True)


def test_an_eagle3_head_is_a_head_of_targets_that_have_the_layers_it_reads(tmp_path: Path) -> None:
    head = read_header(make_bare_head(tmp_path / "eagle3-a.gguf"))
    target = read_header(make_model(tmp_path / "a.gguf", width=96, layers=3))
    assert [head_kind(one) for one in (head, target)] == ["eagle3", None]
    assert has_head(head) and is_head_only(head) and head_problem(head) is None and mismatch(target, head) is None
    assert compare(target, head).reason == "Compatible: the EAGLE-3 head in this file belongs to the target."
    with pytest.raises(KnownError, match="is the EAGLE-3 head of a model"):
        check_loadable(head)
    check_loadable(head, as_head=True)
    of_another = "The EAGLE-3 head in eagle3-a.gguf belongs to another model."
    assert mismatch(read_header(make_model(tmp_path / "b.gguf", width=96, layers=2)), head) == of_another
    assert mismatch(read_header(make_model(tmp_path / "c.gguf", width=64, layers=3)), head) == of_another
    larger = read_header(make_model(tmp_path / "d.gguf", width=96, layers=3, vocab_size=600))
    assert mismatch(larger, head) == of_another
    assert mismatch(renamed(target, mtp_layers=1), head) == of_another  # the last layer is that of an MTP head
    assert "gemma3" not in LAYER_INPUTS and mismatch(renamed(target, architecture="gemma3"), head) == (
        "The EAGLE-3 head in eagle3-a.gguf isn't used, because llama.cpp doesn't output layer inputs of gemma3 models."
    )


def test_a_token_that_differs_is_told_and_does_not_keep_a_head_out(tmp_path: Path) -> None:
    """Single tokens are renamed in some files of a model; the engine loads the head as well."""
    tokens = [f"<{number}>" for number in range(400)]
    target = read_header(make_model(tmp_path / "a.gguf", width=96, layers=3, tokens=tokens))
    head = read_header(make_bare_head(tmp_path / "b.gguf", tokens=[*tokens[:-1], "<pad>"]))
    verdict = compare(target, head)
    assert verdict.fits and verdict.warning is not None
    assert verdict.warning.startswith('The vocabularies differ: token 399 is "<399>" in the target and "<pad>" in the')


def test_a_narrower_eagle3_head_needs_its_own_embeddings_and_output(tmp_path: Path) -> None:
    target = read_header(make_model(tmp_path / "a.gguf", width=96, layers=3))
    narrow = read_header(make_bare_head(tmp_path / "b.gguf", width=64))
    assert mismatch(target, narrow) == "The EAGLE-3 head in b.gguf belongs to another model."
    output = next(tensor for tensor in narrow.tensors if tensor.name == "output.weight")
    embeddings = output._replace(name="token_embd.weight")  # of the same shape
    assert mismatch(target, renamed(narrow, tensors=(*narrow.tensors, embeddings))) is None


def test_eagle3_files_that_llama_cpp_would_stop_at(tmp_path: Path) -> None:
    two = read_header(make_bare_head(tmp_path / "a.gguf", layers=2))
    assert (
        head_problem(two)
        == "The EAGLE-3 head in a.gguf isn't used, because llama.cpp computes only heads with one layer."
    )
    for reads in ((0, 1), (0, 1, 2, 3)):
        problem = head_problem(read_header(make_bare_head(tmp_path / "b.gguf", reads)))
        assert problem is not None and problem.endswith("because the file doesn't say which layers it reads.")
    header = read_header(make_bare_head(tmp_path / "c.gguf"))
    tokens = header.tensors[0]._replace(name="d2t")
    assert head_problem(renamed(header, tensors=(*header.tensors, tokens._replace(type="I64")))) is None
    problem = head_problem(renamed(header, tensors=(*header.tensors, tokens)))
    assert problem is not None and problem.endswith("because llama.cpp can't read its draft vocabulary (d2t).")
    assert head_kind(read_header(make_model(tmp_path / "d.gguf", architecture="eagle3", layers=1))) is None


@pytest.mark.parametrize(
    ("tensor", "title"), [("fc", "DFlash"), ("selector_hidden", "DFlash2"), ("markov_w1", "DSpark")]
)
def test_drafters_of_blocks_are_named_and_refused(tmp_path: Path, tensor: str, title: str) -> None:
    """As llama.cpp's converter writes them: one architecture, told apart by what is in it."""

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        return llama_weights(shape, random) | {f"{tensor}.weight": random.matrix(8, 8, 1.0)}

    header = read_header(make_model(tmp_path / "a.gguf", architecture="dflash", tensors=tensors))
    assert head_kind(header) is None
    with pytest.raises(KnownError, match=f"a.gguf is a {title} drafter, which this version of Slipstream can't use."):
        check_loadable(header)


def test_what_llama_cpp_would_stop_at_is_refused_before(tmp_path: Path) -> None:
    header = read_header(make_random_model(tmp_path / "m.gguf", "glm4moe"))
    sections = {**header.metadata, "glm4moe.rope.dimension_sections": 4}
    assert head_problem(renamed(header, metadata=sections)) == (
        "The MTP head in m.gguf isn't used, because llama.cpp can't compute heads of models for images."
    )
    assert head_problem(renamed(header, mtp_layers=3)) == (
        "The 3 MTP heads in m.gguf aren't used, because llama.cpp can't compute more than one head of glm4moe models."
    )
    assert head_problem(renamed(header, mtp_layers=3, architecture="step35")) == (
        "The MTP heads in m.gguf aren't used, because only 1 of 3 are in the file."
    )
    for name in ("newest", "glm5-next"):
        assert head_problem(renamed(header, architecture=name)) == (
            f"The MTP head in m.gguf isn't used, because llama.cpp can't compute heads of {name} models."
        )
    assert head_problem(renamed(header, architecture="mimo2")) == (
        "The MTP head in m.gguf isn't used, because llama.cpp expects its attention in one tensor."
    )
    embedding, *others = header.tensors
    fused = embedding._replace(name="blk.2.attn_qkv.weight")
    assert head_problem(renamed(header, architecture="mimo2", tensors=[*others, fused])) is None


def test_a_file_with_only_a_head_is_compared_as_one(tmp_path: Path) -> None:
    target = read_header(make_random_model(tmp_path / "target.gguf", "glm4moe", width=384))
    own, other = (read_header(make_head_file(tmp_path / f"{name}.gguf", name)) for name in ARCHITECTURES)
    fits = compare(target, own)
    assert fits.fits and fits.warning is None
    assert fits.reason == "Compatible: the MTP head in this file belongs to the target."
    refused = compare(target, other)
    assert not refused.fits and refused.reason == "The MTP head in qwen35.gguf belongs to another model."
    assert not compare(renamed(target, width=448), own).fits


def test_where_a_head_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = read_header(make_random_model(tmp_path / "m.gguf", "qwen35"))
    dense = renamed(small, parameters=4_000_000_000)
    assert [is_wanted(choice, small, -1) for choice in ("auto", "on", "off")] == [False, True, False]
    assert [is_wanted(choice, dense, -1) for choice in ("auto", "on", "off")] == [True, True, False]
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert [is_wanted("auto", dense, layers) for layers in (-1, 5, 0)] == [False, False, True]
    assert is_wanted("auto", renamed(dense, experts=64), -1)
    assert is_wanted("on", dense, -1)
