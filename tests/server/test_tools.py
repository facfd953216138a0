"""Tools over HTTP: calls are whole and follow their schemas, in every form of the API; else 501."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest

from app.protocol.tools import Tool
from tests.support.served import Json, Served
from tests.support.tool_models import LIGHT, WEATHER, make_tool_model

SCHEMAS = {tool.name: tool.parameters for tool in (WEATHER, LIGHT)}


def chat_form(tool: Tool) -> Json:
    return {"type": "function", "function": msgspec.to_builtins(tool)}


TOOLS = [chat_form(WEATHER), chat_form(LIGHT)]
CLAUDES = [
    {"name": one.name, "description": one.description, "input_schema": one.parameters} for one in (WEATHER, LIGHT)
]
WARM: Json = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 600}
HISTORY: list[Json] = [
    {"role": "user", "content": "Well?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_with-a-long-id",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"place": "Rome", "days": 2}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_with-a-long-id", "content": "Sunny."},
]


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With the template of Mistral's, which takes only ids of nine letters; it calls in half of its answers."""
    folder = tmp_path_factory.mktemp("calling")
    target = make_tool_model(folder / "target.gguf", "mistral-list", calls=1.0)
    draft = make_tool_model(folder / "draft.gguf", "mistral-list", calls=1.0, noise=0.5)
    with Served(target, draft, home=folder / "home") as served:
        yield served


def check(name: str, arguments: str) -> None:
    jsonschema.validate(json.loads(arguments), SCHEMAS[name])


def collected(parts: list[Json]) -> list[Json]:
    """The calls of a stream, put together as clients do it."""
    calls: dict[int, Json] = {}
    for part in parts:
        for choice in part["choices"]:
            for delta in choice["delta"].get("tool_calls", []):
                call = calls.setdefault(delta["index"], {"id": "", "type": "", "name": "", "arguments": ""})
                call["id"] += delta.get("id", "")
                call["type"] += delta.get("type", "")
                for key in ("name", "arguments"):
                    call[key] += delta["function"].get(key, "")
    return [calls[index] for index in sorted(calls)]


def test_a_call_is_forced(mistral: Served) -> None:
    (choice,) = mistral.chat(tools=TOOLS, tool_choice="required", seed=1, **WARM)["choices"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    for call in choice["message"]["tool_calls"]:
        assert call["type"] == "function" and len(call["id"]) == 9
        check(call["function"]["name"], call["function"]["arguments"])


def test_a_named_function_and_one_call(mistral: Served) -> None:
    choice = {"type": "function", "function": {"name": "switch-light"}}
    answer = mistral.chat(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, seed=1, **WARM)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "switch-light"


def test_the_model_decides_and_a_stream_says_the_same(mistral: Served) -> None:
    reasons = set()
    for seed in range(8):
        (choice,) = mistral.chat(tools=TOOLS, seed=seed, **WARM)["choices"]
        parts = mistral.streamed(tools=TOOLS, seed=seed, **WARM)
        calls = collected(parts)
        text = "".join(part["choices"][0]["delta"].get("content") or "" for part in parts)
        assert text == (choice["message"]["content"] or "")
        assert parts[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
        whole = choice["message"].get("tool_calls", [])
        assert [(one["name"], one["arguments"], one["id"]) for one in calls] == [
            (one["function"]["name"], one["function"]["arguments"], one["id"]) for one in whole
        ]
        assert (choice["finish_reason"] == "tool_calls") is bool(whole)
        for one in calls:
            check(one["name"], one["arguments"])
        reasons.add(choice["finish_reason"])
    assert reasons == {"tool_calls", "stop"}


def test_a_result_goes_back(mistral: Served) -> None:
    answer = mistral.chat(messages=HISTORY, tools=TOOLS, max_tokens=2)
    assert answer["usage"]["prompt_tokens"] > mistral.chat(tools=TOOLS, max_tokens=2)["usage"]["prompt_tokens"]
    assert mistral.chat(messages=HISTORY, max_tokens=2)["usage"]["prompt_tokens"] > 0, "without tools, too"


def test_anthropic_calls(mistral: Served) -> None:
    body = {"model": "any", "messages": [{"role": "user", "content": "Well?"}], "tools": CLAUDES, "seed": 1, **WARM}
    answer = mistral.post("/v1/messages", {**body, "tool_choice": {"type": "any"}}).json()
    assert answer["stop_reason"] == "tool_use"
    for block in answer["content"]:
        assert block["type"] == "tool_use" and block["id"]
        jsonschema.validate(block["input"], SCHEMAS[block["name"]])
    results = [{"type": "tool_result", "tool_use_id": block["id"], "content": "Yes."} for block in answer["content"]]
    turns = [
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [*results, {"type": "text", "text": "And?"}]},
    ]
    again = mistral.post("/v1/messages", {**body, "messages": turns})
    assert again.status_code == 200, again.text
    named = {"type": "tool", "name": "switch-light", "disable_parallel_tool_use": True}
    (block,) = mistral.post("/v1/messages", {**body, "tool_choice": named}).json()["content"]
    assert block["name"] == "switch-light"


def test_tokens_of_a_message_are_counted(mistral: Served) -> None:
    body = {"model": "any", "messages": [{"role": "user", "content": "Well?"}], "max_tokens": 2}
    for tools in ([], CLAUDES):
        counted = mistral.post("/v1/messages/count_tokens", {**body, "tools": tools}).json()
        usage = mistral.post("/v1/messages", {**body, "tools": tools}).json()["usage"]
        assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
    long = {**body, "messages": [{"role": "user", "content": "x " * 50_000}]}
    assert mistral.post("/v1/messages/count_tokens", long).json()["input_tokens"] > 8192, "more than the context holds"
    odd = {**body, "messages": [{"role": "user", "content": []}, {"role": "assistant", "content": "x"}]}
    assert mistral.post("/v1/messages/count_tokens", odd).status_code in (200, 400)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, 400),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, 501),
        (
            {
                "tools": [*TOOLS, {"type": "custom", "name": "patch"}],
                "tool_choice": {"type": "custom", "name": "patch"},
            },
            501,
        ),
        ({"tools": TOOLS, "grammar": 'root ::= "yes"'}, 501),
        ({"tools": TOOLS, "messages": HISTORY[:2]}, 400),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "h"}}}, 400),
    ],
)
def test_what_is_refused(mistral: Served, fields: dict[str, Any], status: int) -> None:
    body = {"messages": [{"role": "user", "content": "Well?"}], "max_tokens": 4, **fields}
    answer = mistral.post("/v1/chat/completions", body)
    assert answer.status_code == status, answer.text


def test_a_template_that_knows_no_tools(server: Served) -> None:
    """The general form."""
    body: Json = {"messages": [{"role": "user", "content": "Well?"}], "max_tokens": 4}
    for choice in ("auto", "none"):
        asked = {**body, "tools": TOOLS, "tool_choice": choice}
        assert server.post("/v1/chat/completions", asked).status_code == 200
    assert server.post("/v1/messages", {**body, "tools": CLAUDES}).status_code == 200
    assert server.post("/v1/chat/completions", {**body, "messages": HISTORY}).status_code == 200
    (choice,) = server.chat(tools=TOOLS, tool_choice="required", chat_template_kwargs={"enable_thinking": False})[
        "choices"
    ]
    assert choice["finish_reason"] == "tool_calls"
    for call in choice["message"]["tool_calls"]:
        check(call["function"]["name"], call["function"]["arguments"])
    assert server.get("/props").json()["slipstream"]["tool_format"] == "general"
