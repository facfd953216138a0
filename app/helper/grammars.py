"""Checks the schemas, regular expressions and grammars of answer formats. Runs in the helper process; the engine only
compiles what passed here, with the same limits.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import llguidance
from llguidance.gbnf_to_lark import gbnf_to_lark

from app.helper.messages import AnswerChecked, CheckAnswer, CheckGrammar, GrammarAnswer, GrammarChecked, GrammarFailed
from app.helper.schemas import Forced, InvalidError, forced, note, problem_of, where

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_DEEPEST = 100
"""Nested brackets; llguidance recurses into them."""
_DETAIL_CHARACTERS = 300
_PLACE = re.compile(r"^at (\d+)\((\d+)\): ")
"""llguidance's format of a mistake's position."""
_LINE = re.compile(r"^line \d+, column \d+: ")
_SEARCH_SECONDS = 0.5
"""For finding the parts of a schema that can't be enforced."""
_UNSATISFIABLE = "nsatisfiable"
_MOST_NOTES = 20
JSON_OPTIONS: JsonCompileOptions = {"whitespace_pattern": r"[ \t]{0,4}(\n[ \t]{0,32})?", "coerce_one_of": True}
"""Enough for the white space that models write in JSON; without a limit, a model may write it forever."""
CALL_OPTIONS: JsonCompileOptions = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "coerce_one_of": True,
}
"""The way chat templates write calls (``tojson``), so that a call has the same tokens when it is sent back."""
_WITHOUT_ONE_OF: JsonCompileOptions = {**JSON_OPTIONS, "coerce_one_of": False}


class _UnusableError(Exception):
    """The message says what is wrong, and where."""


def limits() -> llguidance.LLParserLimits:
    """Limits for compiling and for each token, which may take some 20 ms."""
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
    """Compile a grammar for a vocabulary of all bytes, and try its first token."""
    try:
        if request.kind == "json_schema":
            return _schema_checked(request)
        grammar = _grammar(request)
        _try(grammar)
    except _UnusableError as error:
        text = _line(str(error))
        # The position in a regular expression's grammar would mean nothing to the user.
        return GrammarFailed(_LINE.sub("", text) if request.kind == "regex" else text)
    return GrammarChecked(grammar)


def check_answer(request: CheckAnswer) -> AnswerChecked:
    """Check a finished answer against its schema."""
    problem = problem_of(json.loads(request.schema), request.text)
    return AnswerChecked(None if problem is None else _line(problem) if problem else "")


def first_line(message: str) -> str:
    """llguidance's message without its excerpt of the grammar, plus a regular expression's own error."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["unknown error"]
    lines[0] = _PLACE.sub(r"line \1, column \2: ", lines[0]).replace(" (in regex)", "")
    own = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "")
    return f"{lines[0].partition(' regex parse error')[0].rstrip(':')}: {own}" if own else lines[0]


def _schema_checked(request: CheckGrammar) -> GrammarChecked:
    schema = _schema(request.source)
    found = _forced(schema, lenient=request.lenient)
    notes = list(dict.fromkeys(map(_line, found.notes)))
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"{len(notes) - _MOST_NOTES} more"]
    own = {"x-guidance": schema["x-guidance"]} if isinstance(schema, dict) and "x-guidance" in schema else {}
    return GrammarChecked(_schema_grammar({**own, **found.schema}), notes, found.schema)


def _grammar(request: CheckGrammar) -> str:
    source = request.source
    if request.kind != "json_object" and not source.strip():
        raise _UnusableError("it is empty")
    match request.kind:
        case "json_object" | "json_schema":
            return _schema_grammar({"type": "object"})
        case "regex":
            _check_depth(source)
            return llguidance.LLMatcher.grammar_from_regex(source)
        case "lark":
            _check_depth(source)
            return llguidance.LLMatcher.grammar_from_lark(source)
        case "gbnf":
            _check_depth(source)
            return llguidance.LLMatcher.grammar_from_lark(_lark(source))


def _schema(source: str) -> Any:
    if not source.strip():
        raise _UnusableError("it is empty")
    _check_depth(source)
    try:
        return json.loads(source)
    except json.JSONDecodeError as error:
        raise _UnusableError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except ValueError as error:
        raise _UnusableError(str(error)) from error


def _forced(schema: Any, *, lenient: bool) -> Forced:
    """The part of ``schema`` that llguidance can enforce. Raises `_UnusableError` unless ``lenient``."""
    deadline = time.monotonic() + _SEARCH_SECONDS
    try:
        found = forced(schema, _compiles, lenient=lenient)
    except InvalidError as error:
        raise _UnusableError(str(error)) from error
    while problem := _error(found.schema):
        in_time = time.monotonic() < deadline
        place, part, problem = _innermost(found, problem) if in_time else ("#", found.schema, problem)
        if _UNSATISFIABLE in problem and not lenient:
            raise _UnusableError(f"at {where(place)}: {problem}")
        found.notes.append(note(_weaken(part, found.schema.get("$defs", {}), in_time=in_time), place))
    found.notes.extend(_overlapping(found, deadline))
    return found


def _innermost(found: Forced, error: str) -> tuple[str, dict[str, Any], str]:
    """The innermost part with this kind of error: its place, the part itself, and its error."""
    for place, part in found.parts:
        own = _error({**part, "$defs": found.schema.get("$defs", {})})
        if own and (_UNSATISFIABLE in own) == (_UNSATISFIABLE in error):
            return place, part, own
    return "#", found.schema, error


def _weaken(part: dict[str, Any], definitions: dict[str, Any], *, in_time: bool) -> str:
    """Remove the keyword that can't be enforced from ``part``; returns its name, or several."""
    for keyword in [one for one in part if one not in ("type", "$defs")] if in_time else ():
        rest = {name: value for name, value in part.items() if name != keyword}
        if not _error({**rest, "$defs": definitions}):
            del part[keyword]
            return keyword
    kept = {"type": part["type"]} if len(part) > 1 and "type" in part else {}
    left_out = ", ".join(one for one in part if one not in kept)
    part.clear()
    part.update(kept)
    return left_out


def _overlapping(found: Forced, deadline: float) -> Iterator[str]:
    """Notes on each ``oneOf`` for which an answer may match more than one of its schemas."""
    for place, part in found.parts:
        if "oneOf" in part:
            definitions = found.schema.get("$defs", {})
            # llguidance doesn't follow references when it compares.
            inner = [_behind(one, definitions) for one in part["oneOf"]]
            alone = {"oneOf": inner, "$defs": definitions, "x-guidance": _WITHOUT_ONE_OF}
            if time.monotonic() > deadline or _error(alone):
                yield note("oneOf", place)


def _behind(part: Any, definitions: dict[str, Any]) -> Any:
    """The definition, if ``part`` is just a reference to one."""
    is_reference = isinstance(part, dict) and list(part) == ["$ref"]
    return definitions[part["$ref"].rpartition("/")[2]] if is_reference else part


def _compiles(schema: dict[str, Any]) -> bool:
    return not _error(schema)


def _error(schema: dict[str, Any]) -> str:
    """Why llguidance rejects a ``schema``; empty if it doesn't."""
    try:
        _try(_schema_grammar(schema))
    except _UnusableError as error:
        return first_line(str(error))
    return ""


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
    except Exception as error:  # it raises plain ones for missing rules
        raise _UnusableError(first_line(str(error))) from error


def _check_depth(source: str) -> None:
    depth = 0
    for bracket in re.findall(r"[(\[{}\])]", source):
        depth += 1 if bracket in "([{" else -1
        if depth > _DEEPEST:
            raise _UnusableError(f"brackets are nested more than {_DEEPEST} deep")


def _try(grammar: str) -> None:
    """Raise `_UnusableError` if llguidance can't accept and roll back a first token with ``grammar``."""
    error = llguidance.LLMatcher.validate_grammar(grammar, limits=limits())
    if error and not error.startswith("WARNING"):
        raise _UnusableError(first_line(error))
    matcher = llguidance.LLMatcher(_tokenizer(), grammar, log_level=0, limits=limits())
    mask = matcher.compute_bitmask() if not matcher.is_error() else b""
    if matcher.is_error():
        raise _UnusableError(first_line(matcher.get_error()))
    first = next((token for token in range(256) if mask[token // 8] >> token % 8 & 1), None)
    if first is not None and not (matcher.consume_token(first) and matcher.rollback(1)):
        raise _UnusableError(first_line(matcher.get_error()))


class _Bytes:
    """A vocabulary of all bytes, and an end token."""

    eos_token_id = 256
    bos_token_id = None
    tokens = [*(bytes([byte]) for byte in range(256)), b"\xff<end>"]  # noqa: RUF012 - llguidance reads it
    special_token_ids = [256]  # noqa: RUF012

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@cache
def _tokenizer() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))


def _line(text: str) -> str:
    """``text`` as one line of printable characters."""
    shown = first_line(text).encode("utf-8", "replace").decode()
    shown = shown if len(shown) <= _DETAIL_CHARACTERS else shown[: _DETAIL_CHARACTERS - 1] + "…"
    return "".join(character if character.isprintable() else "\ufffd" for character in shown)
