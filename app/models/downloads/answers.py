"""The meaning of a server's answer to the request for a file."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from app.errors import KnownError
from app.models.hub.refusals import refused
from app.models.hub.repository import RemoteFile
from app.models.text import is_sha256, printable, whole_number

if TYPE_CHECKING:
    import httpx2

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)
_HOPELESS_TRIES = 6


class RetryLaterError(KnownError):
    """It may work later."""

    def __init__(self, message: str, *, after: float | None = None, tries: int | None = None) -> None:
        """``after``: seconds the server asks us to wait; ``tries``: the number of failures in a row after which it is
        hopeless.
        """
        super().__init__(message)
        self.after = after
        self.tries = tries


class NoRangesError(RetryLaterError):
    """The server can't send a file from its middle, but perhaps all of it."""


def file_url(endpoint: str, file: RemoteFile) -> str:
    """Where the hub provides a file, pinned to its commit."""
    return f"{endpoint}/{quote(file.repository)}/resolve/{quote(file.commit, safe='')}/{quote(file.path)}"


def check_answer(response: httpx2.Response, file: RemoteFile, endpoint: str, start: int) -> int:
    """The position in the file at which this answer's content begins, after ``start`` was requested.

    Raises `NoAccessError`, `RetryLaterError` or another `KnownError` if it isn't the file's content.
    """
    _check_linked(response, file)
    if response.status_code == 206:
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != start:
            raise NoRangesError(
                f"{_host(response)} sent a different part of {_name(file)} than was requested.", tries=3
            )
        if match[3] != "*" and int(match[3]) != file.size:
            raise _wrong_size(file, int(match[3]))
        return start
    if response.status_code == 200:
        length = whole_number(response.headers.get("Content-Length", ""))
        if length is not None and length != file.size:
            raise _wrong_size(file, length)
        if response.headers.get("Content-Type", "").startswith("text/html"):
            raise RetryLaterError(f"{_host(response)} sent a web page instead of {_name(file)}.", tries=3)
        return 0
    raise _failure(response, file, endpoint)


def is_known_content(response: httpx2.Response, file: RemoteFile) -> bool:
    """Whether the hub itself says that this answer's content has our checksum."""
    return _linked(response, "X-Linked-ETag") == file.sha256


def etag(response: httpx2.Response) -> str:
    """The name that the sending server gives the content, for comparison."""
    value: str = response.headers.get("ETag", "")
    return "" if value.startswith("W/") else value.strip('"')


def _check_linked(response: httpx2.Response, file: RemoteFile) -> None:
    size, digest = whole_number(_linked(response, "X-Linked-Size")), _linked(response, "X-Linked-ETag")
    if size is not None and size != file.size:
        raise _wrong_size(file, size)
    if is_sha256(digest) and digest != file.sha256:
        raise KnownError(
            f"{_name(file)} has changed on the hub since it was chosen: its checksum is different. Look the model "
            "up again."
        )


def _linked(response: httpx2.Response, header: str) -> str:
    values = [one.headers[header] for one in (*response.history, response) if header in one.headers]
    return str(values[-1]).strip('"') if values else ""


def _failure(response: httpx2.Response, file: RemoteFile, endpoint: str) -> KnownError:
    status, host = response.status_code, _host(response)
    if status == 416:
        return NoRangesError(f"{host} doesn't have the missing part of {_name(file)}.", tries=3)
    if status in (408, 429) or status >= 500:
        reason = "asks to try again later" if status == 429 else f"has a problem (status {status})"
        return RetryLaterError(f"{host} {reason}.", after=_retry_after(response.headers.get("Retry-After", "")))
    if response.history and not str(response.url).startswith(f"{endpoint}/"):
        # The address came from the hub and is only valid for some time; the next attempt gets a new one.
        return RetryLaterError(f"{host} refuses to send {_name(file)} (status {status}).", tries=_HOPELESS_TRIES)
    return refused(response, endpoint, file.repository)


def _retry_after(value: str) -> float | None:
    """The header Retry-After in seconds: it is a number or a date."""
    if (seconds := whole_number(value.strip())) is not None:
        return float(seconds)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (at - datetime.now(UTC)).total_seconds()) if at.tzinfo is not None else None


def _wrong_size(file: RemoteFile, size: int) -> RetryLaterError:
    # What is on disk stays, because the answer may be the login page of a network in between.
    return RetryLaterError(f"{_name(file)} should be {file.size} bytes long, but the server sends {size}.", tries=3)


def _name(file: RemoteFile) -> str:
    return printable(file.name)


def _host(response: httpx2.Response) -> str:
    return printable(response.url.host)
