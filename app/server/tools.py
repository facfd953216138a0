"""Tools in a request, and tool calls in the text of an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from app import system
from app.protocol.events import PairLoaded
from app.protocol.tools import FORMATS, MAX_TOOLS, Tool, ToolUse
from app.server.fields import Settings, Warnings, quoted
from app.server.guard import invalid, not_supported
from app.server.settings import answer_format

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_NOT_READ = (msgspec.MsgspecError, UnicodeError, RecursionError)
_FREE = {None: "auto", "auto": "auto", "none": "none", "required": "required", "any": "required"}
"""Choices without a tool's name, and OpenAI's words for them."""


@dataclass(frozen=True)
class Namespaced:
    """A function in a ``namespace``, which is how Codex sends those of MCP servers; replies have both names."""

    namespace: str
    name: str

    @property
    def whole(self) -> str:
        """The name for the model."""
        return self.namespace + ("" if self.namespace.endswith("_") else "__") + self.name


def is_name(name: Any) -> bool:
    """Whether a tool can have this name."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name))


def tool_use(
    sent: Sequence[Any], choice: Any, warnings: Warnings, *, several: bool = True, custom: bool = False
) -> ToolUse | None:
    """The tools for an answer, if any. ``custom``: tools of type ``custom`` are functions, like Anthropic's.

    Raises `ApiError` if the request requires an impossible call.
    """
    tools = _usable(_functions(sent, custom=custom, warnings=warnings), warnings)
    wanted, named, allowed = _choice(choice, warnings)
    if allowed is not None:
        tools = [tool for tool in tools if tool.name in allowed]
    if named:
        _check_named(named, [tool.name for tool in tools], sent)
    elif wanted == "required" and not tools:
        raise invalid("The request wants a call, and has no tool that this server can offer.")
    if wanted == "none" or not tools:
        return None
    return ToolUse(tools=tools, required=wanted == "required", only=named, several=several)


def check_together(request: Settings, use: ToolUse | None, pair: PairLoaded) -> None:
    """Raises `ApiError` for formats that can't be combined with tools."""
    if use is None or use.required:  # required calls take the format's place
        return
    wanted = answer_format(request)
    if wanted and wanted.kind not in ("json_object", "json_schema"):
        raise not_supported("This server doesn't support tools together with a grammar.")
    if wanted and not FORMATS[pair.tool_format].anywhere:
        raise not_supported("This model writes calls as JSON, so tools don't go together with an answer format.")


def namespaced(sent: Iterable[Any]) -> dict[str, Namespaced]:
    """The functions in namespaces, by their names for the model."""
    found = [
        Namespaced(str(group.get("name") or ""), str(tool.get("name") or ""))
        for group in sent
        if isinstance(group, dict) and group.get("type") == "namespace" and isinstance(group.get("tools"), list)
        for tool in group["tools"]
        if isinstance(tool, dict)
    ]
    return {one.whole: one for one in found}


def as_object(arguments: Any) -> str | None:
    """The arguments of an earlier call as a JSON object; ``None`` if they aren't one.

    Clients send text, an object, text within text, or for a call without arguments nothing or (PHP) an empty list.
    """
    text = ""
    try:
        for _ in range(2):
            if isinstance(arguments, str):
                text = arguments.strip()
                arguments = system.decode(text, object) if text else None
        if arguments is None or arguments == []:
            return "{}"
        written = msgspec.json.encode(arguments).decode() if isinstance(arguments, dict) else None
    except _NOT_READ:
        return None
    return written and (text or written)  # the original text, so that the prompt stays the same


def _functions(sent: Iterable[Any], *, custom: bool, warnings: Warnings) -> list[dict[str, Any]]:
    """The functions in any API's form; those in namespaces get their whole names."""
    found: list[dict[str, Any]] = []
    for tool in sent:
        kind = tool.get("type") if isinstance(tool, dict) else None
        inner = tool.get("function") if isinstance(tool, dict) and "function" in tool else tool
        if kind == "namespace" and isinstance(tool.get("tools"), list):
            members = _functions(tool["tools"], custom=custom, warnings=warnings)
            space = str(tool.get("name") or "")
            found += [{**one, "name": Namespaced(space, str(one.get("name") or "")).whole} for one in members]
        elif isinstance(inner, dict) and (kind in (None, "function") or (custom and kind == "custom")):
            found.append(inner)
        else:
            name = tool.get("name") if isinstance(tool, dict) else ""
            warnings.add(f"The tool {quoted(name or kind)} was left out: this server only offers functions.")
    return found


def _usable(functions: Iterable[dict[str, Any]], warnings: Warnings) -> list[Tool]:
    found: dict[str, Tool] = {}
    for one in functions:
        name, description = one.get("name"), one.get("description")
        if not is_name(name):
            warnings.add(
                f"The tool {quoted(name)} was left out: a name has up to 128 letters, digits and signs out of _ . : / -"
            )
        elif name in found:
            warnings.add(f"There are several tools called {quoted(name)}; the first one is used.")
        elif len(found) >= MAX_TOOLS:
            warnings.add(f"The tool {quoted(name)} was left out: a request can have up to {MAX_TOOLS}.")
        else:
            shown = description if isinstance(description, str) else ""
            strict = one.get("strict") is True
            found[str(name)] = Tool(name=str(name), description=shown, parameters=_parameters(one), strict=strict)
    return list(found.values())


def _parameters(function: dict[str, Any]) -> dict[str, Any]:
    """The schema, without PHP's empty lists for empty objects."""
    schema = function.get("parameters") or function.get("input_schema")
    if not isinstance(schema, dict):
        return {}
    return {**schema, "properties": {}} if schema.get("properties") in ([], None) and "properties" in schema else schema


def _choice(choice: Any, warnings: Warnings) -> tuple[str, str, set[str] | None]:
    """``auto``, ``none`` or ``required``; the name of the one tool to be called; the names of those that may be."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if not choice or (isinstance(kind, str) and kind in _FREE):
        return _FREE[kind or None], "", None
    if not isinstance(choice, dict):
        warnings.add(f"The tool_choice {quoted(choice)} isn't known here; the model decides.")
        return "auto", "", None
    inside = (choice[key] for key in ("function", "custom", "allowed_tools") if isinstance(choice.get(key), dict))
    inner = next(inside, choice)
    if kind == "allowed_tools":
        tools = inner.get("tools")
        functions = _functions(tools if isinstance(tools, list) else [], custom=True, warnings=warnings)
        mode = "required" if inner.get("mode") in ("required", "any") else "auto"
        return mode, "", {str(one.get("name")) for one in functions}
    name = inner.get("name") or ("" if kind in ("function", "tool") else kind)
    if not isinstance(name, str) or not name:
        raise invalid("The tool_choice names no tool.")
    return "required", name, None


def _check_named(named: str, names: Sequence[str], sent: Iterable[Any]) -> None:
    if named in names:
        return
    kinds = [tool.get(key) for tool in sent if isinstance(tool, dict) for key in ("name", "type")]
    if named in kinds:
        raise not_supported(f"The request wants a call of {quoted(named)}, which this server can't offer.")
    raise invalid("The tool_choice names a tool that the request doesn't have.")
