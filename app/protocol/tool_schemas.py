"""Schemas of arguments that are written one by one. ``not_followed``: keywords that can't be enforced this way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

_ALL_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_NOT_FOLLOWED = ("anyOf", "oneOf", "patternProperties", "minProperties", "maxProperties")
"""Keywords that concern the arguments as a whole."""
_MOST_CHARACTERS = 4000
"""Larger limits on a string's length aren't enforced."""
_MOST_STEPS = 16
"""The longest chain of references or nested schemas that is followed."""

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class TextValue:
    """An argument that may be a string and is written without quotation marks."""

    choices: Mapping[str, Any] | None = None
    """The texts that may be written, with their values; ``None`` if any text may be."""
    least: int = 0
    """The least number of characters, and the most."""
    most: int | None = None
    others: frozenset[str] = frozenset()
    """Other JSON types that it may have; their values are written as JSON."""
    not_followed: tuple[str, ...] = ()
    """Keywords of its schema that aren't enforced."""

    def value(self, text: str) -> Any:
        """The value that ``text`` stands for."""
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
    """Whether arguments with any name are allowed."""
    not_followed: tuple[str, ...] = ()
    """Keywords of the whole schema that aren't enforced."""


def parameters_of(schema: Schema, whole: Schema | None = None) -> Parameters:
    """The arguments that a ``schema`` describes: a tool's, or a part of ``whole``."""
    schemas, required = _properties(schema, schema if whole is None else whole, _MOST_STEPS)
    is_closed = not schema or "properties" in schema or schema.get("additionalProperties") is False
    left_out = tuple(keyword for keyword in _NOT_FOLLOWED if keyword in schema)
    return Parameters(schemas, frozenset(required), not schemas and not is_closed, left_out)


def text_value(schema: Any, whole: Schema) -> TextValue | None:
    """How to write an argument with this ``schema``, a part of ``whole``; ``None`` if it is written as JSON."""
    ways = list(branches(schema, whole))
    kinds = frozenset(kind for one in ways for kind in types(one))
    if "string" not in kinds:
        return None
    if all(choices(one) is not None or types(one) == {"null"} for one in ways):
        values = [value for one in ways for value in (choices(one) or [None])]
        return TextValue({value if isinstance(value, str) else json.dumps(value): value for value in values})
    texts = [one for one in ways if "string" in types(one)]
    others = kinds if kinds == _ALL_TYPES else kinds - {"string"}
    if len(texts) > 1 or others:
        return TextValue(others=others, not_followed=("pattern",) if any("pattern" in one for one in texts) else ())
    (text,) = texts
    least, most = _count(text.get("minLength")) or 0, _count(text.get("maxLength"))
    most = None if most is not None and most < least else most
    return TextValue(None, least, most, not_followed=("pattern",) if "pattern" in text else ())


def _count(value: Any) -> int | None:
    """A string length, if a grammar can count that far."""
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


def branches(schema: Any, whole: Schema, steps: int = _MOST_STEPS) -> Iterator[Schema]:
    """The alternative schemas of an argument."""
    schema = _resolved(schema, whole)
    inner = _listed(schema, "anyOf") or _listed(schema, "oneOf")
    if not inner and len(one := _listed(schema, "allOf")) == 1 and "type" not in schema:
        inner = one
    if schema.get("nullable") is True:
        yield {"type": "null"}
    if not inner or not steps:
        yield schema
    for one in inner if steps else ():
        yield from branches(one, whole, steps - 1)


def choices(schema: Schema) -> list[Any] | None:
    """The values that ``schema`` lists."""
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) and found else None


def types(schema: Schema) -> frozenset[str]:
    """The JSON types that ``schema`` allows."""
    found = schema.get("type", [])
    known = frozenset(one for one in (found if isinstance(found, list) else [found]) if one in tuple(_ALL_TYPES))
    if (listed := choices(schema)) is not None:
        return frozenset(map(_type, listed))
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
