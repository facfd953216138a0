"""Turns a request's fields into an answer's settings: sampling, format, limits; warns about unsupported ones."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
from msgspec.inspect import IntType

from app import words
from app.models.hub.recommended import recommended
from app.protocol.answering import PerChat, kind_of, range_of
from app.protocol.commands import Generate, Message
from app.protocol.events import PairLoaded
from app.protocol.options import (
    MAX_COUNT,
    MAX_DRAFT_LENGTH,
    MAX_GRAMMAR_CHARACTERS,
    MAX_LOGPROBS,
    AnswerFormat,
    DrafterChoice,
    DraftLength,
    FormatKind,
    Sampling,
)
from app.server.fields import Number, OwnOptions, Settings, StructuredOutputs, Warnings, quoted
from app.server.guard import invalid

_ALL = {"top_k": 0, "penalty_window": MAX_COUNT}
"""The value for "all" of fields where a negative number means that."""
_DRAFTERS: dict[str, DrafterChoice] = {name: name for name in get_args(DrafterChoice)} | {
    "auto": "chain",  # the engine's `auto` would be the server's own choice
    "off": "none",
}
_MOST_BIAS = 100


def command_for(
    request: Settings, pair: PairLoaded, messages: list[Message], warnings: Warnings, thinking: str = ""
) -> Generate:
    """A command to answer ``messages``, at this level of ``thinking``. Raises `ApiError`.

    Nothing is stored. A chat that is too long is refused, because the client should decide what to drop.
    """
    if request.n not in (None, 1):
        warnings.add("This server gives one answer per request, whatever n is.")
    own = request.slipstream or OwnOptions()
    if request.max_completion_tokens is not None:
        request.max_tokens = request.max_completion_tokens
    settings: dict[str, Any] = _limits(request, warnings) | {
        "seed": None if request.seed is None or request.seed == -1 else int(request.seed) % 2**63
    }
    return Generate(
        request=0,
        messages=messages,
        sampling=_sampling(request, recommended(pair, thinking).sampling, warnings),
        thinking=thinking,
        stop=_stops(request),
        format=answer_format(request),
        overflow="stop",
        private=True,
        logit_bias=_biases(request.logit_bias or {}, warnings),
        accept="exact" if own.exact else "coupled",
        drafter=_drafter(own.drafter, pair, warnings),
        draft_length=_draft_length(request, own, warnings),
        **settings,
    )


def _limits(request: Settings, warnings: Warnings) -> dict[str, int | None]:
    """The integer settings of `PerChat` that the request has, too. ``None`` and negative numbers: no limit."""
    found: dict[str, int | None] = {}
    for name in PerChat.__struct_fields__:
        if isinstance(kind_of(PerChat, name), IntType) and hasattr(request, name):
            value = getattr(request, name)
            is_given = value is not None and value >= 0
            found[name] = int(_nearest(PerChat, name, min(value, MAX_COUNT), warnings)) if is_given else None
    return found


def likely(others: int, warnings: Warnings) -> int:
    """How many alternatives to send with each token."""
    if others > MAX_LOGPROBS:
        warnings.add(f"At most {MAX_LOGPROBS} likely tokens are given with each token of an answer.")
    return int(min(max(others, 0), MAX_LOGPROBS))


def _drafter(wanted: str | None, pair: PairLoaded, warnings: Warnings) -> DrafterChoice:
    """``auto``: the drafter that the server was started with."""
    if wanted is None:
        return "auto"
    choice = _DRAFTERS.get(wanted)
    if choice not in ("chain", "none", "ngram", "grammar", *pair.drafters, *pair.all_drafters):
        warnings.add(f"There is no drafter {quoted(wanted)} here; the server chose another one.")
        return "auto"
    return choice


def _draft_length(request: Settings, own: OwnOptions, warnings: Warnings) -> DraftLength:
    nested = request.speculative.n_max if request.speculative else None
    given = (one for one in (own.draft_length, request.speculative_n_max, nested) if one is not None)
    length = next(given, -1)
    if isinstance(length, str) or length < 0:
        return "auto"
    if length > MAX_DRAFT_LENGTH:
        warnings.add(f"A draft has at most {MAX_DRAFT_LENGTH} tokens here.")
    return min(length, MAX_DRAFT_LENGTH)


def _sampling(request: Settings, usual: Sampling, warnings: Warnings) -> Sampling:
    """``usual``: the recommended sampling."""
    wanted: dict[str, Number | None] = {name: getattr(request, name) for name in Sampling.__struct_fields__}
    repetition = request.repeat_penalty if request.repetition_penalty is None else request.repetition_penalty
    if repetition is not None and repetition <= 0:
        warnings.add("A repetition penalty of 0 or less was left out.")
        repetition = None
    wanted["repetition_penalty"] = repetition
    if request.top_p == 0:
        wanted["top_p"] = 1e-6  # leaves the most likely token
    found = {}
    for name, value in wanted.items():
        if value is not None:
            found[name] = _nearest(Sampling, name, _ALL[name] if name in _ALL and value < 0 else value, warnings)
    return msgspec.structs.replace(usual, **found)


def _nearest(table: type[msgspec.Struct], name: str, value: Number, warnings: Warnings) -> Number:
    """The nearest allowed value."""
    least, most = range_of(table, name)
    nearest = min(max(value, least), most)
    if nearest != value:
        warnings.add(f"The value of {name} was changed to {nearest:g}, the nearest one that is allowed.")
    return int(nearest) if isinstance(most, int) else nearest


def _biases(wanted: dict[str, Any] | list[Any], warnings: Warnings) -> dict[int, float]:
    found: dict[int, float] = {}
    for pair in wanted.items() if isinstance(wanted, dict) else wanted:
        try:
            token, bias = pair
            value = -_MOST_BIAS if bias is False else float(bias)
            nearest = found[int(token)] = min(max(value, -_MOST_BIAS), _MOST_BIAS)
        except (TypeError, ValueError, OverflowError):
            warnings.add("Entries of logit_bias were left out: each needs the id of a token and a number.")
            continue
        if nearest != value:
            warnings.add(f"Values of logit_bias beyond {_MOST_BIAS} or -{_MOST_BIAS} were changed to these.")
    return found


def _stops(request: Settings) -> list[str]:
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    return list(filter(None, stops))


def answer_format(request: Settings) -> AnswerFormat | None:
    """The answer's format, from any server's fields. Raises `ApiError`."""
    wanted = request.response_format
    schema = bytes((wanted.json_schema or wanted).schema) if wanted else b""
    if wanted is None or wanted.type == "text" or not (wanted.type or schema):
        return _format_of_other_servers(request)
    if request.grammar:
        raise invalid("The request has both a response_format and a grammar.")
    if schema not in (b"", b"null"):
        strict = True in (wanted.strict, wanted.json_schema.strict if wanted.json_schema else None)
        return _checked("json_schema", schema.decode("utf-8", "replace"), strict=strict)
    if wanted.type == "json_schema":
        raise invalid("The response_format has no schema.")
    return AnswerFormat(kind="json_object")


def _format_of_other_servers(request: Settings) -> AnswerFormat | None:
    other = request.structured_outputs or StructuredOutputs()
    schema = request.json_schema or request.guided_json or other.json
    choices = request.guided_choice or other.choice
    if grammar := request.grammar or other.grammar:
        return _checked("gbnf", grammar)
    if schema:
        return _checked("json_schema", schema if isinstance(schema, str) else msgspec.json.encode(schema).decode())
    if regex := request.guided_regex or other.regex:
        return _checked("regex", regex)
    if choices:
        return _checked("lark", f"start: {' | '.join(json.dumps(one, ensure_ascii=False) for one in choices)}")
    return None


def _checked(kind: FormatKind, source: str, *, strict: bool = False) -> AnswerFormat:
    if len(source) > MAX_GRAMMAR_CHARACTERS:
        raise invalid(f"The format of the answer is longer than {words.number(MAX_GRAMMAR_CHARACTERS)} characters.")
    return AnswerFormat(kind=kind, source=source, strict=strict)
