"""Arguments of tools that aren't written as JSON, but one by one: texts as they are, other values as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NOTES = {"title", "description", "default", "examples", "deprecated", "$comment", "readOnly", "writeOnly"}
_OF_TEXT = {*_NOTES, "type", "enum", "const", "minLength", "maxLength"}
_OF_OBJECT = {
    *_NOTES,
    "type",
    "properties",
    "required",
    "additionalProperties",
    "$defs",
    "definitions",
    "$schema",
    "$id",
}

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class TextValue:
    """An argument that may be a text; it is written without quotation marks."""

    choices: Mapping[str, Any] | None = None
    """What may be written, and what that means; ``None``: any text."""
    least: int = 0
    """Characters."""
    most: int | None = None
    nullable: bool = False

    def value(self, text: str) -> Any:
        """What a written ``text`` means."""
        if self.choices is not None:
            return self.choices[text]
        return None if self.nullable and text == "null" else text


def check_parameters(schema: Schema) -> None:
    """Raises `ValueError`, with the reason, for what can't be written argument by argument."""
    if unknown := set(schema) - _OF_OBJECT:
        raise ValueError(f"“{min(unknown)}” isn't supported with this model's form of calls")
    if set(schema.get("required", ())) - set(schema.get("properties", {})):
        raise ValueError("an argument is required that has no schema")


def text_value(schema: Any, whole: Schema) -> TextValue | None:
    """How an argument with this ``schema``, a part of ``whole``, is written; ``None``: as JSON.

    Raises `ValueError`, with the reason, for a text whose schema can't be followed.
    """
    schema = _resolved(schema, whole)
    branches = [_resolved(one, whole) for one in schema.get("anyOf") or schema.get("oneOf") or [schema]]
    texts = [one for one in branches if _is_text(one)]
    if not texts:
        return None
    (text, *others) = texts
    used = set(text) | (set(schema) - {"anyOf", "oneOf"} if text is not schema else set())
    if others or not used <= _OF_TEXT:
        reason = min(used - _OF_TEXT, default="anyOf")
        raise ValueError(f"“{reason}” of a text isn't supported with this model's form of calls")
    if "enum" in text or "const" in text:
        values = text.get("enum", [text.get("const")])
        return TextValue({value if isinstance(value, str) else json.dumps(value): value for value in values})
    nullable = any("null" in _types(one) for one in branches)
    return TextValue(None, int(text.get("minLength", 0)), text.get("maxLength"), nullable)


def _types(schema: Schema) -> list[str]:
    found = schema.get("type", [])
    return [found] if isinstance(found, str) else list(found)


def _is_text(schema: Schema) -> bool:
    if "enum" in schema or "const" in schema:
        return any(isinstance(value, str) for value in schema.get("enum", [schema.get("const")]))
    return "string" in _types(schema)


def _resolved(schema: Any, whole: Schema) -> Schema:
    """Without a reference to a definition."""
    for _ in range(8):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            break
        place, _, name = str(schema["$ref"]).rpartition("/")
        schema = whole.get(place.removeprefix("#/"), {}).get(name, {})
    return schema if isinstance(schema, Mapping) else {}
