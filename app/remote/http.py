"""The only way to a server: one address, one key, and limits.

The key is a header of requests to this address and nowhere else: redirects are followed only within it. Proxies aren't
used, and nothing is ever sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from app import __version__
from app.remote.address import Address, names_loopback, origin
from app.remote.failures import RemoteError, of_connection, refusal
from app.remote.limits import Limits
from app.remote.values import parsed

_MOST_REDIRECTS = 3
_KEEPS_METHOD = (307, 308)
_FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError)
"""Of the connection. `ValueError`: what a server sends can be impossible in many ways, and so can a host's name."""

# httpx2 logs addresses, which are nobody's business.
logging.getLogger("httpx2").setLevel(logging.WARNING)


@dataclass(frozen=True)
class Answer:
    """What a server answered to a simple request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> object:
        """``None`` if it isn't JSON."""
        return parsed(self.body)


class Http:
    """Requests to one server."""

    def __init__(self, address: Address, key: str, limits: Limits, *, loopback_only: bool = False) -> None:
        """Raises `RemoteError` for a key that can't be sent, and for an address that isn't allowed."""
        if not key.isascii() or not key.isprintable() or key != key.strip():
            raise RemoteError("key", "The key contains characters that can't be in a key.")
        if loopback_only and not address.is_loopback:
            raise _offline(address.host)
        self.address = address
        self.limits = limits
        self._loopback_only = loopback_only
        headers = {"User-Agent": f"Slipstream/{__version__}", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx2.AsyncClient(
            headers=headers,
            trust_env=False,  # neither proxies, which would see the chat, nor a password from .netrc
            verify=httpx2.create_ssl_context() if address.is_encrypted else False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def get(self, path: str, seconds: float = 0.0, **query: str) -> Answer:
        """Ask for something simple, below the address. Raises `RemoteError` if there is no answer."""
        return await self._simple("GET", path, None, seconds, query)

    async def post(self, path: str, body: Mapping[str, Any], seconds: float = 0.0) -> Answer:
        """As `get`."""
        return await self._simple("POST", path, body, seconds, {})

    async def _simple(
        self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float, query: Mapping[str, str]
    ) -> Answer:
        try:
            async with asyncio.timeout(seconds or self.limits.probe):
                async with self._sent(method, path, body, query, seconds or self.limits.probe) as response:
                    return Answer(response.status_code, response.headers, await self._body(response, self.limits.body))
        except TimeoutError as error:
            raise of_connection(error, self.address.host) from None

    @contextlib.asynccontextmanager
    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[httpx2.Response]:
        """Ask for an answer that comes in pieces (`pieces`). Leaving the block closes the connection.

        Raises `RemoteError`, also for a status other than 200.
        """
        async with self._sent("POST", path, body, {}, self.limits.first_answer) as response:
            if response.status_code != 200:
                words = await self._body(response, self.limits.error, cut=True)
                retry_after = response.headers.get("Retry-After", "")
                raise refusal(response.status_code, words, self.address.host, retry_after)
            yield response

    async def pieces(self, response: httpx2.Response, patience: Callable[[], float]) -> AsyncGenerator[bytes, None]:
        """The content as it comes; ``patience``: how many seconds to wait for the next piece. Raises `RemoteError`."""
        total, seconds = 0, patience()
        content = response.aiter_bytes()
        try:
            while True:
                seconds = patience()
                async with asyncio.timeout(seconds):
                    piece = await anext(content, None)
                if piece is None:
                    return
                total += len(piece)
                if total > self.limits.answer:
                    raise RemoteError("not_a_server", f"The answer of {self.address.host} is too long to be genuine.")
                yield piece
        except TimeoutError:
            raise RemoteError(
                "timeout", f"{self.address.host} sent nothing for {seconds:.0f} s, so the connection was closed."
            ) from None
        except _FAILURES as error:
            raise of_connection(error, self.address.host) from None

    async def _body(self, response: httpx2.Response, most: int, *, cut: bool = False) -> bytes:
        """At most ``most`` bytes of the content; more of it is left out (``cut``) or refused."""
        body = bytearray()
        try:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > most:
                    if cut:
                        return bytes(body[:most])
                    raise RemoteError("not_a_server", f"The answer of {self.address.host} is too long to be genuine.")
        except _FAILURES as error:
            raise of_connection(error, self.address.host) from None
        return bytes(body)

    @contextlib.asynccontextmanager
    async def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, str], seconds: float
    ) -> AsyncIterator[httpx2.Response]:
        """The response to a request, after redirects within the same origin."""
        url = httpx2.URL(self.address.root + path, params=query) if query else httpx2.URL(self.address.root + path)
        for _ in range(1 + _MOST_REDIRECTS):
            response = await self._send(method, url, body, seconds)
            try:
                if not response.has_redirect_location:
                    yield response
                    return
                url = self._redirected(url, response, method)
            finally:
                await response.aclose()
        raise RemoteError("not_a_server", f"{self.address.host} redirects in circles.")

    async def _send(
        self, method: str, url: httpx2.URL, body: Mapping[str, Any] | None, seconds: float
    ) -> httpx2.Response:
        timeout = httpx2.Timeout(seconds, connect=min(self.limits.connect, seconds))
        headers, extensions = {}, {}
        places = [url]
        if self._loopback_only:
            # No name is looked up: it may lead elsewhere.
            headers["Host"], extensions["sni_hostname"] = url.netloc.decode("ascii"), url.host
            places = [url.copy_with(host=one) for one in self._own_addresses(url.host)]
        for place in places:
            try:
                request = self._client.build_request(
                    method, place, json=body, headers=headers, timeout=timeout, extensions=extensions
                )
                return await self._client.send(request, stream=True, follow_redirects=False)
            except _FAILURES as error:
                if not isinstance(error, httpx2.ConnectError) or place is places[-1]:
                    raise of_connection(error, self.address.host) from None
        raise AssertionError("there is at least one place")

    def _redirected(self, url: httpx2.URL, response: httpx2.Response, method: str) -> httpx2.URL:
        """Where a redirect leads. Raises `RemoteError` where it isn't followed."""
        try:
            target = url.join(response.headers["Location"])
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            raise RemoteError("not_a_server", f"{self.address.host} redirects to an impossible address.") from None
        if origin(target) != origin(url):
            raise RemoteError(
                "refused",
                f"{self.address.host} redirects to another server, which Slipstream doesn't follow. If you trust that "
                "server, enter its own address.",
            )
        if method != "GET" and response.status_code not in _KEEPS_METHOD:
            raise RemoteError("not_a_server", f"{self.address.host} redirects requests. Check the address.")
        return target

    def _own_addresses(self, host: str) -> list[str]:
        """Where this computer is reached under a name or address of its own. Raises `RemoteError` for any other."""
        if not names_loopback(host):
            raise _offline(self.address.host)
        return ["127.0.0.1", "::1"] if host.endswith("localhost") else [host]


def _offline(host: str) -> RemoteError:
    return RemoteError(
        "offline", f"Slipstream is offline, so it asks only servers on this computer, and {host} isn't one."
    )
