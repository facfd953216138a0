"""Tools that a model may call: what a chat says of them, and how the formats of chat templates write a call.

A format is a text with places in it. The engine makes of it what an answer has to follow, and whoever reads the answer
finds the calls in it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import msgspec

MAX_TOOLS = 128
NAME, ID, ARGUMENTS = "\ue000", "\ue001", "\ue002"
"""Places in `ToolFormat.call`: the tool's name, nine letters or digits, and a JSON object or all parameters."""
KEY, VALUE = "\ue003", "\ue004"
"""Places in `ToolFormat.parameter`: its name, and a text as it is or another value as JSON."""
ID_LENGTH = 9
"""Of the name of a call; the templates of Mistral take no other."""

ToolFormatName = Literal[
    "hermes",
    "llama",
    "mistral",
    "mistral-id",
    "mistral-list",
    "nemotron",
    "functionary",
    "qwen-xml",
    "glm",
    "glm-tight",
    "minimax",
    "seed",
    "minicpm",
    "general",
]
"""``general``: the template writes no calls, or in a form that isn't known."""


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A call in an answer."""

    id: str
    name: str
    arguments: str
    """A JSON object."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:/-]{1,128}\Z")]
    description: str = ""
    parameters: dict[str, Any] = {}
    """The JSON schema of an object."""
    strict: bool = False
    """Refuse parameters that can't be forced as a whole."""


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the model may call in one answer."""

    tools: Annotated[list[Tool], msgspec.Meta(min_length=1, max_length=MAX_TOOLS)]
    """All that it sees."""
    required: bool = False
    """It has to call one; otherwise it may also answer with text."""
    only: str = ""
    """The name of the one that it may call; empty: any."""
    several: bool = True
    """Whether there may be more than one call, where the format allows that."""


@dataclass(frozen=True)
class ToolFormat:
    """How a template writes the calls of an answer: ``opening``, calls with ``separator`` between them, ``closing``."""

    mark: str
    """How it begins; text in front of the calls doesn't have that."""
    call: str
    opening: str = ""
    separator: str = ""
    closing: str = ""
    parameter: str = ""
    """How one argument is written where these aren't a JSON object."""
    several: bool = True
    """Whether an answer may have more than one call."""
    anywhere: bool = True
    """Whether text may stand before the calls; else an answer is a call if its text begins like one."""

    @property
    def begins(self) -> str:
        """The text before the name of the first call."""
        return self.opening + self.call.partition(NAME)[0]


GENERAL = ToolFormat(
    "<tool_call>", f'<tool_call>\n{{"name": "{NAME}", "arguments": {ARGUMENTS}}}\n</tool_call>', separator="\n"
)
"""What most models write that were trained on calls."""
FORMATS: dict[ToolFormatName, ToolFormat] = {
    "hermes": GENERAL,
    "llama": ToolFormat("{", f'{{"name": "{NAME}", "parameters": {ARGUMENTS}}}', several=False, anywhere=False),
    "mistral": ToolFormat("[TOOL_CALLS]", f"[TOOL_CALLS]{NAME}[ARGS]{ARGUMENTS}"),
    "mistral-id": ToolFormat("[TOOL_CALLS]", f"[TOOL_CALLS]{NAME}[CALL_ID]{ID}[ARGS]{ARGUMENTS}"),
    "mistral-list": ToolFormat(
        "[TOOL_CALLS]",
        f'{{"name": "{NAME}", "arguments": {ARGUMENTS}, "id": "{ID}"}}',
        opening="[TOOL_CALLS][",
        separator=", ",
        closing="]",
    ),
    "nemotron": ToolFormat(
        "<TOOLCALL>",
        f'{{"name": "{NAME}", "arguments": {ARGUMENTS}}}',
        opening="<TOOLCALL>[",
        separator=", ",
        closing="]</TOOLCALL>",
    ),
    "functionary": ToolFormat("<function=", f"<function={NAME}>{ARGUMENTS}</function>"),
    "qwen-xml": ToolFormat(
        "<tool_call>",
        f"<tool_call>\n<function={NAME}>\n{ARGUMENTS}</function>\n</tool_call>",
        separator="\n",
        parameter=f"<parameter={KEY}>\n{VALUE}\n</parameter>\n",
    ),
    "glm": ToolFormat(
        "<tool_call>",
        f"<tool_call>{NAME}\n{ARGUMENTS}</tool_call>",
        separator="\n",
        parameter=f"<arg_key>{KEY}</arg_key>\n<arg_value>{VALUE}</arg_value>\n",
    ),
    "glm-tight": ToolFormat(
        "<tool_call>",
        f"<tool_call>{NAME}{ARGUMENTS}</tool_call>",
        parameter=f"<arg_key>{KEY}</arg_key><arg_value>{VALUE}</arg_value>",
    ),
    "minimax": ToolFormat(
        "<minimax:tool_call>",
        f'<invoke name="{NAME}">\n{ARGUMENTS}</invoke>',
        opening="<minimax:tool_call>\n",
        separator="\n",
        closing="\n</minimax:tool_call>",
        parameter=f'<parameter name="{KEY}">{VALUE}</parameter>\n',
    ),
    "seed": ToolFormat(
        "<seed:tool_call>",
        f"<seed:tool_call>\n<function={NAME}>\n{ARGUMENTS}</function>\n</seed:tool_call>",
        separator="\n",
        parameter=f"<parameter={KEY}>{VALUE}</parameter>\n",
    ),
    "general": GENERAL,
    "minicpm": ToolFormat(
        "<function name=",
        f'<function name="{NAME}">{ARGUMENTS}</function>',
        separator="\n",
        parameter=f'<param name="{KEY}">{VALUE}</param>',
    ),
}


# Arguments of tools that aren't written as JSON, but one by one: texts as they are, other values as JSON.
#
# Every schema is taken. What can't be followed this way is left to the model, and named.

_ALL_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_NOT_FOLLOWED = ("anyOf", "oneOf", "patternProperties", "minProperties", "maxProperties")
"""About the arguments as a whole."""
_MOST_CHARACTERS = 4000
"""Longer limits of a text are left to the model."""
_MOST_STEPS = 16
"""Of references, or of schemas in each other."""

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class TextValue:
    """An argument that may be a text; it is written without quotation marks."""

    choices: Mapping[str, Any] | None = None
    """What may be written, and what that means; ``None``: any text."""
    least: int = 0
    """Characters."""
    most: int | None = None
    others: frozenset[str] = frozenset()
    """JSON's types of what it may be instead, which are written as JSON."""
    not_followed: tuple[str, ...] = ()
    """The keywords of its schema that say more."""

    def value(self, text: str) -> Any:
        """What a written ``text`` means."""
        if self.choices is not None:
            return self.choices.get(text, text)
        try:
            value = json.loads(text) if self.others else text
        except (ValueError, RecursionError):
            return text
        return value if _type(value) in self.others else text


@dataclass(frozen=True)
class Parameters:
    """The arguments of a tool."""

    schemas: dict[str, Any] = field(default_factory=dict)
    """By name, in order."""
    required: frozenset[str] = frozenset()
    any_name: bool = False
    """There may be any, by any name."""
    not_followed: tuple[str, ...] = ()
    """The keywords that say more about all of them."""


def parameters_of(schema: Schema) -> Parameters:
    """The arguments that the ``schema`` of a tool's parameters has."""
    schemas, required = _properties(schema, schema, _MOST_STEPS)
    is_closed = not schema or "properties" in schema or schema.get("additionalProperties") is False
    left_out = tuple(keyword for keyword in _NOT_FOLLOWED if keyword in schema)
    return Parameters(schemas, frozenset(required), not schemas and not is_closed, left_out)


def text_value(schema: Any, whole: Schema) -> TextValue | None:
    """How an argument with this ``schema``, a part of ``whole``, is written; ``None``: as JSON."""
    branches = list(_branches(schema, whole, _MOST_STEPS))
    types = frozenset(kind for one in branches for kind in _types(one))
    if "string" not in types:
        return None
    if all(_choices(one) is not None or _types(one) == {"null"} for one in branches):
        values = [value for one in branches for value in (_choices(one) or [None])]
        return TextValue({value if isinstance(value, str) else json.dumps(value): value for value in values})
    texts = [one for one in branches if "string" in _types(one)]
    others = types if types == _ALL_TYPES else types - {"string"}
    if len(texts) > 1 or others:
        return TextValue(others=others, not_followed=("pattern",) if any("pattern" in one for one in texts) else ())
    (text,) = texts
    least, most = _count(text.get("minLength")) or 0, _count(text.get("maxLength"))
    most = None if most is not None and most < least else most
    return TextValue(None, least, most, not_followed=("pattern",) if "pattern" in text else ())


def _count(value: Any) -> int | None:
    """Characters, where that is a number that a grammar can count to."""
    return int(value) if isinstance(value, int | float) and 0 <= value <= _MOST_CHARACTERS else None


def _properties(schema: Any, whole: Schema, steps: int) -> tuple[dict[str, Any], set[str]]:
    schema = _resolved(schema, whole)
    own = schema.get("properties")
    schemas = dict(own) if isinstance(own, Mapping) else {}
    listed = schema.get("required")
    required = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set[str]()
    for one in _listed(schema, "allOf") if steps else ():
        more, also = _properties(one, whole, steps - 1)
        schemas, required = {**more, **schemas}, required | also
    for keyword in ("anyOf", "oneOf") if steps else ():
        found = [_properties(one, whole, steps - 1) for one in _listed(schema, keyword)]
        for more, _ in found:
            for name, one in more.items():
                known = schemas.get(name, one)
                schemas[name] = one if known == one else {"anyOf": [known, one]}
        required |= set.intersection(*(also for _, also in found)) if found else set()
    if schema.get("additionalProperties") is not False:
        schemas |= {name: {} for name in sorted(required - set(schemas))}
    return schemas, required & set(schemas)


def _branches(schema: Any, whole: Schema, steps: int) -> Iterator[Schema]:
    """The schemas of which an argument has to follow one."""
    schema = _resolved(schema, whole)
    inner = _listed(schema, "anyOf") or _listed(schema, "oneOf")
    if not inner and len(one := _listed(schema, "allOf")) == 1 and "type" not in schema:
        inner = one
    if schema.get("nullable") is True:
        yield {"type": "null"}
    if not inner or not steps:
        yield schema
    for one in inner if steps else ():
        yield from _branches(one, whole, steps - 1)


def _choices(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) and found else None


def _types(schema: Schema) -> frozenset[str]:
    """What a value may be by its own schema."""
    found = schema.get("type", [])
    known = frozenset(one for one in (found if isinstance(found, list) else [found]) if one in tuple(_ALL_TYPES))
    if (choices := _choices(schema)) is not None:
        return frozenset(map(_type, choices))
    return known or (frozenset({"object"}) if "properties" in schema else _ALL_TYPES)


def _type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    kinds = {str: "string", int: "integer", float: "number", list: "array"}
    return kinds.get(type(value), "object")


def _listed(schema: Schema, keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def _resolved(schema: Any, whole: Schema) -> Schema:
    """Without a reference within ``whole``."""
    for _ in range(_MOST_STEPS):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            break
        target: Any = whole
        for name in schema["$ref"].partition("#")[2].split("/")[1:]:
            key = unquote(name).replace("~1", "/").replace("~0", "~")
            target = target.get(key, {}) if isinstance(target, Mapping) else {}
        schema = {} if target is schema else target
    return schema if isinstance(schema, Mapping) and "$ref" not in schema else {}
