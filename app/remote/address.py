"""Addresses of servers, as people type them."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from dataclasses import dataclass

import httpx2

from app.models.text import printable
from app.protocol.remote import MAX_ADDRESS_CHARACTERS
from app.remote.failures import RemoteError

_HOST = re.compile(r"[^\s%/\\@]+")
_MOST_PORTS = 65_536
_ENDINGS = ("/chat/completions", "/completions", "/models", "/v1")
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class Address:
    """Where a server is."""

    root: str
    """Scheme, host, port and what comes before ``/v1``, without a slash at the end."""
    host: str
    """For sentences, with the port."""
    is_loopback: bool
    is_encrypted: bool


def parse(typed: str) -> Address:
    """The address that someone typed. Raises `RemoteError` for what can't be one."""
    url = _url(typed)
    path = url.path.rstrip("/")
    for ending in _ENDINGS:
        path = path.removesuffix(ending).rstrip("/")
    named = url.raw_host.decode("ascii")  # in the form that is looked up, so that no letter passes for another
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
    """Whether this is a name or an address of this machine; a name may still lead elsewhere."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def origin(url: httpx2.URL) -> tuple[str, str, int]:
    """Scheme, host and port: what a key may be sent to."""
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)
