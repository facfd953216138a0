"""Downloads one file from the hub: resumed, retried, verified, and only then renamed.

Every request is pinned to the file's commit, and the file must match a checksum known before the first byte.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from app import words
from app.models.downloads.part import RESERVE_BYTES, DiskFullError, Part, check_space, discard, free_bytes, writing
from app.models.gguf import ModelFileError, read_header
from app.models.hub.network import Network, refused, whole_number
from app.models.hub.repository import OfflineError, RemoteFile, UnreachableError, file_url
from app.models.origins import Origin, Origins
from app.storage.files import is_sha256, sha256_of
from app.system import Canceled, KnownError
from app.words import printable

if TYPE_CHECKING:
    import httpx2

_CHECK_SPACE_EVERY = 16 * 1024 * 1024
_LONGEST_WAIT_SECONDS = 3600.0
_log = logging.getLogger(__name__)
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)
_HOPELESS_TRIES = 6


class WrongContentError(KnownError):
    """The content isn't the file's; what is on disk of it is useless."""


@dataclass(frozen=True)
class Backoff:
    """Delays between attempts: doubling up to a minute, with jitter."""

    first_seconds: float = 1.0
    cap_seconds: float = 60.0

    def seconds(self, failures: int, asked_for: float | None = None) -> float:
        """The delay after this many failures in a row, from 1; at least what the server asks for."""
        doubled: float = min(self.cap_seconds, self.first_seconds * 2.0 ** min(failures - 1, 30))
        return max(doubled * random.uniform(0.5, 1.0), min(asked_for or 0.0, _LONGEST_WAIT_SECONDS))


@dataclass(eq=False)
class Transfer:
    """The download of one file. `run` blocks; everything else can be read from any thread meanwhile."""

    network: Network
    file: RemoteFile
    destination: Path
    _: KW_ONLY
    origins: Origins
    license: str = ""
    backoff: Backoff = Backoff()
    reserve: int = RESERVE_BYTES
    on_bytes: Callable[[int], None] = lambda _: None
    """Called with the number of bytes received from the network."""
    on_change: Callable[[], None] = lambda: None
    """Called when anything below changes."""
    done: int = 0
    """Bytes on disk."""
    failures: int = 0
    """Consecutive failures without a byte in between."""
    retry_at: float | None = None
    """Time of the next attempt, by `time.monotonic`."""
    message: str = ""
    """Why it is waiting."""
    notice: str = ""
    """Why it started over, if it did."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set it to end the transfer soon. What has arrived is kept; ignore how the transfer ends."""
    _ranges: bool = field(default=True, init=False)
    _refusals: int = field(default=0, init=False)

    def run(self) -> None:
        """Return when the file is at its destination.

        Waits for the network as long as it takes. Raises `Canceled` if told to stop; `DiskFullError`, `NoAccessError`
        or another `KnownError` if waiting doesn't help. What has arrived is kept.
        """
        with writing(self.destination, self.file.size):
            if self.destination.exists():
                self._check_existing()
                with contextlib.suppress(KnownError):  # another process is downloading it
                    discard(self.destination)  # left by a process that was killed at the end
            else:
                with Part(self.destination, self.file) as part:
                    self._fill(part)
                    self._check_model(part)
                    part.complete()
        self._save_origin()
        self._changed(done=self.file.size)

    # --- until it is complete

    def _fill(self, part: Part) -> None:
        self._changed(done=part.size)
        part.hash_existing(self._check_canceled)
        began_again = False
        while True:
            try:
                if part.size < self.file.size:
                    self._request(part)
                if part.sha256() == self.file.sha256:
                    return
                raise WrongContentError(
                    f"{self._name} doesn't match the checksum on the hub (SHA-256), so it isn't kept."
                )
            except (OfflineError, UnreachableError) as error:
                self._wait(RetryLaterError(str(error)))
            except RetryLaterError as error:
                self._ranges = self._ranges and not isinstance(error, NoRangesError)
                self._wait(error)
            except WrongContentError as error:
                part.restart()
                self._changed(done=0)
                if began_again:
                    raise
                began_again = True
                self._tell(f"{error} The download starts over.")

    def _request(self, part: Part) -> None:
        """Request what is missing and write what arrives. Returns when the file is complete."""
        self._check_canceled()
        endpoint = self.network.endpoint
        start = part.size if self._ranges else 0
        check_space(part.path.parent, self.file.size - part.size, self.reserve)
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self.network.stream(file_url(endpoint, self.file), purpose="download", headers=headers) as response:
            begins = check_answer(response, self.file, endpoint, start)
            self._compare_etag(part, etag(response), known=is_known_content(response, self.file))
            skip = part.size - begins
            if skip < 0:
                raise RetryLaterError(self.notice)
            for data in self.network.read_body(response, self._received):
                skip = self._add(part, data, skip)
        if part.size < self.file.size:
            raise RetryLaterError(f"The connection was closed before {self._name} was complete.")

    def _add(self, part: Part, data: bytes, skip: int) -> int:
        """Write ``data`` without its first ``skip`` bytes, which exist already; returns how many are still to be
        skipped.
        """
        fresh = data[skip:] if skip else data
        if fresh:
            if part.size + len(fresh) > self.file.size:
                raise WrongContentError(f"{self._name} is larger than the hub said.")
            if part.size // _CHECK_SPACE_EVERY != (part.size + len(fresh)) // _CHECK_SPACE_EVERY:
                self._check_space(part)
            part.write(fresh)
            self.failures = self._refusals = 0
            self._ranges = True
            self.message = ""
            self._changed(done=part.size)
        return max(0, skip - len(data))

    def _received(self, count: int) -> None:
        self._check_canceled()
        if count:
            self.on_bytes(count)
        else:
            self.on_change()

    def _check_canceled(self) -> None:
        if self.cancelled.is_set():
            raise Canceled

    def _compare_etag(self, part: Part, name: str, *, known: bool) -> None:
        """Check that the content can be appended: the server says it is the same, or it has our checksum."""
        if part.size and part.etag and name and name != part.etag and not known:
            part.restart()
            self._changed(done=0)
            self._tell(f"{self._name} has changed on its server, so the download starts over.")
        if name:
            part.remember_etag(name)

    def _check_space(self, part: Part) -> None:
        free, left = free_bytes(part.path.parent), self.file.size - part.size
        if free < self.reserve:
            raise DiskFullError(
                f"The disk is almost full: only {words.size(free)} is free, and {words.size(left)} of {self._name} is "
                "still to be downloaded. Free up some space, then press Resume."
            )

    # --- when it fails

    def _wait(self, error: RetryLaterError) -> None:
        self._check_canceled()
        self.failures += 1
        self._refusals += error.tries is not None
        if error.tries is not None and self._refusals >= error.tries:
            raise KnownError(str(error)) from error
        seconds = self.backoff.seconds(self.failures, error.after)
        self.retry_at = time.monotonic() + seconds
        self.message = str(error)
        _log.info("%s: %s", self._name, self.message)
        self.on_change()
        if self.cancelled.wait(seconds):
            raise Canceled
        self.retry_at = None
        self.on_change()

    def _tell(self, notice: str) -> None:
        _log.info("%s: %s", self._name, notice)
        self.notice = notice
        self.on_change()

    def _changed(self, *, done: int) -> None:
        self.done = done
        self.on_change()

    # --- when it is complete

    def _check_existing(self) -> None:
        """The destination exists: accept it if it is the same file, otherwise leave it alone."""
        is_other = self.destination.stat().st_size != self.file.size
        if is_other or sha256_of(self.destination, self.cancelled.is_set) != self.file.sha256:
            raise KnownError(
                f"{printable(str(self.destination), 300)} already exists and is a different file. Move or delete "
                "it, then press Resume."
            )

    def _check_model(self, part: Part) -> None:
        if not self.file.path.lower().endswith(".gguf"):
            return
        try:
            read_header(part.path)
        except ModelFileError as error:
            raise KnownError(
                f"{self._name} was downloaded correctly, but Slipstream can't use this model: {error.problem}"
            ) from error

    def _save_origin(self) -> None:
        where = msgspec.structs.asdict(self.file)
        origin = Origin(**where, license=self.license, downloaded_at=int(time.time()))
        try:
            self.origins.put(self.destination, origin)
        except KnownError as error:
            _log.warning("%s", error)  # the file itself is there and intact

    @property
    def _name(self) -> str:
        return printable(self.file.name)


class RetryLaterError(KnownError):
    """Trying again later may work."""

    def __init__(self, message: str, *, after: float | None = None, tries: int | None = None) -> None:
        """``after``: the delay in seconds that the server asks for; ``tries``: give up after this many failures in a
        row.
        """
        super().__init__(message)
        self.after = after
        self.tries = tries


class NoRangesError(RetryLaterError):
    """The server can't send part of the file, but perhaps all of it."""


def check_answer(response: httpx2.Response, file: RemoteFile, endpoint: str, start: int) -> int:
    """The file position at which this response's content begins, after ``start`` was requested.

    Raises `NoAccessError`, `RetryLaterError` or another `KnownError` if it isn't the file's content.
    """
    _check_linked(response, file)
    if response.status_code == 206:
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != start:
            raise NoRangesError(
                f"{_host(response)} sent a different part of {_name_of(file)} than was requested.", tries=3
            )
        if match[3] != "*" and int(match[3]) != file.size:
            raise _wrong_size(file, int(match[3]))
        return start
    if response.status_code == 200:
        length = whole_number(response.headers.get("Content-Length", ""))
        if length is not None and length != file.size:
            raise _wrong_size(file, length)
        if response.headers.get("Content-Type", "").startswith("text/html"):
            raise RetryLaterError(f"{_host(response)} sent a web page instead of {_name_of(file)}.", tries=3)
        return 0
    raise _failure(response, file, endpoint)


def is_known_content(response: httpx2.Response, file: RemoteFile) -> bool:
    """Whether the hub itself says that this response's content has our checksum."""
    return _linked(response, "X-Linked-ETag") == file.sha256


def etag(response: httpx2.Response) -> str:
    """The sending server's ETag, for comparison."""
    value: str = response.headers.get("ETag", "")
    return "" if value.startswith("W/") else value.strip('"')


def _check_linked(response: httpx2.Response, file: RemoteFile) -> None:
    size, digest = whole_number(_linked(response, "X-Linked-Size")), _linked(response, "X-Linked-ETag")
    if size is not None and size != file.size:
        raise _wrong_size(file, size)
    if is_sha256(digest) and digest != file.sha256:
        raise KnownError(
            f"{_name_of(file)} has changed on the hub since it was chosen: its checksum is different. Look the model "
            "up again."
        )


def _linked(response: httpx2.Response, header: str) -> str:
    values = [one.headers[header] for one in (*response.history, response) if header in one.headers]
    return str(values[-1]).strip('"') if values else ""


def _failure(response: httpx2.Response, file: RemoteFile, endpoint: str) -> KnownError:
    status, host = response.status_code, _host(response)
    if status == 416:
        return NoRangesError(f"{host} doesn't have the missing part of {_name_of(file)}.", tries=3)
    if status in (408, 429) or status >= 500:
        reason = "asks to try again later" if status == 429 else f"has a problem (status {status})"
        return RetryLaterError(f"{host} {reason}.", after=_retry_after(response.headers.get("Retry-After", "")))
    if response.history and not str(response.url).startswith(f"{endpoint}/"):
        # The address came from the hub and expires; the next attempt gets a new one.
        return RetryLaterError(f"{host} refuses to send {_name_of(file)} (status {status}).", tries=_HOPELESS_TRIES)
    return refused(response, endpoint, file.repository)


def _retry_after(value: str) -> float | None:
    """The Retry-After header in seconds; it may be a number or a date."""
    if (seconds := whole_number(value.strip())) is not None:
        return float(seconds)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (at - datetime.now(UTC)).total_seconds()) if at.tzinfo is not None else None


def _wrong_size(file: RemoteFile, size: int) -> RetryLaterError:
    # Keeps what is on disk: the response may be the login page of a network in between.
    return RetryLaterError(f"{_name_of(file)} should be {file.size} bytes long, but the server sends {size}.", tries=3)


def _name_of(file: RemoteFile) -> str:
    return printable(file.name)


def _host(response: httpx2.Response) -> str:
    return printable(response.url.host)
