"""Schemas, regular expressions and grammars that an answer has to follow. Runs in the helper process, whose limits stop
what hangs; the engine compiles only what passed here, with the same limits.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import llguidance
from llguidance.gbnf_to_lark import gbnf_to_lark

from app.helper.messages import CheckGrammar, GrammarAnswer, GrammarChecked, GrammarFailed

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_DEEPEST = 100
"""Brackets within brackets; llguidance goes through them by recursion."""
_DETAIL_CHARACTERS = 300
_DEFINITIONS = ("$schema", "$defs", "definitions", "$id", "x-guidance")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_SEARCH_SECONDS = 0.5
"""For the part of a schema that has the mistake."""
JSON_OPTIONS: JsonCompileOptions = {"whitespace_pattern": r"[ \t]{0,4}(\n[ \t]{0,32})?"}
"""White space in JSON that models write; without a limit, a model can write it without end."""


class _UnusableError(Exception):
    """The message says what is wrong, and where."""


def limits() -> llguidance.LLParserLimits:
    """What compiling and each token may take at most: some 20 ms a token."""
    return llguidance.LLParserLimits(
        max_items_in_row=2000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=250_000,
        verbose_errors=False,
    )


def answer(request: CheckGrammar) -> GrammarAnswer:
    """Compile it for the vocabulary of all bytes, and look at how it begins."""
    try:
        grammar = _grammar(request)
        _try(grammar)
    except _UnusableError as error:
        return GrammarFailed(_line(str(error)))
    return GrammarChecked(grammar)


def first_line(message: str) -> str:
    """What llguidance says about an error, without the grammar that it shows; a regular expression's own error too."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["unknown error"]
    own = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "")
    return f"{lines[0].partition(' regex parse error')[0].rstrip(':')}: {own}" if own else lines[0]


def _grammar(request: CheckGrammar) -> str:
    source = request.source
    if request.kind != "json_object" and not source.strip():
        raise _UnusableError("it is empty")
    match request.kind:
        case "json_object":
            return _schema_grammar({"type": "object"})
        case "json_schema":
            return _schema_grammar(_schema(source))
        case "regex":
            _check_depth(source)
            return llguidance.LLMatcher.grammar_from_regex(source)
        case "lark":
            _check_depth(source)
            return llguidance.LLMatcher.grammar_from_lark(source)
        case "gbnf":
            _check_depth(source)
            return llguidance.LLMatcher.grammar_from_lark(_lark(source))


def _schema(source: str) -> dict[str, Any]:
    _check_depth(source)
    try:
        schema = json.loads(source)
    except json.JSONDecodeError as error:
        raise _UnusableError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except ValueError as error:
        raise _UnusableError(str(error)) from error
    if not isinstance(schema, dict):
        raise _UnusableError("a schema is a JSON object")
    if problem := _error(schema, schema):
        raise _UnusableError(f"at {_place(schema, problem)}: {problem}")
    return schema


def _error(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """What is wrong with a ``part`` of a schema on its own; empty if nothing is."""
    definitions = {name: schema[name] for name in _DEFINITIONS if name in schema}
    try:
        error = llguidance.LLMatcher.validate_grammar(_schema_grammar({**definitions, **part}), limits=limits())
    except _UnusableError as problem:
        return str(problem)
    return first_line(error) if error and not error.startswith("WARNING") else ""


def _place(schema: dict[str, Any], error: str) -> str:
    """The innermost part of a schema that has this ``error`` on its own, as a JSON pointer (RFC 6901)."""
    place, part, deadline = "#", schema, time.monotonic() + _SEARCH_SECONDS
    while found := next(
        (one for one in _children(part) if time.monotonic() < deadline and _error(one[1], schema) == error), None
    ):
        place, part = "/".join((place, *found[0])), found[1]
    return place if part is not schema else "the top level"


def _children(part: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The objects below that may be parts of a schema: values of keywords, and what is in a list or a map there."""
    for name, value in part.items():
        if isinstance(value, dict) and name not in _MAPS:
            yield (name,), value
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, one in inner:
            if isinstance(one, dict):
                yield (name, str(key).replace("~", "~0").replace("/", "~1")), one


def _schema_grammar(schema: dict[str, Any]) -> str:
    try:
        return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=JSON_OPTIONS)
    except ValueError as error:
        raise _UnusableError(first_line(str(error))) from error


def _lark(source: str) -> str:
    try:
        return gbnf_to_lark(source)
    except MemoryError:
        raise
    except Exception as error:  # plain ones for rules that are missing, its own for the rest
        raise _UnusableError(first_line(str(error))) from error


def _check_depth(source: str) -> None:
    depth = 0
    for bracket in re.findall(r"[(\[{}\])]", source):
        depth += 1 if bracket in "([{" else -1
        if depth > _DEEPEST:
            raise _UnusableError(f"brackets are nested more than {_DEEPEST} deep")


def _try(grammar: str) -> None:
    """Raise `_UnusableError` if llguidance can't begin an answer with ``grammar``, or can't take a token back."""
    if error := llguidance.LLMatcher.validate_grammar(grammar, limits=limits()):
        raise _UnusableError(first_line(error))
    matcher = llguidance.LLMatcher(_tokenizer(), grammar, log_level=0, limits=limits())
    mask = matcher.compute_bitmask() if not matcher.is_error() else b""
    if matcher.is_error():
        raise _UnusableError(first_line(matcher.get_error()))
    first = next((token for token in range(256) if mask[token // 8] >> token % 8 & 1), None)
    if first is not None and not (matcher.consume_token(first) and matcher.rollback(1)):
        raise _UnusableError(first_line(matcher.get_error()))


class _Bytes:
    """A vocabulary of all bytes and an end."""

    eos_token_id = 256
    bos_token_id = None
    tokens = [*(bytes([byte]) for byte in range(256)), b"\xff<end>"]  # noqa: RUF012 - llguidance reads it
    special_token_ids = [256]  # noqa: RUF012

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def _tokenizer() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))


def _line(text: str) -> str:
    """In one line of printable characters."""
    shown = first_line(text).encode("utf-8", "replace").decode()
    shown = shown if len(shown) <= _DETAIL_CHARACTERS else shown[: _DETAIL_CHARACTERS - 1] + "…"
    return "".join(character if character.isprintable() else "\ufffd" for character in shown)
