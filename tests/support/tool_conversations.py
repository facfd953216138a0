"""Conversations with one to five tool calls, which the model is made to make, and results that are always the same."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import Any

import jsonschema

from app.engine.host.engine import Engine
from app.protocol.calls import CallReader
from app.protocol.commands import Message
from app.protocol.tools import FORMATS, Tool, ToolUse
from tests.support.generation import Answer, ask, run
from tests.support.hostile_results import SHORT

MOST_TOKENS = 1200
"""Of a call: more than the longest that these schemas allow, spelled letter by letter."""
_SAFE = [text for text in SHORT.values() if text.strip() and text.isprintable() and "▁" not in text]


def _tool(name: str, description: str, required: list[str], /, **properties: Any) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(name=name, description=description, parameters=parameters)


def _text(most: int = 24) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most}


def _number(most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": most}


TOOLS = (
    _tool("find_file", "Find files by name.", ["name"], name=_text(), most=_number(99)),
    _tool("read_lines", "Read lines of a file.", ["path", "first"], path=_text(), first=_number(9999)),
    _tool("get_weather", "The weather in a place.", ["place"], place=_text(), unit={"enum": ["C", "F"]}),
    _tool(
        "add_event", "Write into the calendar.", ["title", "day"], title=_text(), day={"enum": ["Mon", "Tue", "Wed"]}
    ),
    _tool("convert", "Convert money.", ["amount", "to"], amount=_number(99_999), to={"enum": ["EUR", "USD", "JPY"]}),
    _tool("tag", "Tag a note.", ["tags"], tags={"type": "array", "items": _text(9), "minItems": 1, "maxItems": 3}),
    _tool("move", "Move a robot.", ["x", "y", "fast"], x=_number(99), y=_number(99), fast={"type": "boolean"}),
    _tool("current_time", "The time.", []),
)
_QUESTIONS = (
    "What is in the file about the garden, and when did it rain?",
    "Plan my week with what you find, and tell me what it costs.",
    "Look up what you need and write a summary of it.",
)


@dataclass
class Conversation:
    """One of them, as the model has written it.

    Attributes:
        tokens: Of each turn of the model.
        calls: Each with its arguments.
        problems: What isn't as it has to be.
        turns: Those with calls, then the last one.
    """

    tokens: list[list[int]] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    turns: list[Answer] = field(default_factory=list)


def converse(engine: Engine, number: int, *, last_tokens: int = 24, **options: Any) -> Conversation:
    """Have the conversation of this ``number``: the same questions, tools and results each time; five in a row have the
    same tools. ``options`` are those of `Generate`."""
    chosen = random.Random(number)
    tools = random.Random(number // 5).sample(TOOLS, 3)
    messages = [Message(role="user", content=chosen.choice(_QUESTIONS))]
    found, target = Conversation(), engine._target
    assert target is not None
    known = FORMATS[target.prompts.tokenizer.tool_format]
    use = ToolUse(tools=tools, required=True, several=False)
    for place in range(1 + number % 5):
        answer = run(engine, ask("", messages=messages, tools=use, seed=number, **options, max_tokens=MOST_TOKENS))
        found.turns.append(answer)
        found.tokens.append(answer.token_ids)
        _, calls = CallReader(known, tools).read(answer.text)
        if len(calls) != 1:
            found.problems.append(f"{number}.{place}: no call in {answer.text!r}")
            return found
        tool = next(one for one in tools if one.name == calls[0].name)
        arguments = json.loads(calls[0].arguments)
        found.calls.append((tool.name, arguments))
        try:
            jsonschema.validate(arguments, tool.parameters)
        except jsonschema.ValidationError as error:
            found.problems.append(f"{number}.{place}: {error.message}")
        result = _result(chosen, arguments)
        before = target.prompts.chat(messages, tools=tools).tokens
        messages += [
            Message(role="assistant", content="", tool_calls=(calls[0],), tokens=tuple(answer.token_ids)),
            Message(role="tool", content=result, tool_call_id=calls[0].id, tool_name=tool.name),
        ]
        prompt = target.prompts.chat(messages, tools=tools).tokens
        if prompt[: len(before)] != before:
            found.problems.append(f"{number}.{place}: the prompt doesn't begin as the one before")
        said = b"".join(map(target.model.piece, prompt)).decode("utf-8", "replace")
        if re.search("message-[0-9a-f]{32}", said):
            found.problems.append(f"{number}.{place}: a word of ours stands in the prompt")
        if result not in said and json.dumps(result, ensure_ascii=False)[1:-1] not in said:  # gpt-oss has it as JSON
            found.problems.append(f"{number}.{place}: the result has changed: {result!r}")
    last = run(
        engine, ask("", messages=messages, tools=ToolUse(tools=tools), seed=number, max_tokens=last_tokens, **options)
    )
    found.turns.append(last)
    found.tokens.append(last.token_ids)
    return found


def _result(chosen: random.Random, arguments: Any) -> str:
    """What a tool might say: the arguments again, in a list, as programs do; or what is made to do harm."""
    if chosen.random() < 0.25:
        return chosen.choice(_SAFE)
    rows = [{"id": number, **arguments, "size": chosen.randrange(10_000)} for number in range(chosen.randrange(1, 4))]
    return json.dumps({"results": rows, "next": None}, ensure_ascii=False, indent=chosen.choice([None, 2]))
