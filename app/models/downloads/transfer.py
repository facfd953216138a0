"""One file from the hub to its place on disk: resumed, repeated, checked, and only then given its name.

Every request is pinned to the file's commit, and the checksum known before the first byte decides in the end.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from app.errors import KnownError
from app.models.downloads.answers import NoRangesError, check_answer, etag, file_url, is_known_content
from app.models.downloads.cancellation import Cancellation
from app.models.downloads.disk import RESERVE_BYTES, check_space, free_bytes, write_failure
from app.models.downloads.failures import Backoff, DiskFullError, RetryLaterError, WrongContentError
from app.models.downloads.part import Part, discard
from app.models.downloads.rate import RateLimiter
from app.models.gguf import ModelFileError, read_header
from app.models.hub.errors import OfflineError, UnreachableError
from app.models.hub.network import Network
from app.models.hub.repository import RemoteFile
from app.models.origins import Origin, Origins
from app.models.text import printable, size_text
from app.storage.hashing import sha256_of

_CHECK_SPACE_EVERY = 16 * 1024 * 1024
_log = logging.getLogger(__name__)


class Transfer:
    """The download of one file. `run` blocks; the other attributes can be read from any thread meanwhile."""

    def __init__(
        self,
        network: Network,
        file: RemoteFile,
        destination: Path,
        *,
        origins: Origins,
        licence: str = "",
        cancellation: Cancellation | None = None,
        limiter: RateLimiter | None = None,
        backoff: Backoff | None = None,
        reserve: int = RESERVE_BYTES,
        on_bytes: Callable[[int], None] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_bytes`` gets what came from the network, ``on_change`` is called when anything below changed."""
        self.file = file
        self.destination = destination
        self.done = 0
        """Bytes on disk."""
        self.failures = 0
        """In a row, without a byte between them."""
        self.retry_at: float | None = None
        """When it is tried again, by `time.monotonic`."""
        self.message = ""
        """Why it waits."""
        self.notice = ""
        """Why it began again, if it did."""
        self.checking = False
        """Whether it is complete and its content is being checked."""
        self._network = network
        self._origins = origins
        self._licence = licence
        self._cancellation = cancellation or Cancellation()
        self._limiter = limiter or RateLimiter()
        self._backoff = backoff or Backoff()
        self._reserve = reserve
        self._on_bytes = on_bytes
        self._on_change = on_change
        self._ranges = True
        self._refusals = 0

    def cancel(self) -> None:
        """End it soon; what came stays for the next time."""
        self._cancellation.cancel()

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled, so that how it ended says nothing."""
        return self._cancellation.is_cancelled()

    def run(self) -> None:
        """Come back when the file is at its destination.

        Waits for the network as long as it takes. Raises `Cancelled` after `cancel`; `DiskFullError`,
        `NoAccessError` or another `KnownError` when waiting does not help. What came stays for the next time.
        """
        try:
            if self.destination.exists():
                self._check_existing()
                with contextlib.suppress(KnownError):  # another process works at it
                    discard(self.destination)  # what a process that was killed at the end left beside it
            else:
                with Part(self.destination, self.file) as part:
                    self._fill(part)
                    self._check_model(part)
                    part.complete()
        except OSError as error:
            raise write_failure(error, self.destination, self.file.size) from error
        self._save_origin()
        self._changed(done=self.file.size)

    # --- until it is whole

    def _fill(self, part: Part) -> None:
        self._changed(done=part.size)
        part.hash_what_is_there(self._cancellation.check)
        began_again = False
        while True:
            try:
                self._finish(part)
                return
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
                self._tell(f"{error} It is fetched again from the start.")

    def _finish(self, part: Part) -> None:
        if part.size < self.file.size:
            self._request(part)
        self.checking = True
        self._on_change()
        try:
            digest = part.sha256()
        finally:
            self.checking = False
        if digest != self.file.sha256:
            raise WrongContentError(
                f"{self._name} did not arrive as it is on the hub (its SHA-256 is another), and is not kept."
            )

    def _request(self, part: Part) -> None:
        """Ask for what is missing and write what comes. Comes back when all of it is there."""
        self._cancellation.check()
        endpoint = self._network.endpoint
        start = part.size if self._ranges else 0
        check_space(part.path.parent, self.file.size - part.size, self._reserve)
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._network.stream(file_url(endpoint, self.file), purpose="download", headers=headers) as response:
            begins = check_answer(response, self.file, endpoint, start)
            self._compare_etag(part, etag(response), known=is_known_content(response, self.file))
            skip = part.size - begins
            if skip < 0:
                raise RetryLaterError(self.notice)
            for data in self._network.read_body(response, self._received, self._limiter.piece):
                skip = self._add(part, data, skip)
        if part.size < self.file.size:
            raise RetryLaterError(f"The connection ended before {self._name} did.")

    def _add(self, part: Part, data: bytes, skip: int) -> int:
        """Write ``data`` but its first ``skip`` bytes, which are there already; what is left to skip."""
        fresh = data[skip:] if skip else data
        if fresh:
            if part.size + len(fresh) > self.file.size:
                raise WrongContentError(f"{self._name} is longer than the hub said.")
            if part.size // _CHECK_SPACE_EVERY != (part.size + len(fresh)) // _CHECK_SPACE_EVERY:
                self._check_space(part)
            part.write(fresh)
            self.failures = self._refusals = 0
            self._ranges = True
            self._changed(done=part.size, clear=True)
        self._limiter.take(len(data), self._pause)
        return max(0, skip - len(data))

    def _received(self, count: int) -> None:
        self._cancellation.check()
        if count:
            self._on_bytes(count)
        else:
            self._on_change()

    def _pause(self, seconds: float) -> None:
        self._cancellation.wait(seconds)
        self._on_change()

    def _compare_etag(self, part: Part, name: str, *, known: bool) -> None:
        """Whether what comes can be put behind what is there: the same content at the server, or our checksum."""
        if part.size and part.etag and name and name != part.etag and not known:
            part.restart()
            self._changed(done=0)
            self._tell(f"{self._name} has changed at its server, so it is fetched again from the start.")
        if name:
            part.remember_etag(name)

    def _check_space(self, part: Part) -> None:
        free, left = free_bytes(part.path.parent), self.file.size - part.size
        if free < self._reserve:
            raise DiskFullError(
                f"The disk is almost full: {size_text(free)} are free, and {size_text(left)} of {self._name} are "
                "still to come. Make room, then press Resume."
            )

    # --- when it does not go on

    def _wait(self, error: RetryLaterError) -> None:
        self._cancellation.check()
        self.failures += 1
        self._refusals += error.tries is not None
        if error.tries is not None and self._refusals >= error.tries:
            raise KnownError(str(error)) from error
        seconds = self._backoff.seconds(self.failures, error.after)
        self.retry_at = time.monotonic() + seconds
        self.message = str(error)
        _log.info("%s: %s", self._name, self.message)
        self._on_change()
        self._cancellation.wait(seconds)
        self.retry_at = None
        self._on_change()

    def _tell(self, notice: str) -> None:
        _log.info("%s: %s", self._name, notice)
        self.notice = notice
        self._on_change()

    def _changed(self, *, done: int, clear: bool = False) -> None:
        self.done = done
        if clear:
            self.message = ""
        self._on_change()

    # --- when it is there

    def _check_existing(self) -> None:
        """A file of this name is there: it is this one, or it stays as it is."""
        self.checking = True
        self._on_change()
        try:
            if self.destination.stat().st_size == self.file.size:
                digest = sha256_of(self.destination, self._cancellation.is_cancelled)
                if digest == self.file.sha256:
                    return
        finally:
            self.checking = False
        raise KnownError(
            f"{printable(str(self.destination), 300)} is there already and is another file. "
            "Move or delete it, then press Resume."
        )

    def _check_model(self, part: Part) -> None:
        if not self.file.path.lower().endswith(".gguf"):
            return
        try:
            read_header(part.path)
        except ModelFileError as error:
            raise KnownError(
                f"{self._name} arrived as it is on the hub, but is no model Slipstream can use: {error.problem}"
            ) from error

    def _save_origin(self) -> None:
        file = self.file
        origin = Origin(
            repository=file.repository,
            commit=file.commit,
            path=file.path,
            sha256=file.sha256,
            size=file.size,
            licence=self._licence,
            downloaded_at=int(time.time()),
        )
        try:
            self._origins.put(self.destination, origin)
        except KnownError as error:
            _log.warning("%s", error)  # the file itself is there and sound

    @property
    def _name(self) -> str:
        return printable(self.file.path.rsplit("/", 1)[-1])
