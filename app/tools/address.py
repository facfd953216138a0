"""The streams to an MCP server at an address: streamable HTTP, with headers or an OAuth login."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from app import system, words
from app.system import KnownError
from app.tools.messages import Reply, StartServer
from app.tools.transport import MAX_LINE, MAX_VALUES, Flow, Streams

_CONNECT_SECONDS, _READ_SECONDS = 30.0, 300.0
LOST = "The server was restarted. Try again."
"""The error for a request in a session that the server no longer knows."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DONE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"


class Asking(Protocol):
    """The part of `app.tools.server.Server` that a login needs."""

    async def asked(self, kind: Any, message: str, *, url: str = "") -> Reply: ...
    def paused(self) -> contextlib.AbstractContextManager[None]: ...
    def on_secret(self, secret: str) -> None: ...


@contextlib.asynccontextmanager
async def address(start: StartServer, asking: Asking) -> AsyncIterator[Streams]:
    """Connect to a server. Raises `KnownError`."""
    entry, url = start.entry, httpx2.URL()
    with contextlib.suppress(httpx2.InvalidURL, ValueError):
        url = httpx2.URL(entry.url)
    if url.scheme not in ("http", "https") or not url.host:
        raise KnownError("Its address must begin with https:// or http://.")
    has_key = any(name.lower() == "authorization" for name in entry.headers)
    transport, streams = _Transport(Flow(), url, is_offline=start.is_offline, has_login=not has_key), Streams()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(streams.close)
        login = None if has_key else stack.enter_context(contextlib.closing(_Login(start, asking)))
        auth = login.provider if login else None
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=max(_READ_SECONDS, entry.timeout_seconds))
        client = httpx2.AsyncClient(headers=entry.headers, auth=auth, transport=transport, timeout=timeout)
        await stack.enter_async_context(client)
        read, write = await stack.enter_async_context(
            streamable_http_client(entry.url, http_client=client, max_sse_event_size=MAX_LINE)
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())

        async def receive() -> None:
            async for message in read:
                transport.flow.receive(message)
                await streams.to_session.send(message)

        async def send() -> None:
            async for message in streams.from_session:
                transport.flow.send(message)
                await write.send(message)

        tasks.start_soon(receive)
        tasks.start_soon(send)
        yield streams
        tasks.cancel_scope.cancel()


class _Transport(httpx2.AsyncBaseTransport):
    """HTTP within limits. Errors become answers that describe them, because an exception would end the session."""

    def __init__(self, flow: Flow, url: httpx2.URL, *, is_offline: bool, has_login: bool) -> None:
        self.flow = flow
        self._url = url
        self._is_offline = is_offline
        self._left_alone = (401, 403) if has_login else ()
        """Statuses that the library handles."""
        self._inner = httpx2.AsyncHTTPTransport(verify=httpx2.create_ssl_context(), trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        self.flow.take(0, messages=100)  # a server can make the library send requests again and again
        if self._is_offline and host not in _LOOPBACK:
            return _refused(f"Slipstream is offline and only connects to servers on this computer; {host} isn't on it.")
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.ConnectTimeout:
            return _refused(f"{host} didn't answer.")
        except (httpx2.TransportError, OSError, ValueError) as error:
            return _refused(f"{host} can't be reached: {words.printable(str(error) or type(error).__name__, 200)}.")
        kind = response.headers.get("content-type", "").lower()
        status = response.status_code
        is_own = request.url == self._url and request.method == "POST"
        if is_own and status == 404 and "mcp-session-id" in request.headers:
            await response.aclose()
            return _refused(LOST)
        if is_own and status >= 400 and status not in self._left_alone and not kind.startswith("application/json"):
            await response.aclose()
            why = " It needs a key, or the key is wrong." if status in (401, 403) else ""
            return _refused(f"{host} answered with HTTP {status}.{why}")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Limited(response.stream, self.flow, is_endless=kind.startswith("text/event-stream"))
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _refused(message: str) -> httpx2.Response:
    error = {"code": -32000, "message": message}
    return httpx2.Response(502, json={"jsonrpc": "2.0", "id": 0, "error": error})


class _Limited(httpx2.AsyncByteStream):
    """A body with at most the size of one message; in a stream of events, the limit is for each event."""

    def __init__(self, stream: httpx2.AsyncByteStream, flow: Flow, *, is_endless: bool) -> None:
        self._stream = stream
        self._flow = flow
        self._ends = (b"\n\n", b"\r\n\r\n", b"\n:") if is_endless else ()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        size = values = 0
        async for data in self._stream:
            ends = sum(map(data.count, self._ends))
            self._flow.take(len(data), messages=ends)
            size += len(data)
            values += sum(map(data.count, (b"[", b"{", b",")))
            if size > MAX_LINE or values > MAX_VALUES:
                raise httpx2.StreamError("The server's answer is too large.")
            if ends:
                size = values = 0
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


# ------------------------------------------------------------ OAuth


class _Secret(msgspec.Struct):
    """What is stored about a login."""

    url: str = ""
    """The address of its server: the entry may have a different one by now."""
    port: int = 0
    """The port that the server was told to send the browser to."""
    expires: float | None = None
    tokens: dict[str, Any] | None = None
    client: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    """Says where the tokens are renewed."""


class _Login:
    """A login in the browser, with the library's OAuth; also the library's `TokenStorage`."""

    def __init__(self, start: StartServer, asking: Asking) -> None:
        try:
            self._secret = system.decode(start.secret or "{}", _Secret)
        except msgspec.MsgspecError:
            self._secret = _Secret()
        if self._secret.url != start.entry.url:
            self._secret = _Secret(url=start.entry.url)
        self._asking = asking
        self._url = ""
        self._name = start.entry.name
        self._socket = socket.socket()
        if sys.platform != "win32":  # there, it would share the port
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", self._secret.port))
        except OSError:  # another program has it now; servers must accept any port (RFC 8252, 7.3)
            self._socket.bind(("127.0.0.1", 0))
        self._secret.port = self._socket.getsockname()[1]
        metadata = OAuthClientMetadata(
            client_name="Slipstream", redirect_uris=[AnyUrl(f"http://127.0.0.1:{self._secret.port}/callback")]
        )
        self.provider = OAuthClientProvider(start.entry.url, metadata, self, self._show, self._wait)
        context = self.provider.context
        context.token_expiry_time = self._secret.expires
        if self._secret.metadata is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(self._secret.metadata)

    def close(self) -> None:
        self._socket.close()

    async def _show(self, url: str) -> None:
        self._url = url

    async def _wait(self) -> AuthorizationCodeResult:
        """Have the user log in in the browser, and wait until the browser comes back."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, ValueError, IndexError, EOFError, asyncio.LimitOverrunError):
                line = (await reader.readuntil(b"\r\n")).split()
                query = {name: values[0] for name, values in parse_qs(urlsplit(line[1].decode()).query).items()}
                writer.write(_DONE + b"You can close this page and go back to Slipstream.\n")
                await writer.drain()
                if not answer.done() and "code" in query:
                    answer.set_result(AuthorizationCodeResult.model_validate(query))
                elif not answer.done() and "error" in query:
                    answer.set_exception(KnownError(f"The login failed: {words.printable(query['error'])}."))
            writer.close()

        text = f"The server “{self._name}” wants you to log in."
        async with await asyncio.start_server(serve, sock=self._socket.dup()):
            asked: asyncio.Future[Any] = asyncio.ensure_future(self._asking.asked("login", text, url=self._url))
            try:
                with self._asking.paused():
                    await asyncio.wait({asked, answer}, return_when=asyncio.FIRST_COMPLETED)
                    if not answer.done() and asked.result().action != "accept":
                        raise KnownError("You declined to log in.")
                    result: AuthorizationCodeResult = await answer
                    return result
            finally:
                asked.cancel()

    async def get_tokens(self) -> OAuthToken | None:
        return None if self._secret.tokens is None else OAuthToken.model_validate(self._secret.tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None if self._secret.client is None else OAuthClientInformationFull.model_validate(self._secret.client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._secret.client = client_info.model_dump(mode="json", exclude_none=True)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._secret.tokens = tokens.model_dump(mode="json", exclude_none=True)
        self._secret.expires = None if tokens.expires_in is None else time.time() + tokens.expires_in
        if (metadata := self.provider.context.oauth_metadata) is not None:
            self._secret.metadata = metadata.model_dump(mode="json", exclude_none=True)
        self._asking.on_secret(msgspec.json.encode(self._secret).decode())
