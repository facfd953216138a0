"""Requests to servers: one address, one key, limits, and failures in plain sentences.

The key goes into a header of requests to this address and nowhere else: redirects are only followed within the same
origin. Proxies aren't used, and nothing is ever sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import math
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from app import __version__, system, words
from app.protocol.remote import MAX_ADDRESS_CHARACTERS, ServerFailure
from app.system import KnownError
from app.words import printable


@dataclass(frozen=True)
class Limits:
    """How long a server may take (in seconds) and how much it may send (in bytes)."""

    connect: float = 10.0
    probe: float = 5.0
    """For a request that a server answers immediately."""
    find: float = 2.0
    """The same while looking for servers on this machine."""
    first_answer: float = 3600.0
    """Until an answer begins: a long prompt takes a while, and some servers are silent meanwhile."""
    stall: float = 300.0
    """Without a byte in the middle of an answer."""
    poll: float = 0.5
    """Between two checks whether a model is loaded."""
    line: int = 16 * 1024 * 1024
    answer: int = 256 * 1024 * 1024
    """A whole streamed answer."""
    body: int = 16 * 1024 * 1024
    """Any other answer."""
    error: int = 64 * 1024
    """An error's explanation, which is cut off there."""


# Values in untrusted JSON: anything of the wrong type counts as missing.

_MOST = 2**53


def parsed(data: bytes | str) -> object:
    """JSON as Python's own types; ``None`` if it isn't JSON.

    Falls back to Python's reader, which accepts ``NaN`` and half surrogate pairs, as some servers send.
    """
    try:
        return system.decode(data, object)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value


def mapping(value: object) -> dict[str, Any]:
    """``value`` if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """``value`` if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def first(value: object) -> dict[str, Any]:
    """The first item of a list if it is an object, otherwise an empty one."""
    return mapping(next(iter(items(value)), None))


def text(value: object) -> str:
    """``value`` if it is a string, otherwise an empty one."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int | None:
    """``value`` if it is an integer of at least 0."""
    found = real(value)
    return int(found) if found is not None and found == int(found) else None


def real(value: object) -> float | None:
    """``value`` if it is a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and 0 <= value <= _MOST else None


def counts(value: object, most: int = 128) -> list[int]:
    """A list of counts; empty if it contains anything else."""
    found = [number(one) for one in items(value)[:most]]
    return [one for one in found if one is not None] if None not in found else []


_MAX_WORDS = 300
_IN_A_KEY = "".join(map(chr, range(ord("!"), ord("~") + 1)))
_KEY_STATUS = (401, 403)
_GATEWAY_STATUS = (502, 504)
_SENT_BUT_TOO_LONG = re.compile(
    r"maximum context length|context (?:length|size|window)|max(?:imum)? (?:total|input|sequence|prompt)|too long"
    r"|prompt length|input length",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"model\b.*\b(?:not found|does ?n[o']t exist|is not|unknown)|no such model", re.IGNORECASE)
_LOADING = re.compile(r"\b(?:still )?(?:loading|starting|initializing|warming)", re.IGNORECASE)


class RemoteError(KnownError):
    """A failure of a known kind; ``prompt_tokens`` is the length of a chat that is too long, otherwise 0."""

    def __init__(self, cause: ServerFailure, message: str, prompt_tokens: int = 0) -> None:
        super().__init__(message)
        self.cause = cause
        self.prompt_tokens = prompt_tokens


def words_of(content: object) -> str:
    """The explanation in an error's JSON, in any server's format; empty without one."""
    root = mapping(content)
    error = root.get("error")
    found = text(mapping(error).get("message")) or text(error) or text(root.get("message"))
    detail = root.get("detail")
    if not found and isinstance(detail, list):  # FastAPI's
        found = "; ".join(text(mapping(one).get("msg")) for one in detail[:3])
    said = " ".join((found or text(detail)).split())
    return printable(said, _length_shown(said))


def _length_shown(said: str) -> int:
    """At most `_MAX_WORDS`, cut between words, because part of a key couldn't be recognized and removed."""
    if len(said) <= _MAX_WORDS or said[_MAX_WORDS] not in _IN_A_KEY:
        return _MAX_WORDS
    return len(said[:_MAX_WORDS].rstrip(_IN_A_KEY))


def refusal(status: int, body: bytes, host: str, retry_after: str = "") -> RemoteError:
    """The error for an answer with a status other than 200."""
    content = parsed(body)
    return reported(content, status, host, retry_after)


def reported(content: object, status: int, host: str, retry_after: str = "") -> RemoteError:
    """The error that a server reported; ``status`` 0: in the middle of an answer."""
    root = mapping(content)
    error = mapping(root.get("error"))
    kind = text(error.get("type")) or text(root.get("error_type"))
    status = status or number(error.get("code")) or number(root.get("code")) or 0
    said = words_of(content)
    if status in _KEY_STATUS:
        return RemoteError("key", f"{host} needs a key, or refused the one it got. Check the key.")
    if kind == "exceed_context_size_error" or (status in (0, 400, 413, 422) and _SENT_BUT_TOO_LONG.search(said)):
        return _too_long(error, said, host)
    if status == 429:
        return _busy(host, retry_after)
    if (kind == "unavailable_error" or status == 503) and (_LOADING.search(said) or not said):
        return RemoteError("loading", f"{host} is still loading its model. Try again when it is ready.")
    if kind == "model_not_found" or (status in (400, 404) and _NO_MODEL.search(said)):
        return RemoteError("model", f"{host} doesn't have this model. It says: {said}")
    if status in _GATEWAY_STATUS:
        return RemoteError("unreachable", f"The server behind {host} doesn't answer (status {status}).")
    if status == 404 and not said:
        return RemoteError("not_a_server", f"{host} answers, but there is no chat API at this address.")
    return _other(status, said, host)


def _too_long(error: dict[str, Any], said: str, host: str) -> RemoteError:
    tokens, context = number(error.get("n_prompt_tokens")), number(error.get("n_ctx"))
    if tokens and context:
        sentence = (
            f"The chat has {words.number(tokens)} tokens, but the context of {host} has only {words.number(context)}."
        )
    else:
        sentence = f"The chat is too long for the context of {host}. It says: {said}"
    return RemoteError("context", sentence, tokens or 0)


def _busy(host: str, retry_after: str) -> RemoteError:
    wait = f" Try again in {retry_after} s." if retry_after.isdigit() and len(retry_after) < 6 else " Try again later."
    return RemoteError("busy", f"{host} has too many requests at the moment.{wait}")


def _other(status: int, said: str, host: str) -> RemoteError:
    reason = f" It says: {said}" if said else ""
    if not status:
        return RemoteError("refused", f"{host} reported an error.{reason}")
    if status >= 500:
        return RemoteError("refused", f"{host} failed (status {status}).{reason}")
    return RemoteError("refused", f"{host} didn't accept the request (status {status}).{reason}")


def of_connection(error: Exception, host: str) -> RemoteError:
    """The error for httpx2's. Its text isn't used, because it may contain proxies or keys."""
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ReadTimeout | httpx2.WriteTimeout | TimeoutError):
        return RemoteError("timeout", f"{host} didn't answer in time.")
    if (failed := _tls_error(error)) is not None:
        return _of_tls(failed, host)
    if isinstance(error, httpx2.ConnectError):
        return RemoteError("unreachable", f"Nothing answers at {host}. Is the server running, and the address right?")
    if isinstance(error, httpx2.DecodingError):
        return RemoteError("not_a_server", f"{host} sent something that can't be unpacked.")
    if isinstance(error, httpx2.LocalProtocolError | httpx2.InvalidURL | ValueError):
        return RemoteError("address", f"Can't connect to {host}: the address or the key contains invalid characters.")
    return RemoteError("cut", f"The connection to {host} was cut.")


def _of_tls(error: ssl.SSLError, host: str) -> RemoteError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return RemoteError(
            "certificate",
            f"The certificate of {host} isn't trusted ({printable(error.verify_message or 'no reason given')}). "
            "Slipstream trusts the certificates that the system trusts.",
        )
    return RemoteError("certificate", f"{host} doesn't answer over https. It may support only http.")


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    for _ in range(8):
        if error is None or isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None


_HOST = re.compile(r"[^\s%/\\@]+")
_MOST_PORTS = 65_536
_ENDINGS = ("/chat/completions", "/completions", "/models", "/v1")
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class Address:
    """Where a server is."""

    root: str
    """Scheme, host, port and the path before ``/v1``, without a trailing slash."""
    host: str
    """For display, with the port."""
    is_loopback: bool
    is_encrypted: bool


def parse(typed: str) -> Address:
    """A typed address. Raises `RemoteError` if it isn't one."""
    url = _url(typed)
    path = url.path.rstrip("/")
    for ending in _ENDINGS:
        path = path.removesuffix(ending).rstrip("/")
    named = url.raw_host.decode("ascii")  # in the form that is looked up, so that no look-alike letters are shown
    host = _ANY.get(named, named)
    bracketed = f"[{host}]" if ":" in host else host
    port = f":{url.port}" if url.port else ""
    return Address(
        root=f"{url.scheme}://{bracketed}{port}{path}",
        host=printable(f"{bracketed}{port}"),
        is_loopback=names_loopback(host),
        is_encrypted=url.scheme == "https",
    )


def _url(typed: str) -> httpx2.URL:
    words = typed.strip()
    words = words if "://" in words else f"http://{words}"
    try:
        url = httpx2.URL(words)
    except (httpx2.InvalidURL, UnicodeError, ValueError):
        url = httpx2.URL()
    if url.userinfo:
        raise RemoteError("address", "The address contains a user name or a password. Enter the key in its own field.")
    is_one = url.scheme in ("http", "https") and _HOST.fullmatch(url.host) and 0 < (url.port or 80) < _MOST_PORTS
    if len(words) > MAX_ADDRESS_CHARACTERS or not is_one:
        raise RemoteError(
            "address", f"“{printable(typed.strip())}” isn't an address. It looks like http://localhost:8080."
        )
    if url.query or url.fragment:
        raise RemoteError("address", "The address can't contain ? or #. Enter one like http://localhost:8080.")
    return url


def names_loopback(host: str) -> bool:
    """Whether this is a name or address of this machine; a name may still resolve to another one."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def origin(url: httpx2.URL) -> tuple[str, str, int]:
    """Scheme, host and port, which limit where a key may be sent."""
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


_MOST_REDIRECTS = 3
_KEEPS_METHOD = (307, 308)
_FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError)
"""Failures of the connection; `ValueError` for invalid responses and host names."""

# httpx2 would log addresses.
logging.getLogger("httpx2").setLevel(logging.WARNING)


@dataclass(frozen=True)
class Answer:
    """A server's answer to a simple request."""

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
        """Raises `RemoteError` for an invalid key, and for an address that isn't allowed."""
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
            trust_env=False,  # no proxies, which would see the chat, and no passwords from .netrc
            verify=httpx2.create_ssl_context() if address.is_encrypted else False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def get(self, path: str, seconds: float = 0.0, **query: str) -> Answer:
        """Send a simple request. Raises `RemoteError` if there is no answer."""
        return await self._simple("GET", path, None, seconds, query)

    async def post(self, path: str, body: Mapping[str, Any], seconds: float = 0.0) -> Answer:
        """Like `get`."""
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
        """Request a streamed answer (`pieces`). Leaving the block closes the connection.

        Raises `RemoteError`, including for a status other than 200.
        """
        async with self._sent("POST", path, body, {}, self.limits.first_answer) as response:
            if response.status_code != 200:
                words = await self._body(response, self.limits.error, cut=True)
                retry_after = response.headers.get("Retry-After", "")
                raise refusal(response.status_code, words, self.address.host, retry_after)
            yield response

    async def pieces(self, response: httpx2.Response, patience: Callable[[], float]) -> AsyncGenerator[bytes, None]:
        """The content as it arrives; ``patience``: seconds to wait for the next piece. Raises `RemoteError`."""
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
                "timeout",
                f"{self.address.host} sent nothing for {words.number(seconds)} s, so the connection was closed.",
            ) from None
        except _FAILURES as error:
            raise of_connection(error, self.address.host) from None

    async def _body(self, response: httpx2.Response, most: int, *, cut: bool = False) -> bytes:
        """At most ``most`` bytes of the content; the rest is dropped (``cut``) or an error."""
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
            # Never look up a name: it might resolve to another machine.
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
        """The target of a redirect. Raises `RemoteError` if it must not be followed."""
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
        """The loopback addresses for a name or address of this computer. Raises `RemoteError` for any other."""
        if not names_loopback(host):
            raise _offline(self.address.host)
        return ["127.0.0.1", "::1"] if host.endswith("localhost") else [host]


def _offline(host: str) -> RemoteError:
    return RemoteError(
        "offline", f"Slipstream is offline, so it asks only servers on this computer, and {host} isn't one."
    )
