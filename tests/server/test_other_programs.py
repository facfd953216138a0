"""What other programs send is answered, what was left out is said, and drafting is as the request wants it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence

import pytest

from app.protocol.answering import AnswerSettings
from tests.support.gguf_files import CHATML_TEMPLATE, make_model
from tests.support.served import Json, Served

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
SHORT: Json = {"max_tokens": 8, "max_output_tokens": 8, "temperature": 0.0}
FETCH: Json = {"type": "object", "properties": {"urls": {"type": "array", "uniqueItems": True}}}


@pytest.fixture(scope="module")
def drafted_by_itself(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Everything that is drafted is accepted at a temperature of 0."""
    folder = tmp_path_factory.mktemp("itself")
    path = make_model(folder / "target.gguf", chat_template=CHATML_TEMPLATE, weights="F32")
    with Served(path, path, home=folder / "home", usual=AnswerSettings(drafter="model", draft_length=4)) as served:
        yield served


def ask(server: Served, path: str, body: Json) -> Json:
    """A whole answer."""
    answer = server.post(path, {**SHORT, **body})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def last_part(server: Served, path: str, body: Json) -> Json:
    """The part of a stream that has the figures."""
    answer = server.post(path, {**SHORT, **body, "stream": True})
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: {")]
    (found,) = [one for one in map(json.loads, lines) if "slipstream" in one or "slipstream" in one.get("response", {})]
    return found if "slipstream" in found else found["response"]  # type: ignore[no-any-return]


def chat_body(path: str, messages: list[Json], tools: list[Json] | None = None) -> Json:
    body: Json = {"input" if path == "/v1/responses" else "messages": messages}
    return {**body, "tools": tools} if tools else body


def sent_tools(path: str, parameters: Json = FETCH) -> list[Json]:
    """A function with a format, and what isn't one, in each API's form."""
    schema = "input_schema" if path == "/v1/messages" else "parameters"
    fetch = {"name": "Fetch", "description": "Reads a page.", schema: parameters}
    if path == "/v1/chat/completions":
        return [{"type": "function", "function": fetch}, {"type": "web_search", "name": "web_search"}]
    kind = {} if path == "/v1/messages" else {"type": "function"}
    return [{**kind, **fetch}, {"type": "web_search_20250305", "name": "web_search"}]


@pytest.mark.parametrize("path", PATHS)
def test_what_was_left_out_is_said_in_every_form(calling: Served, path: str) -> None:
    body = chat_body(path, [{"role": "user", "content": "Hello."}], sent_tools(path))
    for found in (ask(calling, path, body), last_part(calling, path, body)):
        warnings = found["slipstream"]["warnings"]
        assert any("“web_search”" in one for one in warnings)
        assert any("Fetch" in one for one in warnings), "the engine's own notes: this can't be forced"
    plain = ask(calling, path, chat_body(path, [{"role": "user", "content": "Hello."}]))
    assert plain["slipstream"]["warnings"] == []


def test_the_log_has_them_without_the_words_of_the_request(calling: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "slipstream.server"):
        body = chat_body(PATHS[0], [{"role": "stranger", "content": "xyzzy"}])
        ask(calling, PATHS[0], {**body, "temperature": 99, "prediction": {"type": "content", "content": "xyzzy"}})
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "“…”" in text and "temperature" in text and "prediction" in text
    assert "stranger" not in text and "xyzzy" not in text


@pytest.mark.parametrize("path", PATHS)
def test_roles_in_any_order(calling: Served, path: str) -> None:
    roles = ("assistant", "user", "user", "assistant", "assistant", "system", "user", "system", "user")
    texts = ("Hello!", "Tea", "or coffee?", "Tea.", "Yes.", "Be brief.", "", "Now.", "And?")
    turns = zip(roles, texts, strict=True)
    found = ask(calling, path, chat_body(path, [{"role": role, "content": text} for role, text in turns]))
    assert found["slipstream"]["warnings"] == []


OTHERS: Json = {
    "store": True,
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "user": "me",
    "safety_identifier": "x",
    "prompt_cache_key": "k",
    "include": ["reasoning.encrypted_content"],
    "truncation": "auto",
    "modalities": ["text"],
    "cache_control": {"type": "ephemeral"},
    "betas": ["x"],
    "verbosity": "low",
    "parallel_tool_calls": True,
    "stop": None,
    "n": 1,
    "seed": -1,
    "logit_bias": {},
    "stream_options": None,
    "response_format": {"type": "text"},
    "top_p": 1,
    "tools": [],
    "tool_choice": "auto",
    "logprobs": None,
    "max_tool_calls": 5,
    "top_k": 0,
    "prediction": None,
    "enable_thinking": False,
    "keep_alive": "5m",
    "safety_settings": [],
    "extra_body": {},
}


@pytest.mark.parametrize("path", PATHS)
def test_fields_that_others_take(calling: Served, path: str) -> None:
    fields = {**OTHERS, "text": {"format": {"type": "text"}, "verbosity": "low"}, "background": False}
    fields["reasoning"] = {"effort": "medium", "summary": "auto"}
    body = {**chat_body(path, [{"role": "user", "content": "Hello."}]), **fields}
    if path == "/v1/messages":
        body["tool_choice"] = {"type": "auto"}
    found = ask(calling, path, body)
    assert found["slipstream"]["warnings"] == []


def test_what_would_be_wrong_is_refused(calling: Served) -> None:
    for body in (
        {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "xml"}},
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA=="}}]}]},
        {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "mcp"}], "tool_choice": {"type": "mcp"}},
    ):
        assert calling.post("/v1/chat/completions", body).status_code in (400, 501)


def test_a_call_in_a_namespace_has_both_names(calling: Served) -> None:
    member = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
    body: Json = {
        "input": "Well?",
        "tools": [{"type": "namespace", "name": "mcp__sky", "tools": [member]}],
        "tool_choice": "required",
        "max_output_tokens": 600,
        "temperature": 1.0,
        "top_k": 0,
        "seed": 1,
    }
    (item, *_) = ask(calling, "/v1/responses", body)["output"]
    assert (item["type"], item["namespace"], item["name"]) == ("function_call", "mcp__sky", "get_weather")
    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "Sunny."}
    again = {**body, "tool_choice": "auto", "input": [{"role": "user", "content": "Well?"}, item, result]}
    assert ask(calling, "/v1/responses", again)["slipstream"]["warnings"] == []


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_is_calls_or_follows_its_format(calling: Served, path: str) -> None:
    schema: Json = {"type": "object", "properties": {"a": {"enum": ["<tool_call>", "no"]}}, "required": ["a"]}
    format: Json = {"type": "json_schema", "name": "one", "schema": {**schema, "additionalProperties": False}}
    wanted: dict[str, Json] = {
        "/v1/chat/completions": {"response_format": {"type": "json_schema", "json_schema": format}},
        "/v1/messages": {"output_config": {"format": format}},
        "/v1/responses": {"text": {"format": format}},
    }
    nothing: Json = {"type": "object", "properties": {}, "additionalProperties": False}
    (mark,) = calling.post("/tokenize", {"content": "<tool_call>"}).json()["tokens"]
    kinds = []
    for bias in (100, -100):  # the model likes its mark, or it doesn't
        warm: Json = {"temperature": 1.0, "top_k": 0, "max_tokens": 99, "max_output_tokens": 99, "seed": 1}
        body = chat_body(path, [{"role": "user", "content": "Well?"}], sent_tools(path, nothing)[:1])
        answer = ask(calling, path, {**body, **wanted[path], **warm, "logit_bias": {str(mark): bias}})
        if "Fetch" in json.dumps([answer.get(name) for name in ("choices", "content", "output")]):
            kinds.append("call")
        elif json.loads(text_in(answer))["a"] in ("<tool_call>", "no"):
            kinds.append("format")
    assert kinds == ["call", "format"]


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_goes_on_although_there_are_tools(calling: Served, path: str) -> None:
    begun = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "yes"}]
    whole = ask(calling, path, chat_body(path, begun))
    with_tools = ask(calling, path, chat_body(path, begun, sent_tools(path)))
    texts = [text_in(one) for one in (whole, with_tools)]
    assert texts[0] and not texts[0].startswith("yes") and with_tools["slipstream"]["warnings"]


def text_in(answer: Json) -> str:
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"])
    content = answer["output"][0]["content"] if "output" in answer else answer["content"]
    return str(content[0]["text"])


def test_a_line_that_changes_keeps_the_prefix(calling: Served) -> None:
    def asked(number: int) -> Json:
        header = f"x-anthropic-billing-header: cc_version=2.1.40.{number}; cc_entrypoint=cli; cch={number:05x};"
        system = [{"type": "text", "text": header}, {"type": "text", "text": "Keep the rules of the house. " * 40}]
        messages = [{"role": "user", "content": "Well?"}]
        usage: Json = ask(calling, "/v1/messages", {"system": system, "messages": messages})["usage"]
        return usage

    asked(1)
    second = asked(2)
    assert second["input_tokens"] == 1 and second["cache_read_input_tokens"] > 400


# ------------------------------------------------------------ drafting


@pytest.mark.parametrize("path", [*PATHS, "/v1/completions"])
def test_drafting_is_off_where_a_request_wants_that(drafted_by_itself: Served, path: str) -> None:
    body = {"prompt": "yes"} if path == "/v1/completions" else chat_body(path, [{"role": "user", "content": "Well?"}])
    body |= {"max_tokens": 24, "max_output_tokens": 24}
    switches: Sequence[Json] = (
        {"slipstream": {"drafter": "off"}},
        {"slipstream": {"draft_length": 0}},
        {"speculative.n_max": 0},
        {"speculative": {"n_max": 0}},
    )
    assert ask(drafted_by_itself, path, body)["slipstream"]["drafted"] > 0
    for switch in switches:
        found = ask(drafted_by_itself, path, {**body, **switch})
        assert found["slipstream"]["drafted"] == 0 and "draft_n" not in found["timings"]
        assert found["slipstream"]["warnings"] == []
    one = ask(drafted_by_itself, path, {**body, "slipstream": {"drafter": "model", "draft_length": 1}})
    assert one["slipstream"]["drafted"] > 0 and len(one["slipstream"]["acceptance_by_position"]) == 1
    missing = ask(drafted_by_itself, path, {**body, "slipstream": {"drafter": "mtp"}})
    assert len(missing["slipstream"]["warnings"]) == 1


def expected(tokens: Sequence[str], most: int, stop: str | None) -> tuple[str, str, int]:
    """The text, why it ends and how many tokens there are."""
    text = ""
    for count, token in enumerate(tokens[:most], 1):
        text += token
        if stop and stop in text:
            return text[: text.index(stop)], "stop", count
    return text, "length", most


def test_stop_strings_and_limits_in_a_run_that_is_accepted(drafted_by_itself: Served) -> None:
    """The stop within the limit wins, nothing is behind it, and the counts are those of what was written."""
    body: Json = {"prompt": "yes", "temperature": 0.7, "seed": 1, "logprobs": 0, "grammar": "root ::= [a-z ]{99}"}
    plain: Json = {"slipstream": {"drafter": "off", "exact": True}}
    long: Json = {"slipstream": {"drafter": "model", "draft_length": 8, "exact": True}}
    answer = ask(drafted_by_itself, "/v1/completions", {**body, **plain, "max_tokens": 14})
    tokens: list[str] = answer["choices"][0]["logprobs"]["tokens"]
    accepted = 0
    for most in range(1, 13):
        for stop in (None, *(tokens[at] for at in (most - 2, most - 1, most) if at >= 0 and tokens[at])):
            found = []
            for switch in (plain, long):
                fields = {**body, **switch, "max_tokens": most, **({"stop": stop} if stop else {})}
                answer = ask(drafted_by_itself, "/v1/completions", fields)
                accepted += answer["slipstream"]["accepted"]
                (choice,) = answer["choices"]
                found.append((choice["text"], choice["finish_reason"], answer["usage"]["completion_tokens"]))
                assert len(choice["logprobs"]["tokens"]) <= answer["usage"]["completion_tokens"]
                assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] <= found[-1][2]
            assert found[0] == found[1] == expected(tokens, most, stop), (most, stop)
    assert accepted > 30


@pytest.mark.parametrize("drafter", ["model", "ngram", "off"])
def test_a_format_behind_thinking_in_a_run_that_is_accepted(server: Served, drafter: str) -> None:
    schema: Json = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    schema["additionalProperties"] = False
    format = {"type": "json_schema", "json_schema": {"name": "one", "schema": schema}}
    own = {"slipstream": {"drafter": drafter, **({"draft_length": 8} if drafter != "off" else {})}}
    for seed in range(20):
        fields: Json = {"response_format": format, "seed": seed, "temperature": 1.0, "max_tokens": 300, **own}
        answer = server.chat("Yes or no? Wrap it in ```json fences.", thinking_budget_tokens=seed, **fields)
        (choice,) = answer["choices"]
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"])["a"], bool)
        details = answer["usage"]["completion_tokens_details"]
        assert details["reasoning_tokens"] <= answer["usage"]["completion_tokens"]
