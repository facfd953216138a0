"""A tiny target whose calls are prescribed, for programs that do with a call what they do in earnest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.protocol.tools import ARGUMENTS, FORMATS, NAME
from tests.support.thinking_models import Family, make_thinking_model
from tests.support.tool_models import template_for

_TOLD = "<|told|>"


def make_scripted_target(path: Path, calls: Mapping[str, dict[str, Any]], word: str, answer: str) -> Path:
    """It calls tools as Qwen's do: where a user's last message has ``word`` and the request has a tool of ``calls``,
    the first of them with its arguments. Behind a result it says ``answer``, and otherwise “ yes no.”"""
    marks = {name: f"<|call{number}|>" for number, name in enumerate(calls)}
    form = FORMATS["hermes"].call
    writes = {
        marks[name]: form.replace(NAME, name).replace(ARGUMENTS, json.dumps(arguments, ensure_ascii=False))
        for name, arguments in calls.items()
    }
    writes[_TOLD] = answer
    pieces = {mark: text.replace(" ", "▁") for mark, text in writes.items()}
    family = Family(
        begins={"▁yes": 1.0},
        ends={},
        rows={
            **{mark: {piece: 1.0} for mark, piece in pieces.items()},
            **{piece: {"</s>": 1.0} for piece in pieces.values()},
            "<0x0A>": {"▁yes": 1},
            "▁yes": {"▁no": 1},
            "▁no": {".": 1},
            ".": {"</s>": 1},
        },
        controls=tuple(pieces),
        words=tuple(pieces.values()),
        template=_template(marks, word),
    )
    return make_thinking_model(path, family, context_length=131_072)


def _template(marks: Mapping[str, str], word: str) -> str:
    """The template decides what comes: its last token is all that the next one depends on."""
    chosen = "".join(f"{{% elif {name!r} in names %}}{mark}" for name, mark in marks.items())
    told = "{% set told = messages | rejectattr('role', 'in', ['system', 'developer']) | list | last %}"
    names = "{% set names = (tools or []) | map(attribute='function') | map(attribute='name') | list %}"
    result = f"{{% if told.role == 'tool' %}}{_TOLD}"
    other = f"{{% elif told.role != 'user' or {word!r} not in told.content %}}"
    return f"{template_for(FORMATS['hermes'])}{told}{names}{result}{other}{chosen}{{% endif %}}"
