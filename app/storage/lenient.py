"""Reads a typed value from JSON that may be of another version or edited by hand, as far as it is valid."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from app import decoders

T = TypeVar("T", bound=msgspec.Struct)


def lenient(kind: type[T], content: dict[str, Any], problems: list[str], inside: str = "") -> T:
    """``content`` as a value of ``kind``, with defaults for what is missing or invalid.

    The names of invalid fields are appended to ``problems``, after ``inside``. Every field needs a default.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in content:
            continue
        raw = content[field.encode_name]
        try:
            values[field.name] = _value(field.type, raw, problems, f"{inside}{field.name}")
        except (msgspec.ValidationError, TypeError):
            problems.append(inside + field.name)
    return kind(**values)


def struct_of(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that an annotation names, if it names exactly one."""
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return plain if isinstance(plain, type) and issubclass(plain, msgspec.Struct) else None


def _value(kind: Any, raw: Any, problems: list[str], name: str) -> Any:
    if (struct := struct_of(kind)) is not None and isinstance(raw, dict):
        return lenient(struct, raw, problems, f"{name}.")
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(plain) is dict and isinstance(raw, dict) and (struct := struct_of(get_args(plain)[1])) is not None:
        sound = {key: one for key, one in raw.items() if isinstance(one, dict)}
        if len(sound) < len(raw):
            problems.append(name)
        return {key: lenient(struct, one, problems, f"{name}.") for key, one in sound.items()}
    return decoders.convert(raw, kind)
