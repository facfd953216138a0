"""What ``slipstream inspect`` shows of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from app import words
from app.models.gguf import read_header
from app.models.inspect import describe, describe_pair, readable, readable_pair
from app.models.memory_shape import shape_of
from app.models.pairing import compare
from tests.support.eagle3_models import make_bare_head
from tests.support.gguf_files import CHATML_TEMPLATE, make_model, make_vocabulary_file
from tests.support.mtp_models import make_head_file, make_random_model
from tests.support.raw_gguf import header, string


def test_describes_a_model_as_json(tmp_path: Path) -> None:
    path = make_model(tmp_path / "small.gguf", chat_template=CHATML_TEMPLATE)
    described = json.loads(json.dumps(describe(read_header(path)), allow_nan=False))
    assert described["loadable"] is True
    assert described["problem"] is None
    assert (described["architecture"], described["quantization"], described["layers"]) == ("llama", "F16", 2)
    assert described["tensor_types"] == {"F16": 16, "F32": 5}
    assert described["tokenizer"]["tokens"] == 512
    assert described["tokenizer"]["add_bos"] is True
    assert described["rope"]["base"] == 10000.0
    assert described["chat_template"] == CHATML_TEMPLATE
    assert described["kept_state"] is None
    assert described["experts"] is None


def test_describes_a_pair_and_what_cannot_be_loaded(tmp_path: Path) -> None:
    target = read_header(make_model(tmp_path / "target.gguf"))
    draft = read_header(make_vocabulary_file(tmp_path / "draft.gguf", tokenizer="gpt2"))
    verdict = compare(target, draft)
    described = json.loads(json.dumps(describe_pair(target, draft, verdict), allow_nan=False))
    assert described["pair"]["fits"] is False
    assert described["pair"]["reason"] == verdict.reason
    assert described["draft"]["tokenizer"]["kind"] == "BPE" and described["draft"]["loadable"] is False
    assert described["draft"]["problem"] == "draft.gguf contains only a vocabulary, no model."
    assert readable_pair(target, draft, verdict).splitlines()[-1] == verdict.reason


def test_the_readable_form_has_a_line_a_fact(tmp_path: Path) -> None:
    def edit(writer: Any) -> None:
        writer.add_expert_count(8)
        writer.add_expert_used_count(2)

    path = make_model(tmp_path / "small.gguf", name="Small", heads=4, kv_heads=2, weights="Q8_0", edit=edit)
    lines = dict(line.split(":", 1) for line in readable(read_header(path)).splitlines())
    facts = {label: text.strip() for label, text in lines.items()}
    assert (facts["Name"], facts["Inner name"]) == ("small", "Small")
    assert facts["Size"] == "140K parameters, Q8_0, 149 KB of weights"
    assert facts["Shape"] == "2 layers, 4 heads, 2 key/value heads, width 64"
    assert facts["Context"] == "512 tokens in training"
    assert facts["Experts"] == "8, 2 used per token"
    assert facts["Tokenizer"] == "SPM (llama), 512 tokens, pre-tokenizer default"
    assert facts["Special"] == 'BOS 1 "<s>", EOS 2 "</s>", EOT 355 "<|im_end|>", adds BOS'
    assert facts["Template"] == "none (ChatML is used)"
    assert facts["Loadable"] == "yes"


def test_says_what_mtp_head_there_is(tmp_path: Path) -> None:
    def row(path: Path, **changes: Any) -> str | None:
        header = msgspec.structs.replace(read_header(path), **changes)
        lines = dict(line.split(":", 1) for line in readable(header).splitlines())
        return lines["MTP head"].strip() if "MTP head" in lines else None

    model = make_random_model(tmp_path / "model.gguf", "glm4moe")
    size = words.size(shape_of(read_header(model)).skipped)
    assert row(model) == f"inside, 1 layer, {size}"
    assert row(model, architecture="newest") == (
        f"inside, 1 layer, {size}. The MTP head in model.gguf isn't used, because llama.cpp can't compute heads of "
        "newest models."
    )
    assert row(make_head_file(tmp_path / "mtp.gguf", "qwen35")) == "without the model it belongs to, 1 layer, 7.7 MB"
    cut = make_model(tmp_path / "cut.gguf", layers=3, edit=lambda writer: writer.add_nextn_predict_layers(1))
    assert row(cut) == "not in this file (1 layer)"
    eagle3 = readable(read_header(make_bare_head(tmp_path / "eagle3.gguf", (2, 18, 33))))
    assert "EAGLE-3 head: without the model it belongs to, reads layers 2, 18, 33, " in eagle3
    assert row(make_model(tmp_path / "plain.gguf")) is None


def test_nothing_in_a_file_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "hostile.gguf"
    bell = "\x1b]0;owned\x07\r\n"
    pairs = [string("general.architecture", "llama" + bell), string("general.name", bell), string("general.type", bell)]
    path.write_bytes(header(pairs))
    text = readable(read_header(path))
    assert all(line.isprintable() for line in text.splitlines())
    assert "\\x1b]0;owned\\x07\\r\\n" in text
