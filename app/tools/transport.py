"""The streams between one MCP server and the library's session.

Everything that a server sends stays within limits: lines are cut, bad bytes are replaced, what isn't a message goes
into its log, and a server that never stops sending is ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.abc
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.os.win32.utilities import (
    close_process_job,
    create_windows_process,
    get_windows_executable_command,
    terminate_windows_process_tree,
)
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from app import words
from app.helper import limits
from app.system import KnownError
from app.tools.messages import ServerEntry

MAX_LINE = 25_000_000
"""The most bytes of one message."""
MAX_VALUES = 1_000_000
"""The most lists, objects and members in one message: each takes many times the memory of its text."""
_MAX_OPEN_REQUESTS = 100
"""The most unanswered requests from the server to us."""
_LOG_LINES, _LOG_CHARACTERS = 200, 500
_FLOOD, _STEADY, _MESSAGE = 100_000_000, 2_000_000, 10_000
"""In bytes: what a server may send at once, what it may send per second in the long run, and what each message counts
in addition to its size."""
_ENDLESS = "It was stopped because it kept sending data without end."
_EXIT_SECONDS = 2.0
"""How long a server has to exit once its stdin is closed, and again after SIGTERM."""
_ID = re.compile(rb'"id"\s*:\s*(\d{1,9})\s*[,}]')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


class Log:
    """The last lines that a server printed."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._on_change = on_change

    def add(self, line: str | bytes) -> None:
        line = line[: _LOG_CHARACTERS * 4]
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        self.lines.append(words.shortened(words.visible(text.rstrip()).replace("\n", " "), _LOG_CHARACTERS))
        self._on_change()


class Flow:
    """Stops a server that never stops sending. Its methods raise `KnownError`."""

    def __init__(self) -> None:
        self._level = 0.0
        self._last = time.monotonic()
        self._open_requests = 0
        self._rubbish = 0
        """Bytes since the last message."""

    def read(self, data: bytes) -> None:
        """Count data that may not be a message. An empty line costs us more than a byte."""
        self.take(len(data))
        self._rubbish += len(data) + 100 * data.count(b"\n")
        if self._rubbish > _FLOOD:
            raise KnownError(_ENDLESS)

    def take(self, size: int, messages: int = 0) -> None:
        now = time.monotonic()
        self._level = max(self._level - (now - self._last) * _STEADY, 0.0) + size + messages * _MESSAGE
        self._last = now
        if self._level > _FLOOD:
            raise KnownError(_ENDLESS)

    def receive(self, message: SessionMessage | Exception) -> None:
        """Count a message from the server."""
        self.take(0, messages=1)
        self._rubbish = 0
        if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCRequest):
            self._open_requests += 1
            if self._open_requests > _MAX_OPEN_REQUESTS:
                raise KnownError("It was stopped because it sent too many requests at once.")

    def send(self, message: SessionMessage) -> None:
        """Count a message to the server."""
        if isinstance(message.message, JSONRPCRequest):  # the answer to it may be long
            self._level = max(self._level - MAX_LINE, 0.0)
        elif isinstance(message.message, JSONRPCResponse | JSONRPCError):
            self._open_requests -= 1


class Lines:
    """Splits a server's output into lines. Only the beginning and the end of a line that is too long are kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._end = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Add bytes; returns the lines that are now complete, and whether each one is too long."""
        lines = []
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add(part)
            is_long = self._size > MAX_LINE
            lines.append((b"".join(self._parts) + (self._end if is_long else b""), is_long))
            self._parts, self._size, self._end = [], 0, b""
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_LINE:
            self._parts.append(part)
        else:
            self._end = (self._end + part)[-200:]
            self._parts = [b"".join(self._parts)[:200]]


def message_in(line: bytes, is_long: bool = False) -> SessionMessage | None:
    """The message in ``line``. If that is a bad answer to a request of ours and has a number, an answer that says so;
    otherwise ``None``."""
    if not is_long and not _is_too_much(line):
        with contextlib.suppress(ValueError, RecursionError, MemoryError):
            text = line.decode("utf-8", "replace")
            return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
        why = "The server's answer can't be read."
    else:
        why = (
            f"The server's answer is too large: it has more than {words.size(MAX_LINE)} or more than a million values."
        )
    ends = line[:200], line[-200:]
    number = next((found for end in ends if line.lstrip().startswith(b"{") and (found := _ID.search(end))), None)
    if number is None:
        return None
    error = ErrorData(code=PARSE_ERROR, message=why)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(number[1]), error=error))


def _is_too_much(line: bytes) -> bool:
    def values(text: bytes) -> int:
        return sum(map(text.count, (b"[", b"{", b",")))

    return len(line) > MAX_VALUES and values(line) > MAX_VALUES and values(_STRING.sub(b"", line)) > MAX_VALUES


class Streams:
    """Two pairs of connected streams: the ones that the library's session reads and writes, and our ends of them."""

    def __init__(self) -> None:
        self.to_session, self.read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.write, self.from_session = anyio.create_memory_object_stream[SessionMessage](0)

    def close(self) -> None:
        for stream in (self.to_session, self.read, self.write, self.from_session):
            stream.close()


# ------------------------------------------------------------ a command


@contextlib.asynccontextmanager
async def command(entry: ServerEntry, log: Log) -> AsyncIterator[Streams]:
    """Start a server; on exit, end it and everything that it started. Raises `KnownError` if it can't be started and,
    through the task group, if it ends by itself."""
    process = await _started(entry)
    _running.add(process.pid)
    streams, flow, ending = Streams(), Flow(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process, streams, flow, log, ending)
        tasks.start_soon(_write, process, streams, flow)
        tasks.start_soon(_listen, process, log)
        try:
            yield streams
        finally:
            ending.set()
            with anyio.CancelScope(shield=True):
                await _end(process)
            _running.discard(process.pid)
            tasks.cancel_scope.cancel()
            streams.close()


async def _started(entry: ServerEntry) -> anyio.abc.Process:
    environment = {**get_default_environment(), **entry.env}
    folder = str(Path(entry.cwd).expanduser()) if entry.cwd else None
    if folder and not Path(folder).is_dir():
        raise KnownError(f"Its working folder {folder} doesn't exist.")
    try:
        if sys.platform == "win32":
            program = await anyio.to_thread.run_sync(get_windows_executable_command, entry.command)
            started = await create_windows_process(program, entry.args, environment, cast(Any, subprocess.PIPE), folder)
            return cast(anyio.abc.Process, started)
        with limits.unconfined():
            line = [entry.command, *entry.args]
            return await anyio.open_process(line, env=environment, cwd=folder, start_new_session=True)
    except FileNotFoundError as error:
        text = f"“{entry.command}” wasn't found. Install it, or enter the full path of the program."
        raise KnownError(text) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise KnownError(f"“{entry.command}” couldn't be started: {reason}.") from error


_running: set[int] = set()
"""The process groups of running servers."""


def kill_all() -> None:
    """Kill what is left of all servers; on Windows, the system does that when this process ends."""
    for group in _running if sys.platform != "win32" else ():
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


_CLOSED = anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError


async def _read(process: anyio.abc.Process, streams: Streams, flow: Flow, log: Log, ending: anyio.Event) -> None:
    lines = Lines()
    assert process.stdout is not None
    with contextlib.suppress(*_CLOSED):
        while True:
            data = await process.stdout.receive()
            flow.read(data)
            for line, is_long in lines.feed(data):
                message = message_in(line, is_long)
                if message is not None:
                    flow.receive(message)
                    await streams.to_session.send(message)
                elif line.strip():
                    log.add(line)
    if ending.is_set():
        return
    status = await _status(process)
    raise KnownError("It closed its output." if status is None else f"It has ended, with status {status}.")


async def _write(process: anyio.abc.Process, streams: Streams, flow: Flow) -> None:
    assert process.stdin is not None
    with contextlib.suppress(*_CLOSED):
        async for message in streams.from_session:
            flow.send(message)
            body = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(f"{body}\n".encode("utf-8", "replace"))


async def _listen(process: anyio.abc.Process, log: Log) -> None:
    flow, rest = Flow(), b""
    assert process.stderr is not None
    with contextlib.suppress(*_CLOSED):
        while True:
            data = await process.stderr.receive()
            flow.take(10 * len(data))
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-4 * _LOG_CHARACTERS :]
            for line in lines[-_LOG_LINES:]:
                log.add(line)
    if rest:
        log.add(rest)


async def _status(process: anyio.abc.Process) -> int | None:
    """Its exit status, if it ends within a moment. Not process.wait(): a child that inherited the pipes would make it
    look alive."""
    with anyio.move_on_after(_EXIT_SECONDS):
        while process.returncode is None:
            await anyio.sleep(0.01)
    return process.returncode


async def _end(process: anyio.abc.Process) -> None:
    """Close its stdin, wait a moment, and end it and everything that it started."""
    assert process.stdin is not None
    with contextlib.suppress(*_CLOSED):
        await process.stdin.aclose()
    status = await _status(process)
    if sys.platform == "win32":
        if status is None:
            await terminate_windows_process_tree(process)
        close_process_job(process)  # ends whatever is left in it
    else:
        await terminate_posix_process_tree(process, _EXIT_SECONDS)
    await _status(process)
    with contextlib.suppress(OSError):
        process._process._transport.close()  # type: ignore[attr-defined]  # as the library does: a survivor may hold a pipe
