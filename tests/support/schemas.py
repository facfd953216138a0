"""Random JSON schemas whose documents are short, over the keywords that llguidance supports."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]
_WORDS = ("id", "name", "kind", "size", "state", "note", "when", "by")
_FORMATS = ("date", "time", "uuid", "ipv4", "email", "duration")
_PATTERNS = ("^[a-z]{2,5}$", "^[A-Z][0-9]{3}$", "^(red|green|blue)$", "^[0-9a-f]{4}-[0-9]{2}$")


def random_schema(number: int) -> Schema:
    """The same for the same number. Its documents are objects."""
    rng = random.Random(number)
    schema = _object(rng, 2)
    return _with_definitions(schema, rng) if rng.random() < 0.25 else schema


def _any(rng: random.Random, depth: int) -> Schema:
    kinds = [_string, _string, _integer, _number, _choice, _simple]
    if depth:
        kinds += [_object, _object, _array, _array, _one_of, _all_of]
    return rng.choice(kinds)(rng, depth - 1)


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(_WORDS, rng.randint(1, 4))
    schema: Schema = {
        "type": "object",
        "properties": {name: _any(rng, depth) for name in names},
        "required": rng.sample(names, rng.randint(1, len(names))),
        "additionalProperties": False,
    }
    if rng.random() < 0.2:
        schema["patternProperties"] = {"^x[0-9]$": _any(rng, 0)}
        schema["maxProperties"] = len(names) + 1
        schema["required"] = names
    if rng.random() < 0.2:
        schema["description"] = schema["title"] = "Something"
    return schema


def _array(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(0, 2)
    schema: Schema = {"type": "array", "minItems": least, "maxItems": least + rng.randint(0, 2)}
    if rng.random() < 0.3:
        prefix = [_any(rng, 0) for _ in range(rng.randint(1, 2))]
        return {"type": "array", "prefixItems": prefix, "items": False, "minItems": len(prefix)}
    return {**schema, "items": _any(rng, depth)}


def _string(rng: random.Random, depth: int) -> Schema:
    match rng.randrange(3):
        case 0:
            least = rng.randint(0, 3)
            return {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 8)}
        case 1:
            return {"type": "string", "format": rng.choice(_FORMATS[:4])}
        case _:
            return {"type": "string", "pattern": rng.choice(_PATTERNS)}


def _integer(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(-50, 50)
    most = least + rng.randint(0, 500)
    match rng.randrange(3):
        case 0:
            return {"type": "integer", "minimum": least, "maximum": most}
        case 1:
            return {"type": "integer", "exclusiveMinimum": least, "exclusiveMaximum": most + 2}
        case _:
            return {"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": rng.choice((2, 5, 10))}


def _number(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(0, 5)
    return {"enum": [least / 2, least + 0.25]} if rng.random() < 0.5 else {"const": least * 1.5}


def _choice(rng: random.Random, depth: int) -> Schema:
    values = [*_WORDS[:4], 1, 2, None, True, ["a"], {"b": 1}]
    return {"enum": rng.sample(values, rng.randint(1, 4))} if rng.random() < 0.7 else {"const": rng.choice(values)}


def _simple(rng: random.Random, depth: int) -> Schema:
    return {"type": rng.choice(["boolean", "null", ["boolean", "null"]])}


def _one_of(rng: random.Random, depth: int) -> Schema:
    if rng.random() < 0.5:
        return {"anyOf": [_any(rng, depth) for _ in range(rng.randint(1, 3))]}
    return {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 99}, {"type": "string", "maxLength": 4}]}


def _all_of(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(0, 9)
    return {"allOf": [{"type": "integer", "minimum": least}, {"maximum": least + 90}]}


def _with_definitions(schema: Schema, rng: random.Random) -> Schema:
    """``schema`` with one of its properties moved to ``$defs``."""
    name = rng.choice(list(schema["properties"]))
    properties = {**schema["properties"], name: {"$ref": f"#/$defs/{name}"}}
    return {**schema, "properties": properties, "$defs": {name: schema["properties"][name]}}
