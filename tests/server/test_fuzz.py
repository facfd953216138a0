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
]
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/tokenize"]
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "nobody"])
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": st.text(max_size=30) | JSON}), max_size=4)
SOUND: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Well?"}],
    "prompt": "so",
    "content": "so",
    "max_tokens": 2,
}
RESULTS = (200, 400, 501)


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
