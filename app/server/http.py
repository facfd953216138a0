"""One HTTP connection: reads requests within limits, writes answers, and notices when the client goes away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

import h11
import msgspec

from app import words
from app.server.guard import ApiError, Headers, Limits, invalid

_log = logging.getLogger("slipstream.server")
_LINGER_SECONDS = 5.0
_ALWAYS = {
    "Server": "Slipstream",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_DROPS = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
"""For ``SO_LINGER``: closing resets the connection."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Head:
    """A request without its body."""

    method: str
    path: str
    """Without the query."""
    headers: Headers
    local_address: str
    """Where the connection arrived."""
    is_surplus: bool = False
    """Refuse it, because there are too many connections."""


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamReply:
    """Server-sent events."""

    parts: AsyncGenerator[bytes, None]
    resources: AsyncExitStack
    """Closed at the end of the stream, even if that never began."""


Handler = Callable[[bytes], Awaitable[Reply | StreamReply]]
"""Answers a request with this body. Raises `ApiError`; canceled when the client leaves."""


class Service(Protocol):
    """Answers requests."""

    def admit(self, head: Head) -> Handler:
        """Check a request before its body is read. Raises `ApiError`."""

    def origin_headers(self, head: Head) -> Mapping[str, str]:
        """CORS headers for every answer to this request; empty if its host or origin is refused."""


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A reply with ``value`` as JSON."""
    return Reply(_encode(value), status, headers=headers or {})


def server_sent(value: Any) -> bytes:
    """One event of a stream with ``value`` as JSON."""
    return b"data: " + _encode(value) + b"\n\n"


class HttpConnection:
    """One client's connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        service: Service,
        limits: Limits,
        *,
        is_surplus: bool,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._service = service
        self._limits = limits
        self._is_surplus = is_surplus
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes)
        self._local_address = str((writer.get_extra_info("sockname") or [""])[0])

    async def serve(self) -> None:
        """Answer requests until the connection ends. Never raises because of the client."""
        try:
            while await self._serve_one():
                self._http.start_next_cycle()
            await self._linger()
        except (OSError, TimeoutError, h11.ProtocolError):
            self._drop_unsent()  # the client left, isn't reading, or violated the protocol
        finally:
            self._writer.transport.abort()

    # ------------------------------------------------------------ one request

    async def _serve_one(self) -> bool:
        """Returns whether the connection can be reused."""
        head: Head | None = None
        try:
            try:
                if not await self._has_begun():
                    return False
                async with asyncio.timeout(self._limits.read):
                    head = await self._head()
                    if head is None:
                        return False
                    handler = self._service.admit(head)
                    body = await self._body(head)
            except TimeoutError:
                raise ApiError("invalid_request_error", "The request took too long to arrive.", status=408) from None
            except h11.RemoteProtocolError as error:
                status = error.error_status_hint
                raise ApiError("invalid_request_error", "This isn't a valid HTTP request.", status=status) from None
            await self._while_connected(self._answer(head, handler, body))
        except ApiError as error:
            await self._send_error(error, head)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _has_begun(self) -> bool:
        """Wait for the first byte of a request; False if none comes."""
        if self._http.trailing_data[0]:
            return True
        try:
            async with asyncio.timeout(self._limits.idle):
                data = await self._reader.read(65536)
        except TimeoutError:
            return False
        self._http.receive_data(data)
        return bool(data)

    async def _head(self) -> Head | None:
        event = await self._next_event()
        if not isinstance(event, h11.Request):
            return None
        method, target = event.method.decode("latin-1"), event.target.decode("latin-1")
        headers = [(bytes(name), bytes(value)) for name, value in event.headers]
        path = target.partition("?")[0]
        return Head(method, path, headers, self._local_address, self._is_surplus)

    async def _body(self, head: Head) -> bytes:
        limit = self._limits.body_bytes
        too_large = ApiError(
            "invalid_request_error", f"The request is larger than {words.number(limit)} bytes.", status=413
        )
        length = next((value for name, value in head.headers if name == b"content-length"), b"0")
        if int(length) > limit:
            raise too_large
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        body = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
            if len(body) > limit:
                raise too_large
        if not isinstance(event, h11.EndOfMessage):
            raise invalid("The request is incomplete.")
        return bytes(body)

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(65536))
        return event

    # ------------------------------------------------------------ the answer

    async def _while_connected(self, answering: Awaitable[None]) -> None:
        """Wait for ``answering``, and cancel it when the client leaves. Raises what it raises."""
        ahead = bytearray()
        answer = asyncio.ensure_future(answering)
        watch = asyncio.ensure_future(self._watch(ahead))
        try:
            await asyncio.wait([answer, watch], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionResetError("the client is gone")
            answer.result()
        finally:
            for task in (answer, watch):
                task.cancel()
            await asyncio.gather(answer, watch, return_exceptions=True)
        if ahead:
            self._http.receive_data(bytes(ahead))

    async def _watch(self, ahead: bytearray) -> None:
        """Return when the client has left, or sent too much ahead of its answer.

        A client that only shuts down its side of the connection can't be told from one that left.
        """
        with contextlib.suppress(OSError):
            while data := await self._reader.read(65536):
                ahead += data
                if len(ahead) > self._limits.header_bytes:
                    return

    async def _answer(self, head: Head, handler: Handler, body: bytes) -> None:
        try:
            reply = await handler(body)
        except ApiError as error:
            await self._send_error(error, head)
            return
        except Exception:
            _log.exception("a request failed")
            await self._send_error(
                ApiError("server_error", "Something went wrong in the server; its log has the details."), head
            )
            return
        if isinstance(reply, Reply):
            await self._send_reply(reply, head)
        else:
            await self._send_stream(reply, head)

    async def _send_reply(self, reply: Reply, head: Head | None) -> None:
        headers = dict[str, str]()
        if reply.status != HTTPStatus.NO_CONTENT:
            headers = {"Content-Length": str(len(reply.body)), "Content-Type": reply.content_type}
        if self._http.their_state is not h11.DONE or self._is_surplus:
            headers["Connection"] = "close"
        parts: list[h11.Event] = [self._response(reply.status, {**headers, **reply.headers}, head)]
        if head is None or head.method != "HEAD":
            parts.append(h11.Data(data=reply.body))
        await self._send(*parts, h11.EndOfMessage())

    async def _send_stream(self, reply: StreamReply, head: Head) -> None:
        async with reply.resources, aclosing(reply.parts) as parts:
            await self._send(self._response(200, {"Content-Type": "text/event-stream"}, head))
            async for part in parts:
                await self._send(h11.Data(data=part))
        await self._send(h11.EndOfMessage())

    async def _send_error(self, error: ApiError, head: Head | None) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send_reply(json_reply(error.body(), error.status, error.headers), head)

    def _response(self, status: int, headers: Mapping[str, str], head: Head | None) -> h11.Response:
        origin = self._service.origin_headers(head) if head else {}
        return h11.Response(
            status_code=status,
            reason=HTTPStatus(status).phrase.encode(),
            headers=list({**_ALWAYS, **origin, **headers}.items()),
        )

    async def _send(self, *events: h11.Event) -> None:
        """Raises `TimeoutError` if the client isn't reading."""
        data = b"".join(self._http.send(event) or b"" for event in events)
        self._writer.write(data)
        async with asyncio.timeout(self._limits.write):
            await self._writer.drain()

    def _drop_unsent(self) -> None:
        """Have the system discard what the client hasn't read yet."""
        found = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROPS)

    async def _linger(self) -> None:
        """Give the client time to read its answer: closing while it is still sending would discard that."""
        async with asyncio.timeout(_LINGER_SECONDS):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            while await self._reader.read(65536):
                pass
