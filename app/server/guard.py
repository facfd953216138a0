"""Who may ask: the checks of a request's headers before anything else is done with it.

A web page can have its host's name point to 127.0.0.1 (DNS rebinding): then it may read what this server answers, and
only the Host header tells. Whatever another page sends has an Origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from app.server.errors import ApiError, invalid

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_WEB_ORIGIN = re.compile(r"https?://(?P<host>[^/?#@\s]+)")
_APP_SCHEMES = ("app", "file", "tauri", "vscode-webview", "vscode-file")
"""Apps that are made of web pages."""
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_ALLOWED_HEADERS = re.compile(
    r"authorization|content-type|accept|x-api-key|x-requested-with|user-agent|anthropic-[a-z-]+|openai-[a-z-]+"
    r"|x-stainless-[a-z-]+",
)
_PREFLIGHT_SECONDS = "600"

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case."""


@dataclass(frozen=True)
class Guard:
    """Who may use one server."""

    key: str | None = None
    """What has to be shown; ``None``: nothing, and whatever is shown will do."""
    hosts: Collection[str] = ()
    """Names for this computer besides the usual ones, in lower case."""
    origins: Collection[str] = ()
    """Web pages besides those of this computer, in lower case."""

    def check_host(self, headers: Headers, local_address: str) -> None:
        """Raises `ApiError` unless the request was meant for this computer. ``local_address``: where it arrived."""
        values = [value.decode("latin-1") for name, value in headers if name == b"host"]
        match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
        if match is None:
            raise invalid("The request needs one valid Host header.")
        if not self._is_our_name(match["name"].lower(), local_address):
            raise ApiError(
                "permission_error",
                "This Host header isn't allowed. Use localhost, 127.0.0.1 or [::1], or allow the name: with slipstream "
                "serve --allow-host, or in Slipstream's settings.",
            )

    def check_origin(self, headers: Headers) -> dict[str, str]:
        """The headers that let a web page read the answer. Raises `ApiError` for a page that may not ask."""
        values = [value.decode("latin-1").strip() for name, value in headers if name == b"origin"]
        if not values:
            return {}
        if len(values) > 1 or not self._is_allowed_origin(values[0].lower()):
            raise ApiError(
                "permission_error",
                "This web page may not use the server. Allow it with slipstream serve --allow-origin, or in "
                "Slipstream's settings.",
            )
        return {"Access-Control-Allow-Origin": values[0], "Vary": "Origin"}

    def check_key(self, headers: Headers) -> None:
        """Raises `ApiError` unless the request has the key."""
        if self.key is None:
            return
        for name, value in headers:
            shown = value.strip()
            if name == b"authorization" and shown[:7].lower() == b"bearer ":
                shown = shown[7:].strip()
            elif name != b"x-api-key":
                continue
            if hmac.compare_digest(shown, self.key.encode()):
                return
        raise ApiError(
            "authentication_error", "The API key is missing or wrong.", headers={"WWW-Authenticate": "Bearer"}
        )

    def _is_our_name(self, name: str, local_address: str) -> bool:
        if name in _LOCAL_NAMES or name.endswith(".localhost") or name in self.hosts:
            return True
        return _is_same_address(name.strip("[]"), local_address)

    def _is_allowed_origin(self, origin: str) -> bool:
        if origin in self.origins:
            return True
        if origin.partition("://")[0] in _APP_SCHEMES and "://" in origin:
            return True
        web = _WEB_ORIGIN.fullmatch(origin)
        host = _HOST.fullmatch(web["host"]) if web else None
        return host is not None and host["name"] in _LOCAL_NAMES


def preflight_headers(headers: Headers, methods: str) -> dict[str, str]:
    """What a browser may send from a page that may ask; ``methods``: those of the route."""
    values: Mapping[bytes, bytes] = dict(headers)
    wanted = values.get(b"access-control-request-headers", b"").decode("latin-1").lower()
    names = [name for part in wanted.split(",") if _ALLOWED_HEADERS.fullmatch(name := part.strip())]
    answer = {
        "Access-Control-Allow-Methods": f"{methods}, OPTIONS",
        "Access-Control-Allow-Headers": ", ".join(names) or "content-type",
        "Access-Control-Max-Age": _PREFLIGHT_SECONDS,
    }
    if values.get(b"access-control-request-private-network") == b"true":
        answer["Access-Control-Allow-Private-Network"] = "true"
    return answer


def check_json(headers: Headers) -> None:
    """Raises `ApiError` unless the body is said to be JSON, which no form of a web page can say."""
    values = [value.decode("latin-1") for name, value in headers if name == b"content-type"]
    if len(values) != 1 or values[0].partition(";")[0].strip().lower() != "application/json":
        raise ApiError("invalid_request_error", "The request needs Content-Type: application/json.", status=415)


def is_loopback(host: str) -> bool:
    """Whether only this computer reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_same_address(name: str, address: str) -> bool:
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
