"""A tools process for the window's tests: speaks `app.tools.messages`, and does what the names of its servers' tools
say. ``python -m tests.support.scripted_tools``
"""

from __future__ import annotations

import os
import sys

from app.protocol import frames
from app.tools.messages import (
    CallEnded,
    CallProgressed,
    CallTool,
    CancelCall,
    FromTools,
    GetPrompt,
    Quit,
    ReadResource,
    Reply,
    SecretChanged,
    ServerChanged,
    ServerTool,
    StartServer,
    StopServer,
    UserAsked,
    decode_to_tools,
)

COMMAND = [sys.executable, "-m", "tests.support.scripted_tools"]
_TOOLS = {
    "echo": "Answers with its arguments.",
    "wait": "Ends when it is canceled.",
    "ask": "Asks the user.",
    "die": "Ends the process.",
    "rubbish": "Breaks the protocol.",
}

_starts: list[str] = []


def tools_of(name: str, description: str = "") -> list[ServerTool]:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return [ServerTool(name=one, description=description or what, parameters=schema) for one, what in _TOOLS.items()]


def _send(message: FromTools) -> None:
    frames.write(sys.stdout.buffer, frames.encode(message))


def _start(message: StartServer) -> None:
    entry = message.entry
    if entry.command == "fails" or (entry.url and message.is_offline):
        text = "Slipstream works offline." if entry.url else "It couldn't be started." + "x" * len(entry.cwd)
        _send(ServerChanged(name=entry.name, state="failed", message=text, log=["first", "no such program"]))
        return
    _send(ServerChanged(name=entry.name, state="starting"))
    if entry.command == "hangs":
        return
    version = " ".join([entry.command or entry.url, *entry.env.values(), *entry.headers.values(), message.secret])
    if entry.command == "login":
        _send(SecretChanged(server=entry.name, secret='{"token": "of the login"}'))
    tools = tools_of(entry.name)
    if entry.command == "changes":  # each time it is started
        _starts.append(entry.name)
        tools = tools_of(entry.name, f"Version {len(_starts)}.")
    if entry.command == "wide":
        tools = [ServerTool(name="n" * 200, title="t" * 200, description="d" * 5000)]
    _send(ServerChanged(name=entry.name, state="ready", tools=tools, version=version.strip()))


def _call(message: CallTool) -> None:
    match message.tool:
        case "echo":
            _send(CallProgressed(request=message.request, done=1, total=2, message="half"))
            _send(CallEnded(request=message.request, state="done", text=message.arguments, seconds=0.5))
        case "ask":
            fields = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            asked = UserAsked(
                question=message.request, server=message.server, kind="elicitation", message="Who?", fields=fields
            )
            _send(asked)
        case "die":
            sys.stderr.write("the last line\n")
            sys.stderr.flush()
            os._exit(3)
        case "rubbish":
            frames.write(sys.stdout.buffer, b'{"type": "unknown"}')


def _on(message: object) -> None:
    match message:
        case StartServer():
            _start(message)
        case StopServer():
            _send(ServerChanged(name=message.name, state="stopped"))
        case CallTool():
            _call(message)
        case GetPrompt() | ReadResource():
            text = message.name if isinstance(message, GetPrompt) else message.uri
            _send(CallEnded(request=message.request, state="done", text=text))
        case CancelCall():
            _send(CallEnded(request=message.request, state="stopped"))
        case Reply():
            text = f"{message.action} {message.content}"
            _send(CallEnded(request=message.question, state="done", text=text))


def main() -> None:
    while (body := frames.read(sys.stdin.buffer)) is not None:
        message = decode_to_tools(body)
        if isinstance(message, Quit):
            return
        _on(message)


if __name__ == "__main__":
    main()
