"""What a pair is called."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import FormatChoice
from app.protocol.remote import RemoteModel, Server
from app.settings import Pair
from app.ui.engine.pair_names import (
    guide_files,
    is_author,
    model_title,
    pair_details,
    pair_title,
    parameters_text,
    recent_title,
    recent_titles,
    server_name,
    speaker,
    why_no_tools,
)

GUIDE = ModelInfo(path=guide_files().target, name="guide", parameters=16_300_000)
GUIDE_DRAFT = ModelInfo(path=str(guide_files().draft), name="guide draft", parameters=1_200_000)
LARGE = ModelInfo(path="/models/large.gguf", name="Large Instruct", parameters=8_030_000_000, quantization="Q4_K_M")
SMALL = ModelInfo(path="/models/small.gguf", name="Small 0.6B", parameters=600_000_000)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (0, ""),
        (900_000, "900K"),
        (1_200_000, "1.2M"),
        (16_300_000, "16M"),
        (1_240_000_000, "1.2B"),
        (70_000_000_000, "70B"),
    ],
)
def test_sizes(parameters: int, text: str) -> None:
    assert parameters_text(parameters) == text


def test_the_guide_is_called_what_it_is() -> None:
    pair = PairLoaded(request=1, target=GUIDE, draft=GUIDE_DRAFT)
    assert pair_title(pair) == "Slipstream Guide 16M  +  draft 1.2M"
    assert speaker(pair) == "Guide"
    assert "a tiny model that knows this app" in pair_details(pair)


def test_other_pairs_by_their_names() -> None:
    pair = PairLoaded(request=1, target=LARGE, draft=SMALL, context_length=8192)
    assert pair_title(pair) == "Large Instruct 8B  +  draft Small 0.6B"
    assert pair_title(PairLoaded(request=1, target=LARGE)) == "Large Instruct 8B"
    assert pair_details(pair).splitlines()[-1] == "Context: 8,192 tokens"
    without = PairLoaded(request=1, target=LARGE, template="chatml")  # the file has none
    assert pair_details(without).splitlines()[-1] == "Chat template: ChatML"
    assert pair_title(None) == ""


@pytest.mark.parametrize(
    "name", ["gpt-oss-20b", "Qwen3-30B-A3B", "SmolLM2-135M-Instruct", "llama3.2:3b", "gemma-3-270m"]
)
def test_a_size_in_the_name_is_said_once(name: str) -> None:
    assert model_title(ModelInfo(path="/m.gguf", name=name, parameters=4_000_000_000)) == name


@pytest.mark.parametrize("name", ["Phi-4", "Phi-3-mini-4k-instruct", "llama3.2:latest", "GLM-4.5-Air", "K2"])
def test_a_name_without_a_size_gets_it(name: str) -> None:
    assert model_title(ModelInfo(path="/m.gguf", name=name, parameters=4_000_000_000)) == f"{name} 4B"


def test_an_odd_inner_name_is_in_the_details() -> None:
    odd, alike = "Smollm2 135M 8k Lc100K Mix1 Ep2", "Smollm2 135M Instruct"
    target = ModelInfo(path="/m.gguf", name="SmolLM2-135M-Instruct", inner_name=odd, parameters=135_000_000)
    pair = PairLoaded(request=1, target=target)
    assert pair_title(pair) == "SmolLM2-135M-Instruct"
    assert f"Target: SmolLM2-135M-Instruct · 135M · inner name “{odd}”" in pair_details(pair)
    pair = PairLoaded(request=1, target=replace(target, inner_name=alike))
    assert "inside" not in pair_details(pair)


def test_who_wrote_an_answer() -> None:
    target = ModelInfo(path="/m.gguf", name="SmolLM2-135M-Instruct", inner_name="Smollm2 135M 8k Lc100K Mix1 Ep2")
    pair = PairLoaded(request=1, target=target)
    assert is_author(pair, speaker(pair))
    assert is_author(pair, "Smollm2 135M 8k Lc100K Mix1 Ep2")  # earlier versions
    assert not any(is_author(pair, other) for other in ("", None, "Guide", "SmolLM2-360M-Instruct"))
    assert is_author(PairLoaded(request=1, target=GUIDE), "Guide")
    assert not is_author(None, "SmolLM2-135M-Instruct")


def test_recent_pairs_by_their_names() -> None:
    assert recent_title(Pair("/models/large-Q4_K_M.gguf", "/models/small.gguf")) == "large  +  small"
    assert recent_title(Pair("/models/large.gguf")) == "large"
    assert recent_title(Pair(guide_files().target, guide_files().draft)) == "Slipstream Guide"


def test_two_quantizations_are_told_apart_by_their_files() -> None:
    pairs = [Pair("/a/Large-Q4_K_M.gguf"), Pair("/a/Large-Q8_0.gguf"), Pair("/a/Small-Q8_0.gguf")]
    assert recent_titles(pairs) == ["Large-Q4_K_M.gguf", "Large-Q8_0.gguf", "Small"]


def test_a_model_on_a_server_is_called_by_both() -> None:
    server = Server(kind="llama.cpp", version="b9000", address="http://far.example:8080/api")
    remote = RemoteModel(server=server, model="qwen")
    pair = PairLoaded(request=1, target=ModelInfo(path="", name="qwen"), context_length=4096, remote=remote)
    assert pair_title(pair) == "qwen · far.example:8080"
    assert pair_details(pair) == (
        "Model: qwen\nServer: llama-server b9000\nAddress: http://far.example:8080/api\nContext: 4,096 tokens"
    )
    assert speaker(pair) == "qwen"
    assert recent_title(Pair("qwen", server="http://far.example:8080")) == "qwen · far.example:8080"
    assert recent_title(Pair("", server="http://[")) == "http://["
    own = Server(kind="slipstream", version="slipstream-0.1.0", address="http://127.0.0.1:8642")
    assert server_name(own) == "Slipstream 0.1.0"


def test_when_the_tools_of_a_chat_are_not_offered() -> None:
    large = PairLoaded(request=1, target=LARGE)
    as_json = replace(large, tool_format="llama")
    kinds: tuple[FormatChoice, ...] = ("text", "json_object", "json_schema", "regex", "lark", "gbnf")
    for kind in kinds[:3]:
        assert not why_no_tools(kind, large)
        assert not why_no_tools(kind, None)
    assert not why_no_tools("text", as_json)
    assert "can't be used together" in why_no_tools("json_object", as_json)
    for kind in kinds[3:]:
        assert "answer format “" in why_no_tools(kind, None)
    assert why_no_tools("text", PairLoaded(request=1, target=GUIDE)).startswith("The guide")
