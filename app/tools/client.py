"""The tools process for the command line: blocking, without Qt."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterable
from typing import Any, Self

import msgspec

from app import system
from app.protocol import frames
from app.system import KnownError
from app.tools.messages import (
    CallEnded,
    CallProgressed,
    CallTool,
    CancelCall,
    FromTools,
    Quit,
    Reply,
    ServerChanged,
    ServerEntry,
    StartServer,
    UserAsked,
    decode_from_tools,
)

_QUIT_SECONDS = 20.0


def command() -> list[str]:
    """The command of the tools process."""
    return system.own_command("--role=tools")


class ToolsProcess:
    """A tools process from its start until `close`."""

    def __init__(
        self,
        answer: Callable[[UserAsked], Reply | None] | None = None,
        on_progress: Callable[[CallProgressed], None] = lambda _: None,
    ) -> None:
        """``answer`` passes a server's question to the user (``None``: not answered yet); without it, every question is
        declined."""
        self.servers: dict[str, ServerChanged] = {}
        self._answer = answer or (lambda asked: Reply(question=asked.question, action="decline"))
        self._on_progress = on_progress
        self._numbers = itertools.count(1)
        # Its log contains other people's text.
        self._process = system.start_process(command(), errors=subprocess.DEVNULL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def process_id(self) -> int:
        return self._process.pid

    def start(self, entries: Iterable[ServerEntry], *, is_offline: bool = False) -> dict[str, ServerChanged]:
        """Start servers; returns when each one is ready or has failed. Raises `KnownError`."""
        waiting = set()
        for entry in entries:
            self.send(StartServer(entry=entry, is_offline=is_offline))
            waiting.add(entry.name)
        while waiting:
            message = self.receive()
            if isinstance(message, ServerChanged) and message.state in ("ready", "failed"):
                waiting.discard(message.name)
        return self.servers

    def call(self, server: str, tool: str, arguments: str, **more: Any) -> CallEnded:
        """Call a tool and wait for its result; ``more`` are fields of `CallTool`. Ctrl+C stops the call and is raised
        once it has ended. Raises `KnownError`."""
        call = CallTool(request=next(self._numbers), server=server, tool=tool, arguments=arguments, **more)
        self.send(call)
        interrupt = None
        while True:
            try:
                message = self.receive()
            except KeyboardInterrupt as error:
                if interrupt is not None:
                    raise
                interrupt = error
                self.send(CancelCall(request=call.request))
                continue
            if isinstance(message, CallEnded) and message.request == call.request:
                if interrupt is not None:
                    raise interrupt
                return message

    def send(self, message: msgspec.Struct) -> None:
        assert self._process.stdin is not None
        try:
            frames.write(self._process.stdin, frames.encode(message))
        except (OSError, frames.ProtocolError) as error:
            raise KnownError("The process that runs tools has ended.") from error

    def receive(self) -> FromTools:
        """Wait for the next message; also answers questions. Raises `KnownError` if the process has ended."""
        assert self._process.stdout is not None
        try:
            message = decode_from_tools(frames.read(self._process.stdout) or b"")
        except (OSError, frames.ProtocolError) as error:
            raise KnownError("The process that runs tools has ended.") from error
        match message:
            case ServerChanged():
                self.servers[message.name] = message
            case CallProgressed():
                self._on_progress(message)
            case UserAsked():
                if (reply := self._answer(message)) is not None:
                    self.send(msgspec.structs.replace(reply, question=message.question))
        return message

    def close(self) -> None:
        """End all servers and the process."""
        try:
            self._process.communicate(frames.framed(frames.encode(Quit())), timeout=_QUIT_SECONDS)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
