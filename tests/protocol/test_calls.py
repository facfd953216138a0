"""Calls come out of an answer's text whole, however it is cut into pieces."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from app.protocol.calls import CallReader
from app.protocol.notations import KEY, VALUE
from app.protocol.tools import ARGUMENTS, FORMATS, ID, INDEX, NAME, Tool, ToolFormat, ToolFormatName

VALUES: list[dict[str, Any]] = [
    {"text": "</tool_call> <tool_call>\n\n</param", "size": 3, "kind": "big", "more": {"a": ["</arg_value>", None]}},
    {},
    {"text": "null", "kind": None, "size": 0},
]
"""Of the tools 0, 1 and 2, which have all these arguments."""
TOOLS = [
    Tool(
        name=f"tool_{number}",
        parameters={
            "properties": {
                "text": {"type": "string"},
                "size": {"type": "integer"},
                "kind": {"$ref": "#/$defs/kind"},
                "more": {"type": "object"},
            },
            "$defs": {"kind": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        },
    )
    for number in range(3)
]
ARGUED = ['{"a": "</tool_call> } \\" <tool_call>", "b": {"c": [1, {}]}}', "{}", '{ "x"\n: "}]</TOOLCALL>[ARGS]" }']
NAMES = [name for name in FORMATS if name]


def written(known: ToolFormat, count: int) -> str:
    calls = []
    for place in range(count):
        listed = known.notation.entries(values(known)[place], ("", known.between, ""), known.members)
        call = known.call.replace(NAME, f"tool_{place}").replace(ID, f"abcdefgh{place}").replace(INDEX, str(place))
        calls.append(call.replace(ARGUMENTS, listed if known.parameter else ARGUED[place]))
    return known.opening + known.separator.join(calls) + known.closing


def values(known: ToolFormat) -> list[dict[str, Any]]:
    """Some forms write arguments in the order of their names."""
    return [dict(sorted(one.items())) if known.notation.sorts else one for one in VALUES]


def expected(known: ToolFormat, count: int) -> list[tuple[str, str]]:
    argued = [json.dumps(one) for one in values(known)] if known.parameter else ARGUED
    return [(f"tool_{place}", argued[place]) for place in range(count)]


def read(known: ToolFormat, text: str, rng: random.Random, *, cut: bool = False) -> tuple[str, list[tuple[str, str]]]:
    reader, shown, calls = CallReader(known, TOOLS), "", []
    while text:
        size = rng.randint(1, 9)
        more, found = reader.read(text[:size])
        shown, text = shown + more, text[size:]
        calls += [(call.name, call.arguments) for call in found]
    return shown + reader.end(cut=cut), calls


@pytest.mark.parametrize("name", NAMES)
def test_calls_in_any_pieces(name: ToolFormatName) -> None:
    known, rng = FORMATS[name], random.Random(1)
    for _ in range(60):
        count = rng.randint(1, 3 if known.several else 1)
        text = rng.choice(["", "Yes.\n", "A < b\n\n", " \n"]) if known.anywhere else rng.choice(["", "\n"])
        shown, calls = read(known, text + written(known, count), rng)
        assert shown == text.rstrip()
        assert calls == expected(known, count)


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_cut_is_left_out(name: ToolFormatName) -> None:
    known, rng = FORMATS[name], random.Random(1)
    text = written(known, 2 if known.several else 1)
    whole = expected(known, 2)
    for end in range(len(text)):
        shown, calls = read(known, text[:end], rng, cut=True)
        assert shown == "" and calls == whole[: len(calls)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "Yes.", "  Yes. \n", "<b>[TOOL {x}", "a <tool_call", "\n\n"])
def test_text_stays_text(name: ToolFormatName, text: str) -> None:
    known = FORMATS[name]
    shown, calls = read(known, text, random.Random(2))
    assert not calls
    assert shown == text


def test_ids_are_the_answers_own_where_it_has_them() -> None:
    reader = CallReader(FORMATS["mistral-list"], TOOLS)
    _, calls = reader.read(written(FORMATS["mistral-list"], 2))
    assert [call.id for call in calls] == ["abcdefgh0", "abcdefgh1"]
    _, (other,) = CallReader(FORMATS["hermes"], TOOLS).read(written(FORMATS["hermes"], 1))
    assert other.id.startswith("call_")


@pytest.mark.parametrize(
    ("name", "begun", "goes_on", "text"),
    [
        ("hermes", "I look. ", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', ""),
        ("hermes", '<tool_call>\n{"name": "f", ', '"arguments": {}}\n</tool_call>', ""),
        ("hermes", "It is ", "green.", "green."),
        ("llama", '{"name": "f", ', '"parameters": {}}', ""),
        ("llama", "Braces: ", '{"name": "f", "parameters": {}}', '{"name": "f", "parameters": {}}'),
    ],
)
def test_an_answer_that_has_begun(name: ToolFormatName, begun: str, goes_on: str, text: str) -> None:
    reader = CallReader(FORMATS[name], [Tool(name="f")])
    reader.go_on(begun)
    shown, calls = reader.read(goes_on)
    assert shown + reader.end(cut=False) == text and len(calls) == (not text)


VALUE_KINDS: list[tuple[Any, str, Any]] = [
    ({"type": "string", "format": "uri", "pattern": "^h"}, "https://a.b", "https://a.b"),
    ({"type": "string", "nullable": True}, "null", None),
    ({"type": ["string", "null"]}, "null", None),
    ({"type": "string"}, "null", "null"),
    ({"type": "string"}, "5", "5"),
    ({"anyOf": [{"type": "string"}, {"type": "array"}]}, '["a", 1]', ["a", 1]),
    ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "[a", "[a"),
    ({"type": ["string", "boolean"]}, "true", True),
    ({}, "plain", "plain"),
    ({}, '{"b": 1}', {"b": 1}),
    (True, "5", 5),
    ({"type": "str"}, "plain", "plain"),
    ({"enum": ["a", 1, None]}, "1", 1),
    ({"allOf": [{"$ref": "#/$defs/c"}], "default": "x"}, "x", "x"),
    ({"anyOf": [{"$ref": "#/$defs/c"}, {"type": "null"}]}, "null", None),
    ({"$ref": "#/properties/other"}, "5", "5"),
    ({"$ref": "#/properties/a"}, "5", 5),
    ({"type": "integer"}, "5", 5),
]


@pytest.mark.parametrize(("schema", "written_as", "value"), VALUE_KINDS)
@pytest.mark.parametrize("key", ["a", "a b.c"])
def test_values_have_the_types_of_their_schema(key: str, schema: Any, written_as: str, value: Any) -> None:
    known, kinds = FORMATS["qwen-xml"], {"c": {"enum": ["x", "y"]}}
    properties = {key: schema, "other": {"type": "string"}}
    tool = Tool(name="f", parameters={"properties": properties, "$defs": kinds})
    listed = known.parameter.replace(KEY, key).replace(VALUE, written_as)
    reader = CallReader(known, [tool])
    (call,) = reader.read(known.call.replace(NAME, "f").replace(ARGUMENTS, listed))[1]
    assert json.loads(call.arguments) == {key: value}


def test_arguments_of_any_name_and_those_in_branches_are_read() -> None:
    known = FORMATS["glm"]
    branches = [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "integer"}}}]
    for parameters in ({"anyOf": branches}, {"allOf": branches}, {"additionalProperties": True}):
        listed = "".join(known.parameter.replace(KEY, key).replace(VALUE, "7") for key in "ab")
        (call,) = CallReader(known, [Tool(name="f", parameters=parameters)]).read(
            known.call.replace(NAME, "f").replace(ARGUMENTS, listed)
        )[1]
        assert json.loads(call.arguments) == {"a": 7 if "additionalProperties" in parameters else "7", "b": 7}
