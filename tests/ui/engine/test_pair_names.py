"""What a pair is called."""

from __future__ import annotations

import pytest

from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.remote import RemoteModel, Server
from app.settings import Pair
from app.ui.engine.pair_files import guide_files
from app.ui.engine.pair_names import pair_details, pair_title, parameters_text, recent_title, server_name, speaker

GUIDE = ModelInfo(path=guide_files().target, name="guide", parameters=16_300_000)
GUIDE_DRAFT = ModelInfo(path=str(guide_files().draft), name="guide draft", parameters=1_200_000)
LARGE = ModelInfo(path="/models/large.gguf", name="Large Instruct", parameters=8_030_000_000, quantization="Q4_K_M")
SMALL = ModelInfo(path="/models/small.gguf", name="Small 0.6B", parameters=600_000_000)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (0, ""),
        (900_000, "900K"),
        (1_200_000, "1M"),
        (16_300_000, "16M"),
        (1_240_000_000, "1.2B"),
        (70_000_000_000, "70B"),
    ],
)
def test_sizes(parameters: int, text: str) -> None:
    assert parameters_text(parameters) == text


def test_the_guide_is_called_what_it_is() -> None:
    pair = PairLoaded(request=1, target=GUIDE, draft=GUIDE_DRAFT)
    assert pair_title(pair) == "Slipstream Guide 16M  +  draft 1M"
    assert speaker(pair) == "Guide"
    assert "a tiny model that knows this app" in pair_details(pair)


def test_other_pairs_by_their_names() -> None:
    pair = PairLoaded(request=1, target=LARGE, draft=SMALL, context_length=8192)
    assert pair_title(pair) == "Large Instruct 8.0B  +  draft Small 0.6B"
    assert pair_title(PairLoaded(request=1, target=LARGE)) == "Large Instruct 8.0B"
    assert pair_details(pair).splitlines()[-1] == "Context: 8,192 tokens"
    assert pair_title(None) == ""


def test_recent_pairs_by_their_files() -> None:
    assert recent_title(Pair("/models/large.gguf", "/models/small.gguf")) == "large.gguf + small.gguf"
    assert recent_title(Pair("/models/large.gguf")) == "large.gguf"
    assert recent_title(Pair(guide_files().target, guide_files().draft)) == "Slipstream Guide"


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
