"""How much a server may send, and how long it may take. Nothing that comes from a server is trusted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Times are seconds, sizes are bytes."""

    connect: float = 10.0
    probe: float = 5.0
    """For a request that a server answers at once."""
    find: float = 2.0
    """The same for a server on this machine that nobody named."""
    first_answer: float = 3600.0
    """Until anything of an answer comes: a long prompt takes long, and some servers are silent meanwhile."""
    stall: float = 300.0
    """Without a byte in the middle of an answer."""
    poll: float = 0.5
    """Between two questions whether a model is loaded."""
    line: int = 16 * 1024 * 1024
    answer: int = 256 * 1024 * 1024
    """All of a streamed answer."""
    body: int = 16 * 1024 * 1024
    """Of any other answer."""
    error: int = 64 * 1024
    """What is read of an error's explanation."""
