"""Listens for connections and shuts down in order; `serve` runs a server without a window."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Sequence

from app.models.gguf import read_header
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Load
from app.protocol.events import LoadProgressed, PairLoaded
from app.server.engines import OwnEngine
from app.server.guard import Guard, Limits
from app.server.http import HttpConnection, Service
from app.server.service import ModelInfo, ModelService
from app.system import KnownError

_log = logging.getLogger("slipstream.server")
LOOPBACK = ("127.0.0.1", "::1")
"""Both, because ``localhost`` may mean either."""
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_BACKLOG = 128


class Server:
    """Listens from `open` to `close`."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._limits = limits
        self._listening: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, host: str | None, port: int) -> list[tuple[str, int]]:
        """Listen at ``host`` (by default both loopback addresses) and ``port`` (0 for any free one).

        Returns the addresses. Raises `KnownError`.
        """
        opened: list[tuple[str, int]] = []
        for address in LOOPBACK if host in (None, "localhost") else (host or "",):
            try:
                server = await asyncio.start_server(self._accept, address, port, backlog=_BACKLOG)
            except OSError as error:
                if opened and error.errno in _NO_IPV6:
                    continue
                await self.close()
                raise KnownError(_refusal(address, port, error)) from error
            self._listening.append(server)
            for listening in server.sockets:
                name = listening.getsockname()
                opened.append((name[0], name[1]))
            port = opened[0][1]
        return opened

    async def close(self) -> None:
        """Stop listening, and cancel all connections."""
        for server in self._listening:
            server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count, limits = len(self._connections), self._limits
        if count >= limits.refused_connections:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            connection = HttpConnection(reader, writer, self._service, limits, is_surplus=count >= limits.connections)
            with contextlib.suppress(asyncio.CancelledError):  # `close`; asyncio would complain about it
                await connection.serve()
        finally:
            self._connections.discard(task)


def _refusal(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {address} is in use by another program. Choose another port."
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{address} isn't an address of this computer. Choose another one."
    return f"The server can't listen at port {port} of {address}: {error.strerror or error}."


Ready = Callable[[PairLoaded, Sequence[tuple[str, int]], str], None]


async def serve(
    load: Load,
    guard: Guard,
    host: str | None = None,
    port: int = 0,
    *,
    usual: AnswerSettings = AnswerSettings(),  # noqa: B008 - frozen
    limits: Limits | None = None,
    on_progress: Callable[[LoadProgressed], None] = lambda _: None,
    on_ready: Ready = lambda *_: None,
) -> None:
    """Load a pair and serve it until canceled, which also ends the engine.

    ``host`` and ``port``: see `Server.open`. ``usual``: how to draft unless a request says otherwise. ``on_ready`` gets
    the pair, the addresses and the model's id. Raises `KnownError`.
    """
    limits = limits or Limits()
    model = ModelInfo(read_header(load.target))
    engine = OwnEngine(load, usual)
    server = Server(ModelService(engine, model, guard, limits), limits)
    try:
        addresses = await server.open(host, port)
        on_ready(await engine.start(on_progress), addresses, model.id)
        await engine.keep_running()
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(_close(server, engine))


async def _close(server: Server, engine: OwnEngine) -> None:
    await server.close()
    await engine.close()
