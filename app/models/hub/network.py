"""The only connection to Hugging Face: servers, token, proxy, and a list of all requests.

Proxies come from the environment or the system's settings, trusted certificates from the system's store (httpx2's
defaults). ``huggingface_hub`` uses this as well (`Network.hub_api`).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import ipaddress
import logging
import math
import os
import re
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpcore2
import httpx2
import msgspec

from app import __version__, words
from app.models.hub.repository import NoAccessError, NotFoundError, OfflineError, RefusedError, UnreachableError
from app.storage.secrets import SERVICE, SecretStore, backend_name
from app.system import KnownError
from app.words import printable

if TYPE_CHECKING:
    from huggingface_hub import HfApi


# Turns errors of httpx2 and unsuccessful responses into sentences for the user.

_MAX_WAIT_SECONDS = 24 * 3600
_MAX_DIGITS = 18


def whole_number(text: str) -> int | None:
    """The number in a header; ``None`` if missing or meaningless."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def refused(response: httpx2.Response, endpoint: str, repository: str = "") -> KnownError:
    """The error for an unsuccessful response of ``endpoint``, about ``repository`` if given."""
    code = response.headers.get("X-Error-Code", "")
    token_sent = "Authorization" in response.request.headers
    host = printable(httpx2.URL(endpoint).host)
    page = f"{endpoint}/{repository}"
    if code == "GatedRepo":
        advice = (
            (
                ", and your access token doesn't give you access. Accept its terms on its page; some owners then "
                "approve requests manually."
            )
            if token_sent
            else ": accept its terms on its page first, then enter an access token in Slipstream."
        )
        return NoAccessError(f"{printable(repository)} is gated{advice}", page)
    if response.status_code == 401 and token_sent:
        return NoAccessError(
            f"{host} doesn't recognize the access token. Enter it again or remove it in Settings.", page
        )
    if response.status_code in (401, 404):
        return NotFoundError(_not_found(code, host, printable(repository), hidden=response.status_code == 401))
    return _failed(response, host)


def _not_found(code: str, host: str, repository: str, *, hidden: bool) -> str:
    if code == "RevisionNotFound":
        return f"{repository} no longer has this version. Look it up again."
    if code == "EntryNotFound":
        return f"{repository} doesn't have this file. Look it up again."
    if not repository:
        return f"{host} is not a model hub. Check the address of the mirror."
    return f"{repository} doesn't exist on {host}, or is private{(' and needs an access token' if hidden else '')}."


def _failed(response: httpx2.Response, host: str) -> KnownError:
    status = response.status_code
    if status == 429:
        seconds = whole_number(response.headers.get("Retry-After", "")) or 0
        when = f"in {words.number(seconds)} s" if 0 < seconds <= _MAX_WAIT_SECONDS else "in a few minutes"
        return UnreachableError(f"Too many requests to {host}. Try again {when}.")
    if status >= 500:
        return UnreachableError(f"{host} has a problem (status {status}). Try again later.")
    if status == 403:
        return KnownError(f"{host} denied access (status 403).")
    return KnownError(f"Slipstream doesn't understand the answer from {host} (status {status}).")


@contextlib.contextmanager
def translated(host: str) -> Iterator[None]:
    """Raise httpx2's network errors as `UnreachableError`, with a sentence about ``host`` or where it redirected."""
    try:
        yield
    except httpx2.TooManyRedirects as error:
        raise RefusedError(f"{printable(host)} keeps redirecting to other addresses.") from error
    except (httpx2.TransportError, httpx2.StreamError) as error:
        raise UnreachableError(_reason(error, printable(_host_of(error) or host))) from error
    except httpx2.InvalidURL as error:
        raise RefusedError(
            f"{printable(host)} redirected to an address that can't be used: {printable(str(error))}."
        ) from error


def _host_of(error: httpx2.TransportError | httpx2.StreamError) -> str:
    """The host of the request that failed; empty if unknown."""
    if isinstance(error, httpx2.RequestError):
        with contextlib.suppress(RuntimeError):  # it was raised outside a request
            return error.request.url.host
    return ""


def _reason(error: Exception, host: str) -> str:
    detail = printable(str(error), 200)
    if "CERTIFICATE_VERIFY_FAILED" in detail or "certificate" in detail.lower():
        return f"This computer doesn't trust the certificate of {host}: {detail}. There may be a proxy in between."
    if isinstance(error, httpx2.ProxyError):
        return f"The proxy couldn't reach {host}: {detail}. Check your system's proxy settings."
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ConnectError):
        return f"{host} can't be reached. Check your internet connection."
    if isinstance(error, httpx2.TimeoutException):
        return f"{host} stopped responding."
    return f"The connection to {host} was lost."


HUGGING_FACE = "https://huggingface.co"
ENDPOINT_VARIABLE = "HF_ENDPOINT"
USER_AGENT = f"Slipstream/{__version__}"
MAX_TRAFFIC = 200
MAX_API_ANSWER = 16_000_000
"""In bytes; the longest real responses, about repositories with thousands of files, have one million."""
_MAX_REDIRECT = 1_000_000
_CONNECT_SECONDS = 15.0
_POLL_SECONDS = 0.2
_READ_BYTES = 512 * 1024
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.\d+")

# httpx2 logs addresses, and those of a CDN are signed.
logging.getLogger("httpx2").setLevel(logging.WARNING)

_purpose: ContextVar[str] = ContextVar("purpose", default="Hugging Face")


class NetworkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the network may be used."""

    endpoint: str = ""
    """A mirror's address; if empty, that of the variable HF_ENDPOINT, or huggingface.co."""
    offline: bool = False
    token_to_mirror: bool = False
    """Send the access token to ``endpoint`` even if it is not huggingface.co."""
    stall_seconds: float = 20.0
    """Seconds without a byte before a connection is closed."""


class Traffic(msgspec.Struct):
    """One request."""

    host: str
    purpose: str
    """For display: ``search``, ``download``."""
    received: int = 0
    """Bytes of content so far."""
    at: float = msgspec.field(default_factory=time.time)
    """Seconds since 1970, UTC."""


class Network:
    """All requests of one process. Safe from any thread; the settings may change while requests run."""

    def __init__(self, settings: NetworkSettings, token: Callable[[], str | None] = lambda: None) -> None:
        """``token`` is called for each request to the endpoint."""
        self.settings = settings
        self._token = token
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None
        self._has_api = False
        self._requests: deque[Traffic] = deque(maxlen=MAX_TRAFFIC)

    @property
    def endpoint(self) -> str:
        """The hub's address, without a slash at the end. Raises `RefusedError` for an unsafe address."""
        return _endpoint_of(self.settings)

    @contextlib.contextmanager
    def stream(self, url: str, *, purpose: str, headers: Mapping[str, str] | None = None) -> Iterator[httpx2.Response]:
        """Request ``url``; read the content from the response inside the ``with`` block.

        Follows redirects. The caller checks the status and limits how much is read. Raises `RefusedError` and
        `UnreachableError`, also while reading.
        """
        with self._lock:
            client = self._client = self._client or self._new_client()
        with (
            self.purpose(purpose),
            translated(httpx2.URL(url).host),
            contextlib.closing(_sent(client, url, headers)) as response,
        ):
            yield response

    def read_body(self, response: httpx2.Response, check: Callable[[int], None]) -> Iterator[bytes]:
        """The content of a response from `stream`, at full speed.

        ``check`` gets the number of bytes of each piece, and 0 regularly while none arrive, and may raise to stop. A
        connection without data for `NetworkSettings.stall_seconds` is closed.

        httpx2 reads 64 KiB at a time through a parser, at half the speed of connection and disk. So only the first
        piece comes from there: with it the parser has returned everything it had, and the rest is read from its stream.
        """
        entry: Traffic = response.extensions["entry"]
        left = _plain_length(response)
        pieces = response.iter_raw()  # must stay alive, or the connection would be closed
        for piece in pieces:
            check(len(piece))
            yield piece
            if left is not None:
                left -= len(piece)
                break
        if left is None:
            return
        while left > 0:
            piece = self._read(response.extensions["network_stream"], min(_READ_BYTES, left), check)
            if not piece:
                raise httpx2.RemoteProtocolError("the connection ended before the content did")
            left -= len(piece)
            entry.received += len(piece)
            check(len(piece))
            yield piece

    def _read(self, stream: Any, count: int, check: Callable[[int], None]) -> bytes:
        stall_seconds = self.settings.stall_seconds
        deadline = time.monotonic() + stall_seconds
        while True:
            self.check_online()
            try:
                data: bytes = stream.read(count, timeout=min(_POLL_SECONDS, stall_seconds))
            except httpcore2.ReadTimeout as error:
                check(0)
                if time.monotonic() >= deadline:
                    raise httpx2.ReadTimeout("no content arrived") from error
            except httpcore2.ReadError as error:
                raise httpx2.ReadError(str(error)) from error
            else:
                return data

    @contextlib.contextmanager
    def purpose(self, purpose: str) -> Iterator[None]:
        """The purpose of this thread's requests, shown in `traffic`; for calls of `hub_api`."""
        before = _purpose.set(purpose)
        try:
            yield
        finally:
            _purpose.reset(before)

    def hub_api(self) -> HfApi:
        """``huggingface_hub``'s API through this network, without telemetry or its own token.

        It raises its own errors besides `RefusedError` and `UnreachableError`. Create it only once: it closes the
        connections of the previous one.
        """
        os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"
        from huggingface_hub import HfApi, set_client_factory

        self._has_api = True
        set_client_factory(lambda: self._new_client(_HubClient, MAX_API_ANSWER))
        return HfApi(endpoint=self.endpoint, token=False)

    def traffic(self) -> list[Traffic]:
        """The last `MAX_TRAFFIC` requests, newest first."""
        with self._lock:
            return [copy.copy(entry) for entry in reversed(self._requests)]

    def close(self) -> None:
        """Close all connections. The network can be used again afterwards."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._has_api:
            from huggingface_hub import close_session

            close_session()

    def _new_client(self, kind: type[httpx2.Client] = httpx2.Client, limit: float = math.inf) -> httpx2.Client:
        # The hooks see each request of a chain of redirects.
        hooks: dict[str, list[Callable[..., None]]] = {
            "request": [self._before],
            "response": [functools.partial(self._after, limit=limit)],
        }
        try:
            return kind(event_hooks=hooks, follow_redirects=True, max_redirects=10, timeout=self._timeout())
        except (ValueError, ImportError):
            # Without its text, which may contain the proxy's password.
            raise RefusedError(
                "The system's proxy is of a kind that Slipstream can't use, such as SOCKS. Set up an HTTP proxy."
            ) from None
        except OSError as error:
            raise _bad_certificates(error) from error

    def _timeout(self) -> httpx2.Timeout:
        return httpx2.Timeout(
            self.settings.stall_seconds, connect=min(_CONNECT_SECONDS, self.settings.stall_seconds), pool=None
        )

    def _before(self, request: httpx2.Request) -> None:
        self.check_online()
        settings = self.settings
        endpoint = httpx2.URL(_endpoint_of(settings))
        if request.url.scheme != "https" and not (_is_loopback(request.url.host) and _is_loopback(endpoint.host)):
            raise RefusedError(
                f"The connection to {printable(request.url.host)} would not be encrypted, so Slipstream doesn't use it."
            )
        request.headers["User-Agent"] = USER_AGENT
        request.headers["Accept-Encoding"] = "identity"
        request.headers.pop("Authorization", None)
        trusted = settings.token_to_mirror or _endpoint_of(settings) == HUGGING_FACE
        token = self._token() if trusted and _origin(request.url) == _origin(endpoint) else None
        if token and self.settings is settings:  # otherwise it may be another hub's token
            request.headers["Authorization"] = f"Bearer {token}"
        # huggingface_hub sends requests without a time limit.
        request.extensions["timeout"] = self._timeout().as_dict()
        entry = request.extensions["entry"] = Traffic(request.url.host, _purpose.get())
        with self._lock:
            self._requests.append(entry)

    def _after(self, response: httpx2.Response, *, limit: float) -> None:
        host = response.url.host
        entry = response.extensions["entry"] = response.request.extensions["entry"]
        if response.headers.get("Content-Encoding", "identity") != "identity":
            # The size of a decompressed answer has no limit.
            raise RefusedError(f"{printable(host)} sent an answer in an unexpected format.")
        if response.has_redirect_location:
            limit = _MAX_REDIRECT
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _Counted(response.stream, entry, limit, self.check_online)

    def check_online(self) -> None:
        """Raise `RefusedError` in offline mode."""
        if self.settings.offline:
            raise OfflineError("Slipstream is offline: the network is turned off in Settings.")


def _sent(client: httpx2.Client, url: str, headers: Mapping[str, str] | None) -> httpx2.Response:
    """Send a request; returns once the response headers have arrived."""
    try:
        return client.send(client.build_request("GET", url, headers=headers), stream=True)
    except RuntimeError as error:
        if not client.is_closed:
            raise
        raise httpx2.ReadError("the network was closed") from error  # by another thread, just before


def trusted_authorities() -> str:
    """What decides which certificates are trusted, for reports: the number of authorities, or the system itself.

    Doesn't connect. Raises `RefusedError` if there is nothing to trust, because then no connection is possible.
    """
    try:
        context = httpx2.create_ssl_context()
    except OSError as error:
        raise _bad_certificates(error) from error
    if type(context).__module__.startswith("truststore"):
        return "the system's certificate store"
    count = context.cert_store_stats()["x509_ca"] or len(_hashed_certificates())
    if not count:
        raise RefusedError(
            "No root certificates were found, so nothing can be downloaded. Install your system's package "
            "(ca-certificates), or name a file with SSL_CERT_FILE."
        )
    return f"{count} root certificates"


def _hashed_certificates() -> list[str]:
    """The number of certificates in OpenSSL's folders, which it reads only when needed."""
    folders = os.environ.get("SSL_CERT_DIR") or ssl.get_default_verify_paths().openssl_capath
    paths = [Path(folder) for folder in folders.split(os.pathsep) if folder]
    names = {path.name for folder in paths if folder.is_dir() for path in folder.iterdir()}
    return [name for name in names if _HASHED_NAME.fullmatch(name)]


def _bad_certificates(error: OSError) -> RefusedError:
    return RefusedError(
        f"The certificates named by SSL_CERT_FILE or SSL_CERT_DIR can't be used: {error.strerror or error}."
    )


def _endpoint_of(settings: NetworkSettings) -> str:
    text = (settings.endpoint or os.environ.get(ENDPOINT_VARIABLE, "") or HUGGING_FACE).strip().rstrip("/")
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if not url.host or not (url.scheme == "https" or (url.scheme == "http" and _is_loopback(url.host))):
        raise RefusedError(f"The hub's address {printable(text)} isn't safe to use. It must begin with https://.")
    return text


def _is_loopback(host: str) -> bool:
    """Whether this is the machine itself, so that nobody else can read what is sent."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


@dataclass(eq=False)
class _Counted(httpx2.SyncByteStream):
    """A response's content: counted, and ended if it is too long or Slipstream goes offline."""

    stream: httpx2.SyncByteStream
    entry: Traffic
    limit: float
    check_online: Callable[[], None]

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.stream:
            self.check_online()
            self.entry.received += len(chunk)
            if self.entry.received > self.limit:
                raise RefusedError(f"The answer from {printable(self.entry.host)} is too long to be genuine.")
            yield chunk

    def close(self) -> None:
        self.stream.close()


class _HubClient(httpx2.Client):
    """Raises our own errors where ``huggingface_hub`` would retry for minutes while the user is waiting."""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        with translated(request.url.host):
            response = super().send(request, **options)
        if response.status_code == 429 or response.status_code >= 500:
            raise refused(response, str(request.url))
        # A mirror could send endless pages, and its warnings would be logged.
        for name in ("Link", "X-HF-Warning"):
            response.headers.pop(name, None)
        return response


def _plain_length(response: httpx2.Response) -> int | None:
    """The length of unencoded content right after the headers; ``None`` if unknown."""
    length = response.headers.get("Content-Length", "")
    plain = response.http_version == "HTTP/1.1" and "Transfer-Encoding" not in response.headers
    return int(length) if plain and length.isdigit() and "network_stream" in response.extensions else None


# The access token for gated repositories: in the system's keyring, never in a file, a log or another process.

__all__ = ["SERVICE", "TOKEN_VARIABLE", "TokenPlace", "TokenStore", "backend_name"]

TOKEN_VARIABLE = "HF_TOKEN"
TokenPlace = Literal["nowhere", "keyring", "memory", "environment"]


class TokenStore(SecretStore):
    """One access token per hub, such as ``huggingface.co``.

    HF_TOKEN is used if there is no other, and never stored.
    """

    what = "access token"
    _pattern = re.compile(r"[\x21-\x7e]{1,1000}")

    def get(self, name: str) -> str | None:
        """The token for a hub; the keyring is asked once."""
        return super().get(name) or self._from_environment()

    def place(self, host: str) -> TokenPlace:
        """Where the token of `get` comes from."""
        with self._lock:
            token, place = self._own(host)
            return "environment" if token is None and self._from_environment() else place

    def _not_valid(self) -> str:
        return "This isn't an access token. Copy it again from your settings on Hugging Face."

    def _from_environment(self) -> str | None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        return token if self._pattern.fullmatch(token) else None
