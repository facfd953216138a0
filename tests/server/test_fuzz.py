"""Whatever is asked, the answer is a result or says what is wrong; nothing is a mistake of the server's."""

from __future__ import annotations

import json
import string
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.served import Served, request, status

TRIES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [
    *("messages", "prompt", "content", "model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k"),
    *("min_p", "seed", "stop", "frequency_penalty", "presence_penalty", "repeat_penalty", "repeat_last_n", "stream"),
    *("stream_options", "response_format", "grammar", "n", "logit_bias", "logprobs", "tools", "chat_template_kwargs"),
    *("reasoning_effort", "thinking_budget_tokens", "continue_final_message", "timings_per_token", "return_progress"),
    *("with_pieces", "add_special", "echo", "suffix", "best_of", "system", "input", "instructions", "thinking"),
    *("top_logprobs", "tool_choice", "parallel_tool_calls", "functions", "max_output_tokens", "reasoning", "text"),
    *("previous_response_id", "store", "output_config", "stop_sequences", "slipstream", "speculative", "prediction"),
    *("speculative.n_max", "function_call", "output_format", "background"),
]
PATHS = [
    *("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"),
    "/tokenize",
]
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "nobody"])
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": st.text(max_size=30) | JSON}), max_size=4)
SOUND: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Well?"}],
    "prompt": "so",
    "content": "so",
    "input": "Well?",
    "max_tokens": 2,
}
RESULTS = (200, 400, 501)
NAMES = st.sampled_from(["f", "g", "get_weather", "", "no spaces", "x" * 200])
SCHEMAS = (
    st.sampled_from(
        [
            {},
            {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            {"type": "string"},
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"enum": [1, None]}}},
            {"type": "object", "not": {}},
        ]
    )
    | JSON
)
FUNCTIONS = st.fixed_dictionaries({"name": NAMES, "description": st.text(max_size=9), "parameters": SCHEMAS})
TOOLS = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["function", "custom", "web_search"]), "function": FUNCTIONS})
    | FUNCTIONS.map(lambda one: {"type": "function", **one})
    | FUNCTIONS.map(lambda one: {"name": one["name"], "input_schema": one["parameters"]}),
    max_size=3,
)
CHOICES = st.sampled_from(
    [
        *(None, "none", "auto", "required", {"type": "any"}, {"type": "tool"}),
        {"type": "function", "function": {"name": "f"}},
    ]
)
IDS = st.sampled_from(["a", "abcdefghi", "", "call_1"])
ARGUMENTS = st.sampled_from(["{}", '{"a": true}', "[]", "{", "", '{"a": "\\ud800"}', "null"]) | st.text(max_size=9)
CALLS = st.fixed_dictionaries(
    {"id": IDS, "type": st.just("function"), "function": st.fixed_dictionaries({"name": NAMES, "arguments": ARGUMENTS})}
)
IMAGES = st.sampled_from(
    [
        *("data:image/png;base64,iVBORw0KGgo=", "data:,", "https://x.y/z.png", "file:///etc/passwd"),
        "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
    ]
)
PARTS = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=9)})
    | IMAGES.map(lambda url: {"type": "image_url", "image_url": {"url": url}})
    | IMAGES.map(lambda url: {"type": "image", "source": {"type": "base64", "data": url[-20:]}})
    | st.fixed_dictionaries({"type": st.just("tool_result"), "tool_use_id": IDS, "content": st.text(max_size=9)})
    | st.fixed_dictionaries({"type": st.just("tool_use"), "id": IDS, "name": NAMES, "input": JSON}),
    max_size=3,
)
TURNS = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=9) | PARTS})
    | st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none() | st.text(max_size=9) | PARTS})
    | st.fixed_dictionaries({"role": st.just("assistant"), "tool_calls": st.lists(CALLS, max_size=2)})
    | st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": IDS, "content": st.text(max_size=9)}),
    min_size=1,
    max_size=5,
)
ITEMS = st.lists(
    st.fixed_dictionaries({"role": ROLES, "content": st.text(max_size=9) | PARTS})
    | st.fixed_dictionaries({"type": st.just("function_call"), "call_id": IDS, "name": NAMES, "arguments": ARGUMENTS})
    | st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": IDS, "output": st.text(max_size=9)})
    | st.fixed_dictionaries({"type": st.sampled_from(["reasoning", "item_reference", ""]), "summary": JSON}),
    max_size=5,
)


@TRIES
@given(st.sampled_from(PATHS), st.dictionaries(st.sampled_from(FIELDS), JSON | MESSAGES, max_size=3))
def test_fields(server: Served, path: str, fields: dict[str, Any]) -> None:
    limit = {"max_tokens": 2} if fields.get("max_tokens", 2) in (2, -1, None) else {}  # so that answers end soon
    body = json.dumps({**SOUND, **fields, **limit}).encode()
    with server.connected() as client:
        client.send(request("POST", path, body))
        answer = client.receive()
        assert status(answer) in RESULTS, answer


@TRIES
@given(st.sampled_from(PATHS), st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_bodies(server: Served, path: str, body: bytes) -> None:
    with server.connected() as client:
        client.send(request("POST", path, b"", "Content-Type: application/json", f"Content-Length: {len(body)}") + body)
        answer = client.receive()
    assert status(answer) in (400, 501), (body, answer)


@TRIES
@given(st.sampled_from(PATHS[:5]), TURNS, ITEMS, TOOLS, CHOICES, st.booleans(), st.sampled_from([None, True, 3]))
def test_tools_and_parts(
    calling: Served,
    path: str,
    turns: list[dict[str, Any]],
    items: list[dict[str, Any]],
    tools: list[dict[str, Any]],
    choice: Any,
    stream: bool,
    likely: Any,
) -> None:
    body = {"messages": turns, "input": items, "prompt": "so", "stream": stream}
    body |= {"max_tokens": 8, "max_output_tokens": 8}
    asked = {"tools": tools, "tool_choice": choice, **({"logprobs": likely} if likely else {})}
    with calling.connected() as client:
        client.send(request("POST", path, json.dumps({**body, **asked}).encode()))
        answer = client.receive()
    assert status(answer) in RESULTS, answer


@TRIES
@given(
    st.text(string.ascii_letters + " \t:/", max_size=12),
    st.text(string.printable, max_size=30),
    st.lists(
        st.tuples(st.text(string.ascii_letters + "-:", max_size=12), st.text(string.printable, max_size=20)), max_size=5
    ),
)
def test_heads(server: Served, method: str, target: str, headers: list[tuple[str, str]]) -> None:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    with server.connected() as client:
        client.send("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        client.socket.shutdown(1)
        code = status(client.rest())
    assert code == 0 or 400 <= code < 500 or code == 501


def test_json_without_end(server: Served) -> None:
    for body in (b"[" * 50_000, b'{"messages":' * 20_000, b'{"messages": [' + b'{"role": "user", "content": "x"},' * 9):
        with server.connected() as client:
            client.send(request("POST", "/v1/chat/completions", body))
            assert status(client.receive()) == 400


def test_many_messages(server: Served) -> None:
    messages = [{"role": role, "content": "x"} for _ in range(5_000) for role in ("user", "assistant")]
    answer = server.post("/v1/chat/completions", {"messages": [*messages, {"role": "user", "content": "x"}]})
    assert answer.json()["error"]["type"] == "exceed_context_size_error"
