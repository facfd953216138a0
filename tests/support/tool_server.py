"""A real MCP server, made with the library's server side: ``python -m tests.support.tool_server [SOCKET]``.

On stdio, or with the number of an inherited socket on streamable HTTP. Each tool does one thing that a client has to
cope with.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    AudioContent,
    EmbeddedResource,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("Test server", version="1.2", log_level="CRITICAL")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool(structured_output=False)
def environment() -> str:
    """This process's environment, working folder and memory limit, as JSON."""
    limit: Any = None
    if sys.platform != "win32":
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)
    return json.dumps({"variables": dict(os.environ), "folder": os.getcwd(), "memory": limit})  # noqa: PTH109


@server.tool(structured_output=False)
def fail(text: str) -> str:
    """Fail with this text."""
    raise ToolError(text)


@server.tool()
def weather() -> dict[str, int]:
    """A structured result."""
    return {"degrees": 21}


@server.tool(structured_output=False)
def picture() -> list[Any]:
    """A text, an image, a sound and a resource."""
    resource = TextResourceContents(uri="memo://1", mime_type="text/plain", text="A memo.")
    return [
        TextContent(type="text", text="Here it is:"),
        Image(data=PNG, format="png"),
        AudioContent(type="audio", data="AAAA", mime_type="audio/wav"),
        EmbeddedResource(type="resource", resource=resource),
    ]


@server.tool(structured_output=False)
def large(characters: int) -> str:
    """A long text."""
    return "x" * characters


@server.tool(structured_output=False)
async def count(steps: int, ctx: Context[Any, Any]) -> str:
    """Report progress so many times."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        await anyio.sleep(0.2)
    return "counted"


@server.tool(structured_output=False)
async def wait(file: str) -> str:
    """Never answer. The file has a line when it begins, and one when the call is canceled."""
    with open(file, "a", encoding="utf-8") as log:  # noqa: PTH123
        print("begun", file=log, flush=True)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            print("canceled", file=log, flush=True)
            raise
    return ""


@server.tool(structured_output=False)
async def die() -> str:
    """End the process in the middle of the call."""
    os._exit(7)


@server.tool(structured_output=False)
def start_child(file: str) -> str:
    """Start a process that goes on until it is ended, and leave its number in a file."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10_000)"], stdin=subprocess.DEVNULL)
    with open(file, "w", encoding="utf-8") as log:  # noqa: PTH123
        print(child.pid, file=log)
    return str(child.pid)


@server.tool(structured_output=False)
async def grow(ctx: Context[Any, Any]) -> str:
    """Add a tool."""

    def grown() -> str:
        return "grown"

    server.add_tool(grown, name="grown", description="A new tool.")
    await ctx.session.send_tool_list_changed()
    return "Added."


@server.tool(structured_output=False)
async def roots(ctx: Context[Any, Any]) -> str:
    """The folders that the client offers."""
    found = await ctx.session.list_roots()
    return "\n".join(str(root.uri) for root in found.roots)


@server.tool(structured_output=False)
async def think(ctx: Context[Any, Any]) -> str:
    """Ask the client's model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="What is love?"))
    answer = await ctx.session.create_message([question], max_tokens=100, system_prompt="Be brief.")
    return answer.content.text if isinstance(answer.content, TextContent) else "?"


class Booking(BaseModel):
    date: str
    seats: int = 2


@server.tool(structured_output=False)
async def book(ctx: Context[Any, Any]) -> str:
    """Ask the user for a date."""
    answer = await ctx.elicit("Which date?", Booking)
    return (
        f"{answer.action}: {answer.data.date} for {answer.data.seats}" if answer.action == "accept" else answer.action
    )


@server.tool(structured_output=False)
async def chat(text: str) -> str:
    """Print to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    return "printed"


@server.prompt()
def review(code: str) -> str:
    """Review some code."""
    return f"Please review: {code}"


@server.resource("memo://today", mime_type="text/plain")
def memo() -> str:
    """What to do today."""
    return "Water the plants."


@server.resource("memo://picture", mime_type="image/png")
def drawn() -> bytes:
    """A picture."""
    return PNG


def serve(app: Any, number: str) -> None:
    """Serve on a socket that was inherited: whoever connects before waits."""
    import uvicorn

    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(number))])


if __name__ == "__main__":
    if sys.argv[1:]:
        serve(server.streamable_http_app(), sys.argv[1])
    else:
        server.run()
