"""Reads values of untrusted JSON, whatever their type."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from app.engine.decoding.thinking_splitters import end_of

_LATEST_SECONDS = 4102444800.0  # the year 2100
_IN_MILLISECONDS = 1e11
_IN_NANOSECONDS = 1e17
_THINKING = re.compile(r"\s*<(think|thinking|thought|reasoning)>")
_FENCE = re.compile(r"(?:^|\r) {0,3}(`{3,})", re.MULTILINE)


def text(value: object) -> str:
    """``value`` if it is a string, otherwise an empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def mappings(value: object) -> Iterator[dict[str, Any]]:
    """The objects in a list."""
    return (one for one in items(value) if isinstance(one, dict))


def seconds(value: object) -> float | None:
    """A time in seconds since 1970, from seconds, milliseconds, nanoseconds or an ISO date; ``None`` for anything else
    and for impossible times.
    """
    if isinstance(value, str):
        value = _from_iso(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    if math.isfinite(found) and found > _IN_MILLISECONDS:
        found /= 1e9 if found > _IN_NANOSECONDS else 1e3
    return found if 0 < found < _LATEST_SECONDS else None


def without_thinking(answer: str) -> tuple[str, str]:
    """The thinking at the beginning of an answer, between marks, and the answer without it."""
    if (found := _THINKING.match(answer)) is None:
        return "", answer
    rest, closing = answer[found.end() :], f"</{found[1]}>"
    end = end_of(rest, f"<{found[1]}>", closing)
    return ("", answer) if end < 0 else (rest[:end].strip("\n"), rest[end + len(closing) :].lstrip())


def file_text(name: str, content: str, language: str = "") -> str:
    """A file as part of a message: its name, and its text between fences."""
    fence = "`" * max(3, 1 + max((len(one) for one in _FENCE.findall(content)), default=0))
    title = " ".join(name.split()).replace("`", "'")
    return "\n\n".join(filter(None, [f"`{title}`" if title else "", f"{fence}{language}\n{content.rstrip()}\n{fence}"]))


def arguments_of(value: object) -> str:
    """The arguments of a tool call as a JSON object: as they are written, if they are one."""
    if isinstance(value, str) and isinstance(from_json(value), dict):
        return value
    return as_json(value if isinstance(value, dict) else {"input": value} if value else {})


def as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "{}"


def from_json(value: str) -> object:
    """What ``value`` says as JSON; ``value`` itself if it isn't JSON."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _from_iso(value: str) -> float | None:
    try:
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
