"""A server with an engine of its own, without a window."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.models.gguf import read_header
from app.protocol.commands import Load
from app.protocol.events import LoadProgressed, PairLoaded
from app.server.guard import Guard
from app.server.limits import Limits
from app.server.model_info import ModelInfo
from app.server.own_engine import Drafting, OwnEngine
from app.server.service import ModelService
from app.server.serving import Server

Ready = Callable[[PairLoaded, Sequence[tuple[str, int]], str], None]


@dataclass(frozen=True)
class Address:
    host: str | None = None
    """``None``: both of this computer's own addresses."""
    port: int = 0
    """0: any that is free."""


async def serve(
    load: Load,
    guard: Guard,
    address: Address,
    *,
    drafting: Drafting | None = None,
    limits: Limits | None = None,
    on_progress: Callable[[LoadProgressed], None] = lambda _: None,
    on_ready: Ready = lambda *_: None,
) -> None:
    """Load a pair and serve it until this is canceled; then the engine is ended, too.

    ``on_ready`` gets the pair, the addresses and the model's id. Raises `KnownError`.
    """
    limits = limits or Limits()
    model = ModelInfo(read_header(load.target))
    engine = OwnEngine(load, drafting)
    server = Server(ModelService(engine, model, guard, limits), limits)
    try:
        addresses = await server.open(address.host, address.port)
        on_ready(await engine.start(on_progress), addresses, model.id)
        await engine.keep_running()
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(_close(server, engine))


async def _close(server: Server, engine: OwnEngine) -> None:
    await server.close()
    await engine.close()
