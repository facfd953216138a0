"""What goes wrong with the hub and the way to it. Without httpx2, so that the window may know it."""

from __future__ import annotations

from app.errors import KnownError
from app.models.text import printable


class RefusedError(KnownError):
    """A rule of Slipstream's forbids a request; trying again does not help."""


class OfflineError(RefusedError):
    """The user switched the network off."""


class UnreachableError(KnownError):
    """The network failed; trying again may help."""


class NotFoundError(KnownError):
    """There is no such repository, version or file, or it is hidden from this user."""


class NoAccessError(KnownError):
    """The hub does not let this user in."""

    def __init__(self, message: str, page: str) -> None:
        """``page`` is where the user can do something about it."""
        super().__init__(message)
        self.page = page


class TokenError(NoAccessError):
    """The hub does not know the access token."""


class GatedError(NoAccessError):
    """A repository's terms must be accepted first, on its page."""

    def __init__(self, repository: str, page: str, *, token_sent: bool) -> None:
        super().__init__(
            f"{printable(repository)} is gated, and your access token does not open it. Accept its terms on its page; "
            "some owners then decide by hand."
            if token_sent
            else f"{printable(repository)} is gated: accept its terms on its page first, then give Slipstream an "
            "access token.",
            page,
        )
        self.repository = repository
        self.token_sent = token_sent
