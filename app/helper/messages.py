"""Requests to the helper process and its answers, each one JSON object in a frame."""

from __future__ import annotations

from typing import Literal

import msgspec

from app import decoders

ROLES = ("comment", "keyword", "string", "number", "name")
"""The roles of parts of code; `Highlighted` contains their indexes."""


class Message(msgspec.Struct, frozen=True):
    """One message of a chat."""

    role: str
    content: str
    thinking: str = ""
    """What the model thought before this answer."""


class CheckTemplate(msgspec.Struct, frozen=True, tag=True):
    """Compile a chat template. Answered by `TemplateChecked` or `TemplateFailed`."""

    source: str


class RenderTemplate(msgspec.Struct, frozen=True, tag=True):
    """Render a chat. ``now``: the local time that the template sees, in ISO format; ``variables``: by their names in
    `TemplateChecked`. Answered by `Rendered` or `TemplateFailed`."""

    source: str
    bos: str
    eos: str
    messages: list[Message]
    now: str
    variables: dict[str, bool | int | float | str] = {}


class TemplateChecked(msgspec.Struct, frozen=True, tag=True):
    """``variables``: the names that a request to render it may set."""

    variables: list[str]


class Rendered(msgspec.Struct, frozen=True, tag=True):
    """The prompt, up to where the answer begins."""

    text: str


class TemplateFailed(msgspec.Struct, frozen=True, tag=True):
    """Why there is no prompt: the template isn't valid, raised an error, wrote more than the limit, or left out text of
    the last message or of the system prompt. ``detail``: the error, shortened to one line.
    """

    reason: Literal["broken", "failed", "endless", "loses"]
    detail: str


class CheckGrammar(msgspec.Struct, frozen=True, tag=True):
    """Check what an answer has to follow (`app.protocol.options.AnswerFormat`). Answered by `GrammarChecked` or
    `GrammarFailed`."""

    kind: Literal["json_object", "json_schema", "regex", "lark", "gbnf"]
    source: str


class GrammarChecked(msgspec.Struct, frozen=True, tag=True):
    """``grammar``: the same in llguidance's notation."""

    grammar: str


class GrammarFailed(msgspec.Struct, frozen=True, tag=True):
    """``detail``: what is wrong and where, in one line."""

    detail: str


class Highlight(msgspec.Struct, frozen=True, tag=True):
    """Find the parts of code to color."""

    language: str
    text: str


class Highlighted(msgspec.Struct, frozen=True, tag=True):
    """For each line of the code its colored parts: start, length (UTF-16 units, as Qt counts) and index in `ROLES`,
    one after the other."""

    lines: list[list[int]]


TemplateRequest = CheckTemplate | RenderTemplate
TemplateAnswer = TemplateChecked | Rendered | TemplateFailed
GrammarAnswer = GrammarChecked | GrammarFailed
Request = TemplateRequest | CheckGrammar | Highlight
Answer = TemplateAnswer | GrammarAnswer | Highlighted

REQUESTS: decoders.Decoder[Request] = decoders.decoder(Request)
CHECKED: decoders.Decoder[TemplateChecked | TemplateFailed] = decoders.decoder(TemplateChecked | TemplateFailed)
RENDERED: decoders.Decoder[Rendered | TemplateFailed] = decoders.decoder(Rendered | TemplateFailed)
GRAMMAR_CHECKED: decoders.Decoder[GrammarAnswer] = decoders.decoder(GrammarAnswer)
HIGHLIGHTED: decoders.Decoder[Highlighted] = decoders.decoder(Highlighted)
"""Use it with `app.protocol.frames.decode`."""
