"""``/v1/chat/completions``: what is asked is what the engine does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.client.process import EngineProcess
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import Round
from app.protocol.options import Sampling
from tests.support.served import Json, Served, text_of
from tests.support.thinking_models import ENDLESS, make_thinking_model

OFF: Json = {"chat_template_kwargs": {"enable_thinking": False}}
SHORT: Json = {"max_tokens": 12, "temperature": 0.0}


def refused(server: Served, **fields: Any) -> tuple[int, Json]:
    body = {"messages": [{"role": "user", "content": "Well?"}], "max_tokens": 4, **fields}
    answer = server.post("/v1/chat/completions", body)
    error: Json = answer.json()["error"]
    assert error["code"] == answer.status_code and error["message"]
    return answer.status_code, error


def test_an_answer(server: Served) -> None:
    answer = server.chat(**OFF)
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": " yes no."}
    assert choice["finish_reason"] == "stop" and choice["index"] == 0
    assert answer["object"] == "chat.completion" and answer["model"] == server.model == "endless"
    assert answer["id"].startswith("chatcmpl-")


def test_thinking_goes_apart_and_has_a_limit(server: Served) -> None:
    (choice,) = server.chat(**SHORT)["choices"]
    assert choice["message"]["reasoning_content"] == (" so then" * 6).strip()
    assert choice["message"]["content"] == "" and choice["finish_reason"] == "length"
    (choice,) = server.chat(thinking_budget_tokens=4, max_tokens=60)["choices"]
    assert choice["message"]["reasoning_content"].startswith("so then so then")
    assert choice["message"]["content"].strip() == "yes no."


def test_what_a_template_does_not_declare_is_left_out(server: Served) -> None:
    wanted: Json = {
        "chat_template_kwargs": {"enable_thinking": False, "messages": "no", "unheard_of": 1, "tools": None}
    }
    assert server.chat(**wanted)["choices"][0]["message"]["content"] == " yes no."


def test_a_stream_says_the_same(server: Served) -> None:
    whole = server.chat(seed=3, max_tokens=40)
    parts = server.streamed(seed=3, max_tokens=40)
    assert text_of(parts, "reasoning_content") == whole["choices"][0]["message"]["reasoning_content"]
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]
    assert len({part["id"] for part in parts}) == 1
    assert parts[-1]["timings"]["predicted_n"] == 40
    assert all("usage" not in part for part in parts)


def test_usage_has_a_part_of_its_own_where_it_is_asked_for(server: Served) -> None:
    *parts, last = server.streamed(stream_options={"include_usage": True}, **SHORT)
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 12
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 12
    assert last["timings"]["predicted_n"] == 12
    assert all(part["choices"] for part in parts) and "timings" not in parts[-1]


def test_it_is_the_text_of_the_engine(server: Served, endless_pair: Any) -> None:
    with EngineProcess() as engine:
        engine.load(Load(request=0, target=str(endless_pair[0])))
        events = engine.generate(
            Generate(
                request=0,
                messages=[Message(role="user", content="Well?")],
                sampling=Sampling(temperature=1.0),
                seed=7,
                max_tokens=50,
                thinking_budget=20,
            )
        )
        pieces = [piece for event in events if isinstance(event, Round) for piece in event.pieces]
    message = server.chat(seed=7, max_tokens=50, temperature=1.0, thinking_budget_tokens=20)["choices"][0]["message"]
    assert message["content"] == "".join(piece.text for piece in pieces if not piece.thinking)
    assert message["reasoning_content"] == "".join(piece.text for piece in pieces if piece.thinking)


def test_figures_in_three_dialects_agree(server: Served) -> None:
    answer = server.chat(max_tokens=200, temperature=0.0)
    timings, own = answer["timings"], answer["slipstream"]
    found = answer["metrics"]["speculative_decoding"]
    assert own["tested"] > 0
    assert timings["draft_n"] == own["tested"] == found["num_draft_tokens"]
    assert timings["draft_n_accepted"] == own["accepted"] == found["num_accepted_draft_tokens"]
    assert sum(found["acceptance_histogram"]) == own["verify_passes"] == found["num_spec_steps"]
    accepted = sum(length * count for length, count in enumerate(found["acceptance_histogram"]))
    assert accepted == own["accepted"]
    assert found["mean_acceptance_length"] == pytest.approx(1 + own["accepted"] / own["verify_passes"])
    assert timings["predicted_n"] == answer["usage"]["completion_tokens"] == 200
    assert timings["prompt_n"] + timings["cache_n"] == answer["usage"]["prompt_tokens"]
    assert timings["predicted_ms"] == pytest.approx(199 * 1e3 / timings["predicted_per_second"])


def test_a_seed_repeats_an_answer_and_is_told(server: Served) -> None:
    first = server.chat(seed=11, max_tokens=6)
    assert first["slipstream"]["seed"] == 11
    drawn = server.chat(max_tokens=6, seed=-1)["slipstream"]["seed"]
    again = server.chat(max_tokens=6, seed=drawn)
    assert again["slipstream"]["seed"] == drawn


def test_stop_strings(server: Served) -> None:
    for stop in ("no", ["unheard of", "no", ""]):
        (choice,) = server.chat(stop=stop, **OFF)["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (" yes ", "stop")


def test_a_schema(server: Served) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "one", "strict": True, "schema": schema}}
    (choice,) = server.chat(response_format=wanted, seed=1, max_tokens=200, temperature=1.0, **OFF)["choices"]
    assert choice["finish_reason"] == "stop"
    assert isinstance(json.loads(choice["message"]["content"])["a"], bool)


def test_an_answer_goes_on(server: Served) -> None:
    messages = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": " yes"}]
    choices: list[Json] = [{}, {"continue_final_message": True}, {"continue_final_message": "content"}]
    for wanted in choices:
        (choice,) = server.chat(messages=messages, max_tokens=4, **OFF, **wanted)["choices"]
        assert choice["message"]["content"] == " so then so then"  # after letters, the words of its thinking come


def test_parts_and_roles(server: Served) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "Well"}, {"type": "text", "text": "?"}]},
        {"role": "assistant", "content": "Yes.", "refusal": None, "tool_calls": None},
        {"role": "user", "content": "And?", "name": "somebody"},
    ]
    assert server.chat(messages=messages, **OFF)["choices"][0]["message"]["content"] == " yes no."


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": "Hi"},
        {"temperature": "warm"},
        {"stop": ["x"] * 100},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}},
        {"grammar": "root ::= ("},
        {"grammar": 'root ::= "a"', "response_format": {"type": "json_object"}},
        {"continue_final_message": True},
        {"stream": "yes"},
        {"logit_bias": {"100000": 1}},
        {"tool_choice": "required"},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    ],
)
def test_what_makes_no_sense(server: Served, fields: Json) -> None:
    code, error = refused(server, **fields)
    assert (code, error["type"]) == (400, "invalid_request_error")


def test_a_request_that_is_too_long(server: Served) -> None:
    for stream in (True, False):
        code, error = refused(server, messages=[{"role": "user", "content": "x " * 40_000}], stream=stream)
        assert (code, error["type"]) == (400, "exceed_context_size_error")
        assert error["n_ctx"] == 8192 and error["n_prompt_tokens"] > 8192


def test_thinking_that_never_closes_is_the_answer_where_there_is_no_other(tmp_path: Path) -> None:
    rows = {**ENDLESS.rows, "▁then": {"</s>": 1.0}}
    path = make_thinking_model(tmp_path / "unclosed.gguf", replace(ENDLESS, rows=rows))
    with Served(path, home=tmp_path / "home") as served:
        (choice,) = served.chat()["choices"]
        assert choice["finish_reason"] == "stop"
        assert choice["message"]["content"] == choice["message"]["reasoning_content"] == "so then"
        parts = served.streamed()
        assert "".join(part["choices"][0]["delta"].get("content") or "" for part in parts) == "so then"
        body: Json = {"messages": [{"role": "user", "content": "Well?"}], "max_tokens": 9}
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        blocks = served.post("/v1/messages", body).json()["content"]
        assert [block["type"] for block in blocks] == ["thinking", "text"] and blocks[1]["text"] == "so then"
        items = served.post("/v1/responses", {"input": "Well?"}).json()["output"]
        assert items[-1]["content"][0]["text"] == "so then"
        (choice,) = served.chat(max_tokens=1)["choices"]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "")
