"""What is answered instead of a result, with llama-server's types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
    """A request that isn't carried out. ``message`` goes to the client: a sentence, without paths."""

    def __init__(
        self,
        kind: ErrorType,
        message: str,
        *,
        status: int = 0,
        headers: Mapping[str, str] | None = None,
        **details: int,
    ) -> None:
        """``status``: where it isn't the usual one of this type. ``details`` go into the answer, too."""
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
    """A request that makes no sense."""
    return ApiError("invalid_request_error", message)


def not_supported(message: str) -> ApiError:
    """A request that makes sense, but not to this server."""
    return ApiError("not_supported_error", message)
