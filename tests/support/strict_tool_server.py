"""A real MCP server whose tools take few values, so that a model of random weights calls them in few tokens:
``python -m tests.support.strict_tool_server [CHARACTERS]``; so many has a long result.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

import anyio
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from tests.support.tool_server import PNG

server = MCPServer("Strict", version="1", log_level="CRITICAL")
CHARACTERS = int(sys.argv[1]) if sys.argv[1:] else 0


@server.tool(structured_output=False)
def weather(place: Literal["Rome", "Oslo"], days: Annotated[int, Field(ge=1, le=9)]) -> str:
    """The weather in a place."""
    return f"Sunny in {place} for {days} days.{' Really.' * (CHARACTERS // 8)}"


@server.tool(structured_output=False)
def picture() -> list[Any]:
    """A picture."""
    return ["Here it is:", Image(data=PNG, format="png")]


@server.tool(structured_output=False)
def no_picture() -> list[Any]:
    """Something that says that it is a picture."""
    return [Image(data=b"\x89PNG\r\n\x1a\n but nothing else", format="png")]


@server.tool(structured_output=False)
def fail() -> str:
    """Fail."""
    raise ToolError("It broke.")


@server.tool(structured_output=False)
async def wait() -> str:
    """Never answer."""
    await anyio.sleep_forever()
    return ""


if __name__ == "__main__":
    for tool in server._tool_manager._tools.values():
        tool.parameters["additionalProperties"] = False
    server.run()
