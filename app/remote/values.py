"""Values of other people's JSON: whatever isn't of the expected type isn't there."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from app import decoders

_MOST = 2**53


def parsed(data: bytes | str) -> object:
    """JSON as Python's own types; ``None`` for anything else.

    Python's own reader also takes what is no JSON, but sent: ``NaN``, and half of a surrogate pair.
    """
    try:
        return decoders.decode(data, object)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value


def mapping(value: object) -> dict[str, Any]:
    """``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """``value`` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def first(value: object) -> dict[str, Any]:
    """The first object of a list, else an empty one."""
    return mapping(next(iter(items(value)), None))


def text(value: object) -> str:
    """``value`` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int | None:
    """A count: a whole number from 0 on."""
    found = real(value)
    return int(found) if found is not None and found == int(found) else None


def real(value: object) -> float | None:
    """A finite number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and 0 <= value <= _MOST else None


def counts(value: object, most: int = 128) -> list[int]:
    """A list of counts; empty if anything else is in it."""
    found = [number(one) for one in items(value)[:most]]
    return [one for one in found if one is not None] if None not in found else []
