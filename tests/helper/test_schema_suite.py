"""JSON Schema's own tests of draft 2020-12 (`tests/data/json-schema`), and answers drawn at random from schemas.

A grammar takes all valid answers, and where nothing is noted, no others.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from app.helper.grammars import answer, check_answer
from app.helper.messages import CheckAnswer, CheckGrammar, GrammarChecked, GrammarFailed
from tests.support.grammars import accepts, drawn
from tests.support.schemas import random_schema

SUITE: dict[str, list[tuple[str, Any, list[tuple[Any, bool]]]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "json-schema" / "draft2020-12.json").read_text()
)
FORCED_FORMATS = "format"
"""A file: formats that are known are forced, although they are only annotations."""
OWN_VOCABULARY = "schema that uses custom metaschema with with no validation vocabulary"
"""It says elsewhere that limits don't count; nothing is looked up there."""


def is_written_otherwise(value: Any) -> bool:
    """Whether there are whole numbers in it that are written as 1.0: integers are written without a point here."""
    if isinstance(value, list):
        return any(map(is_written_otherwise, value))
    return isinstance(value, float) and value.is_integer()


@pytest.mark.parametrize("name", SUITE)
def test_the_suite(name: str) -> None:
    for description, schema, values in SUITE[name]:
        source = json.dumps(schema)
        found = answer(CheckGrammar("json_schema", source))
        if isinstance(found, GrammarFailed):
            assert not any(is_valid for _, is_valid in values), (description, found.detail)
            continue
        assert isinstance(found, GrammarChecked)
        for value, is_valid in values:
            problem = check_answer(CheckAnswer(source, json.dumps(value))).problem
            assert problem is None or (problem == "") == is_valid or description == OWN_VOCABULARY
            excepted = name == FORCED_FORMATS or description == OWN_VOCABULARY or is_written_otherwise(value)
            takes = accepts(found.grammar, value)
            assert takes or not is_valid or excepted, (description, value)
            assert is_valid or found.notes or not takes, (description, value)


def test_answers_drawn_at_random_are_valid() -> None:
    rng = random.Random(5)
    schemas = [schema for parts in SUITE.values() for _, schema, _ in parts] + [
        random_schema(number) for number in range(50)
    ]
    count = 0
    for schema in rng.sample(schemas, 150):
        source = json.dumps(schema)
        found = answer(CheckGrammar("json_schema", source))
        if isinstance(found, GrammarChecked) and not found.notes and (text := drawn(found.grammar, rng)) is not None:
            assert check_answer(CheckAnswer(source, text)).problem == "", (schema, text)
            count += 1
    assert count > 80
