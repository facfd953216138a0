"""``/v1/responses``: text, thinking, formats and tools, with the typed events of its streams."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from tests.support.served import Json, Served
from tests.support.tool_models import LIGHT, WEATHER

OFF: Json = {"reasoning": {"effort": "none"}}
TOOLS = [{"type": "function", **msgspec.to_builtins(tool), "strict": True} for tool in (WEATHER, LIGHT)]
SCHEMAS = {tool.name: tool.parameters for tool in (WEATHER, LIGHT)}


def ask(server: Served, **fields: Any) -> Json:
    answer = server.post("/v1/responses", {"model": "any", "input": "Well?", **fields})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def streamed(server: Served, **fields: Any) -> list[Json]:
    answer = server.post("/v1/responses", {"model": "any", "input": "Well?", "stream": True, **fields})
    assert answer.status_code == 200, answer.text
    events = []
    for block in filter(None, answer.text.split("\n\n")):
        if block.startswith(":"):
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def bare(response: Json) -> list[Json]:
    """Its items without their ids."""
    return [{key: value for key, value in item.items() if key not in ("id", "call_id")} for item in response["output"]]


def test_an_answer(server: Served) -> None:
    response = ask(server, **OFF)
    assert response["object"] == "response" and response["status"] == "completed" and response["store"] is False
    (item,) = response["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"] == [{"type": "output_text", "text": " yes no.", "annotations": [], "logprobs": []}]
    usage = response["usage"]
    assert usage["output_tokens"] == 4 and usage["total_tokens"] == usage["input_tokens"] + 4
    assert response["timings"]["predicted_n"] == 4


def test_thinking_and_a_limit(server: Served) -> None:
    response = ask(server, max_output_tokens=6, temperature=0, top_p=0)
    assert (response["temperature"], response["top_p"]) == (0, 0)  # as they were sent
    assert response["status"] == "incomplete" and response["incomplete_details"] == {"reason": "max_output_tokens"}
    (item,) = response["output"]
    assert item["type"] == "reasoning" and item["status"] == "incomplete"
    assert item["content"][0]["text"] == "so then so then so then"


def test_events_build_the_same(server: Served) -> None:
    fields: Json = {"temperature": 0, "thinking_budget_tokens": None, "max_output_tokens": 40, "seed": 1}
    for more in (OFF, {}):
        events = streamed(server, **fields, **more)
        whole = ask(server, **fields, **more)
        assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
        last = events[-1]
        assert last["type"] == f"response.{whole['status']}"
        assert bare(last["response"]) == bare(whole)
        texts: dict[int, str] = {}
        for event in events:
            if event["type"].endswith("text.delta"):
                texts[event["output_index"]] = texts.get(event["output_index"], "") + event["delta"]
        assert list(texts.values()) == [item["content"][0]["text"] for item in whole["output"]]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert done == last["response"]["output"]


def test_a_schema(server: Served) -> None:
    schema: Json = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    schema["additionalProperties"] = False
    format: Json = {"type": "json_schema", "name": "one", "strict": True, "schema": schema}
    response = ask(server, text={"format": format}, seed=1, temperature=1.0, max_output_tokens=200, **OFF)
    assert isinstance(json.loads(response["output"][0]["content"][0]["text"])["a"], bool)
    assert response["text"]["format"] == format


def test_items_of_a_chat(server: Served) -> None:
    chat = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Well?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]},
        {"role": "user", "content": "And?"},
    ]
    response = ask(server, input=chat, instructions="Be brief.", **OFF)
    assert response["output"][0]["content"][0]["text"] == " yes no."
    assert response["instructions"] == "Be brief."


def test_tools(calling: Served) -> None:
    kinds = set()
    for seed in range(20):
        fields: Json = {"tools": TOOLS, "seed": seed, "temperature": 1.0, "top_k": 0, "max_output_tokens": 600}
        whole = ask(calling, **fields)
        events = streamed(calling, **fields)
        assert bare(events[-1]["response"]) == bare(whole)
        for item in whole["output"]:
            kinds.add(item["type"])
            if item["type"] == "function_call":
                jsonschema.validate(json.loads(item["arguments"]), SCHEMAS[item["name"]])
        deltas = [one["delta"] for one in events if one["type"] == "response.function_call_arguments.delta"]
        assert deltas == [one["arguments"] for one in whole["output"] if one["type"] == "function_call"]
        if len(kinds) == 2 and seed > 1:
            break
    assert kinds == {"message", "function_call"}
    response = ask(calling, tools=TOOLS, tool_choice="required", seed=1, max_output_tokens=600)
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "Sunny."} for item in response["output"]
    ]
    chat = [{"role": "user", "content": "Well?"}, *response["output"], *results]
    assert ask(calling, input=chat, tools=TOOLS, max_output_tokens=4)["usage"]["input_tokens"] > 0
    named = {"type": "function", "name": "switch-light"}
    answer = ask(calling, tools=TOOLS, tool_choice=named, parallel_tool_calls=False, seed=2, max_output_tokens=600)
    assert [item["name"] for item in answer["output"]] == ["switch-light"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"previous_response_id": "resp_1"}, 501),
        ({"conversation": "conv_1"}, 501),
        ({"prompt": {"id": "pmpt_1"}}, 501),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, 501),
        ({"input": []}, 400),
        ({"input": 7}, 400),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x.y/z.png"}]}]}, 400),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, 400),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "x"}}}}, 400),
    ],
)
def test_what_is_refused(server: Served, fields: Json, status: int) -> None:
    answer = server.post("/v1/responses", {"input": "Well?", "max_output_tokens": 4, **fields})
    assert answer.status_code == status, answer.text


def test_nothing_is_stored(server: Served) -> None:
    response = ask(server, store=True, **OFF)
    assert response["store"] is False
    assert server.get(f"/v1/responses/{response['id']}").status_code == 404
