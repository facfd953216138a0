"""Tools as they are offered to the model: each has a name that it can write and a hash of what the user allows."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.protocol.tools import MAX_TOOLS, Tool
from app.tools.messages import ServerEntry, ServerTool

MOST_OFFERED = MAX_TOOLS
DISPLAY_NAME = "Slipstream"
"""Shown as the server of the built-in tools."""
_MOST_CHARACTERS = 64
"""The longest name that other programs accept, too."""
_HASHED = re.compile(r".*_[0-9a-f]{8}").fullmatch


@dataclass(frozen=True)
class OfferedTool:
    """A tool that the model may be offered."""

    server: str
    """The name of its server; empty if it is built in."""
    tool: ServerTool
    name: str
    """The name that the model knows."""
    fingerprint: str
    """Changes when its description, its arguments or what its server runs changes."""

    @property
    def key(self) -> str:
        """``server.tool``, or ``.tool`` for a built-in tool."""
        return tool_key(self.server, self.tool.name)

    @property
    def server_name(self) -> str:
        """For display."""
        return self.server or DISPLAY_NAME

    def for_model(self) -> Tool:
        return Tool(name=self.name, description=self.tool.description, parameters=self.tool.parameters)


def tool_key(server: str, tool: str) -> str:
    return f"{server}.{tool}"


def offered_tools(
    tools: Mapping[str, Sequence[ServerTool]], entries: Mapping[str, ServerEntry] | None = None
) -> list[OfferedTool]:
    """The tools of these servers, always in the same order, built-in ones first. Each has a unique name: the one its
    server uses or, if other tools have it too, that name with the server's name in front."""
    first = {(server, tool.name): tool for server, several in tools.items() for tool in reversed(several)}
    pairs = [(server, tool) for (server, _name), tool in sorted(first.items(), key=lambda one: one[0])]
    own = Counter(_clean(tool.name) for _, tool in pairs)
    plain = [_clean(tool.name if own[_clean(tool.name)] == 1 else f"{server}_{tool.name}") for server, tool in pairs]
    count = Counter(plain) + Counter(filter(_HASHED, plain))  # a name that looks as if it had a hash gets a real one
    return [
        OfferedTool(
            server,
            tool,
            name if count[name] == 1 else _cut(name, tool_key(server, tool.name)),
            _fingerprint(server, tool, (entries or {}).get(server)),
        )
        for (server, tool), name in zip(pairs, plain, strict=True)
    ]


def _clean(name: str) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "tool"
    return cleaned if len(cleaned) <= _MOST_CHARACTERS else _cut(cleaned, name)


def _cut(cleaned: str, whole: str) -> str:
    return f"{cleaned[: _MOST_CHARACTERS - 9]}_{_hash(whole)[:8]}"


def _fingerprint(server: str, tool: ServerTool, entry: ServerEntry | None) -> str:
    runs = [entry.command, entry.args, entry.url] if entry else []
    says = [tool.name, tool.title, tool.description, tool.parameters, tool.approach]
    return _hash(json.dumps([server, runs, says], sort_keys=True))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def problem_of(arguments: str, tool: OfferedTool) -> str:
    """What is wrong with the arguments of a call, for the model; empty if nothing is. They have to be an object with
    all that is required and nothing twice: only one would be sent. The grammar forces the rest; the server checks it.
    """
    if (values := as_object(arguments)) is None:
        return "The arguments are not a JSON object, or have a name twice."
    required = tool.tool.parameters.get("required")
    names = [one for one in required if isinstance(one, str)] if isinstance(required, list) else []
    missing = ", ".join(one for one in names if one not in values)
    return f"The call lacks {missing}." if missing else ""


def as_object(arguments: str) -> dict[str, Any] | None:
    """The arguments of a call; ``None`` if they aren't a JSON object, or one that has a name twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(values := dict(pairs)) < len(pairs):
            raise ValueError
        return values

    try:
        found = json.loads(arguments, object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# The tools of Slipstream itself, as they are described; `app.tools.built_in` runs them.


def _described(name: str, title: str, description: str, required: list[str], **properties: str) -> ServerTool:
    kinds = {one: "integer" if one == "first_line" else "string" for one in properties}
    schemas = {one: {"type": kinds[one], "description": text} for one, text in properties.items()}
    schema = {"type": "object", "properties": schemas, "required": required, "additionalProperties": False}
    return ServerTool(name=name, title=title, description=description, parameters=schema, approach="read_only")


BUILT_IN_TOOLS = (
    _described(
        "current_time",
        "Current time",
        "The current date, weekday and time.",
        [],
        time_zone="A name like Europe/Berlin; without it, the user's time zone.",
    ),
    _described(
        "calculate",
        "Calculator",
        "Calculate exactly, with fractions and numbers of any length.",
        ["expression"],
        expression="For example: (1/3 + 0.1) * 2**64, sqrt(2), factorial(20), round(22/7, 3).",
    ),
    _described(
        "read_file",
        "Read a file",
        "Read a file that the user attached to this chat, or one in its folders, as text; a long one in pages.",
        ["path"],
        path="The name of an attached file, or a path in one of the folders.",
        first_line="Where to begin: the number of a line, from 1.",
    ),
    _described(
        "list_folder",
        "List a folder",
        "List the files that the user attached to this chat and its folders, or what is in one of these folders.",
        [],
        path="The path of a folder; without it, everything that is attached.",
    ),
)
"""They only read, so that each may be offered as read-only."""
