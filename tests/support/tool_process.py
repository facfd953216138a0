"""The real tools process, and entries for servers made of this folder's scripts."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.tools.client import ToolsProcess
from app.tools.messages import CallEnded, CallProgressed, FromTools, Reply, ServerChanged, ServerEntry, UserAsked

ROOT = str(Path(__file__).parents[2])


def entry(name: str = "test", module: str = "tool_server", *arguments: str, **fields: Any) -> ServerEntry:
    """A server that a module of this folder is."""
    fields.setdefault("timeout_seconds", 60.0)
    command, args = sys.executable, ["-m", f"tests.support.{module}", *arguments]
    return ServerEntry(name=name, command=command, args=args, cwd=ROOT, **fields)


class Process(ToolsProcess):
    """Keeps what it was asked and told."""

    def __init__(self) -> None:
        self.asked: list[UserAsked] = []
        self.progress: list[CallProgressed] = []
        self.replies: list[Reply | None] = []
        """For the questions to come, in order; without one the answer is no, with ``None`` there is none."""
        super().__init__(self._reply, self.progress.append)

    def _reply(self, asked: UserAsked) -> Reply | None:
        self.asked.append(asked)
        return self.replies.pop(0) if self.replies else Reply(question=0, action="decline")

    def forget(self) -> None:
        """Nothing was asked yet, and no answer is prepared."""
        for one in (self.asked, self.progress, self.replies):
            one.clear()

    def run(self, tool: str, server: str = "test", **arguments: Any) -> CallEnded:
        return self.call(server, tool, json.dumps(arguments))

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def until(self, name: str, *states: str) -> ServerChanged:
        """Wait for one of these states of a server."""
        while True:
            message = self.receive()
            if isinstance(message, ServerChanged) and message.name == name and message.state in states:
                return message

    def next(self, kind: type[FromTools] | tuple[type[FromTools], ...]) -> Any:
        """Wait for a message of this kind."""
        while True:
            message = self.receive()
            if isinstance(message, kind):
                return message


@contextlib.contextmanager
def http_server(module: str = "tool_server", *, is_login: bool = False, port: int = 0) -> Iterator[str]:
    """A server of this folder on loopback; its address."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(100)
        number, port = listening.fileno(), listening.getsockname()[1]
        arguments = [str(number), str(port)] if is_login else [str(number)]
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.support.{module}", *arguments], cwd=ROOT, pass_fds=[number]
        )
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
            process.wait()
