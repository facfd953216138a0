"""Schemas as other programs write them: what is forced, what is left to the model, and the check of what comes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.helper.grammars import CALL_OPTIONS, answer, check_answer
from app.helper.messages import CheckAnswer, CheckGrammar, GrammarChecked, GrammarFailed
from tests.support.grammars import accepts, takes

TEXT = {"type": "string"}
ZOD_EMAIL = (
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"  # zod 4's
)


def checked(schema: Any, *, lenient: bool = False) -> GrammarChecked:
    found = answer(CheckGrammar("json_schema", json.dumps(schema), lenient))
    assert isinstance(found, GrammarChecked), found
    return found


def of(kind: str, *, key: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {key: {"type": kind, **more}}, "required": [key]}


EXACT: list[tuple[Any, list[Any], list[Any]]] = [
    (True, [1, "x", {"a": []}], []),
    ({"type": "string", "format": "password"}, ["x"], [1]),
    ({"$schema": "https://example.org/own.json", "$id": "no address %", **TEXT}, ["x"], [1]),
    ({"type": "string", "nullable": True}, ["x", None], [1]),
    ({"type": "string", "enum": ["x"], "nullable": True}, ["x", None], ["y"]),
    ({"type": "array", "uniqueItems": False}, [[1, 1]], [1]),
    ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, [1], [0, -1]),
    ({"type": "object", "properties": {"a": {"type": "string", "required": True}}}, [{"a": "x"}], [{"a": 1}]),
    ({"type": "array", "items": [TEXT, {"type": "null"}], "additionalItems": False}, [["x", None]], [["x", None, 1]]),
    ({"type": "object", "propertyNames": TEXT, "additionalProperties": TEXT}, [{"b": "x"}], [{"b": 1}]),
    ({"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": TEXT}, [{"a": "x"}], [{"b": "x"}]),
    ({"type": "object", "propertyNames": {"pattern": "^[a-z]$"}}, [{"a": 1}], [{"A": 1}]),
    ({"type": "object", "propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
    ({**of("string"), "unevaluatedProperties": False}, [{"a": "x"}], [{"a": "x", "b": 1}]),
    ({"type": "object", "properties": {"a": TEXT, "b": {"not": {}}}}, [{"a": "x"}], [{"b": 1}]),
    ({"not": {"type": ["null", "number"]}}, ["x", True], [None, 1]),
    (
        {"properties": {"a": {"type": "integer", "multipleOf": 5}}, "patternProperties": {"^a$": {"type": "integer"}}},
        [{"a": 10}],
        [{"a": 1}],
    ),
    (of("array", items=of("string", maxLength=10_000), maxItems=100), [{"a": [{"a": "x"}]}], [{"a": [{}]}]),
    ({"$ref": "#/components/schemas/X", "components": {"schemas": {"X": TEXT}}}, ["x"], [1]),
    ({"properties": {"a": TEXT, "b": {"$ref": "#/properties/a"}}}, [{"b": "x"}], [{"b": 1}]),
    (
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
        [{"next": {}}],
        [{"x": 1}],
    ),
    ({"$defs": {"a": TEXT}, "properties": {"b": {"$id": "#/b", "$ref": "#/$defs/a"}}}, [{"b": "x"}], [{"b": 1}]),
    ({"$ref": "#here", "$defs": {"a": {"$anchor": "here", **TEXT}}}, ["x"], [1]),
    ({"type": "string", "pattern": ZOD_EMAIL, "format": "email"}, ["a.b@c.de"], [".a@b.cd", "a..b@c.de", "a@b"]),
    ({"type": "string", "pattern": r"^(?=.*[A-Z])(?=.*\d)\S{4,}$"}, ["abC1"], ["abc1", "abCd", "aC1"]),
    ({"type": "string", "pattern": "^(?!(?:con|prn)$)[a-z]+$"}, ["cons", "pr"], ["con", "prn"]),
    ({"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}, ["1.5", "-.5"], ["", "-", "."]),
    ({"type": "string", "pattern": r"^(?!_)(?!.*__)[a-z_]{1,64}(?<!_)$"}, ["a_b", "a"], ["_a", "a_", "a__b"]),
    ({"type": "string", "pattern": r"^(?!\s*$).+"}, [" a"], ["", "  "]),
    ({"type": "string", "pattern": "^(?!-)[a-z-]*$"}, ["a-", ""], ["-a"]),
    ({"type": "string", "pattern": "^[^[&&]+$"}, ["a", "b]"], ["[", "&"]),
    (
        {
            "discriminator": {"propertyName": "t"},
            "oneOf": [of("string", key="t", const="a"), of("string", key="t", const="b")],
        },
        [{"t": "a"}, {"t": "b"}],
        [{"t": "c"}],
    ),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), EXACT, ids=[json.dumps(one[0])[:60] for one in EXACT])
def test_what_can_be_said_in_other_words_is_forced(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    found = checked(schema)
    assert found.notes == []
    assert [value for value in valid if not accepts(found.grammar, value)] == []
    assert [value for value in invalid if accepts(found.grammar, value)] == []


LEFT: list[tuple[Any, str, Any, Any]] = [
    ({"properties": {"a": {"uniqueItems": True}}}, "“uniqueItems” at #/properties/a", {"a": [1]}, {"a": [1, 1]}),
    ({"oneOf": [of("string"), of("string", key="b")]}, "“oneOf”", {"a": "x"}, {"a": "x", "b": "y"}),
    ({"if": of("string"), "then": {"required": ["b"]}}, "“if”", {"a": 1}, {"a": "x"}),
    ({"contains": {"type": "null"}}, "“contains”", [None], [1]),
    ({"dependentRequired": {"a": ["b"]}}, "“dependentRequired”", {"b": 1}, {"a": 1}),
    ({"not": of("string")}, "“not”", {"a": 1}, {"a": "x"}),
    ({"properties": {"a": TEXT, "b": TEXT}, "minProperties": 2}, "“minProperties”", {"a": "x", "b": "y"}, {"a": "x"}),
    ({"patternProperties": {"^a": TEXT, "b$": {"minLength": 2}}}, "“patternProperties”", {"ab": "xy"}, {"ab": "x"}),
    ({"pattern": r"\bfoo\b"}, "“pattern”", "a foo", "afoo"),
    (
        {"allOf": [of("string")], "unevaluatedProperties": False},
        "“unevaluatedProperties”",
        {"a": ""},
        {"a": "", "b": 1},
    ),
]


@pytest.mark.parametrize(("schema", "note", "valid", "invalid"), LEFT, ids=[one[1] for one in LEFT])
def test_the_rest_is_left_to_the_model_and_checked(schema: Any, note: str, valid: Any, invalid: Any) -> None:
    found, source = checked(schema), json.dumps(schema)
    assert found.notes == [note if " at " in note else f"{note} at the top level"]
    assert accepts(found.grammar, valid) and accepts(found.grammar, invalid)
    assert check_answer(CheckAnswer(source, json.dumps(valid))).problem == ""
    assert check_answer(CheckAnswer(source, json.dumps(invalid))).problem


@pytest.mark.parametrize("text", ['{"a": "é/\\n", "b": [1, {}]}', "{}", '{"a": [], "b": null}'])
@pytest.mark.parametrize(("is_call", "change"), [(True, str), (False, lambda text: text.replace(": ", " :  "))])
def test_calls_have_white_space_and_signs_as_templates_write_them(text: str, is_call: bool, change: Any) -> None:
    source = json.dumps({"type": "object", "x-guidance": CALL_OPTIONS})
    found = answer(CheckGrammar("lark", f"start: %json {source}"))
    assert isinstance(found, GrammarChecked)
    assert takes(found.grammar, change(text)) == (is_call or text == "{}")
    assert not takes(found.grammar, text.replace(", ", ",") + " ")


def test_nothing_is_looked_up() -> None:
    schema = {"properties": {"a": {"$ref": "https://example.com/other.json"}}}
    assert checked(schema).notes == ["“$ref” at #/properties/a"]
    assert check_answer(CheckAnswer(json.dumps(schema), '{"a": 1}')).problem is None
    assert checked({"$ref": "https://json-schema.org/draft/2020-12/schema"}).notes


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "string", "nullable": True}, None, ""),
        ({"type": "string", "pattern": r"^\p{L}$"}, "ab", ""),  # Python can't read it; the grammar forces it
        ({"items": [TEXT]}, [1], "at #/0: 1 is not of type 'string'"),
        ({"$schema": "https://example.org/own", "type": "object", "properties": {"a/b": TEXT}}, {"a/b": 1}, "#/a~1b"),
    ],
)
def test_a_finished_answer_is_checked(schema: Any, value: Any, problem: str) -> None:
    found = check_answer(CheckAnswer(json.dumps(schema), json.dumps(value)))
    assert found.problem is not None and problem in found.problem and bool(problem) == bool(found.problem)


@pytest.mark.parametrize(
    ("schema", "notes"),
    [
        (of("str"), ["#/properties/a (Invalid type: str)"]),
        (of("integer", minimum=5, maximum=3), ["“minimum” at #/properties/a"]),
        ({"type": "object", "properties": []}, ["the top level (“properties” can't be [])"]),
        ({**of("string"), "required": ["b"], "additionalProperties": False}, ["“required” at the top level"]),
    ],
)
def test_parameters_of_tools_are_always_taken(schema: Any, notes: list[str]) -> None:
    assert checked(schema, lenient=True).notes == notes


@pytest.mark.parametrize("schema", [False, of("integer", minimum=5, maximum=3), {"not": True}, {"enum": []}])
def test_a_schema_without_a_valid_answer_is_refused(schema: Any) -> None:
    assert isinstance(answer(CheckGrammar("json_schema", json.dumps(schema))), GrammarFailed)
