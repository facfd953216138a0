"""Schemas, regular expressions and grammars: what is wrong with them, and where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.helper.answer_format import checked_grammar
from app.helper.grammars import answer
from app.helper.messages import CheckGrammar, GrammarChecked, GrammarFailed
from app.protocol.options import AnswerFormat
from app.system import KnownError

NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {"a/b": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "objekt"}]}}},
}


@pytest.mark.parametrize(
    ("kind", "source", "detail"),
    [
        ("json_schema", '{"type":\n "string",}', "line 2, column 11"),
        ("json_schema", json.dumps(NESTED), "at #/properties/a~1b/items/anyOf/1: Invalid type: objekt"),
        ("json_schema", '{"$defs": {"a": {"not": {}}}, "$ref": "#/$defs/a"}', "Unsatisfiable"),
        ("json_schema", '{"properties": {"a": {"enum": "x"}}}', 'at #/properties/a: “enum” can\'t be "x"'),
        ("json_schema", "[1]", "a schema is a JSON object"),
        ("json_schema", "", "it is empty"),
        ("json_schema", '{"items":' * 101 + "{}" + "}" * 101, "nested more than 100 deep"),
        ("json_schema", '{"minimum": 5, "maximum": 3, "type": "integer"}', "greater than maximum"),
        ("regex", "[a-", "unclosed character class"),
        ("regex", "(a{1000}){1000}", "too many"),
        ("lark", 'start: "a" other', 'line 1, column 8: unknown name: "other"'),
        ("lark", "start[max_tokens=3]: /.*/", "rollback not supported"),
        ("gbnf", 'root ::= "yes" | [a', "line 1"),
        ("gbnf", 'start ::= "x"', "root"),
    ],
)
def test_a_mistake_is_told_with_its_place(kind: Any, source: str, detail: str) -> None:
    found = answer(CheckGrammar(kind, source))
    assert isinstance(found, GrammarFailed)
    assert detail in found.detail
    assert "\n" not in found.detail and len(found.detail) <= 300


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("json_object", ""),
        ("json_schema", '{"type": "string", "format": "date"}'),
        ("regex", "(yes|no)!?"),
        ("lark", 'start: "a" other\nother: /b+/'),
        ("gbnf", 'root ::= item+\nitem ::= "- " [a-z]+ "\\n"'),
    ],
)
def test_what_is_fine_is_turned_into_one_notation(kind: Any, source: str) -> None:
    found = answer(CheckGrammar(kind, source))
    assert isinstance(found, GrammarChecked)
    again = answer(CheckGrammar("lark", found.grammar))  # llguidance reads it again
    assert isinstance(again, GrammarChecked) and again.grammar == found.grammar


def test_the_engine_asks_the_helper_process() -> None:
    assert "yes" in checked_grammar(AnswerFormat(kind="regex", source="yes|no")).grammar
    with pytest.raises(KnownError, match=r"^The JSON schema can't be used: at the top level: Invalid type: objekt\.$"):
        checked_grammar(AnswerFormat(kind="json_schema", source='{"type": "objekt"}'))


def test_a_regular_expression_has_no_place_in_a_grammar() -> None:
    found = answer(CheckGrammar("regex", "(a"))
    assert isinstance(found, GrammarFailed) and found.detail == 'invalid regex "(a": unclosed group'
