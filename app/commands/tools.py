"""Tools for one answer: from the MCP servers in a file, and built-in ones. Asks before tools that aren't allowed."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from app.chats.model import StoredCall
from app.commands.options import saved_settings
from app.commands.output import tell, wrong_usage
from app.protocol.commands import Message
from app.protocol.tools import ToolCall, ToolUse
from app.system import KnownError
from app.tools.client import ToolsProcess
from app.tools.config_files import find_servers
from app.tools.entries import resolved
from app.tools.messages import BUILT_IN, ServerEntry
from app.tools.offered import BUILT_IN_TOOLS, MOST_OFFERED, OfferedTool, offered_tools, problem_of, tool_key
from app.words import count, printable, visible_json

_SHOWN = 300
"""Characters of a result that the terminal shows."""


def add_tool_options(parser: argparse.ArgumentParser) -> None:
    """``tools`` and ``allow``."""
    own = ", ".join(tool_key(BUILT_IN, tool.name) for tool in BUILT_IN_TOOLS)
    group = parser.add_argument_group("tools that the model may call")
    group.add_argument(
        "--tools",
        type=Path,
        metavar="FILE",
        help="offer the model the tools of the MCP servers in a file such as mcp.json",
    )
    group.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="SERVER.TOOL",
        help="run this tool without asking. For other tools you are asked on the terminal; without a terminal, they "
        f"are denied. The built-in tools are only offered if you allow them: {own}. May be repeated",
    )


@contextlib.contextmanager
def started_tools(options: argparse.Namespace) -> Iterator[CommandTools | None]:
    """The tools that the options ask for, with their servers running; ``None`` without any. Exits with a message if an
    allowed tool doesn't exist. Raises `KnownError`."""
    if options.tools is None and not options.allow:
        yield None
        return
    if options.raw:
        wrong_usage("tools need a chat template, and --raw doesn't use one")
    with ToolsProcess() as process:
        yield CommandTools(process, _entries(options.tools) if options.tools else [], options.allow)


def _entries(path: Path) -> list[ServerEntry]:
    """The servers in a file that can be started. Raises `KnownError` if it can't be read."""
    try:
        found = find_servers(path.read_text(encoding="utf-8-sig", errors="replace"))
    except OSError as error:
        raise KnownError(f"{path.name} can't be read: {error.strerror or error}.") from error
    tell(*found.problems)
    entries = []
    for entry in found.entries:
        try:
            if entry.is_on:
                started = resolved(entry)
                entries.append(replace(started, cwd=started.cwd or str(Path.cwd())))
        except KnownError as error:
            tell(str(error))
    return entries


class CommandTools:
    """The tools of one command.

    Attributes:
        use: For `Generate.tools`.
        calls: The tool calls so far, with their results.
    """

    def __init__(self, process: ToolsProcess, entries: Sequence[ServerEntry], allowed: Sequence[str]) -> None:
        """Start the servers."""
        settings = saved_settings()
        self._process, self._allowed, self._most_calls = process, set(allowed), settings.most_tool_calls
        self.calls: list[StoredCall] = []
        found = process.start(entries, is_offline=settings.offline)
        tell(*(f"{one.name} didn't start. {one.message}" for one in found.values() if one.state == "failed"))
        tools = {one.name: [tool for tool in found[one.name].tools if tool.name not in one.off] for one in entries}
        tools[BUILT_IN] = [tool for tool in BUILT_IN_TOOLS if tool_key(BUILT_IN, tool.name) in self._allowed]
        offered = offered_tools(tools, {entry.name: entry for entry in entries})[:MOST_OFFERED]
        if unknown := sorted(self._allowed - {one.key for one in offered}):
            known = ", ".join(one.key for one in offered) or "none"
            wrong_usage(f"--allow {unknown[0]}: there is no such tool. The tools are: {known}.")
        if not offered:
            raise KnownError("None of these servers has any tools.")
        self._tools = {one.name: one for one in offered}
        self.use = ToolUse(tools=[one.for_model() for one in offered])

    def carry_out(self, calls: Sequence[ToolCall]) -> list[Message]:
        """Run these calls, asking first where the tool isn't allowed; returns the results for the model. Ctrl+C works
        as usual."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for call in calls:
                self.calls.append(self._carried_out(call))
        finally:
            signal.signal(signal.SIGINT, before)
        ended = self.calls[-len(calls) :]
        return [Message(role="tool", content=one.result, tool_call_id=one.id, tool_name=one.name) for one in ended]

    def _carried_out(self, call: ToolCall) -> StoredCall:
        tool = self._tools.get(call.name)
        ended = StoredCall(id=call.id, name=call.name, arguments=call.arguments, state="failed")
        if tool is None:
            return replace(ended, result="There is no such tool.")
        ended, key = replace(ended, server=tool.server, tool=tool.tool.name), printable(tool.key)
        if len(self.calls) >= self._most_calls:
            tell(f"{key} didn't run: an answer may make at most {count(self._most_calls, 'tool call')}.")
            return replace(ended, result="No more tools can be called. Answer with what you know.")
        if problem := problem_of(call.arguments, tool):
            tell(f"{key} isn't called. {problem}")
            return replace(ended, result=problem)
        if not self._may(tool, call):
            return replace(ended, state="denied", result="The user denied this call.")
        tell(f"{key} {_shown(call)}")
        found = self._process.call(tool.server, tool.tool.name, call.arguments)
        images = f"[{count(len(found.images), 'image')}, which you can't see]" if found.images else ""
        text = "\n".join(filter(None, [found.text, images]))
        tell(f"{key} {found.state}: {printable(text, _SHOWN)}")
        return replace(ended, state=found.state, result=text, seconds=found.seconds)

    def _may(self, tool: OfferedTool, call: ToolCall) -> bool:
        if tool.key in self._allowed:
            return True
        key = printable(tool.key)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            tell(f"{key} was denied because there is no terminal to ask on. To allow it, use --allow {key}.")
            return False
        tell(f"The model wants to call the tool {printable(tool.tool.name)} from {printable(tool.server_name)}:")
        print(_shown(call, indent=2), file=sys.stderr)
        while True:
            print("Allow it? (y)es, (n)o, (a)lways during this run: ", end="", file=sys.stderr, flush=True)
            answer = (sys.stdin.readline() or "no").strip().lower()[:1]
            if answer == "a":
                self._allowed.add(tool.key)
            if answer in ("y", "n", "a"):
                return answer != "n"


def _shown(call: ToolCall, indent: int | None = None) -> str:
    """The call's arguments, in full and safe for a terminal."""
    return visible_json(json.dumps(json.loads(call.arguments), ensure_ascii=False, indent=indent))
