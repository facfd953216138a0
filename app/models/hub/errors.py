"""What can go wrong with the hub and the network. Doesn't need httpx2, so that the window can import it."""

from __future__ import annotations

from app.system import KnownError


class RefusedError(KnownError):
    """A rule of Slipstream's forbids a request; trying again doesn't help."""


class OfflineError(RefusedError):
    """The user switched the network off."""


class UnreachableError(KnownError):
    """The network failed; trying again may help."""


class NotFoundError(KnownError):
    """There is no such repository, version or file, or it is hidden from this user."""


class NoAccessError(KnownError):
    """The hub denies this user access: it doesn't know the token, or a repository's terms must be accepted first."""

    def __init__(self, message: str, page: str) -> None:
        """``page`` is where the user can do something about it."""
        super().__init__(message)
        self.page = page
