"""The content of large files, as fast as the line brings it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpcore2
import httpx2

READ_BYTES = 512 * 1024
_POLL_SECONDS = 0.2


def read_body(
    response: httpx2.Response, check: Callable[[int], None], most: Callable[[], int], stall_seconds: float
) -> Iterator[bytes]:
    """The content of a response, piece by piece as it arrives, but for the first at most ``most`` bytes each.

    ``check`` gets the bytes of each piece, 0 every so often while none comes, and ends everything by raising. A line
    that brings nothing for so long raises `httpx2.ReadTimeout`, one that breaks another `httpx2.TransportError`.

    httpx2 reads 64 KiB at a time through a parser, which is half as fast as the line and the disk. So only the first
    piece comes from there: with it the parser has given out everything it held, and the rest is read from its stream.
    """
    total = _plain_length(response)
    pieces = response.iter_raw()
    for piece in pieces:
        check(len(piece))
        yield piece
        if total is not None:
            total -= len(piece)
            break
    if total is None:
        return
    stream = response.extensions["network_stream"]
    while total > 0:
        piece = _read(stream, min(most(), total), check, stall_seconds)
        if not piece:
            raise httpx2.RemoteProtocolError("the connection ended before the content did")
        total -= len(piece)
        check(len(piece))
        yield piece


def _plain_length(response: httpx2.Response) -> int | None:
    """Bytes of a content that comes as it is, right behind the headers; ``None`` where it does not."""
    length = response.headers.get("Content-Length", "")
    plain = response.http_version == "HTTP/1.1" and "Transfer-Encoding" not in response.headers
    return int(length) if plain and length.isdigit() and "network_stream" in response.extensions else None


def _read(stream: Any, count: int, check: Callable[[int], None], stall_seconds: float) -> bytes:
    deadline = time.monotonic() + stall_seconds
    while True:
        try:
            data: bytes = stream.read(count, timeout=min(_POLL_SECONDS, stall_seconds))
        except httpcore2.ReadTimeout as error:
            check(0)
            if time.monotonic() >= deadline:
                raise httpx2.ReadTimeout("no content came") from error
        except httpcore2.ReadError as error:
            raise httpx2.ReadError(str(error)) from error
        else:
            return data
