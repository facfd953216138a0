"""Answers by a schema over HTTP: what can't be forced is said, and checked when the answer is finished."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.served import Json, Served, text_of

UNIQUE = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 3, "uniqueItems": True}
NOTE = "Left to the model: “uniqueItems” at the top level."


WARM: Json = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 200}


def by(schema: Any, **more: Any) -> Json:
    wanted = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}
    return {"response_format": wanted, **WARM, **more}


def streamed(server: Served, **body: Any) -> tuple[str, Json]:
    """The text, and what the last part says of it."""
    parts = server.streamed(**body)
    return text_of(parts), parts[-1]["slipstream"]


def test_an_answer_that_is_not_valid_is_asked_for_once_more(calling: Served) -> None:
    outcomes = set()
    for seed in range(12):
        text, told = streamed(calling, **by(UNIQUE, seed=seed))
        value = json.loads(text)
        assert told["valid"] == (len(set(value)) == len(value)) and told["warnings"] == [NOTE]
        whole = calling.chat(**by(UNIQUE, seed=seed))
        expected = (text, told) if told["valid"] else streamed(calling, **by(UNIQUE, seed=seed + 1))
        assert whole["choices"][0]["message"]["content"] == expected[0]
        assert whole["slipstream"]["valid"] == expected[1]["valid"]
        assert whole["slipstream"]["warnings"] == [NOTE]
        outcomes.add((told["valid"], expected[1]["valid"]))
    assert outcomes >= {(True, True), (False, True)}


@pytest.mark.parametrize(
    "fields",
    [
        {"json_schema": {"enum": ["a", "b"]}},
        {"guided_json": '{"enum": ["a", "b"]}'},
        {"guided_choice": ['"a"', '"b"']},
        {"guided_regex": '"[ab]"'},
        {"structured_outputs": {"json": {"enum": ["a", "b"]}}},
        {"structured_outputs": {"choice": ['"a"', '"b"']}},
        {"structured_outputs": {"regex": '"[ab]"'}},
        {"structured_outputs": {"grammar": 'root ::= "\\"a\\"" | "\\"b\\""'}},
    ],
)
def test_the_fields_of_other_servers(calling: Served, fields: Json) -> None:
    answer = calling.chat(**WARM, **fields)
    assert json.loads(answer["choices"][0]["message"]["content"]) in ("a", "b")
    assert answer["slipstream"]["warnings"] == []


def test_nothing_is_said_of_a_schema_that_is_forced(calling: Served) -> None:
    told = calling.chat(**by({"enum": ["a", "b"]}))["slipstream"]
    assert told["warnings"] == [] and "valid" not in told


@pytest.mark.parametrize("schema", [{"$ref": "https://example.com/a.json"}, {"enum": []}, {"type": "objekt"}])
def test_what_nobody_can_answer_or_check_is_refused(calling: Served, schema: Json) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me"}], **by(schema)}
    refused = calling.post("/v1/chat/completions", body)
    assert refused.status_code == 400 and "The JSON schema can't be used" in refused.json()["error"]["message"]
