"""Errors of the hub and the network. Separate, so that the window can import them without httpx2."""

from __future__ import annotations

from app.system import KnownError


class RefusedError(KnownError):
    """A rule of Slipstream forbids the request; trying again doesn't help."""


class OfflineError(RefusedError):
    """The user switched the network off."""


class UnreachableError(KnownError):
    """The network failed; trying again may help."""


class NotFoundError(KnownError):
    """The repository, version or file doesn't exist, or is hidden from this user."""


class NoAccessError(KnownError):
    """The hub denies access: it doesn't know the token, or a repository's terms must be accepted first."""

    def __init__(self, message: str, page: str) -> None:
        """``page``: where the user can do something about it."""
        super().__init__(message)
        self.page = page
