"""The process of a server started by the window: it uses the window's engine, and ends with the window.

It reads the window's messages from its standard input, `Serve` first, and writes its own to its standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from app import system
from app.models.gguf import read_header
from app.protocol import serving as protocol
from app.protocol.frames import FrameReader, ProtocolError, encode_frame
from app.protocol.serving import FromServer, Listening, NotListening, PairServed, Serve, ToServer
from app.server.engines import WindowEngine
from app.server.guard import Guard, Limits
from app.server.http import Handler, Head
from app.server.service import ModelInfo, ModelService
from app.server.serving import Server
from app.system import KnownError

_log = logging.getLogger("slipstream.server")
_END_SECONDS = 10.0


class _Window:
    """Sends messages to the window, in a thread because it may be slow to read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._unsent: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="to-window", daemon=True).start()

    def send(self, message: FromServer) -> None:
        """Raises `ProtocolError` if the message is too large."""
        self._unsent.put(encode_frame(message))

    def end(self, message: FromServer) -> None:
        """Write the last message, and wait until that is done."""
        _write(self._stream, encode_frame(message))

    def _write(self) -> None:
        while _write(self._stream, self._unsent.get()):
            pass


class _Served:
    """A `Service` for whichever pair is loaded in the window."""

    def __init__(self, window: _Window, guard: Guard, limits: Limits) -> None:
        self._window = window
        self._guard = guard
        self._limits = limits
        self._engine = WindowEngine(None, "", window.send)
        self._service = self._made(ModelInfo(None))

    def admit(self, head: Head) -> Handler:
        return self._service.admit(head)

    def origin_headers(self, head: Head) -> Mapping[str, str]:
        return self._service.origin_headers(head)

    async def receive(self, message: ToServer) -> None:
        """Handle a message from the window."""
        match message:
            case PairServed():
                await self._change(message)
            case Serve():
                raise ProtocolError("a second Serve")
            case _:
                self._engine.receive(message)

    async def _change(self, served: PairServed) -> None:
        self._engine.close(served.why)
        pair, why = served.pair, served.why
        model = ModelInfo(None)
        if pair is not None:
            try:
                model = ModelInfo(await asyncio.to_thread(read_header, Path(pair.target.path)))
            except KnownError:
                pair, why = None, "The model's file can't be read."
        self._engine = WindowEngine(pair, why, self._window.send)
        self._service = self._made(model)

    def _made(self, model: ModelInfo) -> ModelService:
        return ModelService(self._engine, model, self._guard, self._limits, self._window.send)


async def serve(messages: asyncio.Queue[ToServer | None], window: _Window, limits: Limits | None = None) -> None:
    """Serve until the window is gone (``None``). Raises `KnownError` if it can't listen, and `ProtocolError`."""
    limits = limits or Limits()
    first = await messages.get()
    if first is None:
        return
    if not isinstance(first, Serve):
        raise ProtocolError(f"{type(first).__name__} before Serve")
    guard = Guard(key=first.key, hosts=frozenset(first.hosts), origins=frozenset(first.origins))
    served = _Served(window, guard, limits)
    server = Server(served, limits)
    try:
        window.send(Listening(addresses=await server.open(first.host, first.port)))
        while (message := await messages.get()) is not None:
            await served.receive(message)
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(server.close())


def run() -> int:
    """The entry point of the process."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    for interrupt in (signal.SIGINT, getattr(signal, "SIGBREAK", None)):
        if interrupt is not None:
            signal.signal(interrupt, signal.SIG_IGN)  # Ctrl+C goes to the window, which ends this process
    commands, events = system.claim_streams()
    window = _Window(events)
    try:
        asyncio.run(_run(commands, window))
    except KnownError as error:
        window.end(NotListening(message=str(error)))
        return 1
    except ProtocolError as error:
        _log.error("unexpected message from the window: %s", error)
        return 1
    return 0


async def _run(commands: BinaryIO, window: _Window) -> None:
    loop, messages = asyncio.get_running_loop(), asyncio.Queue[ToServer | None]()
    done = threading.Event()

    def put(message: ToServer | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(messages.put_nowait, message)

    threading.Thread(target=_read, args=(commands, put, done), name="from-window", daemon=True).start()
    try:
        await serve(messages, window)
    finally:
        done.set()


def _read(commands: BinaryIO, put: Callable[[ToServer | None], None], done: threading.Event) -> None:
    """Pass on the window's messages; end this process when the window is gone, by force if necessary."""
    reader = FrameReader()
    try:
        while data := os.read(commands.fileno(), 65536):
            for body in reader.feed(data):
                put(protocol.decode_to_server(body))
    except (OSError, ProtocolError) as error:
        _log.error("unreadable message from the window: %s", error)
    put(None)
    if not done.wait(_END_SECONDS):
        os._exit(1)


def _write(stream: BinaryIO, data: bytes) -> bool:
    """Returns whether the window is still reading."""
    try:
        stream.write(data)
        stream.flush()
    except (OSError, ValueError):
        return False
    return True
