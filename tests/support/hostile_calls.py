"""Calls with arguments that could be taken for something else: marks, quotes, line breaks, nothing, very long ones."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from app.protocol.notations import KEY, VALUE
from app.protocol.tools import ARGUMENTS, ID, INDEX, NAME, Tool, ToolCall, ToolFormat

_TEXT = {"type": "string"}
_DEEP = {"type": "object", "properties": {"note": _TEXT, "deeper": {"type": "object", "properties": {"b": _TEXT}}}}
TOOL = Tool(
    name="save_note",
    description="Keeps a note.",
    parameters={
        "type": "object",
        "properties": {
            "text": _TEXT,
            "size": {"type": "integer"},
            "ratio": {"type": "number"},
            "is_big": {"type": "boolean"},
            "nothing": {"type": ["string", "null"]},
            "names": {"type": "array", "items": _TEXT},
            "counts": {"type": "array", "items": {"type": "number"}},
            "place": _DEEP,
            "places": {"type": "array", "items": _DEEP},
        },
    },
)
_TEXTS = (
    *("", " ", "\n", "plain", "null", "true", "12", "{}", "[]", '{"a": 1}', "[1, 2]", "a=b, c='d'", "x:y,z}"),
    *("it's", 'say "hi"', "back\\slash", "\\n is no line break", "two\nlines\n", "\ttab", "\\", "\\'", "'", '"', "''"),
    *("<b>&amp;</b>", "</param", "]]>", "{{ x }}", "{% y %}", "```json\n{}\n```", "None", "name(x='y')]", "):("),
    *("Größe 漢字 🙂", "\u202eabc", "a\u200bb", "\u00a0", "e\u0301", "\u2028", "$HOME `x` %s", "a" * 20_000),
)
_NUMBERS = (0, 1, -1, 12345678901234567890, 0.5, -2.25, 1.0, 1e-05, 123456.789)


def calls(known: ToolFormat, count: int, seed: int = 1) -> list[ToolCall]:
    """Calls that the form can write: a text that has the very mark that would end it can't be one."""
    rng, marks = random.Random(seed), _marks(known)
    ends = (
        [known.notation.quotes]
        if known.notation.quotes
        else [_behind(one) for one in (known.parameter, known.notation.member, known.notation.item) if one]
    )
    texts = [one for one in (*_TEXTS, *marks) if known.notation.escapes or not any(end and end in one for end in ends)]
    if not known.notation.quotes and known.notation.object:  # what begins like an element is one
        texts = [one for one in texts if not one.startswith(known.mark)]

    def deep() -> dict[str, Any]:
        return {"note": rng.choice(texts), "deeper": {"b": rng.choice(texts)}}

    makes: dict[str, Any] = {
        "text": lambda: rng.choice(texts),
        "size": lambda: rng.choice([one for one in _NUMBERS if isinstance(one, int)]),
        "ratio": lambda: rng.choice(_NUMBERS),
        "is_big": lambda: rng.random() < 0.5,
        "nothing": lambda: None,
        "names": lambda: rng.sample(texts, rng.randint(0, 3)),
        "counts": lambda: rng.sample(_NUMBERS, rng.randint(0, 3)),
        "place": deep,
        "places": lambda: [deep() for _ in range(rng.randint(0, 2))],
    }
    found = []
    for number in range(count):
        names = sorted(rng.sample(list(makes), rng.randint(0, len(makes))))
        values = {name: makes[name]() for name in names}
        if number < len(texts):
            values["text"] = texts[number]
        if known.notation.object and not known.notation.quotes:
            values.pop("nothing", None)  # its template leaves that out
        found.append(
            ToolCall(f"abcdef{number:03}", TOOL.name, json.dumps(dict(sorted(values.items())), ensure_ascii=False))
        )
    return found


def _behind(entry: str) -> str:
    return entry.partition(VALUE)[2].partition(KEY)[0]


def _marks(known: ToolFormat) -> list[str]:
    whole = known.opening + known.call + known.closing + known.parameter + known.other
    parts = re.split(f"[{NAME}{ID}{ARGUMENTS}{INDEX}{KEY}{VALUE}]", whole)
    return [f"a {part.strip()} b" for part in parts if part.strip()]
