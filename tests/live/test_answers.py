"""Answers, their figures, and what can be asked of them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from app.protocol.commands import Cancel, CountTokens, Image, Message
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


def test_without_a_draft_nothing_was_drafted(engine: RemoteEngine, plain: LiveServer) -> None:
    engine.connect(plain.url)
    draft = engine.answer(COUNT, **GREEDY, max_tokens=20).finished.figures.draft
    assert (draft.drafted, draft.accepted, draft.acceptance_rate) == (0, 0, None)
    assert draft.source == ("counters" if plain.product.kind == "vllm" else "live")  # known, not unknown


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


def test_two_windows_at_once(drafting: LiveServer) -> None:
    """Counters contain what others asked, and never come out as less than nothing."""
    with RemoteEngine() as first, RemoteEngine() as second:
        for one in (first, second):
            one.connect(drafting.url)
            one.ask(COUNT, **GREEDY, max_tokens=30)
        for draft in (one.end().finished.figures.draft for one in (first, second)):
            assert 0 <= draft.accepted <= draft.drafted


# ------------------------------------------------------------ settings


def test_thinking_is_asked_for_in_every_way(engine: RemoteEngine, drafting: LiveServer) -> None:
    """SmolLM2 doesn't think; no server minds being asked."""
    pair = engine.connect(drafting.url)
    for level in ["", *pair.thinking]:
        answered = engine.answer(COUNT, **GREEDY, thinking=level, thinking_budget=5, max_tokens=4)
        assert answered.finished.figures.completion_tokens == 4


SAMPLERS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1e-4},
    {"temperature": 2.0},
    {"top_p": 1e-6},
    {"top_p": 1.0, "top_k": 0},
    {"top_p": 0.9, "top_k": 5},  # vLLM 0.32.0 dies of top-k alone while it drafts, on processors
    {"top_p": 0.9, "top_k": 1_000_000},
    {"min_p": 0.0},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"repetition_penalty": 0.5},
    {"repetition_penalty": 10.0},
    {"frequency_penalty": 2.0, "presence_penalty": -2.0},
    {"penalty_window": 0, "repetition_penalty": 1.1},
    {"temperature": 2.5},
    {"frequency_penalty": -2.5},
]
BEYOND_VLLM = ({"temperature": 2.5}, {"frequency_penalty": -2.5})


@pytest.mark.parametrize("values", SAMPLERS, ids=str)
def test_samplers(engine: RemoteEngine, drafting: LiveServer, values: dict[str, Any]) -> None:
    engine.connect(drafting.url)
    answered = engine.answer(COUNT, sampling=Sampling(**values), chosen=list(values), max_tokens=4, seed=2**31 - 2)
    if drafting.product.kind == "vllm" and values in BEYOND_VLLM:
        (name,), (value,) = values, values.values()
        assert answered.failed.cause == "refused"
        assert f"{name} must be in [" in answered.failed.message and str(value) in answered.failed.message
    else:
        assert answered.finished.finish_reason in ("length", "end")


def test_min_p_is_sent_where_nothing_is_drafted(engine: RemoteEngine, plain: LiveServer) -> None:
    """Of 1, it leaves only the most likely token."""
    engine.connect(plain.url)
    greedy = engine.answer(COUNT, **GREEDY, max_tokens=20).text()
    only = Sampling(temperature=1.0, min_p=1.0)
    assert engine.answer(COUNT, sampling=only, chosen=["temperature", "min_p"], max_tokens=20).text() == greedy


@pytest.mark.parametrize("most", [1, 7, CONTEXT, 10 * CONTEXT])
def test_how_long_an_answer_may_get(engine: RemoteEngine, drafting: LiveServer, most: int) -> None:
    engine.connect(drafting.url)
    finished = engine.answer(COUNT, **GREEDY, max_tokens=most).finished
    assert 0 < finished.figures.completion_tokens <= most
    assert finished.finish_reason == ("length" if most < 8 else "end")


def test_a_stop_string_ends_it(engine: RemoteEngine, drafting: LiveServer) -> None:
    engine.connect(drafting.url)
    whole = engine.answer(COUNT, **GREEDY, max_tokens=30).text()
    word = whole.split()[3]
    stopped = engine.answer(COUNT, **GREEDY, max_tokens=30, stop=[word])
    assert stopped.text() == whole[: whole.index(word)]
    # llama-server doesn't say which one it was.
    assert stopped.finished.finish_reason == ("stop_string" if drafting.product.kind == "vllm" else "end")


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


def test_thinking_that_was_cut_is_continued_or_refused(engine: RemoteEngine, drafting: LiveServer) -> None:
    engine.connect(drafting.url)
    begun = [*COUNT, Message(role="assistant", content="", thinking="They want me to count")]
    answered = engine.answer(begun, **GREEDY, continue_last=True, max_tokens=4)
    if drafting.product.kind == "vllm":
        assert answered.failed.message.startswith("vLLM can't continue an answer's thinking.")
    else:
        assert answered.finished.figures.completion_tokens == 4


# ------------------------------------------------------------ what it can't


def test_images_are_refused(engine: RemoteEngine, drafting: LiveServer, tmp_path: Any) -> None:
    image = tmp_path / "image.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n")
    engine.connect(drafting.url)
    shown = [Message(role="user", content="What is this?", images=(Image(path=str(image), sha256="0" * 64),))]
    message = engine.answer(shown, **GREEDY).failed.message
    assert "doesn't say that this model can see images. Remove the images" in message


def test_a_chat_that_is_too_long(engine: RemoteEngine, drafting: LiveServer) -> None:
    engine.connect(drafting.url)
    failed = engine.answer([Message(role="user", content="word " * 6000)], **GREEDY).failed
    assert failed.cause == "context"
    numbers = failed.message.replace(",", "")
    assert str(CONTEXT) in numbers and any(str(tokens) in numbers for tokens in (CONTEXT + 1, failed.prompt_tokens))


def test_a_chat_that_leaves_too_little_for_its_answer(engine: RemoteEngine, drafting: LiveServer) -> None:
    engine.connect(drafting.url)
    asked = [Message(role="user", content="word " * (CONTEXT - 60))]
    for most in (500, None):
        finished = engine.answer(asked, **GREEDY, max_tokens=most).finished
        assert finished.finish_reason == "context"
        assert CONTEXT - 2 < finished.figures.prompt_tokens + finished.figures.completion_tokens <= CONTEXT


def test_tokens_are_counted(engine: RemoteEngine, drafting: LiveServer) -> None:
    engine.connect(drafting.url)
    prompt = engine.answer(COUNT, **GREEDY, max_tokens=1).finished.figures.prompt_tokens
    engine.send(CountTokens(request=99, messages=COUNT))
    counted = engine.until(TokensCounted)
    assert (counted.system + counted.messages + counted.text, counted.context_length) == (prompt, CONTEXT)


def test_another_model_is_missed(engine: RemoteEngine, drafting: LiveServer) -> None:
    failed = engine.try_to_connect(drafting.url, model="another")
    assert "doesn't have the model “another”" in getattr(failed, "message", "")
