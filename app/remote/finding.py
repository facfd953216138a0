"""Servers on this machine, at the usual ports; asked only when someone wants to know, and never with a key."""

from __future__ import annotations

import asyncio

from app.protocol.remote import Probe, Server, ServerProbed
from app.remote import address
from app.remote.connecting import needs_key
from app.remote.detection import detect
from app.remote.failures import RemoteError
from app.remote.http import Http
from app.remote.limits import Limits

PORTS = (8080, 8000, 11434, 1234, 30000, 9931, 1337, 4891, 3000)
"""llama-server and Slipstream; vLLM and TensorRT-LLM; Ollama; LM Studio; SGLang; llama.cpp's app; Jan; GPT4All; TGI."""


async def find(limits: Limits, ports: tuple[int, ...] = PORTS) -> list[Server]:
    """All that are recognized, in the order of the ports."""
    found = await asyncio.gather(*(_at(port, limits) for port in ports))
    return [server for server in found if server is not None]


async def _at(port: int, limits: Limits) -> Server | None:
    try:
        return await _ask(Probe(request=0, address=f"http://127.0.0.1:{port}", loopback_only=True), limits, limits.find)
    except RemoteError:
        return None


async def probe(question: Probe, limits: Limits) -> ServerProbed:
    """Which server is at an address, or why none is."""
    try:
        server = await _ask(question, limits)
    except RemoteError as error:
        return ServerProbed(request=question.request, cause=error.cause, message=str(error))
    if server.needs_key:
        message = needs_key(address.parse(question.address).host, has_key=bool(question.key))
        return ServerProbed(request=question.request, server=server, cause="key", message=message)
    return ServerProbed(request=question.request, server=server)


async def _ask(question: Probe, limits: Limits, seconds: float = 0.0) -> Server:
    http = Http(address.parse(question.address), question.key, limits, loopback_only=question.loopback_only)
    try:
        return (await detect(http, seconds)).server
    finally:
        await http.close()
