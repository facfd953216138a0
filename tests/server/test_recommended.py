"""Where a request says nothing of it, answers are sampled as the model's makers advise."""

from __future__ import annotations

from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import Sampling
from app.server.fields import ChatRequest, Warnings
from app.server.settings import command_for

STARTER = PairLoaded(request=1, target=ModelInfo(path="/m/SmolLM2-135M-Instruct.Q4_1.gguf", name=""))


def sampling(pair: PairLoaded, thinking: str = "", temperature: float | None = None) -> Sampling:
    request = ChatRequest(messages=[], temperature=temperature)
    return command_for(request, pair, [], Warnings(), thinking).sampling


def test_the_makers_values_are_used_unless_the_request_has_its_own() -> None:
    assert sampling(STARTER) == Sampling(temperature=0.2, top_p=0.9)
    assert sampling(STARTER, temperature=1.0) == Sampling(temperature=1.0, top_p=0.9)
