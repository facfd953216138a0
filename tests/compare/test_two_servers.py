"""Whether two servers have the same model, as far as they say."""

from __future__ import annotations

from app.compare.two_servers import chosen_for_both, differences, names
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.remote import RemoteModel, Server


def pair(name: str, context_length: int = 0, recommended: list[str] | None = None) -> PairLoaded:
    server = Server(kind="vllm", version="0.29.0", address=f"http://127.0.0.1/{name}")
    return PairLoaded(
        request=0,
        target=ModelInfo(path="", name=name),
        context_length=context_length,
        recommended=recommended or [],
        remote=RemoteModel(server=server, model=name),
    )


def test_the_same_model_in_another_context() -> None:
    assert differences(pair("m", 4096), pair("m", 4096)) == []
    assert differences(pair("m", 4096), pair("m")) == []  # it doesn't say
    assert differences(pair("m", 4096), pair("m", 2048)) == [
        "The context lengths differ: 2,048 tokens without a draft, 4,096 with a draft."
    ]


def test_another_model_is_named_in_the_report() -> None:
    mine, other = pair("m"), pair("m\u202e2")
    assert differences(mine, other) == [
        "The models have different names: “m\\u202e2” without a draft, “m” with a draft."
    ]
    assert names(mine, other) == ["vLLM 0.29.0", "vLLM 0.29.0, model m\\u202e2"]
    assert names(mine) == ["vLLM 0.29.0"]
    assert names(PairLoaded(request=0, target=ModelInfo(path="/m.gguf", name="m"), context_length=1)) == []


def test_both_sample_as_the_first_one_says_it_does() -> None:
    told = pair("m", recommended=["temperature", "top_k"])
    assert chosen_for_both(["temperature", "seed"], told) == ["temperature", "seed", "top_k"]
    assert chosen_for_both([], pair("m")) == []
    assert chosen_for_both(None, told) is None  # everything was chosen
