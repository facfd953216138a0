"""How a download can fail, and which of it passes by itself."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from app.errors import KnownError
from app.models.text import whole_number

LONGEST_WAIT_SECONDS = 3600.0
_FIRST_SECONDS = 1.0
_CAP_SECONDS = 60.0


class RetryLaterError(KnownError):
    """It may work later."""

    def __init__(self, message: str, *, after: float | None = None, tries: int | None = None) -> None:
        """``after``: seconds the server asks for; ``tries``: failures in a row after which it is hopeless."""
        super().__init__(message)
        self.after = after
        self.tries = tries


class WrongContentError(KnownError):
    """What came is not the file; what is on disk of it is worth nothing."""


class DiskFullError(KnownError):
    """There is no room; it can go on when the user has made some."""


class Backoff:
    """How long to wait after failures: doubling, a minute at most, and never all clients at the same moment."""

    def __init__(self, first_seconds: float = _FIRST_SECONDS, cap_seconds: float = _CAP_SECONDS) -> None:
        self._first_seconds = first_seconds
        self._cap_seconds = cap_seconds

    def seconds(self, failures: int, asked_for: float | None = None) -> float:
        """After so many failures in a row, from 1; not sooner than the server asked for."""
        doubled: float = min(self._cap_seconds, self._first_seconds * 2.0 ** min(failures - 1, 30))
        return max(doubled * random.uniform(0.5, 1.0), min(asked_for or 0.0, LONGEST_WAIT_SECONDS))


def retry_after(value: str | None) -> float | None:
    """The header Retry-After in seconds: it is a number or a date."""
    if value is None:
        return None
    if (seconds := whole_number(value.strip())) is not None:
        return float(seconds)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (at - datetime.now(UTC)).total_seconds()) if at.tzinfo is not None else None
