"""Calls in notations and channels of their own: what the model wrote is read, shown, and in the next prompt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.engine.decoding.tools import CallGrammar
from app.engine.host.engine import Engine
from app.helper.answer_format import checked_grammar
from app.protocol.calls import CallReader
from app.protocol.commands import Message
from app.protocol.options import AnswerFormat
from app.protocol.tools import FORMATS, MAX_TOOLS, Tool, ToolCall, ToolFormatName, ToolUse
from tests.support.generation import Answer, ask, run
from tests.support.hostile_calls import TOOL
from tests.support.matrix import in_proof
from tests.support.pairs import WARM, Loader
from tests.support.tool_models import LIGHT, WEATHER, make_tool_model

BOTH = ToolUse(tools=[WEATHER, LIGHT], required=True, several=False)
QUESTION = Message(role="user", content="Well?")
NAMES: list[ToolFormatName] = ["gemma", "harmony"]
OTHERS: list[ToolFormatName] = ["lfm", "kimi", "cohere", "deepseek", "deepseek-functions", "minimax-elements", "step"]


def called(answer: Answer, name: ToolFormatName, tools: list[Tool]) -> ToolCall:
    (call,) = CallReader(FORMATS[name], tools).read(answer.answer)[1]
    return call


@pytest.mark.parametrize("name", [*NAMES, *in_proof(OTHERS)])
def test_the_second_turn_takes_the_call_from_the_cache(
    engine: Engine, load: Loader, tmp_path: Path, name: ToolFormatName
) -> None:
    load(make_tool_model(tmp_path / "model.gguf", name, in_line=True))
    chat, known = [QUESTION], 0
    for turn in range(4):
        answer = run(engine, ask("", messages=chat, tools=BOTH, seed=turn, sampling=WARM, max_tokens=2500))
        assert answer.finished.finish_reason == "end"
        assert answer.started.cached_tokens >= known, "nothing but the mark of the end is read again"
        known = answer.started.prompt_tokens + len(answer.token_ids) - 1
        call = called(answer, name, BOTH.tools)
        tokens = tuple(answer.token_ids)
        chat.append(Message(role="assistant", content="", thinking=answer.thinking, tool_calls=(call,), tokens=tokens))
        chat.append(Message(role="tool", content="Done.", tool_call_id=call.id, tool_name=call.name))


@pytest.mark.parametrize("name", [*NAMES, *in_proof(OTHERS)])
def test_arguments_of_any_shape_follow_their_schema(
    engine: Engine, load: Loader, tmp_path: Path, name: ToolFormatName
) -> None:
    tool = Tool(
        name="nested",
        parameters={
            "type": "object",
            "properties": {
                "text": {"type": "string", "minLength": 2, "maxLength": 5},
                "kind": {"enum": ["a", 1, True]},
                "size": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
                "many": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1, "maxItems": 3},
                "more": {"$ref": "#/$defs/node"},
            },
            "required": ["text", "more"],
            "additionalProperties": False,
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "on": {"type": "boolean"},
                        "names": {"type": "array", "items": {"enum": ["x'y", 'x"y', "x\ny", "x\\y"]}, "maxItems": 2},
                    },
                    "required": ["on"],
                    "additionalProperties": False,
                }
            },
        },
    )
    load(make_tool_model(tmp_path / "model.gguf", name))
    use = ToolUse(tools=[tool], required=True, several=False)
    for seed in range(4):
        answer = run(engine, ask("Well?", tools=use, seed=seed, sampling=WARM, max_tokens=2500))
        assert answer.finished.finish_reason == "end", answer.answer
        arguments = json.loads(called(answer, name, [tool]).arguments)
        assert 2 <= len(arguments["text"]) <= 5 and arguments["more"]["on"] in (True, False)
        assert arguments.get("kind", "a") in ("a", 1, True)
        assert arguments.get("size") in (None, *range(10))
        assert all(len(one) <= 3 for one in arguments.get("many", [])) and arguments.get("many", [1])
        assert {*arguments["more"].get("names", [])} <= {"x'y", 'x"y', "x\ny", "x\\y"}
        assert {*arguments} <= {"text", "kind", "size", "many", "more"}


def test_thinking_and_what_is_said_before_a_call_in_a_channel(engine: Engine, load: Loader, tmp_path: Path) -> None:
    load(make_tool_model(tmp_path / "model.gguf", "harmony", calls=1.0))
    use, seen = ToolUse(tools=[WEATHER, LIGHT]), set[str]()
    for seed in range(12):
        answer = run(engine, ask("Well?", tools=use, seed=seed, sampling=WARM, max_tokens=600))
        reader = CallReader(FORMATS["harmony"], use.tools)
        said, calls = "", list[ToolCall]()
        for piece in answer.pieces:
            if not piece.thinking:
                text, found = reader.read(piece.text)
                said, calls = said + text, calls + found
        said += reader.end(cut=False)
        assert "<|" not in said + answer.thinking and "functions." not in said + answer.thinking
        seen |= {
            "call" if calls else "text",
            *(["thinking"] if answer.thinking else []),
            *(["both"] if calls and said else []),
        }
    assert seen == {"call", "text", "thinking", "both"}


def test_a_call_that_is_required_comes_after_a_thinking_budget(engine: Engine, load: Loader, tmp_path: Path) -> None:
    load(make_tool_model(tmp_path / "model.gguf", "harmony"))
    for seed in range(4):
        asked = ask("Well?", tools=BOTH, seed=seed, sampling=WARM, max_tokens=600, thinking_budget=3)
        answer = run(engine, asked)
        assert answer.finished.finish_reason == "end"
        assert called(answer, "harmony", BOTH.tools).name in ("get_weather", "switch-light")


@pytest.mark.parametrize("name", [name for name in FORMATS if name])
def test_as_many_tools_as_there_may_be(name: ToolFormatName) -> None:
    tools = [Tool(name=f"tool_{number}", parameters=TOOL.parameters) for number in range(MAX_TOOLS)]
    source = CallGrammar(FORMATS[name], ToolUse(tools=tools), forced=[TOOL.parameters] * MAX_TOOLS).source()
    checked_grammar(AnswerFormat(kind="lark", source=source))
