"""Answers, their figures, and what can be asked of them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from app.protocol.commands import Cancel, CountTokens, Message
from app.protocol.events import RoundsReceived, TokensCounted
from app.protocol.options import AnswerFormat, Sampling
from tests.support.live_servers import CONTEXT, DRAFT_LENGTH, LiveServer
from tests.support.remote_engine import Answered, RemoteEngine

COUNT = [Message(role="user", content="Say this again: one two three four one two three four one two three four.")]
ENDLESS = [Message(role="user", content="Count from one to a thousand, in words.")]
GREEDY: dict[str, Any] = {"sampling": Sampling(temperature=0.0), "chosen": ["temperature"], "seed": 7}
WARM: dict[str, Any] = {"sampling": Sampling(temperature=0.8, top_p=0.9), "chosen": ["temperature", "top_p"], "seed": 7}
SCHEMA = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "green", "blue"]}, "dark": {"type": "boolean"}},
    "required": ["color", "dark"],
    "additionalProperties": False,
}


def gained(server: LiveServer, before: dict[str, float]) -> dict[str, int]:
    """What was counted since ``before``, under one name for both servers."""
    after = server.metrics()
    prefix = "vllm:" if server.product.kind == "vllm" else "llamacpp:"
    tokens = "generation_tokens_total" if server.product.kind == "vllm" else "tokens_predicted_total"
    names = {"drafted": "draft_tokens_total", "accepted": "accepted_tokens_total"}
    places = {name: f"{prefix}spec_decode_num_{one}" for name, one in names.items()}
    for place in range(DRAFT_LENGTH):
        places[f"position {place}"] = f"{prefix}spec_decode_num_accepted_tokens_per_pos_total[{place}]"
    places |= {"tokens": prefix + tokens, "drafts": f"{prefix}spec_decode_num_drafts_total"}
    places["decodes"] = f"{prefix}n_decode_total"
    return {name: round(after.get(place, 0.0) - before.get(place, 0.0)) for name, place in places.items()}


def positions(counts: list[int]) -> list[int]:
    """As many as the server can draft: those it never reached may be missing."""
    return [*counts, *[0] * DRAFT_LENGTH][:DRAFT_LENGTH]


def assert_same_figures(answered: Answered, counted: dict[str, int], server: LiveServer) -> None:
    """Each of ours is the server's own."""
    figures, draft = answered.finished.figures, answered.finished.figures.draft
    assert figures.completion_tokens == counted["tokens"]
    assert (draft.drafted, draft.tested, draft.accepted) == (
        counted["drafted"],
        counted["drafted"],
        counted["accepted"],
    )
    assert positions(draft.accepted_per_position) == [counted[f"position {place}"] for place in range(DRAFT_LENGTH)]
    # vLLM counts the passes that have a draft; llama-server calls decode for the prompt and for each pass.
    is_vllm = server.product.kind == "vllm"
    assert draft.verify_passes == (counted["drafts"] if is_vllm else counted["decodes"] - 1)
    assert draft.estimated_passes is not is_vllm


def test_each_is_recognized(engine: RemoteEngine, either: LiveServer, plain: LiveServer) -> None:
    pair = engine.connect(f"{either.host}/v1")
    assert pair.remote is not None
    server, remote = pair.remote.server, pair.remote
    assert (server.kind, server.is_loopback, server.address) == (either.product.kind, True, either.url)
    assert (remote.model, pair.context_length) == (either.product.model, CONTEXT)
    assert pair.target.name == either.product.model.removesuffix(".gguf")
    assert remote.can_continue and remote.can_count and {"json_object", "json_schema"} <= set(remote.formats)
    if either.product.kind == "vllm":
        assert server.version == either.product.version
        assert ("min_p" in remote.refused) is (either is not plain)
        assert ("drafts nothing" in remote.figures_note) is (either is plain)
    else:
        assert {"temperature", "top_k", "min_p"} <= set(pair.recommended)


@pytest.mark.parametrize("settings", [GREEDY, WARM], ids=["greedy", "warm"])
def test_figures_are_those_of_the_server(engine: RemoteEngine, drafting: LiveServer, settings: dict[str, Any]) -> None:
    engine.connect(drafting.url)
    engine.answer(COUNT, **settings, max_tokens=1)  # the prompt is in the cache, so that it takes one pass
    before = drafting.metrics()
    answered = engine.answer(COUNT, **settings, max_tokens=40)
    assert_same_figures(answered, gained(drafting, before), drafting)
    draft = answered.finished.figures.draft
    assert draft.source == ("counters" if drafting.product.kind == "vllm" else "live")
    assert settings is WARM or 0 < draft.accepted <= draft.drafted


def test_text_is_what_a_bare_request_gets(engine: RemoteEngine, either: LiveServer) -> None:
    engine.connect(either.url)
    answered = engine.answer(COUNT, **GREEDY, max_tokens=30)
    asked = [{"role": message.role, "content": message.content} for message in COUNT]
    bare = either.chat(messages=asked, temperature=0, seed=7, max_tokens=30).json()
    assert answered.text() == bare["choices"][0]["message"]["content"]
    assert answered.finished.figures.prompt_tokens == bare["usage"]["prompt_tokens"]
    assert answered.finished.figures.completion_tokens == bare["usage"]["completion_tokens"]
    assert answered.started.seed == 7 and answered.finished.figures.decode_tokens_per_second


def test_stop_ends_it_on_the_server(engine: RemoteEngine, either: LiveServer) -> None:
    engine.connect(either.url)
    either.wait_until_idle()
    engine.ask(ENDLESS, **WARM)
    engine.until(RoundsReceived)
    assert either.running() == 1
    engine.send(Cancel())
    assert engine.end().finished.finish_reason == "cancelled"
    either.wait_until_idle()
    assert engine.answer(COUNT, **GREEDY, max_tokens=4).finished.figures.completion_tokens == 4


# ------------------------------------------------------------ settings


def test_thinking_is_asked_for_in_every_way(engine: RemoteEngine, drafting: LiveServer) -> None:
    """SmolLM2 doesn't think; no server minds being asked."""
    pair = engine.connect(drafting.url)
    for level in ["", *pair.thinking]:
        answered = engine.answer(COUNT, **GREEDY, thinking=level, thinking_budget=5, max_tokens=4)
        assert answered.finished.figures.completion_tokens == 4


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_structured_answers(engine: RemoteEngine, either: LiveServer, kind: Any) -> None:
    engine.connect(either.url)
    source = json.dumps(SCHEMA) if kind == "json_schema" else ""
    asked = [Message(role="user", content='Answer with exactly this JSON: {"color": "red", "dark": true}')]
    wanted = AnswerFormat(kind=kind, source=source)
    answered = engine.answer(asked, **GREEDY, format=wanted, max_tokens=200)
    assert answered.finished.finish_reason == "end"
    found = json.loads(answered.text())
    assert isinstance(found, dict)
    if kind == "json_schema":
        jsonschema.validate(found, SCHEMA)


def test_an_answer_is_continued(engine: RemoteEngine, either: LiveServer) -> None:
    engine.connect(either.url)
    whole = engine.answer(COUNT, **GREEDY, max_tokens=30)
    half = whole.text()[: whole.text().index(" ", 12)]
    begun = [*COUNT, Message(role="assistant", content=half)]
    rest = engine.answer(begun, **GREEDY, continue_last=True, max_tokens=30)
    assert rest.text() and not rest.text().startswith(half[:12])
    assert rest.finished.figures.prompt_tokens > whole.finished.figures.prompt_tokens
    if either.product.kind == "llama.cpp":  # a pass over a prompt rounds as one over a token there
        assert (half + rest.text()).startswith(whole.text())


# ------------------------------------------------------------ what it can't


def test_a_chat_that_is_too_long(engine: RemoteEngine, drafting: LiveServer) -> None:
    engine.connect(drafting.url)
    failed = engine.answer([Message(role="user", content="word " * 6000)], **GREEDY).failed
    assert failed.cause == "context"
    numbers = failed.message.replace(",", "")
    assert str(CONTEXT) in numbers and any(str(tokens) in numbers for tokens in (CONTEXT + 1, failed.prompt_tokens))


def test_tokens_are_counted(engine: RemoteEngine, drafting: LiveServer) -> None:
    engine.connect(drafting.url)
    prompt = engine.answer(COUNT, **GREEDY, max_tokens=1).finished.figures.prompt_tokens
    engine.send(CountTokens(request=99, messages=COUNT))
    counted = engine.until(TokensCounted)
    assert (counted.system + counted.messages + counted.text, counted.context_length) == (prompt, CONTEXT)
