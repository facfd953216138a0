"""What real programs sent, as `scripts/real-clients` wrote it down: other texts are replaced, the rest is theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import ROOT
from tests.support.scripted_calls import make_scripted_target
from tests.support.served import Served

TOLD = "It says that the harbor opens at nine."
NOTE = "/home/someone/project/note.txt"
CALLS: dict[str, dict[str, Any]] = {
    "Read": {"file_path": NOTE},
    "read": {"filePath": NOTE},
    "exec_command": {"cmd": "cat note.txt"},
    "list": {},
}
SENT = sorted((ROOT / "tests" / "data" / "clients").glob("*.json"))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("scripted")
    target = make_scripted_target(folder / "target.gguf", CALLS, "note.txt", TOLD)
    with Served(target, context_length=65_536, home=folder / "home") as served:
        yield served


@pytest.mark.parametrize("path", SENT, ids=lambda path: path.stem)
def test_requests_of_programs_are_answered(scripted: Served, path: Path) -> None:
    sent = json.loads(path.read_bytes())
    answer = scripted.post(sent["path"], sent["body"])
    assert answer.status_code == 200, answer.text
    assert '"error":{' not in answer.text and '"type":"error"' not in answer.text
    assert TOLD in answer.text or "file" not in path.stem or "aider" in path.stem


def test_a_program_gets_the_call_that_it_can_carry_out(scripted: Served) -> None:
    sent = json.loads((ROOT / "tests" / "data" / "clients" / "claude-question.json").read_bytes())
    body = sent["body"]
    body["messages"][0]["content"][1]["text"] = "Read note.txt and tell me what it says"
    answer = scripted.post(sent["path"], {**body, "stream": False}).json()
    (call,) = (block for block in answer["content"] if block["type"] == "tool_use")
    assert (call["name"], call["input"], answer["stop_reason"]) == ("Read", {"file_path": NOTE}, "tool_use")


ASKED = {"role": "user", "content": "Well?"}
CALL = {"id": None, "type": "function", "function": {"name": "now", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
NOW = {"type": "function", "function": {"name": "now"}}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "So."}],
    "content": [{"type": "reasoning_text", "text": "So then."}],
    "encrypted_content": "gAAA",
}
CACHED = {"type": "text", "text": "Well?", "cache_control": {"type": "ephemeral"}}
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
REPORTED: dict[str, tuple[str, dict[str, Any]]] = {
    "adaptive thinking with a budget of 0": (MESSAGES, {"thinking": {"type": "adaptive", "budget_tokens": 0}}),
    "thinking with only a budget": (MESSAGES, {"thinking": {"budget_tokens": 8000}}),
    "parts with a cache mark": (CHAT, {"messages": [{"role": "user", "content": [CACHED]}]}),
    "the result of a tool as parts": (
        CHAT,
        {"messages": [ASKED, CALLED, {"role": "tool", "tool_call_id": None, "content": [CACHED]}], "tools": [NOW]},
    ),
    "a call and a result without ids": (
        CHAT,
        {"messages": [ASKED, CALLED, {"role": "tool", "tool_call_id": None, "content": "Noon."}], "tools": [NOW]},
    ),
    "no tools": (CHAT, {"tools": [], "tool_choice": "auto"}),
    "nulls and empty objects": (
        CHAT,
        {"functions": None, "function_call": None, "grammar": "", "response_format": {}, "stop": None, "top_p": None},
    ),
    "empty answers in the history": (CHAT, {"messages": [ASKED, {"role": "assistant", "content": ""}, ASKED]}),
    "thinking that was sent back": (RESPONSES, {"input": [ASKED, THOUGHT, ASKED]}),
}


@pytest.mark.parametrize("name", REPORTED)
def test_what_others_refused_is_answered(scripted: Served, name: str) -> None:
    path, body = REPORTED[name]
    asked = {"input" if path == RESPONSES else "messages": [ASKED], "max_tokens": 20, **body}
    answer = scripted.post(path, asked)
    assert answer.status_code == 200, answer.text
    assert TOLD in answer.text if "result" in name else " yes no." in answer.text


def test_a_format_without_a_type_is_that_of_its_schema(scripted: Served) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    for wanted in ({"schema": schema}, {"json_schema": {"name": "a", "schema": schema}}):
        answer = scripted.chat(response_format=wanted, max_tokens=50)
        assert json.loads(answer["choices"][0]["message"]["content"]) == {"a": 1}


def test_a_streamed_call_without_arguments_is_whole(scripted: Served) -> None:
    """Programs join the parts of a call by its index, and read its arguments as JSON."""
    parts = scripted.streamed("Read note.txt", tools=[{"type": "function", "function": {"name": "list"}}])
    (call,) = (one for part in parts for choice in part["choices"] for one in choice["delta"].get("tool_calls") or [])
    assert (call["index"], call["function"]) == (0, {"name": "list", "arguments": "{}"})
