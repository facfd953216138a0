"""What one client may take of the server. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass

MAX_WAITING = 8
"""Requests that wait while another one is answered; more get 429."""
MAX_TOKENIZED_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Limits:
    """The defaults are what is served with; tests have shorter times."""

    header_bytes: int = 64 * 1024
    body_bytes: int = 32 * 1024 * 1024
    read: float = 30.0
    """For the whole request, from its first byte on."""
    idle: float = 75.0
    """Between two requests of a connection."""
    write: float = 30.0
    """For a client that doesn't read its answer."""
    ping: float = 10.0
    """Between two comments in a stream that has nothing to say yet."""
    connections: int = 32
    """Of those that are more, each gets 429 to its request."""
    refused_connections: int = 128
    """More than these are closed at once."""
