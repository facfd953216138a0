"""Access control: hosts, origins, keys, limits, and the errors that are sent instead of a result.

A web page can make its host name resolve to 127.0.0.1 (DNS rebinding) and then read this server's answers; only the
Host header gives it away. Requests from other pages have an Origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app.storage.files import write_whole
from app.system import KnownError

ErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "exceed_context_size_error",
    "rate_limit_error",
    "server_error",
    "not_supported_error",
    "unavailable_error",
]
_STATUS: dict[ErrorType, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "exceed_context_size_error": 400,
    "rate_limit_error": 429,
    "server_error": 500,
    "not_supported_error": 501,
    "unavailable_error": 503,
}


class ApiError(Exception):
    """A request is refused or failed. ``message`` is a sentence for the client, without paths."""

    def __init__(
        self,
        kind: ErrorType,
        message: str,
        *,
        status: int = 0,
        headers: Mapping[str, str] | None = None,
        **details: int,
    ) -> None:
        """``status`` overrides the type's usual one. ``details`` go into the answer, too."""
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status or _STATUS[kind]
        self.headers = dict(headers or {})
        self.details = details

    def body(self) -> dict[str, Any]:
        """The answer's JSON."""
        return {"error": {"code": self.status, "message": self.message, "type": self.kind, **self.details}}


def invalid(message: str) -> ApiError:
    """The error for a request that isn't valid."""
    return ApiError("invalid_request_error", message)


def not_supported(message: str) -> ApiError:
    """The error for a valid request that this server can't carry out."""
    return ApiError("not_supported_error", message)


_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_WEB_ORIGIN = re.compile(r"https?://(?P<host>[^/?#@\s]+)")
_APP_SCHEMES = ("app", "file", "tauri", "vscode-webview", "vscode-file")
"""Apps built from web pages."""
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_ALLOWED_HEADERS = re.compile(
    r"authorization|content-type|accept|x-api-key|x-requested-with|user-agent|anthropic-[a-z-]+|openai-[a-z-]+"
    r"|x-stainless-[a-z-]+"
)
_PREFLIGHT_SECONDS = "600"

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case."""


@dataclass(frozen=True)
class Guard:
    """Who may use the server."""

    key: str | None = None
    """Required of clients; ``None``: any key or none."""
    hosts: Collection[str] = ()
    """Additional names for this computer, in lower case."""
    origins: Collection[str] = ()
    """Additional web origins, in lower case."""

    def check_host(self, headers: Headers, local_address: str) -> None:
        """Raises `ApiError` unless the Host header names this computer. ``local_address``: where it arrived."""
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
        """The headers that let a web page read the answer. Raises `ApiError` for a page without access."""
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
    """The answer's headers for a page with access; ``methods``: the route's."""
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
    """Raises `ApiError` unless the content type is JSON, which a web page's form can't send."""
    values = [value.decode("latin-1") for name, value in headers if name == b"content-type"]
    if len(values) != 1 or values[0].partition(";")[0].strip().lower() != "application/json":
        raise ApiError("invalid_request_error", "The request needs Content-Type: application/json.", status=415)


def is_loopback(host: str) -> bool:
    """Whether an address is only reachable from this computer."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_same_address(name: str, address: str) -> bool:
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False


MAX_WAITING = 8
"""Waiting requests; more get 429."""
MAX_TOKENIZED_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Tests use shorter times. Seconds."""

    header_bytes: int = 64 * 1024
    body_bytes: int = 32 * 1024 * 1024
    read: float = 30.0
    """For the whole request, from its first byte."""
    idle: float = 75.0
    """Between two requests on a connection."""
    write: float = 30.0
    """For a client that isn't reading its answer."""
    ping: float = 10.0
    """Between pings in a silent stream."""
    connections: int = 32
    """Requests on additional connections get 429."""
    refused_connections: int = 128
    """Further connections are closed immediately."""


_KEY = re.compile(r"[!-~]{16,512}")
_MOST_BYTES = 4096


def key_from(path: Path) -> tuple[str, bool]:
    """The key in ``path``, and whether it was just created because the file was missing. Raises `KnownError`."""
    try:
        with path.open("rb") as file:
            _check_mode(path, os.fstat(file.fileno()))
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return _made(path), True
    except OSError as error:
        raise KnownError(f"The key file {path} can't be read: {error.strerror or error}.") from error
    key = data.decode("utf-8", "replace").strip()
    if not _KEY.fullmatch(key):
        raise KnownError(
            f"{path} contains no API key. It has to be one line of 16 to 512 letters, digits and signs without spaces. "
            "Delete the file, and Slipstream makes a new one."
        )
    return key, False


def _made(path: Path) -> str:
    key = secrets.token_urlsafe(32)
    try:
        write_whole(path, f"{key}\n".encode())
    except OSError as error:
        raise KnownError(f"The key file {path} can't be written: {error.strerror or error}.") from error
    return key


def _check_mode(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KnownError(f"The key file {path} isn't a file.")
    if os.name == "posix" and found.st_mode & 0o077:
        raise KnownError(f"Other users can read or change the key file {path}. Run chmod 600 on it.")
