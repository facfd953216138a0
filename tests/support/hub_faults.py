"""What `HubServer` does wrong on demand."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Literal

Place = Literal["api", "resolve", "body"]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One misbehavior of one answer. What is not set is done right; positions are bytes of the file."""

    status: int | None = None
    """Answer with this status and no content."""
    headers: tuple[tuple[str, str], ...] = ()
    """In place of the right ones, or besides them; an empty value leaves the header out."""
    redirect: str | None = None
    """Send the client there."""
    cut_at: int | None = None
    """Close the connection when this position is reached."""
    stall_at: int | None = None
    """Send nothing from this position on, until `HubServer.release`; of an answer of the API, nothing at all."""
    ignore_range: bool = False
    """Answer 200 with everything."""
    content: bytes | None = None
    """Send this in place of the file; sizes and checksums follow it only in the headers of the body."""
    bytes_per_second: int | None = None
    """A slow line, in pieces of `PIECE`."""


PIECE = 64 * 1024


class Faults:
    """Faults by path, used up one after another; those added for ever stay when the others are used up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._once: dict[tuple[Place, str], deque[Fault]] = {}
        self._always: dict[tuple[Place, str], Fault] = {}

    def add(self, path: str, *faults: Fault, at: Place = "body") -> None:
        """Do these for the next requests of a path.

        ``path`` is the file's path in its repository, or the path of the URL for the API. ``resolve`` is where the
        hub itself is asked for a file; ``body`` is where its content comes from.
        """
        with self._lock:
            self._once.setdefault((at, path), deque()).extend(faults)

    def always(self, path: str, fault: Fault, *, at: Place = "body") -> None:
        """Do this for all requests of a path from now on."""
        with self._lock:
            self._always[at, path] = fault

    def clear(self) -> None:
        """Behave from now on."""
        with self._lock:
            self._once.clear()
            self._always.clear()

    def take(self, path: str, at: Place) -> Fault:
        """The fault for this request; one without any effect if there is none."""
        with self._lock:
            waiting = self._once.get((at, path))
            return waiting.popleft() if waiting else self._always.get((at, path), Fault())
