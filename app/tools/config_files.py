"""Reads servers from what the user pastes: a command, an address, or the JSON that other apps use.

Claude Desktop, LM Studio and Cursor have ``mcpServers``, VS Code has ``servers`` and ``inputs``. The pasted text may
have comments or extra commas, or may be only the inner part.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import msgspec

from app import words
from app.system import KnownError
from app.tools.entries import MOST_SERVERS, VARIABLE, texts_of
from app.tools.messages import DEFAULT_TIMEOUT_SECONDS, ServerEntry

MOST_TEXT = 1024 * 1024
"""The most characters that are read of a file."""
_COMMENTS = re.compile(r'("(?:\\.|[^"\\])*"?)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_COMMAS = re.compile(r'("(?:\\.|[^"\\])*"?)|,(?=\s*[}\]])', re.DOTALL)
_PLACES = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp",), ("context_servers",))
_ADDRESSES = ("url", "serverUrl", "httpUrl")
_OFF = ("disabledTools", "excludeTools")
_ONLY_IN_EDITORS = re.compile(r"\$\{(workspaceFolder|workspaceRoot|file|command:|config:)[^}]*\}")
_LONGEST_LINE = 32_000
_LONGEST_NAME = 56
"""Characters; leaves room for a number."""


@dataclass
class FoundServers:
    """What was found in a text."""

    entries: list[ServerEntry] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    """Descriptions of what the user has to enter, by the name in ``${input:…}``."""
    problems: list[str] = field(default_factory=list)
    """Sentences for the user about what can't be used."""


def find_servers(text: str, taken: Collection[str] = ()) -> FoundServers:
    """The servers in a text; a name gets a number if it is ``taken``."""
    found = FoundServers()
    if len(text) > MOST_TEXT:
        found.problems.append("This text is too long to be a list of servers.")
        return found
    raw = _servers_in(text.strip("\ufeff\u200b \t\r\n"), found)
    names = set(taken)
    for name, one in raw[:MOST_SERVERS]:
        entry = _entry(name, one, found.problems)
        if entry is not None:
            entry = msgspec.structs.replace(entry, name=free_name(entry.name, names))
            names.add(entry.name)
            found.entries.append(entry)
    if len(raw) > MOST_SERVERS:
        found.problems.append(f"Only the first {MOST_SERVERS} servers were read.")
    matches = [match for entry in found.entries for text in texts_of(entry) for match in VARIABLE.finditer(text)]
    needed = [match["name"] for match in matches if match["kind"] == "input"]
    found.inputs = {name: found.inputs.get(name) or name for name in needed}
    return found


def free_name(name: str, taken: Collection[str]) -> str:
    """A name that isn't ``taken``: one line, without dots, which separate it from a tool's."""
    shown = "".join(one if one.isprintable() else " " for one in name)
    cleaned = re.sub(r"[\s.]+", "-", shown.strip())[:_LONGEST_NAME] or "server"
    numbered = (f"{cleaned}-{number}" if number > 1 else cleaned for number in range(1, len(taken) + 2))
    return next(one for one in numbered if one not in taken)


def _servers_in(text: str, found: FoundServers) -> list[tuple[str, Any]]:
    """With their names, which may be empty."""
    if not text.startswith(("{", '"', "//", "/*")):
        lines = re.sub(r"\\\r?\n", " ", text).splitlines()
        lines = [line for line in lines if line.strip() and not line.startswith("#")]
        return [("", _read_line(line)) for line in lines[: MOST_SERVERS + 1]]
    if (content := _parsed(text, found.problems)) is None:
        return []
    for place in _PLACES:
        inside: Any = content
        for key in place:
            inside = inside.get(key) if isinstance(inside, dict) else None
        if isinstance(inside, dict) and not _is_server(inside):
            _read_inputs(content if len(place) == 1 else content[place[0]], found)
            return list(inside.items())
    if _is_server(content):
        return [(str(content.get("name") or ""), content)]
    servers = [(name, one) for name, one in content.items() if isinstance(one, dict)]
    if not servers:
        found.problems.append("This JSON has no servers: neither “mcpServers” nor “servers”.")
    return servers


def _read_line(line: str) -> dict[str, Any]:
    line = line.strip().removeprefix("$ ")
    return {"url": line} if re.match(r"https?://\S+\Z", line, re.IGNORECASE) else {"command": _split(line)}


def _is_server(raw: dict[str, Any]) -> bool:
    return any(isinstance(raw.get(key), str | list) for key in ("command", *_ADDRESSES))


def _parsed(text: str, problems: list[str]) -> dict[str, Any] | None:
    text = _COMMENTS.sub(lambda match: match[1] or "\n" * match[0].count("\n") or " ", text)
    text = _COMMAS.sub(lambda match: match[1] or "", text).strip().rstrip(",")
    if text.startswith('"'):
        text = f"{{{text}}}"
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        problems.append(f"This JSON can't be read: {error.msg} in line {error.lineno}, column {error.colno}.")
        return None
    except (RecursionError, ValueError):
        problems.append("This JSON can't be read.")
        return None
    return content if isinstance(content, dict) else {}


def _read_inputs(content: dict[str, Any], found: FoundServers) -> None:
    inputs = content.get("inputs")
    for one in inputs if isinstance(inputs, list) else ():
        if isinstance(one, dict) and isinstance(one.get("id"), str):
            found.inputs[one["id"]] = words.printable(str(one.get("description") or ""), 200)


def _entry(name: str, raw: Any, problems: list[str]) -> ServerEntry | None:
    shown = f"“{words.printable(name)}”" if name.strip() else "The server"
    try:
        entry = _read_entry(name, raw)
    except KnownError as error:
        problems.append(f"{shown} wasn't added: {error}.")
        return None
    if any(_ONLY_IN_EDITORS.search(text) for text in texts_of(entry)):
        problems.append(
            f"{shown} has a ${{…}} that only an editor can fill in. It will be added but switched off: edit it first."
        )
        return msgspec.structs.replace(entry, is_on=False)
    if isinstance(raw.get("envFile"), str):
        problems.append(f"{shown} gets variables from a file, which isn't read. Enter the ones it needs under “Edit”.")
    return entry


def _read_entry(name: str, raw: Any) -> ServerEntry:
    """Raises `KnownError` with a reason that follows “wasn't added:”."""
    if not isinstance(raw, dict):
        raise KnownError("it isn't an object")
    command, args = _command(raw)
    url = next((raw[key].strip() for key in _ADDRESSES if isinstance(raw.get(key), str)), "")
    if "sse" in (raw.get("type"), raw.get("transport")):
        raise KnownError("it uses SSE, an older transport that Slipstream doesn't support")
    if not url and not command:
        raise KnownError("it has neither a command nor an address")
    if url and command:
        raise KnownError("it has both a command and an address")
    if url and "${" not in url and not re.match(r"https?://[^/\s]", url, re.IGNORECASE):
        raise KnownError("its address doesn't begin with http:// or https://")
    entry = ServerEntry(
        name=name if name.strip() else _name_of(command, args, url),
        command=command,
        args=args,
        env=_texts(raw.get("env")),
        cwd=_text(raw.get("cwd")) or "",
        url=url,
        headers=_texts(raw.get("headers")),
        timeout_seconds=_seconds(raw.get("timeout")),
        is_on=not raw.get("disabled") and not raw.get("disable") and raw.get("enabled") is not False,
        off=[one for key in _OFF if isinstance(raw.get(key), list) for one in raw[key] if isinstance(one, str)],
    )
    if any("\0" in text for text in texts_of(entry)):
        raise KnownError("it has a character that isn't allowed in a command")
    return entry


def _command(raw: dict[str, Any]) -> tuple[str, list[str]]:
    """The program and its arguments. Some apps have both in one string or one list."""
    command: Any = raw.get("command")
    args = raw.get("args")
    if isinstance(command, dict):
        command, args = command.get("path"), command.get("args")
    whole = command if isinstance(command, list) else [command]
    parts = [text for one in whole + (args if isinstance(args, list) else []) if (text := _text(one)) is not None]
    if len(parts) == 1 and re.match(r"\s*[^\s/\\]+\s", parts[0]):  # not a path with a space in it
        parts = _split(parts[0])
    return (parts[0].strip(), parts[1:]) if parts else ("", [])


def _split(line: str) -> list[str]:
    if len(line) > _LONGEST_LINE:
        return [line]
    is_posix = os.name == "posix"
    try:
        parts = shlex.split(line, posix=is_posix)
    except ValueError:  # a quotation mark that isn't closed
        return line.split()
    return parts if is_posix else [part.strip('"') for part in parts]


def _text(value: Any) -> str | None:
    """A value as other apps read it where they expect text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


def _texts(value: Any) -> dict[str, str]:
    texts = value.items() if isinstance(value, dict) else ()
    return {name: text for name, one in texts if (text := _text(one)) is not None}


def _seconds(value: Any) -> float:
    """Some apps use seconds, others milliseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        return DEFAULT_TIMEOUT_SECONDS
    return min(value / 1000 if value >= 1000 else float(value), 86_400.0)


def _name_of(command: str, args: Sequence[str], url: str) -> str:
    """``mcp-server-time`` of ``uvx mcp-server-time``: the package, or the program, or the address's host."""
    if url:
        return re.sub(r"^https?://(?:[^/@]*@)?|[:/?#].*", "", url, flags=re.IGNORECASE)
    program = PurePath(command.replace("\\", "/")).stem
    package = next((one for one in args if not one.startswith("-")), "")
    if program.lower() in ("npx", "uvx", "bunx", "pnpx", "pipx", "uv", "node", "python", "python3", "docker"):
        return re.sub(r"(?<=.)@[\w.^~-]*$", "", package.rpartition("/")[2]) or program
    return program
