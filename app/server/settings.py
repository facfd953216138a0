"""How to answer, from the fields of a request: sampling, format, limits, and what this server doesn't do."""

from __future__ import annotations

import msgspec

from app.protocol.commands import Generate, Message
from app.protocol.events import PairLoaded
from app.protocol.limits import MAX_GRAMMAR_CHARACTERS
from app.protocol.options import AnswerFormat, FormatKind, Sampling
from app.server.errors import invalid
from app.server.fields import Settings

_LEAST_TOP_P = 1e-6
"""The engine's is above 0; OpenAI's may be 0, which leaves the most likely token."""


def command_for(request: Settings, pair: PairLoaded, messages: list[Message]) -> Generate:
    """An answer to ``messages``. Raises `ApiError`.

    Nothing of it is stored, and a chat that is too long is refused: whoever sends it decides what leaves it.
    """
    _check_supported(request)
    return Generate(
        request=0,
        messages=messages,
        sampling=_sampling(request, pair.sampling),
        seed=None if request.seed in (None, -1) else request.seed,
        max_tokens=most_tokens(request.max_tokens),
        stop=_stops(request),
        format=_format(request),
        overflow="stop",
        private=True,
        logit_bias=request.logit_bias or {},
        accept="exact" if request.slipstream and request.slipstream.exact else "coupled",
    )


def most_tokens(wanted: int | None) -> int | None:
    """``None``, like -1: until the context is full. Raises `ApiError`."""
    if wanted == 0:
        raise invalid("The request asks for an answer of 0 tokens.")
    return None if wanted in (None, -1) else wanted


def _check_supported(request: Settings) -> None:
    if request.n not in (None, 1):
        raise invalid("This server gives one answer to a request, so n has to be 1.")


def _sampling(request: Settings, usual: Sampling) -> Sampling:
    """``usual``: what the target's file recommends."""
    repetition = request.repeat_penalty if request.repetition_penalty is None else request.repetition_penalty
    wanted = {
        "temperature": request.temperature,
        "top_k": _or_all(request.top_k, 0),
        "top_p": None if request.top_p is None else max(request.top_p, _LEAST_TOP_P),
        "min_p": request.min_p,
        "repetition_penalty": repetition,
        "frequency_penalty": request.frequency_penalty,
        "presence_penalty": request.presence_penalty,
        "penalty_window": _or_all(request.repeat_last_n, 2**30),
    }
    return msgspec.structs.replace(usual, **{name: value for name, value in wanted.items() if value is not None})


def _or_all(value: int | None, everything: int) -> int | None:
    return everything if value == -1 else value


def _stops(request: Settings) -> list[str]:
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    return list(filter(None, stops))


def _format(request: Settings) -> AnswerFormat | None:
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return _checked("gbnf", request.grammar) if request.grammar else None
    if request.grammar:
        raise invalid("The request has both a response_format and a grammar.")
    schema = bytes(wanted.json_schema.schema if wanted.json_schema else wanted.schema)
    if schema not in (b"", b"null"):
        return _checked("json_schema", schema.decode("utf-8", "replace"))
    if wanted.type == "json_schema":
        raise invalid("The response_format has no schema.")
    return AnswerFormat(kind="json_object")


def _checked(kind: FormatKind, source: str) -> AnswerFormat:
    if len(source) > MAX_GRAMMAR_CHARACTERS:
        raise invalid(f"The format of the answer is longer than {MAX_GRAMMAR_CHARACTERS:,} characters.")
    return AnswerFormat(kind=kind, source=source)
