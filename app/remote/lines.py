"""Cuts a streamed answer into the JSON in its lines: server-sent events, and Ollama's own lines without a prefix."""

from __future__ import annotations

from app.remote.failures import RemoteError

DONE = b"[DONE]"
_PREFIXES = (b"data:", b"error:")
"""An older llama-server reports errors in lines of their own."""


class Lines:
    """Fed with pieces that may be cut anywhere, even between CR and LF."""

    def __init__(self, most: int, host: str) -> None:
        """``most`` bytes may be in a line."""
        self._most = most
        self._host = host
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The JSON, or `DONE`, of each line that is complete. Comments (pings) and other fields are left out.

        Raises `RemoteError` for a line that is too long.
        """
        start = len(self._rest)
        self._rest += piece
        end = self._rest.rfind(b"\n", start)
        if end < 0:
            if len(self._rest) > self._most:
                raise RemoteError("not_a_server", f"{self._host} sent a line that is too long to be genuine.")
            return []
        lines = bytes(self._rest[:end]).split(b"\n")
        del self._rest[: end + 1]
        return [found for line in lines if (found := _content(line))]

    def end(self) -> list[bytes]:
        """The last line, if it has no end."""
        found = _content(bytes(self._rest))
        self._rest.clear()
        return [found] if found else []


def _content(line: bytes) -> bytes:
    line = line.strip()
    for prefix in _PREFIXES:
        if line.startswith(prefix):
            return line[len(prefix) :].strip()
    return line if line.startswith(b"{") else b""
