"""The tools process: `ToTools` as frames on stdin, `FromTools` on stdout, a log on stderr.

The main thread runs an event loop with one task per server and one per call. A second thread reads the messages; when
the input closes, it ends all servers and the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, BinaryIO

import msgspec

from app import system
from app.helper import limits
from app.protocol import frames
from app.tools import built_in, transport
from app.tools.messages import (
    BUILT_IN,
    CallEnded,
    CallTool,
    CancelCall,
    FromTools,
    GetPrompt,
    QuestionWithdrawn,
    Quit,
    ReadResource,
    Reply,
    ServerChanged,
    StartServer,
    StopServer,
    ToTools,
    UserAsked,
    decode_to_tools,
)
from app.tools.server import Request, Server

log = logging.getLogger("slipstream.tools")
_QUIT_SECONDS = 15.0
"""All servers must have ended by then: each gets two seconds to exit, and two more after SIGTERM."""
_MEMORY_LIMIT = 2 * 1024 * 1024 * 1024
"""Bytes, for this process alone. A 25 MB message with a million values takes a few hundred MB."""


class ToolsProcess:
    """Handles messages in an event loop until `Quit` or the end of the input."""

    def __init__(self, messages: BinaryIO, answers: BinaryIO) -> None:
        self._messages = messages
        self._answers = answers
        self._servers: dict[str, tuple[Server, asyncio.Task[None]]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        """By name: a server has to end before another one with its name starts."""
        self._calls: dict[int, asyncio.Task[CallEnded]] = {}
        self._questions: dict[int, asyncio.Future[Reply]] = {}
        self._last_question = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        if sys.platform != "win32":
            loop.add_signal_handler(signal.SIGTERM, self._is_over.set)
        threading.Thread(target=self._read, args=(loop,), name="messages", daemon=True).start()
        await self._is_over.wait()
        servers = [task for _, task in self._servers.values()]
        ending: list[asyncio.Task[Any]] = [*self._calls.values(), *servers, *self._tasks]
        for task in ending:
            if not task.cancelling():  # canceled twice, it would return before its server has ended
                task.cancel()
        await asyncio.wait(ending, timeout=_QUIT_SECONDS) if ending else None

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """In its own thread: Windows can't wait for a pipe in an event loop."""
        try:
            while (body := frames.read(self._messages)) is not None:
                loop.call_soon_threadsafe(self._receive, decode_to_tools(body))
        except (OSError, frames.ProtocolError) as error:
            log.error("the messages can't be read: %s", error)
        except RuntimeError:
            return  # the loop has ended
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._receive, Quit())
        time.sleep(_QUIT_SECONDS * 2)
        transport.kill_all()
        os._exit(0)  # something hangs

    def _receive(self, message: ToTools) -> None:
        if self._is_over.is_set():
            return
        match message:
            case StartServer():
                self._do(self._replace(message.entry.name, message))
            case StopServer():
                self._do(self._replace(message.name, None))
            case CallTool() | GetPrompt() | ReadResource():
                call = self._calls[message.request] = asyncio.create_task(self._carry_out(message))
                call.add_done_callback(partial(self._on_ended, message.request))
            case CancelCall() if message.request in self._calls:
                self._calls[message.request].cancel()
            case Reply():
                if (question := self._questions.pop(message.question, None)) and not question.done():
                    question.set_result(message)
            case Quit():
                self._is_over.set()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------ servers

    async def _replace(self, name: str, start: StartServer | None) -> None:
        async with self._locks.setdefault(name, asyncio.Lock()):
            _, task = self._servers.get(name, (None, None))
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
                del self._servers[name]
            if start is None:
                self._tell(ServerChanged(name=name, state="stopped"))
            else:
                server = Server(start, self._tell, self._ask)
                self._servers[name] = server, asyncio.create_task(server.run())

    async def _carry_out(self, request: Request) -> CallEnded:
        if isinstance(request, CallTool) and request.server == BUILT_IN:
            return await built_in.carry_out(request)
        if request.server in self._servers:
            return await self._servers[request.server][0].carry_out(request)
        return CallEnded(request=request.request, state="failed", text=f"The server “{request.server}” isn't running.")

    def _on_ended(self, number: int, call: asyncio.Task[CallEnded]) -> None:
        """Report the end of a call, even of one that was canceled before it began."""
        del self._calls[number]
        if call.cancelled():
            self._tell(CallEnded(request=number, state="stopped"))
        elif (error := call.exception()) is not None:
            log.error("a call failed unexpectedly", exc_info=error)
            self._tell(CallEnded(request=number, state="failed", text=f"An unexpected error: {error!r}"))
        else:
            self._tell(call.result())

    def _ask(self, asked: UserAsked) -> asyncio.Future[Reply]:
        self._last_question += 1
        number = self._last_question
        question: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def on_done(_: object) -> None:
            if self._questions.pop(number, None) is not None:  # the user hasn't answered it
                self._tell(QuestionWithdrawn(question=number))

        self._questions[number] = question
        question.add_done_callback(on_done)
        self._tell(msgspec.structs.replace(asked, question=number))
        return question

    def _tell(self, message: FromTools) -> None:
        try:
            frame = frames.encode_frame(message)
        except (frames.ProtocolError, ValueError, TypeError, OverflowError, RecursionError) as error:
            log.error("a %s couldn't be sent: %s", type(message).__name__, error)
            text = "The server sent more than Slipstream can pass on."
            if isinstance(message, CallEnded):
                frame = frames.encode_frame(CallEnded(request=message.request, state="failed", text=text))
            elif isinstance(message, ServerChanged):
                frame = frames.encode_frame(ServerChanged(name=message.name, state="failed", message=text))
            else:
                return
        try:
            self._answers.write(frame)
            self._answers.flush()
        except OSError:
            self._is_over.set()  # nobody is listening any more


def run() -> int:
    """The entry point of the process."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    for library in ("mcp", "client", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # their records contain what servers sent
    for interrupt in (signal.SIGINT, getattr(signal, "SIGBREAK", None)):
        if interrupt is not None:
            # Ctrl+C is for the process that started this one. A function, because servers would inherit SIG_IGN.
            signal.signal(interrupt, lambda *_: None)
    messages, answers = system.claim_streams()
    limits.confine(_MEMORY_LIMIT, children=False)
    try:
        asyncio.run(ToolsProcess(messages, answers).run())
    except OSError as error:
        log.info("the pipe broke: %s", error)
    transport.kill_all()
    os._exit(0)  # a tool may hang in a thread
