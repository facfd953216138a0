"""Tools that a model may call, and the formats in which chat templates write calls.

A format is a text with placeholders. The engine turns it into a grammar, and the parser of the answer finds the calls
with it.
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
"""Placeholders in `ToolFormat.call`: the tool's name, the call's id, and a JSON object or all parameters."""
KEY, VALUE = "\ue003", "\ue004"
"""Placeholders in `ToolFormat.parameter`: its name, and its value (a string as it is, anything else as JSON)."""
ID_LENGTH = 9
"""Letters and digits in a call's id; Mistral's templates accept no other length."""

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
"""``general``: the template doesn't write calls, or uses an unknown format."""


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
    """Refuse parameters whose schema can't be enforced completely."""


def definition(tool: Tool) -> dict[str, Any]:
    """A tool as templates and servers expect it."""
    parameters = tool.parameters or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """The tools for one answer."""

    tools: Annotated[list[Tool], msgspec.Meta(min_length=1, max_length=MAX_TOOLS)]
    """All that the model is shown."""
    required: bool = False
    """The model has to call one instead of answering with text."""
    only: str = ""
    """The name of the only one it may call; empty: any."""
    several: bool = True
    """Allow several calls, if the format does."""
    none: bool = False
    """Only show them, so that the prompt begins as before."""


@dataclass(frozen=True)
class ToolFormat:
    """How a template writes the calls of an answer: ``opening``, calls with ``separator`` between them, ``closing``."""

    mark: str
    """The first characters of a call; text before the calls doesn't contain them."""
    call: str
    opening: str = ""
    separator: str = ""
    closing: str = ""
    parameter: str = ""
    """How one argument is written, if the arguments aren't a JSON object."""
    several: bool = True
    """Whether an answer may have more than one call."""
    anywhere: bool = True
    """Whether text may come before the calls; if not, an answer is a call if it begins like one."""

    @property
    def begins(self) -> str:
        """The text before the name of the first call."""
        return self.opening + self.call.partition(NAME)[0]


GENERAL = ToolFormat(
    "<tool_call>", f'<tool_call>\n{{"name": "{NAME}", "arguments": {ARGUMENTS}}}\n</tool_call>', separator="\n"
)
"""The format of most models that were trained to call tools."""
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


# Arguments that aren't written as one JSON object but one by one: strings as they are, other values as JSON.
#
# Any schema is accepted; the keywords that can't be enforced this way are listed in ``not_followed``.

_ALL_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_NOT_FOLLOWED = ("anyOf", "oneOf", "patternProperties", "minProperties", "maxProperties")
"""Keywords about the arguments as a whole."""
_MOST_CHARACTERS = 4000
"""Larger limits on a string's length aren't enforced."""
_MOST_STEPS = 16
"""The longest chain of references or nested schemas."""

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class TextValue:
    """An argument that may be a string, which is written without quotation marks."""

    choices: Mapping[str, Any] | None = None
    """The texts that may be written, and their values; ``None``: any text."""
    least: int = 0
    """Characters."""
    most: int | None = None
    others: frozenset[str] = frozenset()
    """The other JSON types that it may have; those values are written as JSON."""
    not_followed: tuple[str, ...] = ()
    """Keywords of its schema that aren't enforced."""

    def value(self, text: str) -> Any:
        """The value of a written ``text``."""
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
    """Any arguments are allowed, by any names."""
    not_followed: tuple[str, ...] = ()
    """Keywords of the whole schema that aren't enforced."""


def parameters_of(schema: Schema) -> Parameters:
    """The arguments that a tool's ``schema`` describes."""
    schemas, required = _properties(schema, schema, _MOST_STEPS)
    is_closed = not schema or "properties" in schema or schema.get("additionalProperties") is False
    left_out = tuple(keyword for keyword in _NOT_FOLLOWED if keyword in schema)
    return Parameters(schemas, frozenset(required), not schemas and not is_closed, left_out)


def text_value(schema: Any, whole: Schema) -> TextValue | None:
    """How to write an argument with this ``schema``, a part of ``whole``; ``None``: as JSON."""
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
    """A string length, if it is a number that a grammar can count to."""
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
    """The alternatives that an argument may follow."""
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
    """The JSON types that ``schema`` allows."""
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
    """``schema``, or the part of ``whole`` that it refers to."""
    for _ in range(_MOST_STEPS):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            break
        target: Any = whole
        for name in schema["$ref"].partition("#")[2].split("/")[1:]:
            key = unquote(name).replace("~1", "/").replace("~0", "~")
            target = target.get(key, {}) if isinstance(target, Mapping) else {}
        schema = {} if target is schema else target
    return schema if isinstance(schema, Mapping) and "$ref" not in schema else {}
